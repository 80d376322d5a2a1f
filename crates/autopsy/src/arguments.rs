//! What functions close to the end were called with.
//!
//! Arguments travel in registers that every call may overwrite, so mostly they are gone. Two can be
//! had for certain: one that the function itself put into a register that calls must preserve (the
//! tables then tell its value), and a constant that the caller loads right before the call.

use std::collections::BTreeMap;
use std::ops::Range;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use object::{Object as _, ObjectSymbol as _};

use crate::image::Image;
use crate::report::Arguments;
use crate::scene::{Located, Scene};
use crate::symbols::Answer;
use crate::text::until_nul;
use crate::unwind::{self, Known, RawFrame, RawStack};

/// Frames looked at outwards from `__cxa_throw`: the thrower, and helpers that throw for others.
const NEAR_THROW: usize = 4;
const ALLOCATORS: [&str; 3] = ["_Znwm", "_Znam", "_ZnwmSt11align_val_t"];
const LONGEST_ALLOCATOR: u64 = 1 << 10;
const LONGEST_FUNCTION: u64 = 64 << 10;
const LONGEST_TEXT: usize = 512;

/// Registers that a call leaves alone, with their DWARF numbers.
const PRESERVED: [(Register, u16); 6] = [
    (Register::RBX, 3),
    (Register::RBP, 6),
    (Register::R12, 12),
    (Register::R13, 13),
    (Register::R14, 14),
    (Register::R15, 15),
];

type Names = BTreeMap<u64, Answer>;

/// All that is certain.
pub(crate) fn of(scene: &Scene<'_>, stack: &RawStack, names: &Names) -> Arguments {
    if !stack.inner.first().is_some_and(Known::is_x86_64) {
        return Arguments::default();
    }
    Arguments {
        asked_of_new: asked_of_new(scene, stack, names),
        fatal_text: fatal_text(scene, stack, names),
    }
}

fn name_of<'n>(frame: &RawFrame, names: &'n Names) -> Option<&'n str> {
    names.get(&frame.lookup)?.calls.last()?.name.as_deref()
}

/// The size that `operator new` keeps in a register while it asks for memory: it may ask again.
fn asked_of_new(scene: &Scene<'_>, stack: &RawStack, names: &Names) -> Option<u64> {
    let is_throw = |frame: &RawFrame| name_of(frame, names) == Some("__cxa_throw");
    let thrown = stack.frames.iter().position(is_throw)?;
    let thrower = stack.frames.iter().enumerate().skip(thrown + 1);
    thrower.take(NEAR_THROW).find_map(|(index, frame)| {
        let located = scene.locate(frame.lookup)?;
        let code = allocators(&located.image).find_map(|range| {
            let code = decoded(scene, &located, &range)?;
            is_part_of(&located, &range, &code).then_some(code)
        })?;
        let number = preserved_argument(&code)?;
        stack.inner.get(index)?.get(number)
    })
}

fn allocators(image: &Image) -> impl Iterator<Item = Range<u64>> {
    let symbols = image.elf().into_iter().flat_map(|elf| {
        elf.dynamic_symbols()
            .filter(|symbol| {
                symbol.is_definition() && symbol.name().is_ok_and(|name| ALLOCATORS.contains(&name))
            })
            .map(|symbol| symbol.address()..symbol.address().saturating_add(symbol.size()))
            .collect::<Vec<_>>()
    });
    symbols.filter(|range| range.end - range.start <= LONGEST_ALLOCATOR)
}

/// Whether the frame is in this function: in its body, or in the part that was moved away and that
/// the body jumps to. That part has no name in a library without its full symbol table.
fn is_part_of(located: &Located, body: &Range<u64>, code: &[Instruction]) -> bool {
    if body.contains(&located.address) {
        return true;
    }
    let Some(piece) = unwind::function_range(&located.image, located.address) else {
        return false;
    };
    code.iter()
        .filter(|one| is_jump(one))
        .any(|one| piece.contains(&one.near_branch_target().wrapping_sub(located.bias)))
}

fn is_jump(one: &Instruction) -> bool {
    matches!(
        one.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    ) && one.op0_kind() == OpKind::NearBranch64
}

fn decoded(scene: &Scene<'_>, located: &Located, range: &Range<u64>) -> Option<Vec<Instruction>> {
    let start = range.start.wrapping_add(located.bias);
    let mut bytes = vec![0; usize::try_from(range.end.checked_sub(range.start)?).ok()?];
    let length = scene.read_file(start, &mut bytes)?;
    Some(
        Decoder::with_ip(64, &bytes[..length], start, DecoderOptions::NONE)
            .into_iter()
            .collect(),
    )
}

/// The DWARF number of the register that holds the first argument through the function's calls.
fn preserved_argument(code: &[Instruction]) -> Option<u16> {
    let mut factory = InstructionInfoFactory::new();
    let mut holders = vec![Register::RDI];
    let mut has_called = false;
    for one in code {
        if one.flow_control() == FlowControl::Call {
            holders.retain(|held| PRESERVED.iter().any(|(register, _)| register == held));
            has_called = true;
        } else if is_copy(one) && !has_called && holders.contains(&one.op1_register()) {
            holders.push(one.op0_register());
        } else if one.mnemonic() != Mnemonic::Pop {
            // A pop gives the caller its value back, on a way out that was not taken.
            let written = written_by(&mut factory, one);
            holders.retain(|held| !written.contains(held));
        }
    }
    let kept = PRESERVED.iter().find(|(register, _)| holders.contains(register));
    kept.filter(|_| has_called).map(|(_, number)| *number)
}

/// `mov` and the `cmov` that makes a size of 0 a 1.
fn is_copy(one: &Instruction) -> bool {
    let is_move = matches!(one.mnemonic(), Mnemonic::Mov | Mnemonic::Cmovne);
    is_move && one.op0_kind() == OpKind::Register && one.op1_kind() == OpKind::Register
}

fn written_by(factory: &mut InstructionInfoFactory, one: &Instruction) -> Vec<Register> {
    let writes = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let used = factory.info(one).used_registers().iter();
    used.filter(|used| writes(used.access()))
        .map(|used| used.register().full_register())
        .collect()
}

/// The message that was passed to Python's end of everything.
fn fatal_text(scene: &Scene<'_>, stack: &RawStack, names: &Names) -> Option<String> {
    let (index, register) =
        stack
            .frames
            .iter()
            .take(stack.inner.len())
            .enumerate()
            .find_map(|(index, frame)| {
                let register = match name_of(frame, names)? {
                    "Py_FatalError" => Register::RDI,
                    "_Py_FatalErrorFunc" | "_Py_FatalErrorFormat" => Register::RSI,
                    _ => return None,
                };
                Some((index, register))
            })?;
    let caller = stack.frames.get(index + 1)?;
    let located = scene.locate(caller.lookup)?;
    let range = unwind::function_range(&located.image, located.address)?;
    if range.end - range.start > LONGEST_FUNCTION {
        return None;
    }
    let code = decoded(scene, &located, &range)?;
    text_at(scene, constant_before(&code, caller.pc, register)?)
}

/// The address that the code loads into this register on every way to the call that ends at `after`.
fn constant_before(code: &[Instruction], after: u64, register: Register) -> Option<u64> {
    let mut joins: Vec<u64> = code
        .iter()
        .filter(|one| is_jump(one))
        .map(Instruction::near_branch_target)
        .collect();
    joins.sort_unstable();
    let mut factory = InstructionInfoFactory::new();
    let mut constant = None;
    for one in code {
        if joins.binary_search(&one.ip()).is_ok() {
            constant = None; // others come here, too, with something else in it
        }
        if one.next_ip() == after {
            return constant.filter(|_| one.flow_control() == FlowControl::Call);
        }
        let is_load = one.mnemonic() == Mnemonic::Lea && one.op0_register() == register;
        if is_load && one.is_ip_rel_memory_operand() {
            constant = Some(one.ip_rel_memory_address());
        } else if one.flow_control() != FlowControl::Next
            && one.flow_control() != FlowControl::ConditionalBranch
            || written_by(&mut factory, one).contains(&register)
        {
            constant = None;
        }
    }
    None
}

/// A C string in the part of a library that nobody writes to.
fn text_at(scene: &Scene<'_>, address: u64) -> Option<String> {
    let mut bytes = [0; LONGEST_TEXT];
    let length = scene.read_file(address, &mut bytes)?;
    let text = until_nul(&bytes[..length]);
    let is_text = !text.is_empty() && !text.chars().any(|one| one.is_control() || one == '\u{fffd}');
    is_text.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8]) -> Vec<Instruction> {
        Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE)
            .into_iter()
            .collect()
    }

    /// libstdc++ 12: `test rdi, rdi; mov eax, 1; push rbx; cmovne rax, rdi; mov rbx, rax; mov rdi, rbx;
    /// call; pop rbx; ret`.
    const OPERATOR_NEW: [u8; 25] = [
        0x48, 0x85, 0xff, 0xb8, 1, 0, 0, 0, 0x53, 0x48, 0x0f, 0x45, 0xc7, 0x48, 0x89, 0xc3, 0x48, 0x89, 0xdf,
        0xe8, 0, 0, 0, 0, 0x5b,
    ];

    #[test]
    fn an_argument_is_followed_into_the_register_that_calls_preserve() {
        assert_eq!(preserved_argument(&code(&OPERATOR_NEW)), Some(3));
    }

    #[test]
    fn a_register_that_is_used_for_something_else_later_tells_nothing() {
        let mut reused = OPERATOR_NEW.to_vec();
        reused.extend([0x48, 0x89, 0xc3]); // mov rbx, rax
        assert_eq!(preserved_argument(&code(&reused)), None);
        assert_eq!(preserved_argument(&code(&OPERATOR_NEW[..9])), None);
    }

    #[test]
    fn a_constant_counts_if_every_way_to_the_call_loads_it() {
        // lea rdi, [rip+0x100]; call
        let straight = [0x48, 0x8d, 0x3d, 0, 1, 0, 0, 0xe8, 0, 0, 0, 0];
        assert_eq!(
            constant_before(&code(&straight), 0x100c, Register::RDI),
            Some(0x1107)
        );
        assert_eq!(constant_before(&code(&straight), 0x100c, Register::RSI), None);
        // je to the call; lea; call
        let joined = [0x74, 0x07, 0x48, 0x8d, 0x3d, 0, 1, 0, 0, 0xe8, 0, 0, 0, 0];
        assert_eq!(constant_before(&code(&joined), 0x100e, Register::RDI), None);
        // lea; mov rdi, rax; call
        let replaced = [0x48, 0x8d, 0x3d, 0, 1, 0, 0, 0x48, 0x89, 0xc7, 0xe8, 0, 0, 0, 0];
        assert_eq!(constant_before(&code(&replaced), 0x100f, Register::RDI), None);
    }
}
