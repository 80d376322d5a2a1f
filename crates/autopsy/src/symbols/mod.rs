//! Names for addresses: symbol tables, debug information, and what distributions split off.

mod debug;
pub(crate) mod demangle;
mod minidebug;
mod separate;
mod table;

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::image::Image;
use crate::scene::Scene;
use crate::snapshot::Limits;
use table::Named;

/// What one source says about one address: inlined calls first, the physical function last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) calls: Vec<Call>,
    /// Start of the physical function, as the ELF file numbers it.
    pub(crate) start: Option<u64>,
}

/// One function, physical or inlined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// Answers for lookup addresses of the process, each library opened and passed over once.
pub(crate) fn resolve(
    scene: &Scene<'_>,
    lookups: impl Iterator<Item = u64>,
    limits: &Limits,
) -> BTreeMap<u64, Answer> {
    let mut answers = BTreeMap::new();
    for (_, (image, wanted)) in by_library(scene, lookups) {
        if scene.is_overdue() {
            break;
        }
        let addresses: Vec<u64> = wanted.keys().copied().collect();
        let found = answer_all(scene, &image, &addresses, limits);
        answers.extend(wanted.into_values().zip(found));
    }
    answers
}

type Wanted = BTreeMap<u64, u64>;

/// ELF addresses to process addresses, by library. Sorted, which the table search needs.
fn by_library(scene: &Scene<'_>, lookups: impl Iterator<Item = u64>) -> BTreeMap<usize, (Rc<Image>, Wanted)> {
    let mut libraries: BTreeMap<usize, (Rc<Image>, Wanted)> = BTreeMap::new();
    for lookup in lookups {
        let Some(located) = scene.locate(lookup) else {
            continue;
        };
        let key = Rc::as_ptr(&located.image) as usize;
        let (_, wanted) = libraries.entry(key).or_insert((located.image, Wanted::new()));
        wanted.insert(located.address, lookup);
    }
    libraries
}

/// Debug information knows inlining and lines; symbol tables fill in what it does not know.
fn answer_all(scene: &Scene<'_>, image: &Image, addresses: &[u64], limits: &Limits) -> Vec<Answer> {
    let mut answers = vec![Answer::default(); addresses.len()];
    let separate = separate::debug_file(image);
    let sources: Vec<&Image> = std::iter::once(image).chain(separate.as_ref()).collect();
    for source in &sources {
        debug::fill(source, addresses, &mut answers, scene, limits);
    }
    for source in &sources {
        fill_from_table(source, addresses, &mut answers);
    }
    if answers.iter().any(|answer| answer.start.is_none())
        && let Some(mini) = minidebug::open(image, scene, limits)
    {
        fill_from_table(&mini, addresses, &mut answers);
    }
    answers
}

fn fill_from_table(image: &Image, addresses: &[u64], answers: &mut [Answer]) {
    let Some(elf) = image.elf() else { return };
    for (answer, named) in answers.iter_mut().zip(table::lookup(&elf, addresses)) {
        if let Some(named) = named {
            answer.complete_with(named);
        }
    }
}

impl Answer {
    fn complete_with(&mut self, named: Named) {
        if self.start.is_some() {
            return;
        }
        self.start = Some(named.start);
        match self.calls.last_mut() {
            Some(physical) => physical.name = physical.name.take().or(Some(named.name)),
            None => self.calls.push(Call {
                name: Some(named.name),
                ..Call::default()
            }),
        }
    }
}
