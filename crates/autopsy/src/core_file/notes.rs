//! The notes of a core file: who died, of what, with which threads and files.

use object::LittleEndian;
use object::elf::{self, ProgramHeader64};
use object::read::elf::ProgramHeader as _;

use super::layout;
use crate::mappings::split_deleted;
use crate::registers::{Architecture, Registers};
use crate::text::{bounded, until_nul};

/// Threads read from the notes at all; a process with more is explained by its first ones.
const MAX_THREADS: usize = 1 << 16;

/// Core files have one; many that overlap would be read many times.
const MAX_NOTE_SEGMENTS: usize = 4;

/// Files in NT_FILE.
const MAX_FILES: usize = 1 << 18;

const AT_SYSINFO_EHDR: u64 = 33;
const AT_EXECFN: u64 = 31;

/// Signals whose siginfo has an address.
const WITH_ADDRESS: [i32; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
];

pub(super) struct CoreThread {
    pub(super) tid: i32,
    pub(super) registers: Registers,
}

/// One entry of NT_FILE.
pub(super) struct MappedFile {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
    pub(super) path: String,
    pub(super) deleted: bool,
}

#[derive(Default)]
pub(super) struct CoreNotes {
    /// The kernel writes the one that crashed first.
    pub(super) threads: Vec<CoreThread>,
    pub(super) files: Vec<MappedFile>,
    pub(super) pid: Option<i32>,
    pub(super) parent_pid: Option<i32>,
    pub(super) name: Option<String>,
    pub(super) command: Option<String>,
    pub(super) signal: Option<i32>,
    pub(super) signal_code: Option<i32>,
    pub(super) fault_address: Option<u64>,
    pub(super) sender_pid: Option<i32>,
    pub(super) vdso: Option<u64>,
    pub(super) executable_name_at: Option<u64>,
}

impl CoreNotes {
    pub(super) fn read(
        segments: &[ProgramHeader64<LittleEndian>],
        bytes: &[u8],
        architecture: Architecture,
    ) -> Self {
        let mut core = Self::default();
        let is_note = |segment: &&ProgramHeader64<LittleEndian>| segment.p_type(LittleEndian) == elf::PT_NOTE;
        for segment in segments.iter().filter(is_note).take(MAX_NOTE_SEGMENTS) {
            core.read_segment(note_bytes(segment, bytes), architecture);
        }
        core.files.sort_by_key(|file| file.start);
        core
    }

    /// By hand, because a truncated note must not lose those before it.
    fn read_segment(&mut self, mut bytes: &[u8], architecture: Architecture) {
        while let Some((kind, description, rest)) = next_note(bytes) {
            self.take(kind, description, architecture);
            bytes = rest;
        }
    }

    fn take(&mut self, kind: u32, description: &[u8], architecture: Architecture) {
        match elf::NoteType(kind) {
            elf::NT_PRSTATUS => self.take_thread(description, architecture),
            elf::NT_PRPSINFO => self.take_process(description),
            elf::NT_SIGINFO if self.signal_code.is_none() => self.take_signal(description),
            elf::NT_FILE if self.files.is_empty() => self.take_files(description),
            elf::NT_AUXV => self.take_auxiliary(description),
            _ => {}
        }
    }

    fn take_thread(&mut self, status: &[u8], architecture: Architecture) {
        let tid = layout::read_i32(status, layout::PRSTATUS_PID);
        let registers = layout::registers(status, architecture);
        if let (Some(tid), Some(registers)) = (tid, registers)
            && self.threads.len() < MAX_THREADS
        {
            self.threads.push(CoreThread { tid, registers });
        }
        if self.signal.is_none() {
            let signal = layout::read_i16(status, layout::PRSTATUS_SIGNAL);
            self.signal = signal.map(i32::from).filter(|signal| *signal != 0);
        }
    }

    fn take_process(&mut self, process: &[u8]) {
        let text = |range: std::ops::Range<usize>| {
            let text = until_nul(process.get(range)?).trim_end().to_owned();
            Some(text).filter(|text| !text.is_empty())
        };
        self.pid = layout::read_i32(process, layout::PRPSINFO_PID);
        self.parent_pid = layout::read_i32(process, layout::PRPSINFO_PARENT);
        self.name = text(layout::PRPSINFO_NAME);
        self.command = text(layout::PRPSINFO_COMMAND);
    }

    fn take_signal(&mut self, siginfo: &[u8]) {
        self.signal = layout::read_i32(siginfo, layout::SIGINFO_SIGNAL).or(self.signal);
        self.signal_code = layout::read_i32(siginfo, layout::SIGINFO_CODE);
        match (self.signal, self.signal_code) {
            (Some(signal), Some(code)) if code > 0 && WITH_ADDRESS.contains(&signal) => {
                self.fault_address = layout::read_u64(siginfo, layout::SIGINFO_ADDRESS);
            }
            (_, Some(code)) if code <= 0 => {
                self.sender_pid = layout::read_i32(siginfo, layout::SIGINFO_SENDER);
            }
            _ => {}
        }
    }

    fn take_files(&mut self, note: &[u8]) {
        let Some((count, page_size)) = layout::read_u64(note, 0).zip(layout::read_u64(note, 8)) else {
            return;
        };
        let table = note.get(16..).unwrap_or(&[]).chunks_exact(24);
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(MAX_FILES);
        // The names follow the table, so a count that is a lie points past the end and gives none.
        let names_at = count.saturating_mul(24).saturating_add(16);
        let names = note.get(names_at..).unwrap_or(&[]).split(|byte| *byte == 0);
        for (entry, name) in table.take(count).zip(names) {
            let field = |index: usize| layout::read_u64(entry, index * 8).unwrap_or(0);
            let name = bounded(name);
            let (path, deleted) = split_deleted(&name);
            self.files.push(MappedFile {
                start: field(0),
                end: field(1),
                offset: field(2).wrapping_mul(page_size),
                path: path.to_owned(),
                deleted,
            });
        }
    }

    fn take_auxiliary(&mut self, vector: &[u8]) {
        for pair in vector.chunks_exact(16) {
            let value = layout::read_u64(pair, 8);
            match layout::read_u64(pair, 0) {
                Some(AT_SYSINFO_EHDR) => self.vdso = value,
                Some(AT_EXECFN) => self.executable_name_at = value,
                _ => {}
            }
        }
    }
}

fn note_bytes<'data>(segment: &ProgramHeader64<LittleEndian>, bytes: &'data [u8]) -> &'data [u8] {
    super::space::clip(
        bytes,
        segment.p_offset(LittleEndian),
        segment.p_filesz(LittleEndian),
    )
}

/// Type, description and what follows.
fn next_note(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let field = |at: usize| layout::read_i32(bytes, at).map(|value| value.cast_unsigned() as usize);
    let (name_length, length, kind) = (field(0)?, field(4)?, field(8)?);
    let start = 12 + name_length.checked_next_multiple_of(4)?;
    let description = bytes.get(start..start.checked_add(length)?)?;
    let next = start.checked_add(length.checked_next_multiple_of(4)?)?;
    Some((
        u32::try_from(kind).ok()?,
        description,
        bytes.get(next..).unwrap_or(&[]),
    ))
}
