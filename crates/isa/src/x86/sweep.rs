//! One pass over x86 code: what each function needs, and in order what it touches.

use super::features;
use crate::events::{Event, Packed, Places, Reader, Swept, members, trait_of};
use crate::functions::Function;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Holds nothing between functions but the table it looks instructions up in.
pub(crate) struct X86 {
    kinds: &'static [features::Kind],
}

impl Default for X86 {
    fn default() -> Self {
        Self {
            kinds: features::table(),
        }
    }
}

impl Reader for X86 {
    fn read(
        &mut self,
        places: &Places,
        bytes: &[u8],
        function: &Function,
        events: &mut Vec<Packed>,
    ) -> Swept {
        Pass {
            places,
            kinds: self.kinds,
            events,
        }
        .read(bytes, function)
    }
}

struct Pass<'a> {
    places: &'a Places,
    kinds: &'static [features::Kind],
    events: &'a mut Vec<Packed>,
}

/// How many instructions after a call may look at its result.
const RESULT_WINDOW: u8 = 3;

impl Pass<'_> {
    fn read(&mut self, bytes: &[u8], function: &Function) -> Swept {
        let mut swept = Swept::default();
        let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let (mut since_call, mut has_branched) = (RESULT_WINDOW, false);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let code = instruction.code();
            if code == Code::INVALID {
                swept.is_damaged = true;
                continue;
            }
            if since_call < RESULT_WINDOW {
                since_call = self.watch_result(&instruction, since_call);
            }
            let kind = self.kinds[code as usize];
            if kind.traits != 0 || kind.needs != 0 {
                self.note_kind(kind, &mut swept);
            }
            self.note_flow(&instruction, function, &mut since_call, &mut has_branched);
            if instruction.memory_base() == Register::RIP {
                self.note_memory(&instruction);
            }
        }
        swept
    }

    fn push(&mut self, event: Event) {
        self.events.push(Packed::new(event));
    }

    fn note_kind(&mut self, kind: features::Kind, swept: &mut Swept) {
        for index in members(kind.needs & !swept.needs) {
            self.push(Event::Needs(index as u64));
        }
        if kind.traits & trait_of::ASKS != 0 {
            self.push(Event::Cpuid);
        }
        swept.needs |= kind.needs;
        swept.traits |= kind.traits;
    }

    fn note_flow(
        &mut self,
        instruction: &Instruction,
        function: &Function,
        since_call: &mut u8,
        has_branched: &mut bool,
    ) {
        match instruction.flow_control() {
            FlowControl::Call => {
                self.push(Event::Call(instruction.near_branch_target()));
                *since_call = 0;
            }
            flow @ (FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch) => {
                if flow == FlowControl::ConditionalBranch && !std::mem::replace(has_branched, true) {
                    self.push(Event::Branch);
                }
                let target = instruction.near_branch_target();
                if target < function.start || target >= function.end {
                    self.push(Event::Jump(target));
                }
            }
            _ => {}
        }
    }

    fn note_memory(&mut self, instruction: &Instruction) {
        let address = instruction.ip_rel_memory_address();
        let is_lea = instruction.mnemonic() == Mnemonic::Lea;
        if is_lea && self.places.code.contains(&address) {
            self.push(Event::TakeCode(address));
        } else if self.places.data.contains(&address) {
            let event = match instruction.flow_control() {
                FlowControl::IndirectCall | FlowControl::IndirectBranch => Event::CallSlot(address),
                _ if is_lea => Event::TakeData(address),
                _ if is_store(instruction) => Event::Write(address),
                _ => Event::Read(address),
            };
            self.push(event);
        }
    }

    /// Turns the last call into a question when its result is used. Hands back the state of the window.
    fn watch_result(&mut self, instruction: &Instruction, since_call: u8) -> u8 {
        let uses = |operand: u32| {
            instruction.op_kind(operand) == OpKind::Register && is_result(instruction.op_register(operand))
        };
        let reads_second = instruction.op_count() > 1 && uses(1);
        let touches_first = instruction.op_count() > 0 && uses(0);
        let overwrites = matches!(
            instruction.mnemonic(),
            Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Movzx | Mnemonic::Pop
        ) || (instruction.mnemonic() == Mnemonic::Xor && reads_second);
        if reads_second && !(overwrites && touches_first && instruction.mnemonic() == Mnemonic::Xor)
            || touches_first && !overwrites
            || instruction.flow_control() == FlowControl::Return
        {
            self.last_call_asks();
            return RESULT_WINDOW;
        }
        if touches_first {
            RESULT_WINDOW
        } else {
            since_call + 1
        }
    }

    fn last_call_asks(&mut self) {
        for packed in self.events.iter_mut().rev().take(4) {
            if let Event::Call(target) = packed.event() {
                *packed = Packed::new(Event::Ask(target));
                return;
            }
        }
    }
}

fn is_result(register: Register) -> bool {
    matches!(
        register,
        Register::RAX | Register::EAX | Register::AX | Register::AL
    )
}

fn is_store(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Memory
        && !matches!(
            instruction.mnemonic(),
            M::Cmp | M::Test | M::Bt | M::Push | M::Call | M::Jmp
        )
}
