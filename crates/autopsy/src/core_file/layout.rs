//! The kernel's structures inside core file notes, as offsets: `elf_prstatus`, `elf_prpsinfo` and
//! `siginfo`. They are the same on both machines except for the registers.

use crate::registers::{Architecture, Registers};

pub(super) const PRSTATUS_PID: usize = 32;
pub(super) const PRSTATUS_SIGNAL: usize = 12;
const PRSTATUS_REGISTERS: usize = 112;

pub(super) const PRPSINFO_PID: usize = 24;
pub(super) const PRPSINFO_PARENT: usize = 28;
pub(super) const PRPSINFO_NAME: std::ops::Range<usize> = 40..56;
pub(super) const PRPSINFO_COMMAND: std::ops::Range<usize> = 56..136;

pub(super) const SIGINFO_SIGNAL: usize = 0;
pub(super) const SIGINFO_CODE: usize = 8;
pub(super) const SIGINFO_ADDRESS: usize = 16;
/// The same bytes for a signal that was sent.
pub(super) const SIGINFO_SENDER: usize = 16;

/// Where `user_regs_struct` keeps each register, by DWARF number:
/// r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss.
const X86_64_ORDER: [usize; 17] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16];

/// The registers of one `elf_prstatus`.
pub(super) fn registers(status: &[u8], architecture: Architecture) -> Option<Registers> {
    let read = |index: usize| read_u64(status, PRSTATUS_REGISTERS + index * 8);
    let values: Option<Vec<u64>> = match architecture {
        Architecture::X86_64 => X86_64_ORDER.iter().map(|index| read(*index)).collect(),
        // x0 to x30, sp, pc: DWARF's own order.
        Architecture::Aarch64 => (0..33).map(read).collect(),
    };
    Some(Registers {
        architecture,
        values: values?,
    })
}

pub(super) fn read_u64(bytes: &[u8], offset: usize) -> Option<u64> {
    let field = bytes.get(offset..offset.checked_add(8)?)?;
    Some(u64::from_le_bytes(field.try_into().ok()?))
}

pub(super) fn read_i32(bytes: &[u8], offset: usize) -> Option<i32> {
    let field = bytes.get(offset..offset.checked_add(4)?)?;
    Some(i32::from_le_bytes(field.try_into().ok()?))
}

pub(super) fn read_i16(bytes: &[u8], offset: usize) -> Option<i16> {
    let field = bytes.get(offset..offset.checked_add(2)?)?;
    Some(i16::from_le_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_register_orders_agree() {
        let mut status = vec![0; PRSTATUS_REGISTERS + 27 * 8];
        for (index, chunk) in status[PRSTATUS_REGISTERS..].chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&(index as u64).to_le_bytes());
        }
        let registers = registers(&status, Architecture::X86_64).unwrap();
        assert_eq!((registers.pc(), registers.sp()), (16, 19));
        assert_eq!(registers.by_name("r15"), Some(0));
        assert_eq!(registers.by_name("rdi"), Some(14));
        assert!(super::registers(&status[..200], Architecture::X86_64).is_none());
    }
}
