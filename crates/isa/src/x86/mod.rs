//! x86-64.

pub(crate) mod cpuid;
pub(crate) mod features;
pub(crate) mod questions;
mod skim;
pub(crate) mod sweep;

use crate::events::Set;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind};

/// Linkage code is decoded in a row: the jump's address, rounded down, is where its entry begins.
pub(crate) fn stubs(address: u64, bytes: &[u8]) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for instruction in &mut Decoder::with_ip(64, bytes, address, DecoderOptions::NONE) {
        if instruction.flow_control() == FlowControl::IndirectBranch && instruction.is_ip_rel_memory_operand()
        {
            let slot = instruction.ip_rel_memory_address();
            // Entries are 16 bytes, and 8 in .plt.got; endbr64 may come first.
            found.push((instruction.ip() & !15, slot));
            if instruction.ip() & 8 != 0 {
                found.push((instruction.ip() & !7, slot));
            }
        }
    }
    found
}

/// Of the variables that a function sets to a small constant, the one with the lowest address.
pub(crate) fn first_variable_set_to_a_number(bytes: &[u8], start: u64) -> Option<u64> {
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let set = decoder.iter().filter(|instruction| {
        instruction.mnemonic() == Mnemonic::Mov
            && instruction.is_ip_rel_memory_operand()
            && instruction.op1_kind() == OpKind::Immediate32
    });
    set.map(|instruction| instruction.ip_rel_memory_address()).min()
}

/// What a single instruction needs.
pub(crate) fn needs_of_instruction(bytes: &[u8]) -> Set {
    let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    features::table()[instruction.code() as usize].needs
}
