//! The crash handler: the only code of ours that runs in a dying process.
//!
//! It allocates nothing and takes no lock; it writes into a file that was opened and mapped while all was
//! well. Each dangerous step is guarded, so that a second fault costs that step and not the record. It
//! then lets the handler that was there before speak, and returns under SIG_DFL, so that the very same
//! fault happens again and exit status, core file and kernel log line are those of the true crash.
#![no_std]

mod alternate_stack;
mod capture;
mod entry;
mod exception;
mod got;
mod guard;
mod maps;
mod previous;
mod probe;
mod registers;
mod signals;
mod threads;

pub use alternate_stack::ensure as ensure_alternate_stack;
pub use capture::{find_second_dumper, set_python_dumper};
pub use probe::listen as listen_for_probes;
pub use signals::{come_back, install, prepare, refresh, refresh_if_due, set_python_trampoline, stand_aside};
