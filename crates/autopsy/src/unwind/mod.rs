//! From the registers of one frame to those of its caller, until there is none.
//!
//! Unwind tables first: gdb's result is the yardstick, and only full DWARF call frame information
//! reaches it (torch's softmax keeps its frame address in r10 and behind expressions). Where there
//! is none the frame pointer and then the bare stack are asked, and the frame says so.

mod cfi;
mod expression;
mod index;
mod kept;
mod recover;
mod walk;

pub(crate) use cfi::function_range;
pub(crate) use walk::walk;

use crate::registers::{Architecture, MAX_REGISTERS, Registers};
use crate::report::{Omitted, Trust};

/// One physical frame, without names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) pc: u64,
    /// The address to ask tables for: of a caller it is inside the call, not behind it.
    pub(crate) lookup: u64,
    pub(crate) trust: Trust,
    pub(crate) signal_frame: bool,
}

/// A stack without names.
pub(crate) struct RawStack {
    pub(crate) frames: Vec<RawFrame>,
    pub(crate) omitted: Option<Omitted>,
    pub(crate) stopped_because: String,
    /// Registers of the innermost frames, in the order of `frames`.
    pub(crate) inner: Vec<Known>,
}

/// The registers of one frame as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    architecture: Architecture,
    values: [Option<u64>; MAX_REGISTERS],
}

impl Known {
    fn of(registers: &Registers) -> Self {
        let mut values = [None; MAX_REGISTERS];
        let count = registers.architecture.register_names().len();
        for (known, value) in values.iter_mut().zip(&registers.values).take(count) {
            *known = Some(*value);
        }
        Self {
            architecture: registers.architecture,
            values,
        }
    }

    /// Only the stack pointer and the program counter: all that a bare stack can tell.
    fn bare(architecture: Architecture, pc: u64, sp: u64) -> Self {
        let mut known = Self {
            architecture,
            values: [None; MAX_REGISTERS],
        };
        known.set_pc(pc);
        known.set_sp(sp);
        known
    }

    pub(crate) fn get(&self, number: u16) -> Option<u64> {
        self.values.get(usize::from(number)).copied().flatten()
    }

    fn set(&mut self, number: u16, value: Option<u64>) {
        if let Some(slot) = self.values.get_mut(usize::from(number)) {
            *slot = value;
        }
    }

    pub(crate) fn is_x86_64(&self) -> bool {
        self.architecture == Architecture::X86_64
    }

    fn pc(&self) -> Option<u64> {
        self.values[self.architecture.pc_index()]
    }

    fn sp(&self) -> Option<u64> {
        self.values[self.architecture.sp_index()]
    }

    fn frame_pointer(&self) -> Option<u64> {
        self.values[self.architecture.frame_pointer_index()]
    }

    fn set_pc(&mut self, pc: u64) {
        self.values[self.architecture.pc_index()] = Some(self.architecture.strip_signature(pc));
    }

    fn set_sp(&mut self, sp: u64) {
        self.values[self.architecture.sp_index()] = Some(sp);
    }

    fn set_frame_pointer(&mut self, value: Option<u64>) {
        self.values[self.architecture.frame_pointer_index()] = value;
    }
}

impl Architecture {
    /// aarch64 return addresses can carry an authentication code in their upper bits.
    fn strip_signature(self, pc: u64) -> u64 {
        match self {
            Self::X86_64 => pc,
            Self::Aarch64 => pc & 0x0000_ffff_ffff_ffff,
        }
    }
}
