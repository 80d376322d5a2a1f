//! GPU code inside a library: which architectures its fat binaries hold.

use std::collections::BTreeSet;

const MAGIC: u32 = 0xba55_ed50;
const PTX: u16 = 1;
const CUBIN: u16 = 2;
const MOST_ENTRIES: usize = 1 << 20;

/// `sm_90` and `compute_90` of every fat binary in the section, sorted.
pub(crate) fn architectures(section: &[u8]) -> Vec<String> {
    let mut found = BTreeSet::new();
    let (mut at, mut budget) = (0, MOST_ENTRIES);
    while let Some(head) = section.get(at..).and_then(|rest| rest.get(..16)) {
        if u32_at(head, 0) != MAGIC {
            at += 8;
            continue;
        }
        let start = at + usize::from(u16_at(head, 6));
        let end = start.saturating_add(u64_at(head, 8) as usize).min(section.len());
        entries(section.get(start..end).unwrap_or(&[]), &mut budget, &mut found);
        at = end.max(at + 8).next_multiple_of(8);
        if budget == 0 {
            break;
        }
    }
    found
        .into_iter()
        .map(|(architecture, kind)| format!("{kind}_{architecture}"))
        .collect()
}

fn entries(mut rest: &[u8], budget: &mut usize, found: &mut BTreeSet<(u32, &'static str)>) {
    while let Some(head) = rest.get(..64).filter(|_| *budget > 0) {
        *budget -= 1;
        match u16_at(head, 0) {
            PTX => drop(found.insert((u32_at(head, 28), "compute"))),
            CUBIN => drop(found.insert((u32_at(head, 28), "sm"))),
            _ => {}
        }
        let size = (u32_at(head, 4) as usize).saturating_add(u64_at(head, 8) as usize);
        let Some(next) = rest.get(size..).filter(|_| size > 0) else {
            return;
        };
        rest = next;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
