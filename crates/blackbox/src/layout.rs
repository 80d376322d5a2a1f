//! What stands where in a `.box` file.
//!
//! Every struct here is plain data (`Plain`): integers and byte arrays without padding, so any bit
//! pattern is a value. A reader copies as many bytes as the file has and leaves the rest zero, which is
//! how older (shorter) and newer (longer) sections are both read.

use core::mem::size_of;

pub const MAGIC: [u8; 8] = *b"LASTWORD";
pub const VERSION: u32 = 1;
/// `index`, `worker` and `rank` when there is none. Zero is a real index.
pub const NONE: i64 = i64::MIN;

/// Types that are valid for every bit pattern and have no padding.
///
/// # Safety
/// Implementors promise just that; the tests below check the sizes.
pub unsafe trait Plain: Copy {}

/// Text cut to N bytes. `length` is the true length, so that a reader can say that it was cut.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    pub length: u32,
    pub bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    pub const EMPTY: Self = Self {
        length: 0,
        bytes: [0; N],
    };

    pub fn set(&mut self, text: &[u8]) {
        let kept = text.len().min(N);
        // Not copy_from_slice: its length check can panic, and a panic is code the handler must not have.
        for (to, from) in self.bytes.iter_mut().zip(text) {
            *to = *from;
        }
        self.length = if kept == text.len() {
            kept as u32
        } else {
            text.len() as u32
        };
    }

    pub fn kept(&self) -> &[u8] {
        self.bytes.get(..(self.length as usize).min(N)).unwrap_or(&[])
    }
}

#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SectionId {
    Identity = 1,
    Live = 2,
    Items = 3,
    Events = 4,
    Exceptions = 5,
    Crash = 6,
    RegisterMemory = 7,
    Threads = 8,
    Stack = 9,
    Maps = 10,
    PythonText = 11,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Section {
    pub id: u32,
    pub flags: u32,
    pub offset: u64,
    pub length: u64,
}

pub const MAX_SECTIONS: usize = 32;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Header {
    pub magic: [u8; 8],
    pub version: u32,
    pub section_count: u32,
    pub sections: [Section; MAX_SECTIONS],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Identity {
    pub pid: i32,
    pub parent: i32,
    /// Field 22 of /proc/PID/stat. Pid and start time together name a process; a pid alone is reused.
    pub start_ticks: u64,
    pub born_unix_ns: u64,
    pub born_monotonic_ns: u64,
    pub uid: u32,
    /// 1 when this process was made by fork from a recorded one.
    pub forked: u32,
    pub worker: i64,
    pub rank: i64,
    /// The signal that asks for a snapshot; zero: none is listened for.
    pub probe_signal: u32,
    pub role: Text<60>,
    pub host: Text<68>,
    pub runtime: Text<60>,
    pub executable: Text<252>,
    /// NUL-separated, as /proc/PID/cmdline has it.
    pub command: Text<1020>,
    /// See `cpuid`; all zero: not asked, as on other processors.
    pub cpuid: [u32; crate::cpuid::WORDS],
    /// Its control groups at birth: the lines of /proc/PID/cgroup for memory, CPU, tasks and version 2. A dead process
    /// is in none any more.
    pub cgroup: Text<1020>,
    /// The namespace that these paths are seen from, as the inode of /proc/PID/ns/cgroup.
    pub cgroup_namespace: u32,
}

pub const PHASES: [&str; 7] = ["idle", "fetch", "transform", "collate", "send", "run", "load"];

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Item {
    pub index: i64,
    pub started_ns: u64,
    pub phase: u32,
    pub key: Text<240>,
}

/// How a process said it would end, before it did.
pub const EXIT_NOT_SAID: u32 = 0;
pub const EXIT_SAID: u32 = 1;

/// Two items, written in turn: a worker that dies while it writes one leaves the other whole, so the
/// published one is never torn. A plain seqlock would lose exactly the item we were built to name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Live {
    /// Counts publications; `current[published % 2]` is the one that holds.
    pub published: u64,
    pub items_begun: u64,
    pub items_done: u64,
    pub exit_mark: u32,
    pub exit_code: i32,
    pub current: [Item; 2],
    /// The function that is called for the items, `FILE:LINE FUNCTION`: written when it changes. A kill leaves
    /// no frames, and this is then the nearest to a line of Python that is known.
    pub called: Text<236>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct FinishedItem {
    pub index: i64,
    pub started_ns: u64,
    pub duration_ns: u64,
    /// In KiB. Only taken for items that are not short: their share of the growth between two looks, some of them apart.
    pub rss_change: i64,
    pub key: Text<60>,
}

pub const ITEM_RING: usize = 64;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Items {
    pub written: u64,
    pub ring: [FinishedItem; ITEM_RING],
}

#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// a = target pid, b = signal.
    SentSignal = 1,
    /// a = child pid.
    Fork = 2,
    NativeImport = 3,
    ThreadStart = 4,
    Collection = 5,
    Warning = 6,
    Note = 7,
    /// The process is about to become another program.
    Exec = 8,
    /// a = the pid of a process that this one is about to end, b = one of `STOP_REASONS`.
    StopReason = 9,
}

/// Why a process ends another; zero: for a reason that is in the text alone.
pub const STOP_REASONS: [&str; 2] = ["other", "memory"];

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Event {
    pub time_ns: u64,
    pub kind: u32,
    pub tid: i32,
    pub a: i64,
    pub b: i64,
    pub text: Text<92>,
}

pub const EVENT_RING: usize = 128;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Events {
    pub written: u64,
    pub ring: [Event; EVENT_RING],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PythonFrame {
    pub line: u32,
    pub file: Text<176>,
    pub function: Text<60>,
}

pub const EXCEPTION_FRAMES: usize = 32;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Exception {
    /// Zero while it is being written.
    pub complete: u32,
    /// 1 when nothing caught it and it ended the process.
    pub fatal: u32,
    pub time_ns: u64,
    pub time_unix_ns: u64,
    pub index: i64,
    pub key: Text<236>,
    pub kind: Text<124>,
    pub message: Text<1020>,
    pub frame_count: u32,
    pub frames: [PythonFrame; EXCEPTION_FRAMES],
}

pub const EXCEPTION_RING: usize = 4;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Exceptions {
    pub written: u64,
    pub ring: [Exception; EXCEPTION_RING],
}

pub const ARCHITECTURE_X86_64: u32 = 1;
pub const ARCHITECTURE_AARCH64: u32 = 2;

pub const CRASH_NONE: u32 = 0;
pub const CRASH_BEGUN: u32 = 1;
pub const CRASH_COMPLETE: u32 = 2;
/// The previous handler repaired the fault (a JVM's safe point, say): the process lives on.
pub const CRASH_HANDLED: u32 = 3;

/// The handler's steps, in the order it takes them; bits of `steps_done` and `steps_failed`.
pub const STEP_SIGNAL: u32 = 0;
pub const STEP_CODE: u32 = 1;
pub const STEP_REGISTERS_POINT_AT: u32 = 2;
pub const STEP_STACK: u32 = 3;
pub const STEP_MAPS: u32 = 4;
pub const STEP_THREADS: u32 = 5;
pub const STEP_ABORT_MESSAGE: u32 = 6;
pub const STEP_PYTHON: u32 = 7;
pub const STEP_PREVIOUS_HANDLER: u32 = 8;
pub const STEP_EXCEPTION: u32 = 9;
pub const STEP_NAMES: [&str; 10] = [
    "signal",
    "code",
    "registers_point_at",
    "stack",
    "maps",
    "threads",
    "abort_message",
    "python",
    "previous_handler",
    "exception",
];

pub const MAX_REGISTERS: usize = 40;
pub const CODE_BYTES: usize = 64;
/// How many of the code bytes lie before the faulting instruction.
pub const CODE_BEFORE: u64 = 16;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Crash {
    pub state: u32,
    pub steps_done: u32,
    pub steps_failed: u32,
    pub signal: i32,
    pub code: i32,
    pub error: i32,
    pub address: u64,
    /// Filled for signals that were sent (si_code <= 0); zero otherwise.
    pub sender_pid: i32,
    pub sender_uid: u32,
    /// Filled for SIGSYS.
    pub syscall: i32,
    pub tid: i32,
    pub thread_name: [u8; 16],
    pub time_unix_ns: u64,
    pub time_ns: u64,
    pub duration_ns: u64,
    pub architecture: u32,
    pub register_count: u32,
    /// DWARF order: x86-64 rax rdx rcx rbx rsi rdi rbp rsp r8..r15 rip; aarch64 x0..x30 sp pc.
    pub registers: [u64; MAX_REGISTERS],
    pub flags: u64,
    /// x86: trap number and page-fault error code, which tells a read from a write from a fetch.
    pub trap: u64,
    pub trap_error: u64,
    pub code_address: u64,
    pub code_length: u32,
    pub code_bytes: [u8; CODE_BYTES],
    pub on_alternate_stack: u32,
    pub stack_address: u64,
    pub stack_length: u64,
    /// The other end of a stack that is too large to be kept whole.
    pub stack_base_address: u64,
    pub stack_base_length: u64,
    pub stack_low: u64,
    pub stack_high: u64,
    pub maps_length: u64,
    pub python_length: u64,
    pub thread_count: u64,
    pub previous_handler: u64,
    /// A fault inside the handler itself: which step, and what.
    pub nested_step: u32,
    pub nested_signal: i32,
    pub nested_address: u64,
    /// Other threads that crashed while this one was being recorded.
    pub other_crashes: u32,
    pub other_tid: i32,
    pub abort_message: Text<508>,
    /// The C++ exception that nothing caught: its mangled type name, and its what().
    pub exception_type: Text<252>,
    pub exception_what: Text<508>,
}

pub const POINTED_BYTES: usize = 32;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pointed {
    /// How many of `bytes` could be read; zero: the register points at nothing readable.
    pub length: u32,
    pub bytes: [u8; POINTED_BYTES],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RegisterMemory {
    pub pointed: [Pointed; MAX_REGISTERS],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThreadEntry {
    pub tid: i32,
    pub name: [u8; 16],
}

pub const MAX_THREADS: usize = 256;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Threads {
    pub ring: [ThreadEntry; MAX_THREADS],
}

macro_rules! plain {
    ($($t:ty),+ $(,)?) => {
        // SAFETY: repr(C) structs of integers and byte arrays; `tests::no_padding` checks the sizes.
        $(unsafe impl Plain for $t {})+
    };
}
plain!(
    Header,
    Identity,
    Live,
    Items,
    Events,
    Exceptions,
    Crash,
    RegisterMemory,
    Threads
);

const PAGE: u64 = 4096;
pub const STACK_CAPACITY: u64 = 256 << 10;
/// The last part of the stack section is kept for the stack's base.
pub const STACK_BASE_CAPACITY: u64 = 64 << 10;
pub const MAPS_CAPACITY: u64 = 1 << 20;
pub const PYTHON_CAPACITY: u64 = 256 << 10;

const fn pages(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(PAGE) * PAGE
}

pub const IDENTITY_AT: u64 = PAGE;
pub const LIVE_AT: u64 = IDENTITY_AT + pages(size_of::<Identity>());
pub const ITEMS_AT: u64 = LIVE_AT + pages(size_of::<Live>());
pub const EVENTS_AT: u64 = ITEMS_AT + pages(size_of::<Items>());
pub const EXCEPTIONS_AT: u64 = EVENTS_AT + pages(size_of::<Events>());
pub const CRASH_AT: u64 = EXCEPTIONS_AT + pages(size_of::<Exceptions>());
pub const REGISTER_MEMORY_AT: u64 = CRASH_AT + pages(size_of::<Crash>());
pub const THREADS_AT: u64 = REGISTER_MEMORY_AT + pages(size_of::<RegisterMemory>());
/// Up to here the file is reserved on disk and mapped: a store can never meet a full disk, which would
/// be a SIGBUS in somebody else's process. Beyond it only pwrite(2) writes, which just fails.
pub const MAPPED_LENGTH: u64 = THREADS_AT + pages(size_of::<Threads>());
pub const STACK_AT: u64 = MAPPED_LENGTH;
pub const MAPS_AT: u64 = STACK_AT + STACK_CAPACITY;
/// Last, because CPython's own dumper writes it and does not know our bounds.
pub const PYTHON_AT: u64 = MAPS_AT + MAPS_CAPACITY;
pub const FILE_LENGTH: u64 = PYTHON_AT + PYTHON_CAPACITY;

const fn section(id: SectionId, offset: u64, length: u64) -> Section {
    Section {
        id: id as u32,
        flags: 0,
        offset,
        length,
    }
}

pub const SECTIONS: [Section; 11] = [
    section(SectionId::Identity, IDENTITY_AT, size_of::<Identity>() as u64),
    section(SectionId::Live, LIVE_AT, size_of::<Live>() as u64),
    section(SectionId::Items, ITEMS_AT, size_of::<Items>() as u64),
    section(SectionId::Events, EVENTS_AT, size_of::<Events>() as u64),
    section(
        SectionId::Exceptions,
        EXCEPTIONS_AT,
        size_of::<Exceptions>() as u64,
    ),
    section(SectionId::Crash, CRASH_AT, size_of::<Crash>() as u64),
    section(
        SectionId::RegisterMemory,
        REGISTER_MEMORY_AT,
        size_of::<RegisterMemory>() as u64,
    ),
    section(SectionId::Threads, THREADS_AT, size_of::<Threads>() as u64),
    section(SectionId::Stack, STACK_AT, STACK_CAPACITY),
    section(SectionId::Maps, MAPS_AT, MAPS_CAPACITY),
    section(SectionId::PythonText, PYTHON_AT, PYTHON_CAPACITY),
];

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn sections_follow_each_other_without_overlap() {
        let mut end = size_of::<Header>() as u64;
        for section in SECTIONS {
            assert!(section.offset >= end, "section {} overlaps", section.id);
            end = section.offset + section.length;
        }
        assert_eq!(end, FILE_LENGTH);
        const { assert!(FILE_LENGTH <= 2 << 20, "a record is at most 2 MB on disk") };
    }

    #[test]
    fn no_padding() {
        // Each field's end is the next field's start: spot checks at the places where sizes mix.
        assert_eq!(size_of::<Text<60>>(), 64);
        assert_eq!(offset_of!(Identity, cgroup_namespace) + 4, size_of::<Identity>());
        assert_eq!(offset_of!(Live, current), 32);
        assert_eq!(size_of::<Item>(), 8 + 8 + 4 + 244);
        assert_eq!(size_of::<FinishedItem>(), 32 + 64);
        assert_eq!(size_of::<Event>(), 8 + 4 + 4 + 16 + 96);
        assert_eq!(size_of::<PythonFrame>(), 4 + 180 + 64);
        assert_eq!(
            size_of::<Exception>(),
            4 + 4 + 8 + 8 + 8 + 240 + 128 + 1024 + 4 + 32 * 248 + 4
        );
        assert_eq!(offset_of!(Crash, registers) % 8, 0);
    }

    #[test]
    fn text_says_when_it_was_cut() {
        let mut text = Text::<8>::EMPTY;
        text.set(b"0123456789");
        assert_eq!(text.length, 10);
        assert_eq!(text.kept(), b"01234567");
        text.set(b"ab");
        assert_eq!(text.kept(), b"ab");
    }
}
