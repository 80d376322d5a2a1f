//! Thread contexts in the layouts that Windows fixed for each machine.

use crate::registers::{Architecture, Registers};

/// The registers as a CONTEXT record.
pub(super) fn record(registers: &Registers) -> Vec<u8> {
    match registers.architecture {
        Architecture::X86_64 => amd64(registers),
        Architecture::Aarch64 => arm64(registers),
    }
}

/// General purpose registers in the record's order, from offset 0x78 on.
const AMD64_ORDER: [&str; 17] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "rip",
];

fn amd64(registers: &Registers) -> Vec<u8> {
    const SIZE: usize = 1232;
    /// CONTEXT_AMD64 with control, integer and segment registers.
    const FLAGS: u32 = 0x0010_0007;
    let mut record = vec![0; SIZE];
    put(&mut record, 0x30, &FLAGS.to_le_bytes());
    // cs and ss as Linux sets them for 64-bit programs; lldb takes the mode from them.
    put(&mut record, 0x38, &0x33u16.to_le_bytes());
    put(&mut record, 0x42, &0x2bu16.to_le_bytes());
    for (index, name) in AMD64_ORDER.iter().enumerate() {
        let value = registers.by_name(name).unwrap_or(0);
        put(&mut record, 0x78 + index * 8, &value.to_le_bytes());
    }
    record
}

fn arm64(registers: &Registers) -> Vec<u8> {
    const SIZE: usize = 0x390;
    /// CONTEXT_ARM64 with control and integer registers.
    const FLAGS: u32 = 0x0040_0003;
    let mut record = vec![0; SIZE];
    put(&mut record, 0, &FLAGS.to_le_bytes());
    // x0 to x30, sp and pc follow each other in DWARF's order.
    for (index, value) in registers.values.iter().take(33).enumerate() {
        put(&mut record, 8 + index * 8, &value.to_le_bytes());
    }
    record
}

fn put(record: &mut [u8], offset: usize, bytes: &[u8]) {
    record[offset..offset + bytes.len()].copy_from_slice(bytes);
}
