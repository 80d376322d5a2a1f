//! The faulting instruction, decoded: what it is, what CPU it needs, what memory it touched.

mod extensions;
mod memory;

pub use extensions::cpuinfo_flags;
pub(crate) use memory::is_canonical;

use iced_x86::{
    Code, Decoder, DecoderError, DecoderOptions, Formatter as _, Instruction as Decoded,
    InstructionInfoFactory, IntelFormatter, Mnemonic,
};

use crate::registers::{Architecture, Registers};
use crate::report::{ByteSource, Instruction};
use crate::text::hexadecimal;

/// The architecture's own bound.
pub(crate) const LONGEST_INSTRUCTION: usize = 15;

/// `call [base+index*scale+disp32]` without prefixes.
pub(crate) const LONGEST_CALL: usize = 7;

/// Decodes the instruction at the program counter. `Err` says why that could not be done.
pub(crate) fn decode(bytes: &[u8], source: ByteSource, registers: &Registers) -> Result<Instruction, String> {
    if registers.architecture != Architecture::X86_64 {
        return Err("decoding aarch64 instructions is not supported yet".to_owned());
    }
    let bytes = &bytes[..bytes.len().min(LONGEST_INSTRUCTION)];
    let mut decoder = Decoder::with_ip(64, bytes, registers.pc(), DecoderOptions::NONE);
    let decoded = decoder.decode();
    if decoder.last_error() == DecoderError::NoMoreBytes {
        return Err(format!(
            "only {} bytes of the instruction were saved",
            bytes.len()
        ));
    }
    let length = if decoded.is_invalid() {
        bytes.len()
    } else {
        decoded.len()
    };
    Ok(describe(
        &decoded,
        &bytes[..length.min(bytes.len())],
        source,
        registers,
    ))
}

fn describe(decoded: &Decoded, bytes: &[u8], source: ByteSource, registers: &Registers) -> Instruction {
    let mut formatter = formatter();
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(decoded);
    let mut text = String::new();
    formatter.format(decoded, &mut text);
    let mnemonic = text.split(' ').next().unwrap_or_default().to_owned();
    Instruction {
        address: decoded.ip(),
        bytes: hexadecimal(bytes),
        mnemonic,
        extensions: extensions_of(decoded),
        memory: memory::accesses(decoded, info, &mut formatter, registers),
        is_trap: is_trap(decoded),
        is_privileged: decoded.is_privileged(),
        is_valid: decoded.code() != Code::INVALID,
        source,
        registers_used: memory::registers_used(info, registers),
        text,
    }
}

fn formatter() -> IntelFormatter {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_rip_relative_addresses(true);
    options.set_branch_leading_zeros(false);
    formatter
}

fn extensions_of(decoded: &Decoded) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if is_hint(decoded) {
        return names;
    }
    for feature in decoded.cpuid_features() {
        for flag in cpuinfo_flags(*feature) {
            if !names.iter().any(|known| known == flag) {
                names.push((*flag).to_owned());
            }
        }
    }
    names
}

/// Encoded where older CPUs see a no-op: every compiler puts `endbr64` into baseline code.
fn is_hint(decoded: &Decoded) -> bool {
    use Mnemonic::{Cldemote, Endbr32, Endbr64, Prefetchw, Prefetchwt1, Rdsspd, Rdsspq};
    matches!(
        decoded.mnemonic(),
        Cldemote | Endbr32 | Endbr64 | Prefetchw | Prefetchwt1 | Rdsspd | Rdsspq
    )
}

fn is_trap(decoded: &Decoded) -> bool {
    use Mnemonic::{Int, Int1, Int3, Into, Ud0, Ud1, Ud2};
    matches!(decoded.mnemonic(), Ud0 | Ud1 | Ud2 | Int | Int1 | Int3 | Into)
}

/// Whether a call ends where these bytes end. Its length is not known, so each possible one is tried.
pub(crate) fn ends_in_call(bytes: &[u8]) -> bool {
    (2..=LONGEST_CALL.min(bytes.len())).any(|length| {
        let tail = &bytes[bytes.len() - length..];
        let decoded = Decoder::new(64, tail, DecoderOptions::NONE).decode();
        // By mnemonic: the decoder counts a system call as a call too.
        decoded.mnemonic() == Mnemonic::Call && decoded.len() == length
    })
}

#[cfg(test)]
mod tests;
