//! From what was counted and reached to what the file needs. The thresholds were set on the packages that
//! tests/prevent/ground_truth names for that, and scored on others.

use crate::events::{Set, members, trait_of};
use crate::guards::Guards;
use crate::image::Machine;
use crate::presumed::Presumed;
use crate::program::Program;
use crate::reach::{Hit, Reached, Strength};
use crate::report::{Because, Need, Presumption};
use crate::{arm, x86};

/// More than this share of the vector functions in the wide encoding: the compiler was told to use it everywhere.
/// Seen: 0.906 and up in files that die, 0.68 and less in those that choose at run time.
const WIDE_EVERYWHERE: f64 = 0.9;
const ENOUGH_FUNCTIONS: usize = 30;
const ENOUGH_WHERE_NOBODY_ASKS: usize = 8;
/// shlx against shl by CL: 0.004 where BMI2 is dispatched, 0.48 and up where it is compiled in.
const MODERN_EVERYWHERE: f64 = 0.4;
/// Of the functions that need it, how many are reached with no guard before them, in a file compiled for AVX.
const MOSTLY_UNGUARDED: f64 = 0.4;

/// … and how many of the vector functions use it: 0.09 and up where AVX2 is compiled in, 0.012 where tensorflow
/// chooses F16C. Where BMI2 is compiled in, so is the rest of x86-64-v3.
const COMMON: f64 = 0.03;
const COMMON_BESIDE_BMI2: f64 = 0.003;
/// Of the functions that need it, all but a few are reached unguarded: no guard has anything to do with it.
const NEARLY_ALL: f64 = 0.97;

pub(crate) struct Counts {
    vector: usize,
    wide: usize,
    modern: usize,
    old: usize,
    each: [u32; 64],
}

impl Counts {
    pub(crate) fn of(program: &Program) -> Self {
        let mut counts = Self {
            vector: 0,
            wide: 0,
            modern: 0,
            old: 0,
            each: [0; 64],
        };
        for function in program
            .sweep
            .functions
            .iter()
            .filter(|function| !function.is_damaged)
        {
            let has = |mask: u16| usize::from(function.traits & mask != 0);
            counts.vector += has(trait_of::PLAIN | trait_of::WIDE | trait_of::WIDEST);
            counts.wide += has(trait_of::WIDE);
            counts.modern += has(trait_of::MODERN);
            counts.old += has(trait_of::OLD);
            members(function.needs).for_each(|index| counts.each[index] += 1);
        }
        counts
    }

    fn is_wide_everywhere(&self, asks: bool) -> bool {
        let enough = if asks {
            ENOUGH_FUNCTIONS
        } else {
            ENOUGH_WHERE_NOBODY_ASKS
        };
        self.vector >= enough && share(self.wide, self.vector) > WIDE_EVERYWHERE
    }

    fn is_modern_everywhere(&self) -> bool {
        self.modern >= 10 && share(self.modern, self.modern + self.old) > MODERN_EVERYWHERE
    }
}

fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

pub(crate) struct Judge<'a, 'p> {
    pub(crate) machine: Machine,
    pub(crate) program: &'a Program<'p>,
    pub(crate) guards: &'a Guards,
    pub(crate) counts: Counts,
    pub(crate) reached: Reached,
}

impl Judge<'_, '_> {
    pub(crate) fn needs(&self) -> Vec<Need> {
        let noted = self.noted();
        let present = (0..64).filter(|index| self.counts.each[*index] > 0 || noted >> index & 1 == 1);
        let mut found: Vec<Need> = present.filter_map(|index| self.need(index, noted)).collect();
        found.sort_by_key(|need| need.because);
        found
    }

    /// What is in the file and not needed.
    pub(crate) fn dispatched(&self, needs: &[Need]) -> Vec<&'static str> {
        let present = (0..64)
            .filter(|index| self.counts.each[*index] > 0)
            .map(|index| self.name(index));
        present
            .filter(|name| !needs.iter().any(|need| need.extension == *name))
            .collect()
    }

    /// What guards let through that they did not ask for, unless it is needed anyway.
    pub(crate) fn presumes(&self, found: &[Presumed], needs: &[Need]) -> Vec<Presumption> {
        let is_new = |one: &&Presumed| {
            !needs
                .iter()
                .any(|need| need.extension == self.name(one.extension))
        };
        let tell = |one: &Presumed| Presumption {
            extension: self.name(one.extension),
            given: members(one.given).map(|index| self.name(index)).collect(),
            function: self.label(one.function),
            guard: self.label(one.guard),
        };
        found.iter().filter(is_new).map(tell).collect()
    }

    fn name(&self, index: usize) -> &'static str {
        match self.machine {
            Machine::X86_64 => x86::features::name(index),
            Machine::Aarch64 => arm::features::NAMES[index],
        }
    }

    fn need(&self, index: usize, noted: Set) -> Option<Need> {
        let unguarded = self.reached.counts[index];
        let functions: u32 = unguarded.iter().sum();
        let because = self
            .because(index)
            .or((noted >> index & 1 == 1).then_some(Because::Note))?;
        let hit = self.reached.hits[index];
        Some(Need {
            extension: self.name(index),
            because,
            functions: functions.max(if because == Because::Baseline {
                self.counts.each[index]
            } else {
                0
            }),
            function: hit.map(|hit| self.label(hit.function)),
            from: hit
                .filter(|hit| hit.root != hit.function)
                .map(|hit| self.label(hit.root)),
        })
    }

    fn because(&self, index: usize) -> Option<Because> {
        if self.silent() >> index & 1 == 1 {
            return (self.is_baseline(index)).then_some(Because::Silent);
        }
        if self.is_baseline(index) {
            return Some(Because::Baseline);
        }
        match self.reached.hits[index].map(|Hit { strength, .. }| strength)? {
            Strength::Loaded => Some(Because::Load),
            Strength::Called => Some(Because::Call),
            Strength::Linked => self.is_likely(index).then_some(Because::Call),
        }
    }

    fn is_baseline(&self, index: usize) -> bool {
        let wide = self.counts.is_wide_everywhere(self.guards.asks_anywhere);
        let set: Set = 1 << index;
        match self.machine {
            Machine::X86_64 if set == x86::features::AVX => wide,
            Machine::X86_64 if set == x86::features::BMI2 => wide && self.counts.is_modern_everywhere(),
            Machine::Aarch64 if set == arm::features::SVE => wide,
            Machine::Aarch64 if set == arm::features::ATOMICS => {
                self.counts.modern >= 10
                    && share(self.counts.modern, self.counts.modern + self.counts.old) > 0.9
            }
            _ => wide && self.is_common(index),
        }
    }

    /// Reached, but by a table or behind a condition, which may well be a guard that was not seen.
    fn is_likely(&self, index: usize) -> bool {
        // Where nobody asks, nobody chooses.
        !self.guards.asks_anywhere
            || self.counts.is_wide_everywhere(true)
            || self.reached.merged[index].is_some()
            || self.runs_wide_at_load() && self.is_mostly_unguarded(index)
            || self.is_nearly_all(index) && self.is_nearly_all(self.wide().trailing_zeros() as usize)
    }

    /// Parts of the file are compiled for AVX and run unasked: so does, most likely, what comes with it.
    fn runs_wide_at_load(&self) -> bool {
        self.reached.counts[self.wide().trailing_zeros() as usize][Strength::Loaded as usize] > 0
    }

    fn is_mostly_unguarded(&self, index: usize) -> bool {
        let unguarded: u32 = self.reached.counts[index].iter().sum();
        unguarded >= 10 && share(unguarded as usize, self.counts.each[index] as usize) > MOSTLY_UNGUARDED
    }

    fn is_nearly_all(&self, index: usize) -> bool {
        let all = self.counts.each[index] as usize;
        let unguarded: u32 = self.reached.counts[index].iter().sum();
        all >= 20 && share(unguarded as usize, all) > NEARLY_ALL
    }

    /// In a file that is compiled for AVX: an extension that much of it uses with no guard in front.
    fn is_common(&self, index: usize) -> bool {
        let common = if self.counts.is_modern_everywhere() {
            COMMON_BESIDE_BMI2
        } else {
            COMMON
        };
        self.is_mostly_unguarded(index) && share(self.counts.each[index] as usize, self.counts.wide) > common
    }

    /// The extension whose encoding is counted as wide.
    fn wide(&self) -> Set {
        match self.machine {
            Machine::X86_64 => x86::features::AVX,
            Machine::Aarch64 => arm::features::SVE,
        }
    }

    fn silent(&self) -> Set {
        match self.machine {
            Machine::X86_64 => x86::features::SILENT,
            Machine::Aarch64 => 0,
        }
    }

    fn noted(&self) -> Set {
        match self.machine {
            Machine::X86_64 => x86::features::of_level(self.program.image.needed_level()),
            Machine::Aarch64 => 0,
        }
    }

    fn label(&self, function: usize) -> String {
        match self.program.name_of(function) {
            Some(name) if !name.is_empty() => String::from_utf8_lossy(name).chars().take(512).collect(),
            _ => format!("{:#x}", self.program.functions[function].start),
        }
    }
}
