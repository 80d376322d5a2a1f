//! The black box: one file per process that survives any death of that process.
//!
//! The writing half (`layout`, `file`, `recorder`, `live`) is `no_std`, allocates nothing and takes no
//! lock, so that the same code serves a hot loop, the child side of a fork and a crash handler. The
//! reading half (`reader`, behind a feature) trusts nothing it finds in a file.
//!
//! The format is written down in docs/blackbox-format.md.
#![no_std]

#[cfg(any(feature = "reader", test))]
extern crate std;

pub mod clock;
pub mod cpuid;
pub mod file;
pub mod identity;
pub mod layout;
pub mod live;
pub mod probe_layout;
pub mod recorder;

mod announce;

#[cfg(feature = "reader")]
pub mod probe_reader;
#[cfg(feature = "reader")]
pub mod reader;
#[cfg(feature = "reader")]
pub mod record;
