//! The box as it is told to others: every field named, every text readable, every "none" a None.

use crate::layout::{
    ARCHITECTURE_AARCH64, ARCHITECTURE_X86_64, CODE_BYTES, CRASH_BEGUN, CRASH_COMPLETE, CRASH_HANDLED, Crash,
    EVENT_RING, EXCEPTION_FRAMES, EXCEPTION_RING, EXIT_SAID, Event, Events, Exception, Exceptions, ITEM_RING,
    Identity, Item, Items, Live, MAX_REGISTERS, NONE, PHASES, STEP_NAMES, Text,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

pub const X86_64_REGISTERS: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "rip",
];

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn c_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn words<const N: usize>(text: &Text<N>) -> String {
    let mut words = String::from_utf8_lossy(text.kept()).into_owned();
    if text.length as usize > N {
        // A cut in the middle of a UTF-8 character leaves a replacement sign: drop it with the rest.
        while words.ends_with('\u{fffd}') {
            words.pop();
        }
        words.push('…');
    }
    words
}

fn words_if_any<const N: usize>(text: &Text<N>) -> Option<String> {
    (text.length > 0).then(|| words(text))
}

fn number(value: i64) -> Option<i64> {
    (value != NONE).then_some(value)
}

pub(crate) fn register_names(crash: &Crash) -> Vec<String> {
    names_of_registers(crash.architecture, crash.register_count)
}

pub(crate) fn names_of_registers(architecture: u32, count: u32) -> Vec<String> {
    let count = (count as usize).min(MAX_REGISTERS);
    match architecture {
        ARCHITECTURE_X86_64 => X86_64_REGISTERS
            .iter()
            .take(count)
            .map(ToString::to_string)
            .collect(),
        ARCHITECTURE_AARCH64 => (0..count)
            .map(|number| match number {
                31 => "sp".to_string(),
                32 => "pc".to_string(),
                _ => format!("x{number}"),
            })
            .collect(),
        _ => Vec::new(),
    }
}

#[derive(Serialize)]
pub struct Record {
    pub version: u32,
    pub identity: Option<IdentityRecord>,
    pub live: Option<LiveRecord>,
    pub items: Vec<FinishedRecord>,
    pub events: Vec<EventRecord>,
    pub exceptions: Vec<ExceptionRecord>,
    pub crash: Option<CrashRecord>,
    pub pointed: BTreeMap<String, Pointed>,
    pub threads: Vec<Thread>,
    pub python_text: Option<String>,
    pub notes: Vec<String>,
}

#[derive(Serialize)]
pub struct IdentityRecord {
    pub pid: i32,
    pub parent: i32,
    pub start_ticks: u64,
    pub born_unix_ns: u64,
    pub born_monotonic_ns: u64,
    pub uid: u32,
    pub forked: bool,
    pub worker: Option<i64>,
    pub rank: Option<i64>,
    pub probe_signal: Option<u32>,
    pub role: Option<String>,
    pub host: Option<String>,
    pub runtime: Option<String>,
    pub executable: Option<String>,
    pub command: Vec<String>,
    pub cpuid: Option<[u32; crate::cpuid::WORDS]>,
    pub cgroup: Option<String>,
    pub cgroup_namespace: Option<u32>,
}

impl From<&Identity> for IdentityRecord {
    fn from(identity: &Identity) -> Self {
        Self {
            pid: identity.pid,
            parent: identity.parent,
            start_ticks: identity.start_ticks,
            born_unix_ns: identity.born_unix_ns,
            born_monotonic_ns: identity.born_monotonic_ns,
            uid: identity.uid,
            forked: identity.forked != 0,
            worker: number(identity.worker),
            rank: number(identity.rank),
            probe_signal: (identity.probe_signal != 0).then_some(identity.probe_signal),
            role: words_if_any(&identity.role),
            host: words_if_any(&identity.host),
            runtime: words_if_any(&identity.runtime),
            executable: words_if_any(&identity.executable),
            command: words(&identity.command)
                .split('\0')
                .map(ToString::to_string)
                .collect(),
            cpuid: (identity.cpuid != [0; crate::cpuid::WORDS]).then_some(identity.cpuid),
            cgroup: words_if_any(&identity.cgroup),
            cgroup_namespace: (identity.cgroup_namespace != 0).then_some(identity.cgroup_namespace),
        }
    }
}

#[derive(Serialize)]
pub struct LiveRecord {
    pub items_begun: u64,
    pub items_done: u64,
    pub exit_said: bool,
    /// None: the process said that it would end, not how.
    pub exit_code: Option<i32>,
    pub current: Option<CurrentRecord>,
    pub called: Option<String>,
}

#[derive(Serialize)]
pub struct CurrentRecord {
    pub index: Option<i64>,
    pub key: Option<String>,
    pub phase: String,
    pub started_ns: u64,
}

fn phase(number: u32) -> String {
    PHASES
        .get(number as usize)
        .map_or_else(|| format!("phase {number}"), ToString::to_string)
}

impl From<&Live> for LiveRecord {
    fn from(live: &Live) -> Self {
        let item: &Item = &live.current[(live.published % 2) as usize];
        let current = CurrentRecord {
            index: number(item.index),
            key: words_if_any(&item.key),
            phase: phase(item.phase),
            started_ns: item.started_ns,
        };
        let is_idle = current.index.is_none() && current.key.is_none();
        Self {
            items_begun: live.items_begun,
            items_done: live.items_done,
            exit_said: live.exit_mark == EXIT_SAID,
            exit_code: (live.exit_mark == EXIT_SAID && live.exit_code != i32::MIN).then_some(live.exit_code),
            current: (live.published > 0 && !is_idle).then_some(current),
            called: words_if_any(&live.called),
        }
    }
}

#[derive(Serialize)]
pub struct FinishedRecord {
    pub index: Option<i64>,
    pub key: Option<String>,
    pub started_ns: u64,
    pub duration_ns: u64,
    pub rss_change_kib: i64,
}

/// The written places of a ring, oldest first.
fn ring(written: u64, length: usize) -> impl Iterator<Item = usize> {
    let length = length as u64;
    (written.saturating_sub(length)..written).map(move |number| (number % length) as usize)
}

pub(crate) fn items(items: Items) -> Vec<FinishedRecord> {
    ring(items.written, ITEM_RING)
        .map(|place| {
            let item = &items.ring[place];
            FinishedRecord {
                index: number(item.index),
                key: words_if_any(&item.key),
                started_ns: item.started_ns,
                duration_ns: item.duration_ns,
                rss_change_kib: item.rss_change,
            }
        })
        .collect()
}

#[derive(Serialize)]
pub struct EventRecord {
    pub time_ns: u64,
    pub kind: &'static str,
    pub tid: i32,
    pub a: i64,
    pub b: i64,
    pub text: String,
}

fn event_kind(kind: u32) -> &'static str {
    match kind {
        1 => "sent_signal",
        2 => "fork",
        3 => "native_import",
        4 => "thread_start",
        5 => "collection",
        6 => "warning",
        8 => "exec",
        9 => "stop_reason",
        _ => "note",
    }
}

pub(crate) fn events(events: Events) -> Vec<EventRecord> {
    ring(events.written, EVENT_RING)
        .map(|place| {
            let event: &Event = &events.ring[place];
            EventRecord {
                time_ns: event.time_ns,
                kind: event_kind(event.kind),
                tid: event.tid,
                a: event.a,
                b: event.b,
                text: words(&event.text),
            }
        })
        .collect()
}

#[derive(Serialize)]
pub struct FrameRecord {
    pub file: String,
    pub line: u32,
    pub function: String,
}

#[derive(Serialize)]
pub struct ExceptionRecord {
    pub fatal: bool,
    pub time_ns: u64,
    pub time_unix_ns: u64,
    pub index: Option<i64>,
    pub key: Option<String>,
    pub kind: String,
    pub message: String,
    pub frames: Vec<FrameRecord>,
}

pub(crate) fn exceptions(exceptions: Exceptions) -> Vec<ExceptionRecord> {
    ring(exceptions.written, EXCEPTION_RING)
        .map(|place| &exceptions.ring[place])
        .filter(|exception| exception.complete == 1)
        .map(exception)
        .collect()
}

fn exception(exception: &Exception) -> ExceptionRecord {
    let count = (exception.frame_count as usize).min(EXCEPTION_FRAMES);
    ExceptionRecord {
        fatal: exception.fatal != 0,
        time_ns: exception.time_ns,
        time_unix_ns: exception.time_unix_ns,
        index: number(exception.index),
        key: words_if_any(&exception.key),
        kind: words(&exception.kind),
        message: words(&exception.message),
        frames: exception.frames[..count]
            .iter()
            .map(|frame| FrameRecord {
                file: words(&frame.file),
                line: frame.line,
                function: words(&frame.function),
            })
            .collect(),
    }
}

/// What a register points at. The mapping is filled in by whoever reads maps (`lastwords-autopsy`).
#[derive(Serialize)]
pub struct Pointed {
    pub bytes: String,
    pub mapping: Option<String>,
    pub offset: Option<u64>,
}

#[derive(Serialize)]
pub struct Thread {
    pub tid: i32,
    pub name: String,
}

#[derive(Serialize)]
pub struct CrashRecord {
    pub state: &'static str,
    pub steps_done: Vec<&'static str>,
    pub steps_failed: Vec<&'static str>,
    pub signal: i32,
    pub code: i32,
    pub error: i32,
    pub address: u64,
    pub sender_pid: Option<i32>,
    pub sender_uid: Option<u32>,
    pub syscall: Option<i32>,
    pub tid: i32,
    pub thread_name: String,
    pub time_unix_ns: u64,
    pub time_ns: u64,
    pub duration_ns: u64,
    pub architecture: &'static str,
    pub registers: BTreeMap<String, u64>,
    pub flags: u64,
    pub trap: u64,
    pub trap_error: u64,
    pub on_alternate_stack: bool,
    pub code_address: u64,
    pub code_bytes: String,
    pub stack_address: u64,
    pub stack_length: u64,
    pub stack_low: u64,
    pub stack_high: u64,
    pub previous_handler: u64,
    pub nested_step: Option<&'static str>,
    pub nested_signal: i32,
    pub nested_address: u64,
    pub other_crashes: u32,
    pub other_tid: i32,
    pub abort_message: Option<String>,
    pub exception_type: Option<String>,
    pub exception_what: Option<String>,
}

pub(crate) fn architecture_name(architecture: u32) -> &'static str {
    match architecture {
        ARCHITECTURE_X86_64 => "x86_64",
        ARCHITECTURE_AARCH64 => "aarch64",
        _ => "unknown",
    }
}

fn steps(bits: u32) -> Vec<&'static str> {
    STEP_NAMES
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits & (1 << bit) != 0)
        .map(|(_, name)| *name)
        .collect()
}

impl From<&Crash> for CrashRecord {
    fn from(crash: &Crash) -> Self {
        let was_sent = crash.code <= 0;
        Self {
            state: match crash.state {
                CRASH_BEGUN => "begun",
                CRASH_COMPLETE => "complete",
                CRASH_HANDLED => "handled",
                _ => "torn",
            },
            steps_done: steps(crash.steps_done),
            steps_failed: steps(crash.steps_failed),
            signal: crash.signal,
            code: crash.code,
            error: crash.error,
            address: crash.address,
            sender_pid: was_sent.then_some(crash.sender_pid),
            sender_uid: was_sent.then_some(crash.sender_uid),
            syscall: (crash.signal == libc::SIGSYS).then_some(crash.syscall),
            tid: crash.tid,
            thread_name: c_text(&crash.thread_name),
            time_unix_ns: crash.time_unix_ns,
            time_ns: crash.time_ns,
            duration_ns: crash.duration_ns,
            architecture: architecture_name(crash.architecture),
            registers: register_names(crash).into_iter().zip(crash.registers).collect(),
            flags: crash.flags,
            trap: crash.trap,
            trap_error: crash.trap_error,
            on_alternate_stack: crash.on_alternate_stack != 0,
            code_address: crash.code_address,
            code_bytes: hex(&crash.code_bytes[..(crash.code_length as usize).min(CODE_BYTES)]),
            stack_address: crash.stack_address,
            stack_length: crash.stack_length,
            stack_low: crash.stack_low,
            stack_high: crash.stack_high,
            previous_handler: crash.previous_handler,
            nested_step: (crash.nested_signal != 0)
                .then(|| STEP_NAMES.get(crash.nested_step as usize).copied().unwrap_or("?")),
            nested_signal: crash.nested_signal,
            nested_address: crash.nested_address,
            other_crashes: crash.other_crashes,
            other_tid: crash.other_tid,
            abort_message: words_if_any(&crash.abort_message),
            exception_type: words_if_any(&crash.exception_type),
            exception_what: words_if_any(&crash.exception_what),
        }
    }
}
