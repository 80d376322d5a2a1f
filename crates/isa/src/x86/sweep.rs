//! One pass over x86 code: what each function needs, and in order what it touches.

use super::features;
use super::skim::{Glance, Skimmed, WINDOW, skim};
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

/// The end of a function with room behind it, so that a whole window can always be looked at.
struct Tail {
    bytes: [u8; 2 * WINDOW],
    start: usize,
}

impl Tail {
    fn of(code: &[u8]) -> Self {
        let start = code.len().saturating_sub(WINDOW);
        let mut bytes = [0; 2 * WINDOW];
        bytes[..code.len() - start].copy_from_slice(&code[start..]);
        Self { bytes, start }
    }

    #[inline(always)]
    fn window<'a>(&'a self, code: &'a [u8], position: usize) -> &'a [u8; WINDOW] {
        let here = code.get(position..).and_then(|rest| rest.first_chunk());
        here.unwrap_or_else(|| {
            let rest = &self.bytes[position.saturating_sub(self.start).min(WINDOW)..];
            rest.first_chunk().unwrap_or(&[0; WINDOW])
        })
    }
}

struct Pass<'a> {
    places: &'a Places,
    kinds: &'static [features::Kind],
    events: &'a mut Vec<Packed>,
}

/// How many instructions after a call may look at its result.
const RESULT_WINDOW: u8 = 3;

/// Where a pass over a function stands.
struct State {
    swept: Swept,
    /// Instructions since the last call, up to the window.
    since_call: u8,
    has_branched: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            swept: Swept::default(),
            since_call: RESULT_WINDOW,
            has_branched: false,
        }
    }
}

impl Pass<'_> {
    fn read(&mut self, bytes: &[u8], function: &Function) -> Swept {
        let mut state = State::default();
        let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let (mut position, tail) = (0, Tail::of(bytes));
        while position < bytes.len() {
            let left = bytes.len() - position;
            let skimmed = skim(tail.window(bytes, position), left);
            if self.skip(&skimmed, position, function, &mut state) {
                position += skimmed.length;
                continue;
            }
            // Cannot fail: the position is inside.
            let _ = decoder.set_position(position);
            decoder.set_ip(function.start.wrapping_add(position as u64));
            decoder.decode_out(&mut instruction);
            self.note(&instruction, function, &mut state);
            position = decoder.position();
        }
        state.swept
    }

    /// Writes down what a glance was enough for; false if it was not.
    #[inline(always)]
    fn skip(&mut self, skimmed: &Skimmed, position: usize, function: &Function, state: &mut State) -> bool {
        let is_watching = state.since_call < RESULT_WINDOW;
        if is_watching && skimmed.may_touch_rax {
            return false;
        }
        if skimmed.glance == Glance::Plain {
            state.since_call += u8::from(is_watching);
            return true;
        }
        let target = |by: i32| {
            let next = function.start.wrapping_add((position + skimmed.length) as u64);
            next.wrapping_add(i64::from(by) as u64)
        };
        match skimmed.glance {
            Glance::Unclear => return false,
            Glance::ShiftByCl if state.swept.traits & trait_of::OLD == 0 => return false,
            Glance::Plain | Glance::ShiftByCl => {}
            Glance::OfKind(number) => self.note_kind(self.kinds[usize::from(number)], &mut state.swept),
            Glance::Jump(by) => self.note_jump(target(by), function),
            Glance::ConditionalJump(by) => {
                self.note_branch(state);
                self.note_jump(target(by), function);
            }
            Glance::Call(by) => {
                self.push(Event::Call(target(by)));
                state.since_call = 0;
                return true;
            }
        }
        state.since_call += u8::from(is_watching);
        true
    }

    /// What the full decoder made of an instruction.
    fn note(&mut self, instruction: &Instruction, function: &Function, state: &mut State) {
        let code = instruction.code();
        if code == Code::INVALID {
            state.swept.is_damaged = true;
            return;
        }
        if state.since_call < RESULT_WINDOW {
            state.since_call = self.watch_result(instruction, state.since_call);
        }
        self.note_kind(self.kinds[code as usize], &mut state.swept);
        self.note_flow(instruction, function, state);
        if instruction.memory_base() == Register::RIP {
            self.note_memory(instruction);
        }
    }

    #[inline(always)]
    fn push(&mut self, event: Event) {
        self.events.push(Packed::new(event));
    }

    #[inline(always)]
    fn note_kind(&mut self, kind: features::Kind, swept: &mut Swept) {
        if kind.needs & !swept.needs != 0 {
            for index in members(kind.needs & !swept.needs) {
                self.push(Event::Needs(index as u64));
            }
        }
        if kind.traits & trait_of::ASKS != 0 {
            self.push(Event::Cpuid);
        }
        swept.needs |= kind.needs;
        swept.traits |= kind.traits;
    }

    fn note_flow(&mut self, instruction: &Instruction, function: &Function, state: &mut State) {
        match instruction.flow_control() {
            FlowControl::Call => {
                self.push(Event::Call(instruction.near_branch_target()));
                state.since_call = 0;
            }
            FlowControl::ConditionalBranch => {
                self.note_branch(state);
                self.note_jump(instruction.near_branch_target(), function);
            }
            FlowControl::UnconditionalBranch => {
                self.note_jump(instruction.near_branch_target(), function);
            }
            _ => {}
        }
    }

    #[inline(always)]
    fn note_branch(&mut self, state: &mut State) {
        if !std::mem::replace(&mut state.has_branched, true) {
            self.push(Event::Branch);
        }
    }

    #[inline(always)]
    fn note_jump(&mut self, target: u64, function: &Function) {
        if target < function.start || target >= function.end {
            self.push(Event::Jump(target));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::program::Program;

    /// The same pass with nothing skipped.
    fn read_fully(places: &Places, bytes: &[u8], function: &Function) -> (Vec<Event>, Swept) {
        let (mut events, mut state) = (Vec::new(), State::default());
        let mut pass = Pass {
            places,
            kinds: features::table(),
            events: &mut events,
        };
        let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            pass.note(&instruction, function, &mut state);
        }
        (events.iter().map(|packed| packed.event()).collect(), state.swept)
    }

    fn compare(places: &Places, bytes: &[u8], function: &Function) {
        let (expected, swept) = read_fully(places, bytes, function);
        let mut events = Vec::new();
        let quick = X86::default().read(places, bytes, function, &mut events);
        let events: Vec<Event> = events.iter().map(|packed| packed.event()).collect();
        let same =
            (quick.needs, quick.traits, quick.is_damaged) == (swept.needs, swept.traits, swept.is_damaged);
        assert!(
            same && events == expected,
            "{:#x}: {:02x?}\n{events:x?}\n{expected:x?}\n{:x} {:x}",
            function.start,
            &bytes[..bytes.len().min(4096)],
            quick.needs,
            swept.needs,
        );
    }

    /// Libraries that are on every machine with a compiler, and whatever `SKIM_LIBRARIES` names.
    fn libraries() -> Vec<std::path::PathBuf> {
        let named = std::env::var("SKIM_LIBRARIES").unwrap_or_default();
        let own = std::env::current_exe().expect("a test is a file");
        let system = [
            "libc.so.6",
            "libm.so.6",
            "libstdc++.so.6",
            "libcrypto.so.3",
            "libgomp.so.1",
        ];
        let folders = ["/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
        let found = system.iter().filter_map(|name| {
            folders
                .iter()
                .map(|folder| std::path::Path::new(folder).join(name))
                .find(|path| path.exists())
        });
        std::iter::once(own)
            .chain(found)
            .chain(named.split_whitespace().map(Into::into))
            .collect()
    }

    #[test]
    fn skipping_changes_nothing_in_real_libraries() {
        let mut compared = 0;
        for path in libraries() {
            let bytes = std::fs::read(&path).expect("can be read");
            let image = Image::parse(&bytes).expect("is a library");
            let Some(machine @ crate::image::Machine::X86_64) = image.machine() else {
                continue;
            };
            let program = Program::read(&image, machine, &|_| ());
            let places = Places {
                code: 0..u64::MAX,
                data: 0..u64::MAX,
            };
            let few = if std::env::var_os("SKIM_LIBRARIES").is_some() {
                usize::MAX
            } else {
                6000
            };
            for function in 0..program.functions.len().min(few) {
                compare(&places, program.bytes_of(function), &program.functions[function]);
                compared += 1;
            }
        }
        assert!(compared > 500, "{compared}");
    }

    #[test]
    fn skipping_changes_nothing_in_noise() {
        let places = Places {
            code: 0..u64::MAX,
            data: 0..u64::MAX,
        };
        // xorshift: the same bytes in every run.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for length in (0..4000).map(|case| case % 64 + 1) {
            let bytes: Vec<u8> = (0..length).map(|_| next() as u8).collect();
            let function = Function {
                start: 0x1000,
                end: 0x1000 + length as u64,
            };
            let damaged = read_fully(&places, &bytes, &function).1.is_damaged;
            if !damaged {
                compare(&places, &bytes, &function);
            }
        }
    }
}
