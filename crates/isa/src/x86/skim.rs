//! Steps over the instructions that tell nothing, several times faster than a full decoder: most code moves registers
//! about. Whatever is not plainly one of those is left to iced; a test compares the two on real libraries.

use super::features;
use iced_x86::{Code, Decoder, DecoderOptions};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// What a glance at an instruction found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Glance {
    /// Moves or computes; nothing to write down.
    Plain,
    /// As plain, and with the number (iced's Code) under which the table of kinds has it.
    OfKind(u16),
    /// Shifts by CL.
    ShiftByCl,
    Call(i32),
    Jump(i32),
    ConditionalJump(i32),
    /// For the full decoder.
    Unclear,
}

#[derive(Clone, Copy)]
pub(crate) struct Skimmed {
    pub(crate) glance: Glance,
    pub(crate) length: usize,
    /// It may read or write rax, in any of its sizes.
    pub(crate) may_touch_rax: bool,
}

const UNCLEAR: Skimmed = Skimmed {
    glance: Glance::Unclear,
    length: 0,
    may_touch_rax: true,
};

// What follows an opcode.
const NONE: u8 = 0;
const MODRM: u8 = 1;
const IMM8: u8 = 2;
/// Four bytes, two behind an operand-size prefix.
const IMM_Z: u8 = 4;
/// As IMM_Z, eight with REX.W.
const IMM_V: u8 = 8;
/// An immediate in two of the eight members of the group (`test`).
const GROUP_3: u8 = 16;
/// Its operand is rax without saying so.
const RAX: u8 = 32;
const SLOW: u8 = 128;

const ONE_BYTE: [u8; 256] = one_byte();

const fn one_byte() -> [u8; 256] {
    let mut table = [SLOW; 256];
    let mut row = 0;
    while row < 0x40 {
        // add, or, adc, sbb, and, sub, xor, cmp
        let mut column = 0;
        while column < 4 {
            table[row + column] = MODRM;
            column += 1;
        }
        table[row + 4] = IMM8 | RAX;
        table[row + 5] = IMM_Z | RAX;
        row += 8;
    }
    let mut opcode = 0x50;
    while opcode < 0x60 {
        table[opcode] = NONE;
        opcode += 1;
    }
    table[0x50] = RAX;
    table[0x58] = RAX;
    table[0x63] = MODRM;
    table[0x68] = IMM_Z;
    table[0x69] = MODRM | IMM_Z;
    table[0x6a] = IMM8;
    table[0x6b] = MODRM | IMM8;
    table[0x80] = MODRM | IMM8;
    table[0x81] = MODRM | IMM_Z;
    table[0x83] = MODRM | IMM8;
    opcode = 0x84;
    while opcode < 0x8c {
        table[opcode] = MODRM;
        opcode += 1;
    }
    table[0x90] = RAX;
    table[0x98] = RAX;
    table[0x99] = RAX;
    table[0xa8] = IMM8 | RAX;
    table[0xa9] = IMM_Z | RAX;
    opcode = 0xb0;
    while opcode < 0xb8 {
        table[opcode] = IMM8 | RAX;
        table[opcode + 8] = IMM_V | RAX;
        opcode += 1;
    }
    table[0xc0] = MODRM | IMM8;
    table[0xc1] = MODRM | IMM8;
    table[0xd0] = MODRM;
    table[0xd1] = MODRM;
    table[0xf6] = MODRM | GROUP_3 | IMM8;
    table[0xf7] = MODRM | GROUP_3 | IMM_Z;
    table
}

const TWO_BYTES: [u8; 256] = two_bytes();

const fn two_bytes() -> [u8; 256] {
    let mut table = [SLOW; 256];
    let mut opcode = 0x10;
    while opcode < 0x18 {
        table[opcode] = MODRM;
        table[opcode + 0x18] = MODRM;
        opcode += 1;
    }
    table[0x1f] = MODRM;
    opcode = 0x40;
    while opcode < 0x80 {
        table[opcode] = MODRM;
        opcode += 1;
    }
    opcode = 0x70;
    while opcode < 0x74 {
        table[opcode] = MODRM | IMM8;
        opcode += 1;
    }
    opcode = 0x77;
    while opcode < 0x7c {
        table[opcode] = SLOW;
        opcode += 1;
    }
    opcode = 0x90;
    while opcode < 0xa0 {
        table[opcode] = MODRM;
        opcode += 1;
    }
    table[0xa2] = SLOW;
    table[0xa3] = MODRM;
    table[0xa4] = MODRM | IMM8;
    table[0xac] = MODRM | IMM8;
    table[0xaf] = MODRM;
    table[0xb6] = MODRM;
    table[0xb7] = MODRM;
    table[0xb8] = MODRM;
    table[0xba] = MODRM | IMM8;
    opcode = 0xbc;
    while opcode < 0xc0 {
        table[opcode] = MODRM;
        opcode += 1;
    }
    table[0xc2] = MODRM | IMM8;
    table[0xc4] = MODRM | IMM8;
    table[0xc5] = MODRM | IMM8;
    table[0xc6] = MODRM | IMM8;
    opcode = 0xd0;
    while opcode < 0xff {
        table[opcode] = MODRM;
        opcode += 1;
    }
    table
}

/// Map 2 of VEX has instructions whose registers must differ (gathers, tiles): the full decoder knows the rules.
fn is_odd_in_map_2(opcode: u8) -> bool {
    matches!(opcode, 0x48..=0x4f | 0x5c..=0x5f | 0x6c..=0x6f | 0x90..=0x93 | 0xe0..=0xef)
}

/// `mod`, `reg`, `rm` of a ModRM byte, and how long it is with what belongs to it.
#[derive(Clone, Copy)]
struct Operands {
    length: usize,
    is_register: bool,
    reg: u8,
    rm: u8,
}

/// By ModRM byte: its length with the displacement, and what else there is to look at.
const ADDRESSING: [u8; 256] = addressing();
const LENGTH: u8 = 7;
const IS_RELATIVE: u8 = 16;
/// A second byte follows, and without a displacement that may tell of one.
const HAS_INDEX: u8 = 32;

const fn addressing() -> [u8; 256] {
    let mut table = [1; 256];
    let mut modrm = 0;
    while modrm < 256 {
        let (kind, rm) = (modrm >> 6, modrm & 7);
        if kind == 1 {
            table[modrm] = 2;
        } else if kind == 2 {
            table[modrm] = 5;
        } else if kind == 0 && rm == 5 {
            table[modrm] = IS_RELATIVE;
        }
        if kind != 3 && rm == 4 {
            table[modrm] += 1;
            if kind == 0 {
                table[modrm] |= HAS_INDEX;
            }
        }
        modrm += 1;
    }
    table
}

/// None for addresses relative to the instruction: those are written down.
#[inline(always)]
fn operands(at: &[u8; WINDOW], position: usize) -> Option<Operands> {
    let modrm = at[position & 15];
    let about = ADDRESSING[modrm as usize];
    let mut length = usize::from(about & LENGTH);
    if about & (IS_RELATIVE | HAS_INDEX) != 0 {
        if about & IS_RELATIVE != 0 {
            return None;
        }
        // A scaled index without a base has four bytes of displacement.
        if at[(position + 1) & 15] & 7 == 5 {
            length += 4;
        }
    }
    Some(Operands {
        length,
        is_register: modrm >= 0xc0,
        reg: modrm >> 3 & 7,
        rm: modrm & 7,
    })
}

/// The longest instruction has 15 bytes.
pub(crate) const WINDOW: usize = 16;

/// Looks at the instruction at the beginning of `at`, of which `left` bytes are code.
#[inline(always)]
pub(crate) fn skim(at: &[u8; WINDOW], left: usize) -> Skimmed {
    let found = look(at);
    if found.length > left { UNCLEAR } else { found }
}

#[inline(always)]
fn look(at: &[u8; WINDOW]) -> Skimmed {
    let has_prefix = matches!(at[0], 0x66 | 0xf2 | 0xf3);
    let prefix = if has_prefix { at[0] } else { 0 };
    let mut position = usize::from(has_prefix);
    let has_rex = at[position] & 0xf0 == 0x40;
    let rex = if has_rex { at[position] } else { 0 };
    position += usize::from(has_rex);
    let opcode = at[position];
    let follows = ONE_BYTE[opcode as usize];
    if follows & SLOW == 0 && prefix & 0xf0 != 0xf0 {
        return one(at, position + 1, follows, prefix, rex);
    }
    special(at, position + 1, opcode, prefix, rex)
}

/// What the table of opcodes leaves open.
#[inline(always)]
fn special(at: &[u8; WINDOW], position: usize, opcode: u8, prefix: u8, rex: u8) -> Skimmed {
    let is_first = position == 1;
    match opcode {
        0x0f => two(at, position, prefix, rex),
        0x70..=0x7f if is_first => branch(Glance::ConditionalJump(i32::from(at[1] as i8)), 2),
        0xe8 if is_first => branch(Glance::Call(long(at, 1)), 5),
        0xe9 if is_first => branch(Glance::Jump(long(at, 1)), 5),
        0xeb if is_first => branch(Glance::Jump(i32::from(at[1] as i8)), 2),
        0xc4 | 0xc5 if is_first => vex(at),
        _ if prefix & 0xf0 == 0xf0 => UNCLEAR,
        0xc6 | 0xc7 | 0x8d => moved(at, position, opcode, prefix, rex),
        0xd2 | 0xd3 => shift(at, position, rex),
        0xff if prefix == 0 => indirect(at, position, rex),
        _ => UNCLEAR,
    }
}

#[inline(always)]
fn long(at: &[u8; WINDOW], position: usize) -> i32 {
    i32::from_le_bytes([at[position], at[position + 1], at[position + 2], at[position + 3]])
}

fn branch(glance: Glance, length: usize) -> Skimmed {
    Skimmed {
        glance,
        length,
        may_touch_rax: false,
    }
}

#[inline(always)]
fn touches_rax(operands: &Operands, rex: u8) -> bool {
    operands.reg == 0 && rex & 4 == 0 || operands.is_register && operands.rm == 0 && rex & 1 == 0
}

#[inline(always)]
fn one(at: &[u8; WINDOW], position: usize, follows: u8, prefix: u8, rex: u8) -> Skimmed {
    let (mut length, mut may_touch_rax) = (position, follows & RAX != 0);
    let mut has_immediate = true;
    if follows & MODRM != 0 {
        let Some(operands) = operands(at, position) else {
            return UNCLEAR;
        };
        length += operands.length;
        may_touch_rax |= touches_rax(&operands, rex);
        has_immediate = follows & GROUP_3 == 0 || operands.reg < 2;
    }
    if has_immediate {
        length += immediate(follows, prefix, rex);
    }
    Skimmed {
        glance: Glance::Plain,
        length,
        may_touch_rax,
    }
}

#[inline(always)]
fn immediate(follows: u8, prefix: u8, rex: u8) -> usize {
    let is_wide = rex & 8 != 0;
    match follows & (IMM8 | IMM_Z | IMM_V) {
        IMM8 => 1,
        IMM_V if is_wide => 8,
        IMM_Z | IMM_V if prefix == 0x66 && !is_wide => 2,
        IMM_Z | IMM_V => 4,
        _ => 0,
    }
}

/// mov of a constant, and lea, which wants memory.
#[inline(always)]
fn moved(at: &[u8; WINDOW], position: usize, opcode: u8, prefix: u8, rex: u8) -> Skimmed {
    let Some(operands) = operands(at, position) else {
        return UNCLEAR;
    };
    let is_lea = opcode == 0x8d;
    if is_lea && operands.is_register || !is_lea && operands.reg != 0 {
        return UNCLEAR;
    }
    let follows = match opcode {
        0xc6 => IMM8,
        0xc7 => IMM_Z,
        _ => NONE,
    };
    Skimmed {
        glance: Glance::Plain,
        length: position + operands.length + immediate(follows, prefix, rex),
        may_touch_rax: touches_rax(&operands, rex),
    }
}

#[inline(always)]
fn shift(at: &[u8; WINDOW], position: usize, rex: u8) -> Skimmed {
    match operands(at, position) {
        Some(operands) => Skimmed {
            glance: Glance::ShiftByCl,
            length: position + operands.length,
            may_touch_rax: touches_rax(&operands, rex),
        },
        None => UNCLEAR,
    }
}

/// inc, dec, push, and calls and jumps through a register or memory that is not a slot.
#[inline(always)]
fn indirect(at: &[u8; WINDOW], position: usize, rex: u8) -> Skimmed {
    match operands(at, position) {
        Some(operands) if matches!(operands.reg, 0 | 1 | 2 | 4 | 6) => Skimmed {
            glance: Glance::Plain,
            length: position + operands.length,
            may_touch_rax: operands.is_register && operands.rm == 0 && rex & 1 == 0,
        },
        _ => UNCLEAR,
    }
}

#[inline(always)]
fn two(at: &[u8; WINDOW], position: usize, prefix: u8, rex: u8) -> Skimmed {
    let opcode = at[position];
    if opcode & 0xf0 == 0x80 {
        return if position == 1 {
            branch(Glance::ConditionalJump(long(at, 2)), 6)
        } else {
            UNCLEAR
        };
    }
    let (map, opcode, position, follows) = match opcode {
        0x38 => (2, at[position + 1], position + 2, MODRM),
        0x3a => (3, at[position + 1], position + 2, MODRM | IMM8),
        _ => (1, opcode, position + 1, TWO_BYTES[opcode as usize]),
    };
    if follows & SLOW != 0 {
        return UNCLEAR;
    }
    let Some(operands) = operands(at, position) else {
        return UNCLEAR;
    };
    let length = position + operands.length + usize::from(follows & IMM8 != 0);
    // Conditional moves, movzx and the like need nothing, whatever comes before them.
    let is_plain = map == 1
        && (opcode & 0xf0 == 0x40
            || matches!(opcode, 0xb6 | 0xb7 | 0xbe | 0xbf) && prefix & 0xf0 != 0xf0
            || opcode == 0x1f && prefix & 0xf0 != 0xf0);
    let glance = if is_plain && prefix & 0xf0 != 0xf0 {
        Glance::Plain
    } else {
        let key = Key {
            is_vex: false,
            map,
            prefix,
            opcode,
            is_wide: rex & 8 != 0,
            length: 0,
            names_third: false,
        };
        of_kind(at, &operands, &key)
    };
    Skimmed {
        glance,
        length,
        may_touch_rax: touches_rax(&operands, rex),
    }
}

#[inline(always)]
fn vex(at: &[u8; WINDOW]) -> Skimmed {
    let (map, byte, position) = if at[0] == 0xc5 {
        (1, at[1] & 0x7f, 2)
    } else {
        (at[1] & 0x1f, at[2], 3)
    };
    let opcode = at[position];
    let follows = match map {
        1 => TWO_BYTES[opcode as usize],
        2 if !is_odd_in_map_2(opcode) => MODRM,
        3 => MODRM | IMM8,
        _ => SLOW,
    };
    if follows & SLOW != 0 {
        return UNCLEAR;
    }
    let Some(operands) = operands(at, position + 1) else {
        return UNCLEAR;
    };
    let key = Key {
        is_vex: true,
        map,
        prefix: byte & 3,
        opcode,
        is_wide: byte & 0x80 != 0,
        length: byte >> 2 & 1,
        names_third: byte >> 3 & 15 != 15,
    };
    Skimmed {
        glance: of_kind(at, &operands, &key),
        length: position + 1 + operands.length + usize::from(follows & IMM8 != 0),
        may_touch_rax: true,
    }
}

/// All that decides what an instruction of these maps is.
struct Key {
    is_vex: bool,
    map: u8,
    prefix: u8,
    opcode: u8,
    is_wide: bool,
    length: u8,
    /// VEX.vvvv names a register: some instructions have no third operand, and must not.
    names_third: bool,
}

impl Key {
    #[inline(always)]
    fn index(&self, operands: &Operands) -> usize {
        let prefix = match self.prefix {
            0x66 => 1,
            0xf3 => 2,
            0xf2 => 3,
            vex => vex & 3,
        };
        let mut index = usize::from(self.opcode) << 3 | usize::from(operands.reg);
        for (value, bits) in [
            (self.map & 3, 2),
            (prefix, 2),
            (u8::from(self.is_wide), 1),
            (self.length, 1),
            (u8::from(self.names_third), 1),
            (u8::from(self.is_vex), 1),
            (u8::from(operands.is_register), 1),
        ] {
            index = index << bits | usize::from(value);
        }
        index
    }
}

const KEYS: usize = 1 << 20;
const NOT_ASKED_YET: u16 = 0;
const NOT_AN_INSTRUCTION: u16 = u16::MAX;

/// The kind of each instruction of these maps, as iced had it when one was first met; one more than its number.
fn known_kinds() -> &'static [AtomicU16] {
    static KNOWN: OnceLock<Vec<AtomicU16>> = OnceLock::new();
    KNOWN.get_or_init(|| (0..KEYS).map(|_| AtomicU16::new(NOT_ASKED_YET)).collect())
}

#[inline(always)]
fn of_kind(at: &[u8; WINDOW], operands: &Operands, key: &Key) -> Glance {
    let known = &known_kinds()[key.index(operands)];
    // Relaxed: whoever comes second finds the same.
    let mut found = known.load(Ordering::Relaxed);
    if found == NOT_ASKED_YET {
        found = ask_decoder(at);
        known.store(found, Ordering::Relaxed);
    }
    if found == NOT_AN_INSTRUCTION {
        Glance::Unclear
    } else {
        Glance::OfKind(found - 1)
    }
}

#[cold]
fn ask_decoder(at: &[u8; WINDOW]) -> u16 {
    let code = Decoder::new(64, at, DecoderOptions::NONE).decode().code();
    let needs_full_decoder = features::table()[code as usize].traits & crate::events::trait_of::ASKS != 0;
    if code == Code::INVALID || needs_full_decoder {
        NOT_AN_INSTRUCTION
    } else {
        code as u16 + 1
    }
}
