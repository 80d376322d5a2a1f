//! What the kernel knows about a process that is not ours: how it ended, and who ran out of memory.
//!
//! Every module is one question to the kernel, asked without the GIL, and each has an honest answer for
//! kernels that do not know it.

pub mod alarm;
pub mod cgroup;
pub mod close_look;
pub mod core_dump;
pub mod curve;
pub mod pidfd;
pub mod proc_connector;
pub mod sampler;
pub mod signals;
pub mod subreaper;

mod bounded;
mod system;
mod waiting;
