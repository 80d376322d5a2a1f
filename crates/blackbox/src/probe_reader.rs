//! Reading a `.probe` file back, with the same distrust as a box.

use crate::layout::Text;
use crate::probe_layout::{
    FUTEX_BYTES, PROBE_MAGIC, PROBE_MAPS_AT, PROBE_PYTHON_AT, PROBE_STACK, PROBE_THREADS, Probe,
    ProbedThread, stack_at,
};
use crate::reader::{NotABox, load};
use crate::record::{architecture_name, c_text, hex, names_of_registers};
use serde::Serialize;
use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

pub struct ProbeReader<'a> {
    bytes: &'a [u8],
    probe: Probe,
}

#[derive(Serialize)]
pub struct ProbeRecord {
    pub version: u32,
    pub complete: bool,
    pub pid: i32,
    pub architecture: &'static str,
    pub time_ns: u64,
    pub time_unix_ns: u64,
    pub duration_ns: u64,
    pub threads: Vec<ProbedRecord>,
    pub threads_left_out: u32,
    pub python_text: Option<String>,
}

#[derive(Serialize)]
pub struct ProbedRecord {
    pub tid: i32,
    pub name: String,
    pub answered: bool,
    pub state: Option<String>,
    pub registers: BTreeMap<String, u64>,
    pub syscall: Option<String>,
    pub wait_channel: Option<String>,
    pub futex_address: Option<u64>,
    pub futex_bytes: Option<String>,
}

fn words<const N: usize>(text: &Text<N>) -> Option<String> {
    (text.length > 0).then(|| String::from_utf8_lossy(text.kept()).into_owned())
}

impl<'a> ProbeReader<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, NotABox> {
        if bytes.get(..PROBE_MAGIC.len()) != Some(PROBE_MAGIC.as_slice()) {
            return Err(NotABox(format!(
                "it does not start with the mark of a probe ({} bytes)",
                bytes.len()
            )));
        }
        Ok(Self {
            bytes,
            probe: load(bytes),
        })
    }

    pub fn threads(&self) -> &[ProbedThread] {
        &self.probe.threads[..(self.probe.thread_count as usize).min(PROBE_THREADS)]
    }

    pub fn architecture(&self) -> u32 {
        self.probe.architecture
    }

    fn piece(&self, at: u64, length: u64) -> &'a [u8] {
        let start = usize::try_from(at).unwrap_or(usize::MAX).min(self.bytes.len());
        let length = usize::try_from(length).unwrap_or(0);
        &self.bytes[start..start.saturating_add(length).min(self.bytes.len())]
    }

    pub fn stack(&self, slot: usize) -> (u64, &'a [u8]) {
        self.threads().get(slot).map_or((0, &[]), |thread| {
            (
                thread.stack_address,
                self.piece(stack_at(slot), thread.stack_length.min(PROBE_STACK)),
            )
        })
    }

    pub fn maps(&self) -> &'a [u8] {
        self.piece(
            PROBE_MAPS_AT,
            self.probe.maps_length.min(PROBE_PYTHON_AT - PROBE_MAPS_AT),
        )
    }

    pub fn record(&self) -> ProbeRecord {
        let text = self.piece(PROBE_PYTHON_AT, u64::MAX);
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        ProbeRecord {
            version: self.probe.version,
            complete: self.probe.complete == 1,
            pid: self.probe.pid,
            architecture: architecture_name(self.probe.architecture),
            time_ns: self.probe.time_ns,
            time_unix_ns: self.probe.time_unix_ns,
            duration_ns: self.probe.duration_ns,
            threads: self.threads().iter().map(|thread| self.thread(thread)).collect(),
            threads_left_out: self.probe.threads_left_out,
            python_text: (end > 0).then(|| String::from_utf8_lossy(&text[..end]).into_owned()),
        }
    }

    fn thread(&self, thread: &ProbedThread) -> ProbedRecord {
        let length = (thread.futex_length as usize).min(FUTEX_BYTES);
        let state = u8::try_from(thread.state).ok().filter(u8::is_ascii_alphabetic);
        ProbedRecord {
            tid: thread.tid,
            name: c_text(&thread.name),
            answered: thread.answered == 1,
            state: state.map(|letter| char::from(letter).to_string()),
            registers: names_of_registers(self.probe.architecture, thread.register_count)
                .into_iter()
                .zip(thread.registers)
                .collect(),
            syscall: words(&thread.syscall),
            wait_channel: words(&thread.wait_channel),
            futex_address: (thread.futex_address != 0).then_some(thread.futex_address),
            futex_bytes: (length > 0).then(|| hex(&thread.futex_bytes[..length])),
        }
    }
}
