//! Guards that ask for one thing and let another run: AVX is asked for, AVX2 is behind it.
//!
//! Only from functions that `reach` stopped at, and a few calls deep: farther away, other guards may have been passed
//! that were not seen.

use crate::addresses::{AddressMap, AddressSet};
use crate::events::{Event, Set, members, trait_of};
use crate::guards::Guards;
use crate::image::Machine;
use crate::program::{Program, Target};
use crate::x86;
use crate::x86::cpuid::Word;
use crate::x86::features::{implied, taken_for};
use crate::x86::questions::{self, Questions, Surroundings, Value};
use std::collections::{HashMap, HashSet};

pub(crate) struct Presumed {
    pub(crate) extension: usize,
    /// What was asked for.
    pub(crate) given: Set,
    pub(crate) function: usize,
    pub(crate) guard: usize,
}

const DEEPEST: usize = 2;
const ROUNDS: usize = 3;
/// libgcc's variables where they live in another library: no file has an address like that.
const ELSEWHERE: u64 = 1 << 56;
const MORE: u64 = 0x1000;
/// Of `__cpu_features` in `__cpu_model`.
const FEATURES_OFFSET: u64 = 12;

pub(crate) fn find(program: &Program, guards: &Guards, machine: Machine, stopped: &[usize]) -> Vec<Presumed> {
    if machine != Machine::X86_64 || stopped.is_empty() {
        return Vec::new();
    }
    let knowledge = Knowledge::new(program, guards);
    let mut found: HashMap<(usize, Set), Presumed> = HashMap::new();
    for guard in stopped {
        let asked = knowledge.of(*guard).asked;
        if asked != 0 && asked != Set::MAX {
            behind(program, guards, &knowledge, *guard, asked, &mut found);
        }
    }
    let mut found: Vec<Presumed> = found.into_values().collect();
    found.sort_by_key(|one| (one.extension, one.given));
    found
}

fn behind(
    program: &Program,
    guards: &Guards,
    knowledge: &Knowledge,
    guard: usize,
    asked: Set,
    found: &mut HashMap<(usize, Set), Presumed>,
) {
    let mut seen = HashSet::from([guard]);
    let mut waiting = vec![(guard, asked, 0)];
    while let Some((function, asked, depth)) = waiting.pop() {
        let own = if depth > 0 && is_guarded(program, guards, function) {
            knowledge.of(function).asked
        } else {
            0
        };
        let asked = asked | own;
        if asked == Set::MAX {
            continue;
        }
        let swept = program.sweep.functions[function];
        let unasked = if swept.is_damaged {
            0
        } else {
            swept.needs & !implied(asked)
        };
        for extension in members(unasked) {
            let given = asked & taken_for(1 << extension);
            if given != 0 {
                found.entry((extension, given)).or_insert(Presumed {
                    extension,
                    given,
                    function,
                    guard,
                });
            }
        }
        if depth < DEEPEST {
            let next = callees(program, function).filter(|callee| seen.insert(*callee));
            waiting.extend(next.map(|callee| (callee, asked, depth + 1)));
        }
    }
}

fn is_guarded(program: &Program, guards: &Guards, function: usize) -> bool {
    program
        .sweep
        .events(function)
        .any(|event| guards.is_guard(program, event))
}

fn callees<'a>(program: &'a Program, function: usize) -> impl Iterator<Item = usize> + 'a {
    program.sweep.events(function).filter_map(|event| {
        let target = match event {
            Event::Call(target) | Event::Ask(target) | Event::Jump(target) | Event::TakeCode(target) => {
                program.code_at(target)
            }
            Event::CallSlot(slot) | Event::Read(slot) => program.through(slot),
            _ => return None,
        };
        match target {
            Target::Function(callee) => Some(callee),
            _ => None,
        }
    })
}

/// What each function that asks has asked for, and what is in the variables that keep it.
struct Knowledge<'a, 'p> {
    program: &'a Program<'p>,
    guards: &'a Guards,
    askers: AddressMap<Set>,
    variables: AddressMap<Set>,
    libgcc: Libgcc,
}

/// The compiler's own detector, `__builtin_cpu_supports`.
struct Libgcc {
    /// Where its words are, in this file or elsewhere.
    words: AddressMap<u8>,
    /// The functions that fill them: calling one is no question.
    fills: AddressSet,
}

impl<'a, 'p> Knowledge<'a, 'p> {
    fn new(program: &'a Program<'p>, guards: &'a Guards) -> Self {
        let mut knowledge = Self {
            program,
            guards,
            askers: AddressMap::default(),
            variables: AddressMap::default(),
            libgcc: Libgcc::find(program),
        };
        let askers: Vec<usize> = guards
            .askers()
            .filter_map(|address| program.function_at(address))
            .collect();
        for _ in 0..ROUNDS {
            for function in &askers {
                let Questions { asked, stored } = knowledge.of(*function);
                *knowledge
                    .askers
                    .entry(program.functions[*function].start)
                    .or_default() |= asked;
                for (address, set) in stored {
                    *knowledge.variables.entry(address).or_default() |= set;
                }
            }
        }
        knowledge
    }

    fn of(&self, function: usize) -> Questions {
        questions::read(
            self.program.bytes_of(function),
            self.program.functions[function].start,
            self,
        )
    }
}

impl Surroundings for Knowledge<'_, '_> {
    fn variable(&self, address: u64) -> Value {
        if let Some(word) = self.libgcc.words.get(&address) {
            return Value::Bits {
                word: Word::Libgcc(*word),
                shift: 0,
                mask: u32::MAX,
            };
        }
        match self.variables.get(&address) {
            Some(set) => Value::Verdict(*set),
            None if self.guards.is_answer(address) => Value::Verdict(Set::MAX),
            None => Value::Unknown,
        }
    }

    fn slot(&self, address: u64) -> Option<u64> {
        match self.program.through(address) {
            Target::Data(variable) => Some(variable),
            Target::Import(b"__cpu_model") => Some(ELSEWHERE),
            Target::Import(b"__cpu_features2") => Some(ELSEWHERE + MORE),
            _ => None,
        }
    }

    fn asked_by(&self, target: u64) -> Option<Set> {
        let leads_to = match self.program.code_at(target) {
            Target::Function(function) => self.program.functions[function].start,
            // libgcc's own initialiser answers nothing: its variables do.
            Target::Import(b"__cpu_indicator_init") => return None,
            _ if self.guards.is_asker(target) => return Some(Set::MAX),
            _ => return None,
        };
        if self.libgcc.fills.contains(&leads_to) {
            return None;
        }
        self.askers
            .get(&leads_to)
            .copied()
            .or_else(|| self.guards.is_asker(leads_to).then_some(0))
    }
}

impl Libgcc {
    fn find(program: &Program) -> Self {
        let mut found = Self {
            words: AddressMap::default(),
            fills: AddressSet::default(),
        };
        let named = |name: &[u8]| {
            let symbol = program.symbols.iter().find(|symbol| symbol.name == name)?;
            Some(symbol.address)
        };
        found.note(named(b"__cpu_model"), named(b"__cpu_features2"));
        found.note(Some(ELSEWHERE), Some(ELSEWHERE + MORE));
        for (function, swept) in program.functions.iter().zip(0..) {
            if program.sweep.functions[swept].traits & trait_of::ASKS == 0 {
                continue;
            }
            let bytes = program.bytes_of(swept);
            if knows_odd_vendors(bytes) {
                found.fills.insert(function.start);
                found.note(x86::first_variable_set_to_a_number(bytes, function.start), None);
            }
        }
        found
    }

    fn note(&mut self, model: Option<u64>, more: Option<u64>) {
        self.words
            .extend(model.map(|address| (address.wrapping_add(FEATURES_OFFSET), 0)));
        let later = (0..3).filter_map(|word| Some((more?.wrapping_add(4 * u64::from(word)), word + 1)));
        self.words.extend(later);
    }
}

/// libgcc's initialiser in a file without symbols: who else looks for CPUs of Cyrix and of National Semiconductor?
fn knows_odd_vendors(bytes: &[u8]) -> bool {
    let has = |word: &[u8]| bytes.windows(4).any(|four| four == word);
    has(b"Cyri") && has(b"Geod")
}
