//! A minidump of one snapshot, for those who want to look with lldb or minidump-stackwalk.
//!
//! The format is Microsoft's; the Linux conventions (platform id, maps stream, build ids as CodeView
//! records) are Breakpad's. It holds stack bytes, so it is as private as the black box it came from.

mod buffer;
mod context;
mod modules;

use std::fmt::Write as _;

use crate::registers::Architecture;
use crate::scene::Scene;
use crate::snapshot::{Limits, Region, Snapshot};
use buffer::{Buffer, Location};

const SIGNATURE: u32 = 0x504d_444d;
const VERSION: u32 = 0xa793;

const THREAD_LIST: u32 = 3;
const MODULE_LIST: u32 = 4;
const MEMORY_LIST: u32 = 5;
const EXCEPTION: u32 = 6;
const SYSTEM_INFO: u32 = 7;
const MISC_INFO: u32 = 15;
const THREAD_NAMES: u32 = 24;
const LINUX_MAPS: u32 = 0x4767_0009;

const PLATFORM_LINUX: u32 = 0x8201;
const PROCESSOR_AMD64: u16 = 9;
const PROCESSOR_ARM64: u16 = 12;

/// Offsets have 32 bits; a snapshot's stack windows stay far below this.
const MAX_MEMORY_BYTES: usize = 64 << 20;
const MAX_REGIONS: usize = 1024;

/// A stack pointer in the guard page still belongs to the stack above it.
const MAX_GUARD_BYTES: u64 = 1 << 20;

/// What a minidump wants to know beyond the snapshot.
#[derive(Clone, Debug, Default)]
pub struct MinidumpExtra<'a> {
    /// Of the process that died.
    pub process_id: u32,
    /// Of the thread that the snapshot shows.
    pub thread_id: u32,
    /// Seconds since 1970.
    pub time: u32,
    /// Of the thread.
    pub thread_name: Option<&'a str>,
}

/// The snapshot as the bytes of a minidump file.
#[must_use]
pub fn minidump(snapshot: &Snapshot<'_>, extra: &MinidumpExtra<'_>) -> Vec<u8> {
    let mut dump = Dump {
        buffer: Buffer::with_header(8),
        streams: Vec::new(),
    };
    let context = dump.buffer.append(&context::record(&snapshot.registers));
    let memory = dump.memory(snapshot);
    dump.threads(snapshot, extra, context, &memory);
    dump.exception(snapshot, extra, context);
    dump.system_info(snapshot.registers.architecture);
    dump.modules(snapshot);
    dump.misc_info(extra);
    dump.thread_names(extra);
    dump.maps(snapshot);
    dump.finish(extra.time)
}

/// A piece of memory that is already in the file.
struct Saved {
    address: u64,
    location: Location,
}

struct Dump {
    buffer: Buffer,
    streams: Vec<(u32, Location)>,
}

impl Dump {
    fn stream(&mut self, kind: u32, bytes: &[u8]) {
        let location = self.buffer.append(bytes);
        self.streams.push((kind, location));
    }

    fn memory(&mut self, snapshot: &Snapshot<'_>) -> Vec<Saved> {
        let mut left = MAX_MEMORY_BYTES;
        let mut saved = Vec::new();
        for region in snapshot.memory.iter().chain(&snapshot.code).take(MAX_REGIONS) {
            let Region { address, bytes } = *region;
            let bytes = &bytes[..bytes.len().min(left)];
            left -= bytes.len();
            if !bytes.is_empty() {
                saved.push(Saved {
                    address,
                    location: self.buffer.append(bytes),
                });
            }
        }
        let mut list = (saved.len() as u32).to_le_bytes().to_vec();
        saved.iter().for_each(|piece| list.extend(descriptor(piece)));
        self.stream(MEMORY_LIST, &list);
        saved
    }

    fn threads(
        &mut self,
        snapshot: &Snapshot<'_>,
        extra: &MinidumpExtra<'_>,
        context: Location,
        memory: &[Saved],
    ) {
        let mut list = 1u32.to_le_bytes().to_vec();
        list.extend(extra.thread_id.to_le_bytes());
        // Suspend count, priority class, priority, TEB: Windows matters.
        list.extend([0; 20]);
        match stack_of(snapshot.registers.sp(), memory) {
            Some(stack) => list.extend(descriptor(stack)),
            None => list.extend([0; 16]),
        }
        list.extend(context.bytes());
        self.stream(THREAD_LIST, &list);
    }

    fn exception(&mut self, snapshot: &Snapshot<'_>, extra: &MinidumpExtra<'_>, context: Location) {
        let mut record = extra.thread_id.to_le_bytes().to_vec();
        record.extend([0; 4]);
        record.extend(snapshot.signal.unwrap_or(0).to_le_bytes());
        record.extend(snapshot.signal_code.unwrap_or(0).to_le_bytes());
        record.extend([0; 8]);
        record.extend(snapshot.fault_address.unwrap_or(0).to_le_bytes());
        // No parameters; the 15 slots are there all the same.
        record.extend([0; 8 + 15 * 8]);
        record.extend(context.bytes());
        self.stream(EXCEPTION, &record);
    }

    fn system_info(&mut self, architecture: Architecture) {
        let version = self.buffer.append_string("Linux");
        let processor = match architecture {
            Architecture::X86_64 => PROCESSOR_AMD64,
            Architecture::Aarch64 => PROCESSOR_ARM64,
        };
        let mut record = processor.to_le_bytes().to_vec();
        // Level, revision, processors, product type; then major, minor, build.
        record.extend([0; 6 + 12]);
        record.extend(PLATFORM_LINUX.to_le_bytes());
        record.extend(version.offset.to_le_bytes());
        record.extend([0; 4 + 24]);
        self.stream(SYSTEM_INFO, &record);
    }

    fn modules(&mut self, snapshot: &Snapshot<'_>) {
        let scene = Scene::new(&snapshot.mappings, &[], &Limits::default());
        let records = modules::records(&scene, &snapshot.mappings, &mut self.buffer);
        let mut list = (records.len() as u32).to_le_bytes().to_vec();
        records.iter().for_each(|record| list.extend(record));
        self.stream(MODULE_LIST, &list);
    }

    fn misc_info(&mut self, extra: &MinidumpExtra<'_>) {
        const PROCESS_ID_IS_VALID: u32 = 1;
        let fields = [24, PROCESS_ID_IS_VALID, extra.process_id, 0, 0, 0];
        self.stream(MISC_INFO, &fields.map(u32::to_le_bytes).concat());
    }

    fn thread_names(&mut self, extra: &MinidumpExtra<'_>) {
        let Some(name) = extra.thread_name else { return };
        let name = self.buffer.append_string(name);
        let mut list = 1u32.to_le_bytes().to_vec();
        list.extend(extra.thread_id.to_le_bytes());
        list.extend(u64::from(name.offset).to_le_bytes());
        self.stream(THREAD_NAMES, &list);
    }

    fn maps(&mut self, snapshot: &Snapshot<'_>) {
        let mut text = String::new();
        for mapping in &snapshot.mappings {
            let (start, end, permissions) = (mapping.start, mapping.end, mapping.permissions());
            let (offset, inode, path) = (mapping.offset, mapping.inode, &mapping.path);
            let deleted = if mapping.deleted { " (deleted)" } else { "" };
            let _ = writeln!(
                text,
                "{start:08x}-{end:08x} {permissions} {offset:08x} 00:00 {inode} {path}{deleted}"
            );
        }
        self.stream(LINUX_MAPS, text.as_bytes());
    }

    fn finish(mut self, time: u32) -> Vec<u8> {
        let header = [
            SIGNATURE,
            VERSION,
            self.streams.len() as u32,
            Buffer::DIRECTORY,
            0,
            time,
        ];
        let mut start = header.map(u32::to_le_bytes).concat();
        start.extend([0; 8]);
        for (kind, location) in &self.streams {
            start.extend(kind.to_le_bytes());
            start.extend(location.bytes());
        }
        self.buffer.fill_header(&start);
        self.buffer.into_bytes()
    }
}

fn descriptor(piece: &Saved) -> Vec<u8> {
    let mut bytes = piece.address.to_le_bytes().to_vec();
    bytes.extend(piece.location.bytes());
    bytes
}

fn stack_of(sp: u64, memory: &[Saved]) -> Option<&Saved> {
    let end = |piece: &Saved| piece.address.saturating_add(u64::from(piece.location.size));
    let holds = memory.iter().find(|piece| piece.address <= sp && sp < end(piece));
    let above = || {
        let candidates = memory.iter().filter(|piece| {
            piece
                .address
                .checked_sub(sp)
                .is_some_and(|gap| gap < MAX_GUARD_BYTES)
        });
        candidates.min_by_key(|piece| piece.address)
    };
    holds.or_else(above)
}
