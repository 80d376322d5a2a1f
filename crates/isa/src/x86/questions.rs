//! What a function asks the CPU for: cpuid's answers are followed through registers, stack and variables to the bits
//! that somebody looks at. Code is read in the order of its addresses; where that loses track, all that the answer
//! could tell counts as asked.

use super::cpuid::Word;
use crate::events::Set;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, UsedRegister,
};
use std::collections::HashMap;

/// What a register, a stack slot or a variable holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Value {
    Unknown,
    Number(u32),
    /// Of a variable.
    Address(u64),
    /// Bits of an answer, moved right by `shift`; those outside `mask` are gone.
    Bits {
        word: Word,
        shift: u8,
        mask: u32,
    },
    /// It depends on whether the CPU has these.
    Verdict(Set),
}

impl Value {
    /// What can be learnt from all of it.
    pub(crate) fn features(self) -> Set {
        match self {
            Self::Bits { word, mask, .. } => word.features(mask),
            Self::Verdict(set) => set,
            _ => 0,
        }
    }

    /// What is left after `and` with a number.
    fn masked(self, number: u32) -> Self {
        match self {
            Self::Bits { word, shift, mask } => Self::Bits {
                word,
                shift,
                mask: mask & number.checked_shl(u32::from(shift)).unwrap_or(0),
            },
            other => other,
        }
    }

    fn shifted(self, by: u32) -> Self {
        match self {
            Self::Bits { word, shift, mask } if u32::from(shift) + by < 32 => Self::Bits {
                word,
                shift: shift + by as u8,
                mask: mask >> (u32::from(shift) + by) << (u32::from(shift) + by),
            },
            other => other,
        }
    }
}

/// What is known of the rest of the file.
pub(crate) trait Surroundings {
    /// What a variable holds.
    fn variable(&self, address: u64) -> Value;
    /// What a slot holds that the loader fills: the address of a variable.
    fn slot(&self, address: u64) -> Option<u64>;
    /// What is asked for by calling this, None if it does not ask.
    fn asked_by(&self, target: u64) -> Option<Set>;
}

#[derive(Default, Clone, PartialEq, Debug)]
pub(crate) struct Questions {
    pub(crate) asked: Set,
    /// Variables that were given an answer.
    pub(crate) stored: Vec<(u64, Set)>,
}

pub(crate) fn read(bytes: &[u8], start: u64, around: &dyn Surroundings) -> Questions {
    let mut reading = Reading {
        around,
        registers: [Value::Unknown; 16],
        stack: HashMap::new(),
        is_stack_lent: false,
        flags: 0,
        found: Questions::default(),
        info: InstructionInfoFactory::new(),
    };
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    while decoder.can_decode() {
        reading.step(&decoder.decode());
    }
    reading.found
}

struct Reading<'a> {
    around: &'a dyn Surroundings,
    registers: [Value; 16],
    stack: HashMap<(Register, u64), Value>,
    /// Somebody else may read what is on it.
    is_stack_lent: bool,
    /// What the last comparison was about.
    flags: Set,
    found: Questions,
    info: InstructionInfoFactory,
}

impl Reading<'_> {
    fn step(&mut self, instruction: &Instruction) {
        use Mnemonic as M;
        match instruction.mnemonic() {
            // Padding names registers and memory, and reads neither.
            M::Nop => {}
            M::Cpuid => self.cpuid(),
            M::Xgetbv => {
                self.set(Register::RAX, whole(Word::Xcr0));
                self.set(Register::RDX, Value::Unknown);
            }
            M::Mov | M::Movzx | M::Movsxd => self.copy(instruction),
            M::Lea => self.lea(instruction),
            M::Xchg => self.swap(instruction),
            M::Test | M::Cmp | M::Bt => self.compare(instruction),
            M::And | M::Or | M::Xor | M::Add | M::Not | M::Shr => self.compute(instruction),
            M::Call => self.call(instruction),
            M::Ret => self.ask(self.get(Register::RAX).features()),
            _ => self.other(instruction),
        }
    }

    fn ask(&mut self, set: Set) {
        self.found.asked |= set;
    }

    fn get(&self, register: Register) -> Value {
        number_of(register).map_or(Value::Unknown, |index| self.registers[index])
    }

    fn set(&mut self, register: Register, value: Value) {
        if let Some(index) = number_of(register) {
            self.registers[index] = value;
        }
    }

    fn cpuid(&mut self) {
        let (mut a, mut b, mut c, mut d) = (Value::Unknown, Value::Unknown, Value::Unknown, Value::Unknown);
        match self.get(Register::RAX) {
            Value::Number(1) => c = whole(Word::Leaf1Ecx),
            Value::Number(7) => {
                (a, b) = (whole(Word::Leaf7Eax), whole(Word::Leaf7Ebx));
                (c, d) = (whole(Word::Leaf7Ecx), whole(Word::Leaf7Edx));
            }
            Value::Number(0x8000_0001) => c = whole(Word::ExtendedEcx),
            Value::Number(_) => {}
            // A wrapper that is told what to ask: whoever calls it may learn anything.
            _ => self.ask(Set::MAX),
        }
        let answers = [
            (Register::RAX, a),
            (Register::RBX, b),
            (Register::RCX, c),
            (Register::RDX, d),
        ];
        answers
            .into_iter()
            .for_each(|(register, value)| self.set(register, value));
    }

    /// The value of an operand.
    fn operand(&self, instruction: &Instruction, index: u32) -> Value {
        match instruction.op_kind(index) {
            OpKind::Register => {
                let register = instruction.op_register(index);
                let value = self.get(register);
                if is_high_byte(register) {
                    value.shifted(8)
                } else {
                    value
                }
            }
            OpKind::Memory => self.memory(instruction),
            _ => immediate(instruction, index).map_or(Value::Unknown, Value::Number),
        }
    }

    fn memory(&self, instruction: &Instruction) -> Value {
        if let Some(slot) = stack_slot(instruction) {
            return self.stack.get(&slot).copied().unwrap_or(Value::Unknown);
        }
        let Some(address) = self.address(instruction) else {
            return Value::Unknown;
        };
        if let Some(variable) = self.around.slot(address) {
            return Value::Address(variable);
        }
        // `test byte ptr [word + 1], 2` looks at bit 9.
        if let bits @ Value::Bits { .. } = self.around.variable(address & !3) {
            return bits.shifted(8 * (address & 3) as u32);
        }
        match self.around.variable(address) {
            // BoringSSL's assembly reads two words of answers at once.
            found if found.features() != 0 && instruction.memory_size().size() == 8 => {
                Value::Verdict(found.features() | self.around.variable(address.wrapping_add(4)).features())
            }
            found => found,
        }
    }

    /// Of a variable that the instruction refers to.
    fn address(&self, instruction: &Instruction) -> Option<u64> {
        if instruction.is_ip_rel_memory_operand() {
            return Some(instruction.ip_rel_memory_address());
        }
        if instruction.memory_index() != Register::None {
            return None;
        }
        match self.get(instruction.memory_base()) {
            Value::Address(base) => Some(base.wrapping_add(instruction.memory_displacement64())),
            _ => None,
        }
    }

    fn copy(&mut self, instruction: &Instruction) {
        let value = self.operand(instruction, 1);
        match instruction.op0_kind() {
            OpKind::Register => {
                // `mov al, [x]` leaves the rest of the register; that rest is of no interest to anybody here.
                self.set(instruction.op0_register(), value);
            }
            OpKind::Memory => self.store(instruction, value),
            _ => {}
        }
    }

    fn store(&mut self, instruction: &Instruction, value: Value) {
        if let Some(slot) = stack_slot(instruction) {
            if self.is_stack_lent {
                self.ask(value.features());
            }
            self.stack.insert(slot, value);
        } else if let Some(address) = self.address(instruction) {
            let set = match value {
                // `if (has_avx) level = 1`: whatever was asked so far has led here.
                Value::Number(_) | Value::Unknown => self.found.asked,
                known => known.features(),
            };
            if set != 0 {
                self.found.stored.push((address, set));
            }
        } else {
            // Through a pointer: whoever reads it there learns all of it.
            self.ask(value.features());
        }
    }

    fn lea(&mut self, instruction: &Instruction) {
        let value = if instruction.is_ip_rel_memory_operand() {
            Value::Address(instruction.ip_rel_memory_address())
        } else if is_stack(instruction.memory_base()) {
            self.is_stack_lent = true;
            let lent = self.stack.values().fold(0, |set, value| set | value.features());
            self.ask(lent);
            Value::Unknown
        } else {
            Value::Verdict(self.get(instruction.memory_base()).features())
        };
        self.set(instruction.op0_register(), value);
    }

    fn swap(&mut self, instruction: &Instruction) {
        if instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register {
            let (a, b) = (self.operand(instruction, 0), self.operand(instruction, 1));
            self.set(instruction.op0_register(), b);
            self.set(instruction.op1_register(), a);
        } else {
            self.other(instruction);
        }
    }

    fn compare(&mut self, instruction: &Instruction) {
        let (a, b) = (self.operand(instruction, 0), self.operand(instruction, 1));
        let set = match (instruction.mnemonic(), b) {
            (Mnemonic::Test, Value::Number(mask)) => a.masked(mask).features(),
            (Mnemonic::Bt, Value::Number(bit)) => a.masked(1 << (bit & 31)).features(),
            _ => a.features() | b.features(),
        };
        self.flags = set;
        self.ask(set);
    }

    fn compute(&mut self, instruction: &Instruction) {
        let (a, b) = (self.operand(instruction, 0), self.operand(instruction, 1));
        let same = instruction.op_count() > 1
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register();
        let value = match (instruction.mnemonic(), a, b) {
            (Mnemonic::Xor, ..) if same => Value::Number(0),
            (Mnemonic::Or, _, Value::Number(u32::MAX)) => Value::Number(u32::MAX),
            (Mnemonic::Not, value, _) | (Mnemonic::Xor, value @ Value::Bits { .. }, Value::Number(_)) => {
                value
            }
            (Mnemonic::And, value, Value::Number(mask)) | (Mnemonic::And, Value::Number(mask), value) => {
                value.masked(mask)
            }
            (Mnemonic::Shr, value, Value::Number(by)) => value.shifted(by),
            _ => match a.features() | b.features() {
                0 => Value::Unknown,
                set => Value::Verdict(set),
            },
        };
        // These set the flags as a comparison does.
        self.flags = value.features();
        if instruction.mnemonic() == Mnemonic::And {
            self.ask(self.flags);
        }
        match instruction.op0_kind() {
            OpKind::Register => self.set(instruction.op0_register(), value),
            _ => self.store(instruction, value),
        }
    }

    fn call(&mut self, instruction: &Instruction) {
        // cpuid itself leaves its answers in rcx and rdx; in these somebody put them.
        let lent = [Register::RDI, Register::RSI, Register::R8, Register::R9];
        let handed_on = lent.iter().fold(0, |set, one| set | self.get(*one).features());
        if handed_on != 0 {
            self.ask(handed_on | self.get(Register::RDX).features() | self.get(Register::RCX).features());
        }
        for register in CLOBBERED {
            self.set(*register, Value::Unknown);
        }
        if instruction.flow_control() == FlowControl::Call
            && let Some(set) = self.around.asked_by(instruction.near_branch_target())
        {
            self.ask(set);
            self.set(Register::RAX, Value::Verdict(set));
        }
    }

    fn other(&mut self, instruction: &Instruction) {
        let is_conditional = instruction.condition_code() != iced_x86::ConditionCode::None;
        if instruction.flow_control() == FlowControl::UnconditionalBranch
            && let Some(set) = self.around.asked_by(instruction.near_branch_target())
        {
            self.ask(set);
        }
        let used: Vec<UsedRegister> = self.info.info(instruction).used_registers().to_vec();
        let reads = |one: &&UsedRegister| !matches!(one.access(), OpAccess::Write | OpAccess::NoMemAccess);
        let mut read = used
            .iter()
            .filter(reads)
            .fold(0, |set, one| set | self.get(one.register()).features());
        if instruction.op_count() > 0 && instruction.op_kind(instruction.op_count() - 1) == OpKind::Memory {
            read |= self.memory(instruction).features();
        }
        if is_conditional {
            read |= self.flags;
        }
        self.ask(read);
        let result = if read == 0 {
            Value::Unknown
        } else {
            Value::Verdict(read)
        };
        for one in used.iter().filter(|one| writes(one.access())) {
            self.set(one.register(), result);
        }
        if is_conditional && instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Memory {
            self.store(instruction, result);
        }
    }
}

const CLOBBERED: &[Register] = &[
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

fn whole(word: Word) -> Value {
    Value::Bits {
        word,
        shift: 0,
        mask: u32::MAX,
    }
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

fn number_of(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

fn is_high_byte(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    )
}

fn is_stack(register: Register) -> bool {
    matches!(register, Register::RSP | Register::RBP)
}

fn stack_slot(instruction: &Instruction) -> Option<(Register, u64)> {
    let base = instruction.memory_base();
    (is_stack(base) && instruction.memory_index() == Register::None)
        .then(|| (base, instruction.memory_displacement64()))
}

fn immediate(instruction: &Instruction, index: u32) -> Option<u32> {
    if index >= instruction.op_count() {
        return None;
    }
    instruction.try_immediate(index).ok().map(|value| value as u32)
}
