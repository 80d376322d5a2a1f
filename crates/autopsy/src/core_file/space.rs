//! The memory of a core file: which pieces it holds, and which file each was mapped from.

use object::LittleEndian;
use object::elf::{self, ProgramHeader64};
use object::read::elf::ProgramHeader as _;

use super::notes::{CoreNotes, MappedFile};
use crate::mappings::Mapping;
use crate::snapshot::Region;

/// Paths are copied to each segment that they cover: a small file could name one long path often.
const MAX_PATH_BYTES: usize = 16 << 20;

pub(super) struct CoreSpace<'data> {
    pub(super) mappings: Vec<Mapping>,
    pub(super) regions: Vec<Region<'data>>,
    pub(super) truncated: bool,
    path_bytes: usize,
}

impl<'data> CoreSpace<'data> {
    pub(super) fn read(
        segments: &[ProgramHeader64<LittleEndian>],
        bytes: &'data [u8],
        notes: &CoreNotes,
    ) -> Self {
        let mut space = Self {
            mappings: Vec::new(),
            regions: Vec::new(),
            truncated: false,
            path_bytes: 0,
        };
        for segment in segments {
            if segment.p_type(LittleEndian) == elf::PT_LOAD {
                space.take(segment, bytes, notes);
            }
        }
        space
    }

    fn take(&mut self, segment: &ProgramHeader64<LittleEndian>, bytes: &'data [u8], notes: &CoreNotes) {
        let start = segment.p_vaddr(LittleEndian);
        let Some(end) = start.checked_add(segment.p_memsz(LittleEndian)) else {
            return;
        };
        let saved = segment.p_filesz(LittleEndian);
        let held = clip(bytes, segment.p_offset(LittleEndian), saved);
        self.truncated |= (held.len() as u64) < saved;
        if !held.is_empty() {
            self.regions.push(Region {
                address: start,
                bytes: held,
            });
        }
        if start < end {
            let mut mapping = mapping(segment, start, end, notes);
            self.path_bytes += mapping.path.len();
            if self.path_bytes > MAX_PATH_BYTES {
                mapping.path = String::new();
            }
            self.mappings.push(mapping);
        }
    }
}

fn mapping(segment: &ProgramHeader64<LittleEndian>, start: u64, end: u64, notes: &CoreNotes) -> Mapping {
    let flags = segment.p_flags(LittleEndian);
    let mut mapping = Mapping {
        start,
        end,
        readable: flags.contains(elf::PF_R),
        writable: flags.contains(elf::PF_W),
        executable: flags.contains(elf::PF_X),
        ..Mapping::default()
    };
    if let Some(file) = file_at(&notes.files, start) {
        mapping.path.clone_from(&file.path);
        mapping.deleted = file.deleted;
        mapping.offset = file.offset.wrapping_add(start - file.start);
    } else if notes.vdso == Some(start) {
        "[vdso]".clone_into(&mut mapping.path);
    } else if notes
        .threads
        .first()
        .is_some_and(|main| mapping.contains(main.registers.sp()))
    {
        "[stack]".clone_into(&mut mapping.path);
    }
    mapping
}

/// The files are in address order.
fn file_at(files: &[MappedFile], address: u64) -> Option<&MappedFile> {
    let after = files.partition_point(|file| file.start <= address);
    files.get(after.checked_sub(1)?).filter(|file| address < file.end)
}

/// As many of these bytes as the file really has.
pub(super) fn clip(bytes: &[u8], offset: u64, length: u64) -> &[u8] {
    let Ok(start) = usize::try_from(offset) else {
        return &[];
    };
    let rest = bytes.get(start..).unwrap_or(&[]);
    &rest[..rest.len().min(usize::try_from(length).unwrap_or(usize::MAX))]
}
