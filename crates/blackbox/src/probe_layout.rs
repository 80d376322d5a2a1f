//! What stands where in a `.probe` file: the stacks of a process that lives, taken on request.
//!
//! A file of its own beside the box: it is made only when somebody asks, may be asked for again, and must
//! never overwrite what the box says about a crash.

use crate::layout::{MAPS_CAPACITY, MAX_REGISTERS, Plain, Text};
use core::mem::size_of;

pub const PROBE_MAGIC: [u8; 8] = *b"LASTPROB";
pub const PROBE_VERSION: u32 = 1;
pub const PROBE_THREADS: usize = 64;
pub const PROBE_STACK: u64 = 48 << 10;
pub const FUTEX_BYTES: usize = 40;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProbedThread {
    pub tid: i32,
    /// 1 when the thread answered: registers and stack are its own. A thread in an uninterruptible sleep
    /// does not answer, and what /proc says about it is all there is.
    pub answered: u32,
    pub name: [u8; 16],
    /// The state letter of /proc: R running, S sleeping, D uninterruptible.
    pub state: u32,
    pub register_count: u32,
    pub registers: [u64; MAX_REGISTERS],
    pub stack_address: u64,
    pub stack_length: u64,
    /// The line of /proc/PID/task/TID/syscall before the thread was disturbed.
    pub syscall: Text<156>,
    pub wait_channel: Text<60>,
    /// What lies at the futex that the thread waits for: a pthread mutex has its owner there.
    pub futex_address: u64,
    pub futex_length: u32,
    pub futex_bytes: [u8; FUTEX_BYTES],
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Probe {
    pub magic: [u8; 8],
    pub version: u32,
    /// 0 while it is taken, 1 when it is complete.
    pub complete: u32,
    pub pid: i32,
    pub architecture: u32,
    pub thread_count: u32,
    pub threads_left_out: u32,
    pub time_ns: u64,
    pub time_unix_ns: u64,
    pub duration_ns: u64,
    pub maps_length: u64,
    pub threads: [ProbedThread; PROBE_THREADS],
}

// SAFETY: repr(C) structs of integers and byte arrays.
unsafe impl Plain for Probe {}

const PAGE: u64 = 4096;
pub const PROBE_STACKS_AT: u64 = (size_of::<Probe>() as u64).div_ceil(PAGE) * PAGE;
pub const PROBE_MAPS_AT: u64 = PROBE_STACKS_AT + PROBE_THREADS as u64 * PROBE_STACK;
/// Last, because CPython's own dumper writes it and does not know our bounds.
pub const PROBE_PYTHON_AT: u64 = PROBE_MAPS_AT + MAPS_CAPACITY;

pub const fn stack_at(slot: usize) -> u64 {
    PROBE_STACKS_AT + slot as u64 * PROBE_STACK
}
