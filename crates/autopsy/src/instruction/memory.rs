//! What the instruction touches, with the addresses that it really used.

use iced_x86::{
    Formatter as _, Instruction as Decoded, InstructionInfo, IntelFormatter, OpAccess, OpKind, Register,
    UsedMemory,
};

use crate::registers::Registers;
use crate::report::{MemoryAccess, RegisterUse};

/// Memory operands, explicit and implicit. The address matters most where the signal has none: a
/// non-canonical pointer gives si_addr 0.
pub(super) fn accesses(
    instruction: &Decoded,
    info: &InstructionInfo,
    formatter: &mut IntelFormatter,
    registers: &Registers,
) -> Vec<MemoryAccess> {
    let text = operand_text(instruction, formatter);
    info.used_memory()
        .iter()
        .filter(|used| touches(used.access()))
        .map(|used| {
            let address = address(used, registers);
            MemoryAccess {
                text: text
                    .clone()
                    .filter(|_| is_explicit(used, instruction))
                    .unwrap_or_else(|| implicit_text(used)),
                address,
                canonical: address.map(is_canonical),
                read: reads(used.access()),
                write: writes(used.access()),
                size: Some(used.memory_size().size() as u64).filter(|size| *size > 0),
            }
        })
        .collect()
}

/// The registers it names or implies, at full width.
pub(super) fn registers_used(info: &InstructionInfo, registers: &Registers) -> Vec<RegisterUse> {
    let mut uses: Vec<RegisterUse> = Vec::new();
    for used in info.used_registers() {
        let full = used.register().full_register();
        if !full.is_gpr() {
            continue;
        }
        let name = name(full);
        let (read, write) = (reads(used.access()), writes(used.access()));
        match uses.iter_mut().find(|known| known.name == name) {
            Some(known) => {
                known.read |= read;
                known.write |= write;
            }
            None => uses.push(RegisterUse {
                value: registers.by_name(&name),
                name,
                read,
                write,
            }),
        }
    }
    uses
}

/// All of today's Linux processes live in 48 bits, or in 57 where the CPU and the program both ask.
pub(crate) fn is_canonical(address: u64) -> bool {
    let upper = address as i64 >> 47;
    upper == 0 || upper == -1
}

fn name(register: Register) -> String {
    format!("{register:?}").to_lowercase()
}

fn operand_text(instruction: &Decoded, formatter: &mut IntelFormatter) -> Option<String> {
    let operand =
        (0..instruction.op_count()).find(|operand| instruction.op_kind(*operand) == OpKind::Memory)?;
    let mut text = String::new();
    let index = formatter.get_formatter_operand(instruction, operand).ok()??;
    formatter.format_operand(instruction, &mut text, index).ok()?;
    // The size has a field of its own.
    Some(
        text.split_once("ptr ")
            .map_or(text.clone(), |(_, operand)| operand.to_owned()),
    )
}

/// `call [rdi]` reads one operand that is written down and writes one that is not.
fn is_explicit(used: &UsedMemory, instruction: &Decoded) -> bool {
    used.base() == instruction.memory_base() && used.index() == instruction.memory_index()
}

fn implicit_text(used: &UsedMemory) -> String {
    match used.displacement() as i64 {
        0 => format!("[{}]", name(used.base())),
        below if below < 0 => format!("[{}-{:#x}]", name(used.base()), below.unsigned_abs()),
        above => format!("[{}+{above:#x}]", name(used.base())),
    }
}

fn address(used: &UsedMemory, registers: &Registers) -> Option<u64> {
    used.virtual_address(0, |register, _, _| match register {
        // Segment bases of 64-bit code are 0, except these two, which no record holds.
        Register::FS | Register::GS => None,
        Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
        _ => partial_value(register, registers),
    })
}

/// Addresses can use 32-bit registers (the 67h prefix).
fn partial_value(register: Register, registers: &Registers) -> Option<u64> {
    let value = registers.by_name(&name(register.full_register()))?;
    match register.size() {
        8 => Some(value),
        4 => Some(value & 0xffff_ffff),
        _ => None,
    }
}

fn touches(access: OpAccess) -> bool {
    reads(access) || writes(access)
}

fn reads(access: OpAccess) -> bool {
    use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

fn writes(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}
