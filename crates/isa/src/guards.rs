//! Who asks what the CPU can do: functions with cpuid, what they remember, and who looks at it.

use crate::addresses::AddressSet;
use crate::events::Event;
use crate::events::trait_of;
use crate::image::{Pointer, SymbolKind};
use crate::program::{Program, Target};
use rayon::prelude::*;

#[derive(Default)]
pub(crate) struct Guards {
    /// Calling one of these, and looking at the result, is asking.
    askers: AddressSet,
    /// Linkage entries of detectors in other libraries.
    foreign: AddressSet,
    /// Variables that hold an answer, in words of eight bytes.
    answers: AddressSet,
    pub(crate) asks_anywhere: bool,
}

/// A function longer than this that calls a detector does other things too: it is no getter.
const SMALL_FUNCTION: u64 = 512;
/// An answer is remembered soon after it was asked for.
const REMEMBERED_WITHIN: usize = 12;
/// In a detector itself, everything it writes is an answer, unless it is this big.
const LONG_DETECTOR: usize = 600;
/// A table of answers whose size is not known.
const ANSWER_BYTES: u64 = 128;
/// A variable that may hold an answer, as against a table or an object.
const SMALL_GLOBAL: u64 = 32;
/// A named table of answers is no longer than this.
const LARGEST_ANSWER: u64 = 4096;
/// Getters that call getters that call getters.
const ROUNDS: usize = 3;

/// What a look at one function found.
#[derive(Default, PartialEq)]
struct Asked {
    /// Itself, if it hands the answer on.
    asker: Option<u64>,
    answers: Vec<u64>,
    /// Tables whose address it gave to a detector.
    lent: Vec<u64>,
}

impl Guards {
    pub(crate) fn find(program: &Program) -> Self {
        let mut guards = Self::default();
        guards.take_symbols(program);
        guards.foreign.extend(program.stubs_of_imports(is_detector));
        guards.askers.extend(&guards.foreign);
        for function in 0..program.functions.len() {
            if program.sweep.functions[function].traits & trait_of::ASKS != 0 {
                guards.askers.insert(program.functions[function].start);
                guards.remember(program, function);
            }
        }
        guards.asks_anywhere = !guards.askers.is_empty()
            || !guards.answers.is_empty()
            || program.import_names().any(is_detector);
        if guards.asks_anywhere {
            guards.spread(program);
        }
        guards
    }

    /// Variables whose names say it: libgcc's `__cpu_model`, `npy__cpu_features_have`, `faiss::SIMDConfig::level`.
    fn take_symbols(&mut self, program: &Program) {
        for symbol in program
            .symbols
            .iter()
            .filter(|symbol| symbol.kind == SymbolKind::Data)
        {
            let is_arm = matches!(
                symbol.name,
                b"__aarch64_have_lse_atomics" | b"__aarch64_cpu_features"
            );
            if is_arm || symbol.size <= LARGEST_ANSWER && is_detector(symbol.name) {
                self.note_answer(symbol.address, symbol.size.max(16));
            }
        }
    }

    fn note_answer(&mut self, address: u64, bytes: u64) {
        for word in 0..bytes.clamp(1, 4096).div_ceil(8) {
            self.answers.insert((address >> 3).wrapping_add(word));
        }
    }

    fn remember(&mut self, program: &Program, function: usize) {
        let is_long = program.sweep.event_count(function) > LONG_DETECTOR;
        let mut since = usize::MAX;
        for event in program.sweep.events(function) {
            since = if event == Event::Cpuid {
                0
            } else {
                since.saturating_add(1)
            };
            let counts = !is_long || since <= REMEMBERED_WITHIN * 4;
            match event {
                Event::Write(address) if counts => self.note_answer(address, 8),
                Event::TakeData(address) if counts && !is_long => self.note_answers_at(program, address),
                Event::Read(slot) if counts && !is_long => {
                    small_global(program, slot)
                        .into_iter()
                        .for_each(|address| self.note_answer(address, 8));
                }
                _ => {}
            }
        }
    }

    /// A table of answers: as long as its symbol says (numpy's has 400 bytes), else a guess.
    fn note_answers_at(&mut self, program: &Program, address: u64) {
        let bytes = program
            .object_at(address)
            .map_or(ANSWER_BYTES, |object| object.end - address);
        self.note_answer(address, bytes);
    }

    /// Callers that keep or hand on the answer, a few levels up.
    fn spread(&mut self, program: &Program) {
        for _ in 0..ROUNDS {
            let askers = program.with_stubs(&self.askers);
            let found: Vec<Asked> = (0..program.functions.len())
                .into_par_iter()
                .filter_map(|function| self.look_at(program, &askers, function))
                .collect();
            let before = (self.askers.len(), self.answers.len());
            for Asked { asker, answers, lent } in found {
                self.askers.extend(asker);
                answers
                    .into_iter()
                    .for_each(|address| self.note_answer(address, 8));
                lent.into_iter()
                    .for_each(|address| self.note_answers_at(program, address));
            }
            self.follow_pointers(program);
            if (self.askers.len(), self.answers.len()) == before {
                break;
            }
        }
        self.askers = program.with_stubs(&self.askers);
    }

    fn look_at(&self, program: &Program, askers: &AddressSet, index: usize) -> Option<Asked> {
        let function = program.functions[index];
        let (mut asks, mut since) = (false, usize::MAX);
        let mut found = Asked::default();
        let mut taken: Vec<u64> = Vec::new();
        for event in program.sweep.events(index) {
            since = since.saturating_add(1);
            match event {
                Event::Ask(target) | Event::Jump(target) if askers.contains(&target) => {
                    (asks, since) = (true, 0)
                }
                // `detect(&answers)`: the address is taken just before the call.
                Event::Call(target) if askers.contains(&target) => found.lent.append(&mut taken),
                Event::Read(address) if self.is_answer(address) => asks = true,
                Event::Write(address) if since <= REMEMBERED_WITHIN => found.answers.push(address),
                Event::Read(slot) if since <= REMEMBERED_WITHIN => {
                    found.answers.extend(small_global(program, slot))
                }
                _ => {}
            }
            match event {
                Event::TakeData(address) => taken.push(address),
                _ => taken.clear(),
            }
        }
        found.asker = (asks && function.end - function.start <= SMALL_FUNCTION).then_some(function.start);
        (found != Asked::default()).then_some(found)
    }

    /// A variable that points to answers is one: OpenCV reads `currentFeatures->have[i]`.
    fn follow_pointers(&mut self, program: &Program) {
        let to_answer =
            |(_, pointer): &&(u64, Pointer)| matches!(pointer, Pointer::Inside(a) if self.is_answer(*a));
        let places: Vec<u64> = program
            .pointers
            .iter()
            .filter(to_answer)
            .map(|(place, _)| *place)
            .collect();
        places.into_iter().for_each(|place| self.note_answer(place, 8));
    }

    pub(crate) fn askers(&self) -> impl Iterator<Item = u64> + '_ {
        self.askers.iter().copied()
    }

    pub(crate) fn is_asker(&self, address: u64) -> bool {
        self.askers.contains(&address)
    }

    pub(crate) fn is_answer(&self, address: u64) -> bool {
        self.answers.contains(&(address >> 3))
    }

    /// From here on, the function knows what the CPU can do.
    pub(crate) fn is_guard(&self, program: &Program, event: Event) -> bool {
        match event {
            Event::Cpuid => true,
            Event::Ask(target) => self.askers.contains(&target),
            Event::Call(target) => self.foreign.contains(&target),
            Event::Read(address) | Event::TakeData(address) | Event::CallSlot(address) => {
                self.is_answer(address) || self.is_foreign(program, address)
            }
            _ => false,
        }
    }

    /// A slot that holds the address of somebody else's detector, or of our own answer.
    fn is_foreign(&self, program: &Program, slot: u64) -> bool {
        match program.through(slot) {
            Target::Import(name) => is_detector(name),
            Target::Data(address) => self.is_answer(address),
            Target::Function(function) => self.askers.contains(&program.functions[function].start),
            _ => false,
        }
    }
}

/// An exported variable is written through its slot: `mov rax, [slot]; mov [rax], edx` (faiss's SIMDConfig::level).
fn small_global(program: &Program, slot: u64) -> Option<u64> {
    let Target::Data(address) = program.through(slot) else {
        return None;
    };
    let object = program.object_at(address)?;
    (object.end - object.start <= SMALL_GLOBAL).then_some(address)
}

/// Detectors that live in another library, by what their authors call them: `__cpu_model` (gcc),
/// `cpuinfo_has_x86_avx2` (pytorch), `av_get_cpu_flags` (ffmpeg), `cv::checkHardwareSupport`, `mayiuse` (oneDNN).
fn is_detector(name: &[u8]) -> bool {
    const WHOLE: &[&str] = &[
        "hardwaresupport",
        "mayiuse",
        "cpuid",
        "simdlevel",
        "simd_level",
        "cpu_model",
        "gotoblas",
        "getauxval",
        "hwcap",
        "simdconfig",
    ];
    const ABOUT: &[&str] = &[
        "feature",
        "flag",
        "capab",
        "support",
        "isa",
        "detect",
        "info",
        "indicator",
    ];
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    WHOLE.iter().any(|part| name.contains(part))
        || name.contains("cpu") && ABOUT.iter().any(|part| name.contains(part))
}
