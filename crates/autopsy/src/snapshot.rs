//! What goes in: one thread of a dead (or probed) process, and how much work it may cost us.

use std::time::Duration;

use crate::mappings::Mapping;
use crate::registers::Registers;

/// A piece of the dead process's memory.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// Where it lay.
    pub address: u64,
    /// What lay there.
    pub bytes: &'a [u8],
}

impl<'a> Region<'a> {
    /// As many bytes from `address` on as were saved, up to `length`; empty when it lies elsewhere.
    pub(crate) fn from(&self, address: u64, length: usize) -> &'a [u8] {
        let Some(start) = address.checked_sub(self.address) else {
            return &[];
        };
        let Ok(start) = usize::try_from(start) else {
            return &[];
        };
        let rest = self.bytes.get(start..).unwrap_or(&[]);
        &rest[..rest.len().min(length)]
    }
}

/// One thread at the moment of its death. Everything in it may be torn, truncated or made up.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// At the fault, not in the handler.
    pub registers: Registers,
    /// Stack windows; more memory is welcome, and in any order.
    pub memory: Vec<Region<'a>>,
    /// Of the whole process.
    pub mappings: Vec<Mapping>,
    /// Bytes around the program counter as they were in memory.
    pub code: Option<Region<'a>>,
    /// `si_addr`; only for signals that have one.
    pub fault_address: Option<u64>,
    /// Number.
    pub signal: Option<i32>,
    /// `si_code`
    pub signal_code: Option<i32>,
}

/// Bounds on the work that a hostile input can cause.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Frames in the answer. Of a deeper stack the innermost and the outermost are kept.
    pub max_frames: usize,
    /// The same for the threads of a core file that did not crash.
    pub max_frames_of_others: usize,
    /// Frames walked, so that the outermost ones of a stack overflow are reached.
    pub max_walk: usize,
    /// Threads of a core file.
    pub max_threads: usize,
    /// Stack words looked at for a return address where unwind tables are missing.
    pub max_scan_words: usize,
    /// Debug information larger than this is left alone: reading it would take seconds.
    pub max_debug_bytes: u64,
    /// Anything decompressed (.gnu_debugdata, compressed debug sections), each.
    pub max_decompressed_bytes: u64,
    /// After this the autopsy answers with what it has.
    pub max_duration: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_frames: 512,
            max_frames_of_others: 128,
            max_walk: 250_000,
            max_threads: 64,
            max_scan_words: 1024,
            max_debug_bytes: 1 << 30,
            max_decompressed_bytes: 256 << 20,
            max_duration: Duration::from_secs(10),
        }
    }
}
