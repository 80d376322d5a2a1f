//! Registers in DWARF numbering, the numbering that unwind tables speak.

use serde::ser::{Serialize, SerializeMap, Serializer};

/// No supported machine has more registers than aarch64: x0 to x30, sp and pc.
pub(crate) const MAX_REGISTERS: usize = 33;

const X86_64_NAMES: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "rip",
];

const AARCH64_NAMES: [&str; 33] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
    "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30",
    "sp", "pc",
];

/// The machine that the dead process ran on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Intel and AMD, 64 bit.
    X86_64,
    /// Arm, 64 bit.
    Aarch64,
}

impl Architecture {
    /// The machine this code was compiled for, where it is one that we know.
    #[must_use]
    pub fn host() -> Self {
        if cfg!(target_arch = "aarch64") {
            Self::Aarch64
        } else {
            Self::X86_64
        }
    }

    /// Register names by DWARF number.
    #[must_use]
    pub fn register_names(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &X86_64_NAMES,
            Self::Aarch64 => &AARCH64_NAMES,
        }
    }

    pub(crate) fn pc_index(self) -> usize {
        self.register_names().len() - 1
    }

    pub(crate) fn sp_index(self) -> usize {
        match self {
            Self::X86_64 => 7,
            Self::Aarch64 => 31,
        }
    }

    pub(crate) fn frame_pointer_index(self) -> usize {
        match self {
            Self::X86_64 => 6,
            Self::Aarch64 => 29,
        }
    }
}

/// The registers of one thread at one moment. DWARF-numbered.
///
/// x86-64: rax rdx rcx rbx rsi rdi rbp rsp r8..r15 rip (17). aarch64: x0..x30, sp, pc (33).
/// A box may hold fewer values than the machine has registers: the missing ones are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Decides what the values mean.
    pub architecture: Architecture,
    /// By DWARF number.
    pub values: Vec<u64>,
}

impl Registers {
    /// The program counter, or 0 when it was not saved.
    #[must_use]
    pub fn pc(&self) -> u64 {
        self.get(self.architecture.pc_index()).unwrap_or(0)
    }

    /// The stack pointer, or 0 when it was not saved.
    #[must_use]
    pub fn sp(&self) -> u64 {
        self.get(self.architecture.sp_index()).unwrap_or(0)
    }

    /// By DWARF number.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<u64> {
        self.values.get(number).copied()
    }

    /// By name, as the assembler of that machine spells it.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<u64> {
        let number = self
            .architecture
            .register_names()
            .iter()
            .position(|known| *known == name)?;
        self.get(number)
    }

    /// Names with values, in DWARF order.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.architecture
            .register_names()
            .iter()
            .copied()
            .zip(self.values.iter().copied())
    }
}

impl Serialize for Registers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.named() {
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x86(values: Vec<u64>) -> Registers {
        Registers {
            architecture: Architecture::X86_64,
            values,
        }
    }

    #[test]
    fn pc_and_sp_follow_the_dwarf_numbering() {
        let registers = x86((0..17).collect());
        assert_eq!((registers.pc(), registers.sp()), (16, 7));
        assert_eq!(registers.by_name("rdi"), Some(5));
        let arm = Registers {
            architecture: Architecture::Aarch64,
            values: (0..33).collect(),
        };
        assert_eq!((arm.pc(), arm.sp(), arm.by_name("x29")), (32, 31, Some(29)));
    }

    #[test]
    fn a_short_record_leaves_registers_unknown() {
        let registers = x86(vec![1, 2]);
        assert_eq!(registers.pc(), 0);
        assert_eq!(registers.by_name("r15"), None);
    }
}
