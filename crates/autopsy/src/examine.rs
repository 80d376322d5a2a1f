//! The examination itself: all stacks are walked first, then all names are looked up at once, so
//! that each library is passed over once however many threads stand in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::arguments;
use crate::fault::{self, Fault};
use crate::instruction::{self, LONGEST_INSTRUCTION};
use crate::registers::Registers;
use crate::report::{Autopsy, ByteSource, Frame, Instruction};
use crate::scene::Scene;
use crate::snapshot::{Limits, Region, Snapshot};
use crate::symbols::{self, Answer, Call};
use crate::unwind::{self, RawFrame, RawStack};

/// A job with torch and Spark's helpers maps about three hundred.
const MAX_LIBRARIES: usize = 2048;

/// Everything one snapshot tells.
#[must_use]
pub fn autopsy(snapshot: &Snapshot<'_>, limits: &Limits) -> Autopsy {
    let mut memory = snapshot.memory.clone();
    memory.extend(snapshot.code);
    let scene = Scene::new(&snapshot.mappings, &memory, limits);
    let stack = unwind::walk(&scene, &snapshot.registers, limits, limits.max_frames);
    let names = name_all(&scene, std::slice::from_ref(&stack), limits);
    let mut autopsy = of_stack(&scene, stack, &names);
    add_fault(&mut autopsy, &scene, &Fault::of(snapshot));
    autopsy.notes = scene.notes();
    autopsy
}

pub(crate) fn name_all(scene: &Scene<'_>, stacks: &[RawStack], limits: &Limits) -> BTreeMap<u64, Answer> {
    let lookups = stacks
        .iter()
        .flat_map(|stack| &stack.frames)
        .map(|frame| frame.lookup);
    symbols::resolve(scene, lookups, limits)
}

pub(crate) fn of_stack(scene: &Scene<'_>, stack: RawStack, names: &BTreeMap<u64, Answer>) -> Autopsy {
    let arguments = arguments::of(scene, &stack, names);
    // Physical frames are bounded already; this bounds what inlining adds to them.
    let max_frames = stack.frames.len().saturating_mul(2).saturating_add(64);
    let gap = stack.omitted.as_ref().map(|omitted| omitted.before_frame);
    let (mut frames, mut omitted) = (Vec::with_capacity(stack.frames.len()), stack.omitted);
    for (index, raw) in stack.frames.iter().enumerate() {
        // Inlined frames push the gap further down the list.
        if let Some(omitted) = omitted.as_mut().filter(|_| gap == Some(index)) {
            omitted.before_frame = frames.len();
        }
        let room = max_frames.saturating_sub(frames.len());
        push_frames(scene, raw, names.get(&raw.lookup), room, &mut frames);
    }
    Autopsy {
        frames,
        stopped_because: stack.stopped_because,
        omitted,
        arguments,
        ..Autopsy::default()
    }
}

fn push_frames(
    scene: &Scene<'_>,
    raw: &RawFrame,
    answer: Option<&Answer>,
    room: usize,
    frames: &mut Vec<Frame>,
) {
    let physical = physical_frame(scene, raw, answer);
    let Some((own, inlined)) = answer.and_then(|answer| answer.calls.split_last()) else {
        frames.push(physical);
        return;
    };
    for call in inlined.iter().take(room) {
        let template = Frame {
            offset_in_function: None,
            ..physical.clone()
        };
        frames.push(Frame {
            inlined: true,
            ..with_call(template, call)
        });
    }
    frames.push(with_call(physical, own));
}

fn physical_frame(scene: &Scene<'_>, raw: &RawFrame, answer: Option<&Answer>) -> Frame {
    let located = scene.locate(raw.lookup);
    let inside = located.as_ref().map(|located| raw.pc.wrapping_sub(located.bias));
    let mapping = scene
        .space
        .at(raw.lookup)
        .filter(|mapping| !mapping.path.is_empty());
    let start = answer.and_then(|answer| answer.start);
    Frame {
        address: raw.pc,
        function: None,
        raw_function: None,
        offset_in_function: inside
            .zip(start)
            .map(|(inside, start)| inside.wrapping_sub(start)),
        library: mapping.map(|mapping| mapping.path.clone()),
        offset_in_library: inside,
        build_id: located.and_then(|located| located.image.build_id_text()),
        file: None,
        line: None,
        inlined: false,
        signal_frame: raw.signal_frame,
        trust: raw.trust,
    }
}

fn with_call(frame: Frame, call: &Call) -> Frame {
    Frame {
        function: call.name.as_deref().map(symbols::demangle::demangle),
        raw_function: call.name.clone(),
        file: call.file.clone(),
        line: call.line,
        ..frame
    }
}

pub(crate) fn add_fault(autopsy: &mut Autopsy, scene: &Scene<'_>, fault: &Fault<'_>) {
    autopsy.instruction = decode(scene, fault.code, fault.registers);
    let address_use = fault::address_use(scene, fault, autopsy.instruction.as_ref());
    autopsy.address_in = Some(address_use);
    autopsy.code_matches_file = code_matches_file(scene, fault.registers.pc());
    autopsy.libraries = libraries(scene);
}

fn libraries(scene: &Scene<'_>) -> Vec<String> {
    let code = scene
        .space
        .iter()
        .filter(|mapping| mapping.executable && mapping.is_file());
    let paths: BTreeSet<&str> = code.map(|mapping| mapping.path.as_str()).collect();
    paths.into_iter().take(MAX_LIBRARIES).map(str::to_owned).collect()
}

/// The saved code first: of a bit flip only the process's own bytes tell.
fn decode(scene: &Scene<'_>, code: Option<Region<'_>>, registers: &Registers) -> Option<Instruction> {
    let pc = registers.pc();
    let mut bytes = [0; LONGEST_INSTRUCTION];
    let saved = code.map_or(&[][..], |code| code.from(pc, LONGEST_INSTRUCTION));
    let (length, source) = if saved.is_empty() {
        if !scene.is_executable(pc) {
            return None;
        }
        scene.read(pc, &mut bytes)?
    } else {
        bytes[..saved.len()].copy_from_slice(saved);
        (saved.len(), ByteSource::Memory)
    };
    match instruction::decode(&bytes[..length], source, registers) {
        Ok(instruction) => Some(instruction),
        Err(reason) => {
            scene.note(reason);
            None
        }
    }
}

/// Compares as many bytes from the program counter on as both sides have.
fn code_matches_file(scene: &Scene<'_>, pc: u64) -> Option<bool> {
    let (mut memory, mut file) = ([0; LONGEST_INSTRUCTION], [0; LONGEST_INSTRUCTION]);
    let in_file = scene.read_file(pc, &mut file)?;
    let (in_memory, source) = scene.read(pc, &mut memory)?;
    let common = in_file.min(in_memory);
    (source == ByteSource::Memory && common > 0).then(|| memory[..common] == file[..common])
}
