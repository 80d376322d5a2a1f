//! x86-64.

pub(crate) mod features;
pub(crate) mod sweep;

use iced_x86::{Decoder, DecoderOptions, FlowControl};

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
