//! What runs without anybody having asked: from the entry points along calls, addresses and tables, and not past
//! a guard. The way to a function is as strong as its weakest step.

use crate::addresses::AddressSet;
use crate::events::{Event, trait_of};
use crate::guards::Guards;
use crate::image::SymbolKind;
use crate::program::{Program, Target};
use std::collections::VecDeque;

/// How surely a function runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Strength {
    /// A table, an address somebody took or a call behind some condition leads there.
    Linked = 1,
    /// Every call of some function of the interface gets there.
    Called = 2,
    /// Called while the file is loaded or imported.
    Loaded = 3,
}

#[derive(Clone, Copy)]
pub(crate) struct Hit {
    pub(crate) strength: Strength,
    pub(crate) function: usize,
    pub(crate) root: usize,
}

#[derive(Clone)]
pub(crate) struct Reached {
    /// For each extension, the first hit of the greatest strength.
    pub(crate) hits: Vec<Option<Hit>>,
    /// For each extension, how many functions of each strength need it without a guard.
    pub(crate) counts: Vec<[u32; 4]>,
    /// For each extension, an instance of a standard template that needs it.
    pub(crate) merged: Vec<Option<Hit>>,
    /// Functions that asked something, so that the walk went no farther.
    pub(crate) stopped: Vec<usize>,
}

impl Default for Reached {
    fn default() -> Self {
        Self {
            hits: vec![None; 64],
            counts: vec![[0; 4]; 64],
            merged: vec![None; 64],
            stopped: Vec::new(),
        }
    }
}

/// A function to visit, where the way to it began, and the function that names it; None for roots and tables.
#[derive(Clone, Copy)]
struct Step {
    function: usize,
    root: usize,
    caller: Option<usize>,
}

/// Where the walk comes from.
#[derive(Clone, Copy)]
struct Origin {
    root: usize,
    caller: Option<usize>,
}

struct Walk<'a, 'p> {
    program: &'a Program<'p>,
    guards: &'a Guards,
    seen: Vec<bool>,
    seen_tables: AddressSet,
    queues: [VecDeque<Step>; 4],
    found: Reached,
}

pub(crate) fn walk(program: &Program, guards: &Guards) -> Reached {
    let mut walk = Walk {
        program,
        guards,
        seen: vec![false; program.functions.len()],
        seen_tables: AddressSet::default(),
        queues: Default::default(),
        found: Reached::default(),
    };
    walk.start();
    for strength in [Strength::Loaded, Strength::Called, Strength::Linked] {
        while let Some(step) = walk.queues[strength as usize].pop_front() {
            walk.visit(step, strength);
        }
    }
    walk.found
}

impl Walk<'_, '_> {
    fn start(&mut self) {
        let program = self.program;
        for address in program.image.constructors(&program.pointers) {
            self.push_code(address, None, Strength::Loaded);
        }
        // A resolver runs while the file is relocated: what it needs itself, it needs at once.
        for address in &program.resolvers {
            if let Some(function) = program.function_at(*address) {
                self.push(function, None, Strength::Loaded);
            }
        }
        let is_module = program
            .symbols
            .iter()
            .any(|symbol| symbol.name.starts_with(b"PyInit_"));
        let used_inside = if is_module {
            AddressSet::default()
        } else {
            program.used_inside()
        };
        for symbol in program
            .symbols
            .iter()
            .filter(|s| s.is_exported && s.kind == SymbolKind::Function)
        {
            if symbol.name.starts_with(b"PyInit_") {
                self.push_code(symbol.address, None, Strength::Loaded);
            } else if !is_module && !used_inside.contains(&symbol.address) && !names_an_extension(symbol.name)
            {
                self.push_code(symbol.address, None, Strength::Called);
            }
        }
        if let Some(entry) = program.image.entry() {
            self.push_code(entry, None, Strength::Loaded);
        }
    }

    fn push(&mut self, function: usize, from: Option<Origin>, strength: Strength) {
        if !self.seen[function] {
            let Origin { root, caller } = from.unwrap_or(Origin {
                root: function,
                caller: None,
            });
            self.queues[strength as usize].push_back(Step {
                function,
                root,
                caller,
            });
        }
    }

    fn push_code(&mut self, address: u64, from: Option<Origin>, strength: Strength) {
        self.push_target(&self.program.code_at(address), from, strength);
    }

    fn push_target(&mut self, target: &Target, from: Option<Origin>, strength: Strength) {
        if let Target::Function(function) = *target {
            self.push(function, from, strength);
        }
    }

    fn visit(&mut self, step: Step, strength: Strength) {
        let Step {
            function,
            root,
            caller,
        } = step;
        if std::mem::replace(&mut self.seen[function], true) {
            return;
        }
        let program = self.program;
        let weaker = strength.min(Strength::Linked);
        let from = Origin {
            root,
            caller: Some(function),
        };
        let mut onward = strength;
        for event in program.sweep.events(function) {
            if self.guards.is_guard(program, event) {
                self.found.stopped.push(function);
                return;
            }
            match event {
                Event::Needs(extension) => self.hit(
                    extension as usize,
                    Hit {
                        strength,
                        function,
                        root,
                    },
                    caller,
                ),
                Event::Call(target) | Event::Ask(target) | Event::Jump(target) => {
                    self.push_code(target, Some(from), onward);
                }
                Event::CallSlot(slot) => self.push_target(&program.through(slot), Some(from), onward),
                Event::TakeCode(target) => self.push_code(target, Some(from), weaker),
                Event::TakeData(address) => self.push_table(address, from, weaker),
                Event::Read(slot) => match program.through(slot) {
                    Target::Data(address) => self.push_table(address, from, weaker),
                    target => self.push_target(&target, Some(from), weaker),
                },
                // At load time conditions are few; in the interface they choose between implementations.
                Event::Branch if strength == Strength::Called => onward = Strength::Linked,
                Event::Branch | Event::Write(_) | Event::Cpuid => {}
            }
        }
    }

    fn push_table(&mut self, address: u64, from: Origin, strength: Strength) {
        let (mut waiting, from) = (vec![address], Origin { caller: None, ..from });
        while let Some(table) = waiting.pop() {
            if !self.seen_tables.insert(table) {
                continue;
            }
            for target in self.program.table(table) {
                match target {
                    Target::Data(inner) => waiting.push(inner),
                    target => self.push_target(&target, Some(from), strength),
                }
            }
        }
    }

    /// Not part of some kernel, whose own instances of templates run only where the kernel does (numpy's sorts).
    fn is_plain_code(&self, function: usize) -> bool {
        self.program.sweep.functions[function].traits & (trait_of::WIDE | trait_of::WIDEST) == 0
            && !self
                .program
                .name_of(function)
                .is_some_and(|name| is_standard_template(name) || names_an_extension(name))
    }

    fn hit(&mut self, extension: usize, hit: Hit, caller: Option<usize>) {
        if self.program.sweep.functions[hit.function].is_damaged {
            return;
        }
        // A name says what was meant, unless the loader itself calls it.
        let is_variant = || self.program.name_of(hit.function).is_some_and(names_an_extension);
        if hit.strength != Strength::Loaded && is_variant() {
            return;
        }
        self.found.counts[extension][hit.strength as usize] += 1;
        let name = self.program.name_of(hit.function);
        if name.is_some_and(is_standard_template) && caller.is_some_and(|caller| self.is_plain_code(caller)) {
            self.found.merged[extension].get_or_insert(hit);
        }
        let known = &mut self.found.hits[extension];
        if known.is_none_or(|known| known.strength < hit.strength) {
            *known = Some(hit);
        }
    }
}

const TOKENS: &[&[u8]] = &[
    b"sse3",
    b"sse4",
    b"sse_4",
    b"avx",
    b"fma3",
    b"_fma",
    b"f16c",
    b"haswell",
    b"skylake",
    b"sandybridge",
    b"zen",
    b"nehalem",
    b"cooperlake",
    b"sapphire",
    b"icelake",
    b"icl",
    b"_v3",
    b"_v4",
    b"clmul",
    b"aesni",
    b"bmi2",
    b"popcnt",
    b"rdrand",
    b"rdseed",
    b"ssse3",
    b"amx",
    b"vnni",
    b"shani",
    b"sha_ni",
    b"bulldozer",
    b"piledriver",
    b"steamroller",
    b"excavator",
    b"barcelona",
    b"atom",
    b"westmere",
    b"knl",
    b"spr",
    b"vaes",
    b"zmm",
    b"ymm",
    b"m256",
    b"m512",
    b"simdlevel",
    b"cpuisa",
    // Names with the length of a vector instead: `Sleef_frfrexpf16`, `__svml_atanh8_ha`.
    b"sleef_",
    b"svml_",
];

/// Pairs of letters that a token begins with, a bit each: names have a hundred letters, and there are millions of them.
const MAY_BEGIN: [u32; 32] = may_begin();

const fn may_begin() -> [u32; 32] {
    let (mut table, mut index) = ([0; 32], 0);
    while index < TOKENS.len() {
        // The low five bits are the same for both cases of a letter.
        table[(TOKENS[index][0] & 31) as usize] |= 1 << (TOKENS[index][1] & 31);
        index += 1;
    }
    table
}

/// `ddot_k_SKYLAKEX`, `sort_avx2`, `QSelect_X86_V4`: a variant that its authors made to be chosen.
pub(crate) fn names_an_extension(name: &[u8]) -> bool {
    // MKL's kernels carry its own codes: `_L9HAynn`.
    if name.starts_with(b"mkl_") {
        return true;
    }
    let begins = |at: usize, token: &[u8]| {
        let part = name.get(at..at + token.len());
        part.is_some_and(|part| part.eq_ignore_ascii_case(token))
    };
    let pairs = name.windows(2).enumerate();
    pairs
        .filter(|(_, pair)| MAY_BEGIN[usize::from(pair[0] & 31)] >> (pair[1] & 31) & 1 == 1)
        .any(|(at, _)| TOKENS.iter().any(|token| begins(at, token)))
}

/// `std::vector<float>::_M_realloc_insert`: every object file has its own copy, and the linker keeps one of them,
/// maybe that of the file compiled for AVX2.
fn is_standard_template(name: &[u8]) -> bool {
    [b"_ZNSt".as_slice(), b"_ZSt", b"_ZNKSt", b"_ZN9__gnu_cxx"]
        .iter()
        .any(|start| name.starts_with(start))
}
