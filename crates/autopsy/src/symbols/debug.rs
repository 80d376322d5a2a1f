//! Inlined calls, files and lines from DWARF.

use addr2line::Context;
use gimli::{EndianSlice, LittleEndian, SectionId};
use object::{CompressionFormat, Object as _, ObjectSection as _};

use super::{Answer, Call, separate};
use crate::image::{Elf, Image};
use crate::scene::Scene;
use crate::snapshot::Limits;
use crate::text::bounded;

/// Calls inlined into one address; deeper is an attack.
const MAX_INLINED: usize = 128;

type Dwarf<'data> = gimli::Dwarf<EndianSlice<'data, LittleEndian>>;

/// Asks the image's own debug information, where it has any of bearable size.
pub(super) fn fill(
    image: &Image,
    addresses: &[u64],
    answers: &mut [Answer],
    scene: &Scene<'_>,
    limits: &Limits,
) {
    let Some(elf) = image.elf() else { return };
    let size = debug_size(&elf);
    if size == 0 {
        return;
    }
    if size > limits.max_debug_bytes {
        scene.note(format!(
            "debug information of {} MB was not read: too large",
            size >> 20
        ));
        return;
    }
    let sections = Sections::load(&elf, limits);
    let shared = separate::shared_part(&elf);
    let shared_elf = shared.as_ref().and_then(Image::elf);
    let shared_sections = shared_elf.map(|elf| Sections::load(&elf, limits));
    let mut dwarf = sections.dwarf();
    if let Some(sections) = &shared_sections {
        dwarf.set_sup(sections.dwarf());
    }
    let Ok(context) = Context::from_dwarf(dwarf) else {
        scene.note("broken debug information was left out".to_owned());
        return;
    };
    for (answer, address) in answers.iter_mut().zip(addresses) {
        if answer.calls.is_empty() && !scene.is_overdue() {
            answer.calls = calls(&context, *address);
        }
    }
}

fn debug_size(elf: &Elf<'_>) -> u64 {
    let sizes = elf
        .sections()
        .filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug_")))
        .map(|section| section.size());
    if elf.section_by_name(".debug_info").is_none() {
        return 0;
    }
    sizes.fold(0, u64::saturating_add)
}

fn calls(context: &Context<EndianSlice<'_, LittleEndian>>, address: u64) -> Vec<Call> {
    let mut calls = Vec::new();
    let Ok(mut frames) = context.find_frames(address).skip_all_loads() else {
        return calls;
    };
    while let Ok(Some(frame)) = frames.next() {
        if calls.len() >= MAX_INLINED {
            break;
        }
        let name = frame
            .function
            .as_ref()
            .and_then(|function| function.raw_name().ok().map(|name| bounded(name.as_bytes())));
        let location = frame.location.as_ref();
        calls.push(Call {
            name,
            file: location
                .and_then(|place| place.file)
                .map(|file| bounded(file.as_bytes())),
            line: location.and_then(|place| place.line),
        });
    }
    calls.retain(|call| call.name.is_some() || call.file.is_some());
    calls
}

/// Decompressed copies live here; everything else is borrowed from the mapped file.
struct Sections<'data> {
    borrowed: Vec<(SectionId, &'data [u8])>,
    owned: Vec<(SectionId, Vec<u8>)>,
}

/// What names and lines need. Locations of variables are as large again, and nobody asks for them.
const SECTIONS: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// No debug section compresses better than deflate can: a larger claim only wants the allocation.
fn believable(compressed: &[u8]) -> u64 {
    (compressed.len() as u64).saturating_mul(1032).saturating_add(64)
}

impl<'data> Sections<'data> {
    fn load(elf: &Elf<'data>, limits: &Limits) -> Self {
        let mut sections = Self {
            borrowed: Vec::new(),
            owned: Vec::new(),
        };
        let mut left = limits.max_decompressed_bytes;
        for id in SECTIONS {
            let Some(section) = elf.section_by_name(id.name()) else {
                continue;
            };
            let Ok(data) = section.compressed_data() else {
                continue;
            };
            if data.format == CompressionFormat::None {
                sections.borrowed.push((id, data.data));
            } else if data.uncompressed_size <= left.min(believable(data.data))
                && let Ok(bytes) = data.decompress()
            {
                left -= bytes.len() as u64;
                sections.owned.push((id, bytes.into_owned()));
            }
        }
        sections
    }

    fn get(&self, id: SectionId) -> &[u8] {
        let borrowed = self.borrowed.iter().find(|(known, _)| *known == id);
        let owned = self.owned.iter().find(|(known, _)| *known == id);
        borrowed
            .map(|(_, bytes)| *bytes)
            .or(owned.map(|(_, bytes)| &bytes[..]))
            .unwrap_or(&[])
    }

    fn dwarf(&self) -> Dwarf<'_> {
        let load = |id| Ok::<_, std::convert::Infallible>(EndianSlice::new(self.get(id), LittleEndian));
        match Dwarf::load(load) {
            Ok(dwarf) => dwarf,
            Err(never) => match never {},
        }
    }
}
