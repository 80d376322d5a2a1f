//! One pass over aarch64 code. Addresses come in two halves, `adrp` and what follows it.

use super::features;
use crate::events::{Event, Packed, Places, Reader, Swept, members, trait_of};
use crate::functions::Function;
use disarm64::{InsnOpcode, decoder};

/// Holds the page that each register was last given by `adrp`.
#[derive(Default)]
pub(crate) struct Arm {
    pages: [Option<u64>; 32],
    has_branched: bool,
}

impl Reader for Arm {
    fn read(
        &mut self,
        places: &Places,
        bytes: &[u8],
        function: &Function,
        events: &mut Vec<Packed>,
    ) -> Swept {
        let mut swept = Swept::default();
        *self = Self::default();
        // The last calls' result is in x0: a compare or a branch on it soon after is a question.
        let mut call: Option<(usize, u8)> = None;
        for (index, word) in bytes.as_chunks::<4>().0.iter().enumerate() {
            let word = u32::from_le_bytes(*word);
            let address = function.start.wrapping_add(index as u64 * 4);
            note_kind(word, &mut swept, events);
            call = call.and_then(|(at, age)| watch_result(word, at, age, events));
            if self.note_flow(word, address, function, events) {
                call = Some((events.len() - 1, 0));
            }
            self.note_address(word, address, places, events);
        }
        swept
    }
}

fn push(events: &mut Vec<Packed>, event: Event) {
    events.push(Packed::new(event));
}

fn note_kind(word: u32, swept: &mut Swept, events: &mut Vec<Packed>) {
    // Hints are no-ops on CPUs that do not know them: return-address signing lives there.
    if word & 0xffff_f01f == 0xd503_201f {
        return;
    }
    let Some(opcode) = decoder::decode(word) else {
        // Constants between functions are usual here; they do not shift what follows.
        return;
    };
    let definition = opcode.definition();
    let needs = features::needs(definition.feature_set);
    for index in members(needs & !swept.needs) {
        push(events, Event::Needs(index as u64));
    }
    swept.needs |= needs;
    swept.traits |= features::traits(definition.feature_set, definition.class);
    // mrs of an ID_AA64 register: the kernel answers for it.
    if word & 0xffff_f800 == 0xd538_0000 {
        swept.traits |= trait_of::ASKS;
        push(events, Event::Cpuid);
    }
}

fn watch_result(word: u32, at: usize, age: u8, events: &mut [Packed]) -> Option<(usize, u8)> {
    let tests_first = word & 0x7e00_001f == 0x3400_0000 || word & 0x7e00_001f == 0x3600_0000;
    let source = word >> 5 & 31;
    // and, ands, ubfx, mov, str of x0, or its return.
    let uses_first = word & 0x1f00_0000 == 0x1200_0000 && source == 0
        || word & 0x7fe0_ffe0 == 0x2a00_03e0 && word >> 16 & 31 == 0
        || word & 0x3b00_001f == 0x3900_0000 && word & 0x0040_0000 == 0
        || word == 0xd65f_03c0;
    if tests_first || uses_first {
        if let Event::Call(target) = events[at].event() {
            events[at] = Packed::new(Event::Ask(target));
        }
        return None;
    }
    (age < 4).then_some((at, age + 1))
}

/// `bits` low bits of `word` above `shift`, as a signed number of instructions.
fn displacement(word: u32, shift: u32, bits: u32) -> u64 {
    let value = i64::from(word >> shift & ((1 << bits) - 1));
    let signed = (value << (64 - bits)) >> (64 - bits);
    (signed * 4) as u64
}

impl Arm {
    /// True when the last event is a call.
    fn note_flow(&mut self, word: u32, address: u64, function: &Function, events: &mut Vec<Packed>) -> bool {
        let far = address.wrapping_add(displacement(word, 0, 26));
        let inside = |target: u64| target >= function.start && target < function.end;
        let is_conditional = word & 0xff00_0010 == 0x5400_0000
            || word & 0x7e00_0000 == 0x3400_0000
            || word & 0x7e00_0000 == 0x3600_0000;
        if is_conditional && !std::mem::replace(&mut self.has_branched, true) {
            push(events, Event::Branch);
        }
        match word >> 26 {
            0x25 => push(events, Event::Call(far)),
            0x05 if !inside(far) => push(events, Event::Jump(far)),
            _ => {}
        }
        word >> 26 == 0x25
    }

    fn note_address(&mut self, word: u32, address: u64, places: &Places, events: &mut Vec<Packed>) {
        let target = (word & 31) as usize;
        let base = self.pages[(word >> 5 & 31) as usize];
        let immediate = u64::from(word >> 10 & 0xfff);
        if word & 0x9f00_0000 == 0x9000_0000 {
            let pages = displacement(word, 5, 19) | u64::from(word >> 29 & 3);
            self.pages[target] = Some((address & !0xfff).wrapping_add(pages << 12));
        } else if word & 0xff80_0000 == 0x9100_0000 {
            let shift = if word & 0x0040_0000 != 0 { 12 } else { 0 };
            self.pages[target] = base.map(|page| page.wrapping_add(immediate << shift));
            if let Some(whole) = self.pages[target] {
                take(whole, places, events);
            }
        } else if word & 0x3b00_0000 == 0x3900_0000 {
            // Loads and stores with an unsigned offset, of any size.
            if let Some(page) = base {
                let place = page.wrapping_add(immediate << (word >> 30));
                let is_load = word & 0x00c0_0000 != 0;
                if places.data.contains(&place) {
                    push(
                        events,
                        if is_load {
                            Event::Read(place)
                        } else {
                            Event::Write(place)
                        },
                    );
                }
            }
            if word & 0x0400_0000 == 0 {
                self.pages[target] = None;
            }
        }
    }
}

fn take(address: u64, places: &Places, events: &mut Vec<Packed>) {
    if places.code.contains(&address) {
        push(events, Event::TakeCode(address));
    } else if places.data.contains(&address) {
        push(events, Event::TakeData(address));
    }
}

/// PLT entries: `adrp x16, page; ldr x17, [x16, #offset]; add; br x17`. Hands back entry and slot.
pub(crate) fn stubs(address: u64, bytes: &[u8]) -> Vec<(u64, u64)> {
    let words: Vec<u32> = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect();
    let pairs = words.windows(2).enumerate();
    pairs
        .filter(|(_, pair)| pair[0] & 0x9f00_001f == 0x9000_0010 && pair[1] & 0xffc0_03ff == 0xf940_0211)
        .map(|(index, pair)| {
            let at = address.wrapping_add(index as u64 * 4);
            let pages = displacement(pair[0], 5, 19) | u64::from(pair[0] >> 29 & 3);
            let slot = (at & !0xfff)
                .wrapping_add(pages << 12)
                .wrapping_add(u64::from(pair[1] >> 10 & 0xfff) * 8);
            (at, slot)
        })
        .collect()
}
