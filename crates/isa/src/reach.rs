//! What runs without anybody having asked: from the entry points along calls, addresses and tables, and not past
//! a guard. The way to a function is as strong as its weakest step.

use crate::events::Event;
use crate::guards::Guards;
use crate::image::SymbolKind;
use crate::program::{Program, Target};
use std::collections::{HashSet, VecDeque};

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
}

impl Default for Reached {
    fn default() -> Self {
        Self {
            hits: vec![None; 64],
            counts: vec![[0; 4]; 64],
            merged: vec![None; 64],
        }
    }
}

struct Walk<'a, 'p> {
    program: &'a Program<'p>,
    guards: &'a Guards,
    seen: Vec<bool>,
    seen_tables: HashSet<u64>,
    queues: [VecDeque<(usize, usize)>; 4],
    found: Reached,
}

pub(crate) fn walk(program: &Program, guards: &Guards) -> Reached {
    let mut walk = Walk {
        program,
        guards,
        seen: vec![false; program.functions.len()],
        seen_tables: HashSet::new(),
        queues: Default::default(),
        found: Reached::default(),
    };
    walk.start();
    for strength in [Strength::Loaded, Strength::Called, Strength::Linked] {
        while let Some((function, root)) = walk.queues[strength as usize].pop_front() {
            walk.visit(function, root, strength);
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
                self.push(function, function, Strength::Loaded);
            }
        }
        let is_module = program
            .symbols
            .iter()
            .any(|symbol| symbol.name.starts_with(b"PyInit_"));
        let used_inside = if is_module {
            HashSet::new()
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

    fn push(&mut self, function: usize, root: usize, strength: Strength) {
        if !self.seen[function] {
            self.queues[strength as usize].push_back((function, root));
        }
    }

    fn push_code(&mut self, address: u64, root: Option<usize>, strength: Strength) {
        self.push_target(&self.program.code_at(address), root, strength);
    }

    fn push_target(&mut self, target: &Target, root: Option<usize>, strength: Strength) {
        if let Target::Function(function) = *target {
            self.push(function, root.unwrap_or(function), strength);
        }
    }

    fn visit(&mut self, function: usize, root: usize, strength: Strength) {
        if std::mem::replace(&mut self.seen[function], true) {
            return;
        }
        let program = self.program;
        let weaker = strength.min(Strength::Linked);
        let mut onward = strength;
        for event in program.sweep.events(function) {
            if self.guards.is_guard(program, event) {
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
                ),
                Event::Call(target) | Event::Ask(target) | Event::Jump(target) => {
                    self.push_code(target, Some(root), onward);
                }
                Event::CallSlot(slot) => self.push_target(&program.through(slot), Some(root), onward),
                Event::TakeCode(target) => self.push_code(target, Some(root), weaker),
                Event::TakeData(address) => self.push_table(address, root, weaker),
                Event::Read(slot) => match program.through(slot) {
                    Target::Data(address) => self.push_table(address, root, weaker),
                    target => self.push_target(&target, Some(root), weaker),
                },
                // At load time conditions are few; in the interface they choose between implementations.
                Event::Branch if strength == Strength::Called => onward = Strength::Linked,
                Event::Branch | Event::Write(_) | Event::Cpuid => {}
            }
        }
    }

    fn push_table(&mut self, address: u64, root: usize, strength: Strength) {
        let mut waiting = vec![address];
        while let Some(table) = waiting.pop() {
            if !self.seen_tables.insert(table) {
                continue;
            }
            for target in self.program.table(table) {
                match target {
                    Target::Data(inner) => waiting.push(inner),
                    target => self.push_target(&target, Some(root), strength),
                }
            }
        }
    }

    fn hit(&mut self, extension: usize, hit: Hit) {
        if self.program.sweep.functions[hit.function].is_damaged {
            return;
        }
        // A name says what was meant, unless the loader itself calls it.
        let is_variant = || self.program.name_of(hit.function).is_some_and(names_an_extension);
        if hit.strength != Strength::Loaded && is_variant() {
            return;
        }
        self.found.counts[extension][hit.strength as usize] += 1;
        if self
            .program
            .name_of(hit.function)
            .is_some_and(is_standard_template)
        {
            self.found.merged[extension].get_or_insert(hit);
        }
        let known = &mut self.found.hits[extension];
        if known.is_none_or(|known| known.strength < hit.strength) {
            *known = Some(hit);
        }
    }
}

/// `ddot_k_SKYLAKEX`, `sort_avx2`, `QSelect_X86_V4`: a variant that its authors made to be chosen.
pub(crate) fn names_an_extension(name: &[u8]) -> bool {
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
    // MKL's kernels carry its own codes: `_L9HAynn`.
    if name.starts_with(b"mkl_") {
        return true;
    }
    (0..name.len()).any(|at| {
        TOKENS.iter().any(|token| {
            token[0] == name[at].to_ascii_lowercase()
                && name
                    .get(at..at + token.len())
                    .is_some_and(|part| part.eq_ignore_ascii_case(token))
        })
    })
}

/// `std::vector<float>::_M_realloc_insert`: every object file has its own copy, and the linker keeps one of them,
/// maybe that of the file compiled for AVX2.
fn is_standard_template(name: &[u8]) -> bool {
    [b"_ZNSt".as_slice(), b"_ZSt", b"_ZNKSt", b"_ZN9__gnu_cxx"]
        .iter()
        .any(|start| name.starts_with(start))
}
