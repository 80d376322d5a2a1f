//! Offline autopsy of a crash: from a snapshot of a dead thread to a native stack with names, the
//! faulting instruction decoded, and a minidump for other tools.
//!
//! Runs in the watcher after the death, never in the dying process, so it may allocate. Everything
//! it reads (boxes, cores, libraries) is hostile: bounded, no panic, no endless loop.

mod arguments;
mod core_file;
mod examine;
mod fault;
mod image;
mod instruction;
mod mappings;
mod minidump;
mod registers;
mod report;
mod scene;
mod snapshot;
mod symbols;
mod text;
mod unwind;

pub use core_file::{CoreAutopsy, CoreError, ThreadAutopsy, from_core, from_core_bytes};
pub use examine::autopsy;
pub use instruction::cpuinfo_flags;
pub use mappings::{Mapping, parse_maps};
pub use minidump::{MinidumpExtra, minidump};
pub use registers::{Architecture, Registers};
pub use report::{
    AddressUse, Arguments, Autopsy, ByteSource, Frame, Instruction, MappingUse, MemoryAccess, Omitted,
    RegisterUse, Trust,
};
pub use snapshot::{Limits, Region, Snapshot};
