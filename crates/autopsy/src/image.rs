//! One ELF file, mapped and not read: libtorch_cpu.so alone has hundreds of megabytes.
//!
//! Only ranges are kept, so that nothing borrows from the map; sections are cut out again when used.

use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use memmap2::Mmap;
use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _};

/// The parsed view that symbol lookups use.
pub(crate) type Elf<'data> = ElfFile64<'data, LittleEndian>;

/// Build ids in the wild have 8 to 32 bytes.
const MAX_BUILD_ID: usize = 64;

/// Program headers are few; an attacker's could be 2^32.
const MAX_SEGMENTS: usize = 1024;

enum Backing {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

/// A loadable segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) file: Range<u64>,
    pub(crate) address: u64,
    pub(crate) writable: bool,
}

/// A section's place in the file and in memory.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) address: u64,
    file: Range<usize>,
}

/// An ELF file of the dead process.
pub(crate) struct Image {
    backing: Backing,
    pub(crate) segments: Vec<Segment>,
    pub(crate) eh_frame: Option<Section>,
    pub(crate) eh_frame_hdr: Option<Section>,
    pub(crate) debug_frame: Option<Section>,
    pub(crate) text_address: u64,
    pub(crate) build_id: Option<Vec<u8>>,
}

impl Image {
    /// Maps a file. The path comes from the dead process, so it may name anything at all.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        Self::parse(Backing::Mapped(map_file(path)?))
    }

    /// For images that have no file: the vdso, a decompressed .gnu_debugdata.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<Self, String> {
        Self::parse(Backing::Owned(bytes))
    }

    fn parse(backing: Backing) -> Result<Self, String> {
        let mut image = Self {
            backing,
            segments: Vec::new(),
            eh_frame: None,
            eh_frame_hdr: None,
            debug_frame: None,
            text_address: 0,
            build_id: None,
        };
        image.read_segments()?;
        image.read_sections();
        Ok(image)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.backing {
            Backing::Mapped(map) => map,
            Backing::Owned(bytes) => bytes,
        }
    }

    /// Section headers may be broken or stripped: then there are no symbols either.
    pub(crate) fn elf(&self) -> Option<Elf<'_>> {
        Elf::parse(self.bytes()).ok()
    }

    pub(crate) fn section_bytes(&self, section: &Section) -> &[u8] {
        self.bytes().get(section.file.clone()).unwrap_or(&[])
    }

    /// Where the ELF file itself places the byte at this file offset.
    pub(crate) fn address_of_offset(&self, offset: u64) -> Option<u64> {
        let segment = self.segment_at_offset(offset)?;
        offset
            .checked_sub(segment.file.start)?
            .checked_add(segment.address)
    }

    pub(crate) fn segment_at_offset(&self, offset: u64) -> Option<&Segment> {
        self.segments
            .iter()
            .find(|segment| segment.file.contains(&offset))
    }

    pub(crate) fn build_id_text(&self) -> Option<String> {
        self.build_id.as_deref().map(crate::text::hexadecimal)
    }

    fn read_segments(&mut self) -> Result<(), String> {
        let (mut segments, mut hdr, mut build_id) = (Vec::new(), None, None);
        let bytes = self.bytes();
        let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(|error| error.to_string())?;
        if !header.is_little_endian() {
            return Err("not a little-endian ELF file".to_owned());
        }
        let headers = header
            .program_headers(LittleEndian, bytes)
            .map_err(|error| error.to_string())?;
        for program in headers.iter().take(MAX_SEGMENTS) {
            let (offset, size) = program.file_range(LittleEndian);
            let address = program.p_vaddr(LittleEndian);
            match program.p_type(LittleEndian) {
                elf::PT_LOAD => segments.push(Segment {
                    file: offset..offset.saturating_add(size),
                    address,
                    writable: program.p_flags(LittleEndian).contains(elf::PF_W),
                }),
                elf::PT_GNU_EH_FRAME => hdr = section(address, offset, size, bytes.len()),
                elf::PT_NOTE if build_id.is_none() => build_id = find_build_id(program, bytes),
                _ => {}
            }
        }
        (self.segments, self.eh_frame_hdr, self.build_id) = (segments, hdr, build_id);
        Ok(())
    }

    fn read_sections(&mut self) {
        let Some(elf) = self.elf() else { return };
        let length = self.bytes().len();
        let find = |name: &str| {
            let found = elf.section_by_name(name)?;
            let (offset, size) = found.file_range()?;
            section(found.address(), offset, size, length)
        };
        let eh_frame = find(".eh_frame");
        let hdr = find(".eh_frame_hdr");
        let debug_frame = find(".debug_frame");
        let text = elf.section_by_name(".text").map_or(0, |text| text.address());
        // Debug files can lack program headers, and so the notes that these point at.
        let build_id = || {
            elf.build_id()
                .ok()
                .flatten()
                .filter(|id| id.len() <= MAX_BUILD_ID)
        };
        let build_id = self.build_id.clone().or_else(|| build_id().map(<[u8]>::to_vec));
        self.build_id = build_id;
        self.eh_frame = eh_frame.or_else(|| self.eh_frame_after_hdr());
        self.eh_frame_hdr = self.eh_frame_hdr.take().or(hdr);
        self.debug_frame = debug_frame;
        self.text_address = text;
    }

    /// Without section headers: .eh_frame follows its header in the same segment, with an end that
    /// only the terminator knows. Taking the rest of the segment is safe, the reader stops there.
    fn eh_frame_after_hdr(&self) -> Option<Section> {
        let hdr = self.eh_frame_hdr.as_ref()?;
        let bases = gimli::BaseAddresses::default().set_eh_frame_hdr(hdr.address);
        let parsed = gimli::EhFrameHdr::new(self.section_bytes(hdr), gimli::LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let address = parsed.eh_frame_ptr().direct().ok()?;
        let segment = self.segments.iter().find(|segment| {
            let size = segment.file.end - segment.file.start;
            address
                .checked_sub(segment.address)
                .is_some_and(|inside| inside < size)
        })?;
        let offset = segment.file.start + (address - segment.address);
        section(address, offset, segment.file.end - offset, self.bytes().len())
    }
}

fn section(address: u64, offset: u64, size: u64, file_length: usize) -> Option<Section> {
    let start = usize::try_from(offset).ok()?;
    let end = usize::try_from(offset.checked_add(size)?).ok()?.min(file_length);
    (start < end).then_some(Section {
        address,
        file: start..end,
    })
}

fn find_build_id(program: &elf::ProgramHeader64<LittleEndian>, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut notes = program.notes(LittleEndian, bytes).ok()??;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == b"GNU" && note.n_type(LittleEndian) == elf::NT_GNU_BUILD_ID {
            let id = note.desc();
            return (id.len() <= MAX_BUILD_ID).then(|| id.to_vec());
        }
    }
    None
}

/// Maps a regular file for reading. Opening a FIFO would wait for ever and opening a device can have
/// effects, so the descriptor is non-blocking and anything but a regular file is refused.
pub(crate) fn map_file(path: &Path) -> Result<Mmap, String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC)
        .open(path)
        .map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    if metadata.len() == 0 {
        return Err("empty file".to_owned());
    }
    // SAFETY: the map is private, read-only and only read through bounds-checked slices. Whoever
    // truncates the file while we read it still gets us a SIGBUS: that is the price of not copying
    // hundreds of megabytes, and why an autopsy belongs in the watcher and never in a worker.
    unsafe { Mmap::map(&file) }.map_err(|error| error.to_string())
}
