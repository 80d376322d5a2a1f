//! Where functions begin and end: unwind tables first (stripped files keep them), symbols beside them.

use crate::image::{Code, Image, Symbol, SymbolKind};
use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use std::collections::HashMap;

const MOST_FUNCTIONS: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// All functions of the code sections, sorted, without overlap. Code that neither a symbol nor an unwind
/// entry covers is left out of a section that has any: between functions there are jump tables and padding.
pub(crate) fn find(image: &Image, code: &[Code], symbols: &[Symbol]) -> Vec<Function> {
    let mut known: Vec<(u64, u64)> = symbols
        .iter()
        .filter(|symbol| symbol.kind != SymbolKind::Data && !is_start_file(symbol.name))
        .map(|symbol| (symbol.address, symbol.address.saturating_add(symbol.size)))
        .collect();
    unwind_ranges(image, &mut known);
    known.sort_unstable();
    // The longest of those that begin together: an alias may have no size.
    known.dedup_by(|later, first| {
        let same = later.0 == first.0;
        first.1 = if same { first.1.max(later.1) } else { first.1 };
        same
    });
    let mut found = Vec::with_capacity(known.len());
    for section in code.iter().filter(|section| !section.is_linkage) {
        within(section, &known, &mut found);
    }
    found.truncate(MOST_FUNCTIONS);
    found
}

/// Of the compiler's own start files: their symbols have no size, and would reach over whatever assembly follows
/// (seen in rocksdict: zstd's decoder taken for a part of `frame_dummy`, which the loader calls).
fn is_start_file(name: &[u8]) -> bool {
    const NAMES: &[&[u8]] = &[
        b"frame_dummy",
        b"register_tm_clones",
        b"deregister_tm_clones",
        b"__do_global_dtors_aux",
        b"call_weak_fn",
    ];
    NAMES.contains(&name)
}

fn within(section: &Code, known: &[(u64, u64)], found: &mut Vec<Function>) {
    let range = section.range();
    let first = known.partition_point(|(start, _)| *start < range.start);
    let last = known.partition_point(|(start, _)| *start < range.end);
    if first == last {
        found.push(Function {
            start: range.start,
            end: range.end,
        });
        return;
    }
    for index in first..last {
        let (start, end) = known[index];
        let next = if index + 1 < last {
            known[index + 1].0
        } else {
            range.end
        };
        let end = if end > start { end.min(next) } else { next };
        found.push(Function { start, end });
    }
}

fn unwind_ranges(image: &Image, known: &mut Vec<(u64, u64)>) {
    let Some((address, bytes)) = image.section(b".eh_frame") else {
        return;
    };
    let text = image.section(b".text").map_or(0, |(address, _)| address);
    let bases = BaseAddresses::default().set_eh_frame(address).set_text(text);
    let frames = EhFrame::new(bytes, LittleEndian);
    let mut entries = frames.entries(&bases);
    let mut commons = HashMap::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|_, bases, offset| {
            if let Some(known) = commons.get(&offset) {
                return Ok(Clone::clone(known));
            }
            let common = frames.cie_from_offset(bases, offset)?;
            commons.insert(offset, common.clone());
            Ok(common)
        });
        if let Ok(entry) = parsed {
            let start = entry.initial_address();
            known.push((start, start.saturating_add(entry.len())));
        }
        if known.len() >= MOST_FUNCTIONS {
            return;
        }
    }
}

/// Finds the function that holds an address: a walk asks millions of times.
pub(crate) struct Index {
    base: u64,
    /// For each stretch of code, the first function that ends in it or later.
    first: Vec<u32>,
}

const STRETCH: u32 = 12;
/// Addresses are hostile: a file whose code spans more is searched without the index.
const MOST_STRETCHES: u64 = 1 << 22;

impl Index {
    pub(crate) fn new(functions: &[Function]) -> Self {
        let base = functions.first().map_or(0, |function| function.start);
        let end = functions.last().map_or(0, |function| function.end);
        let stretches = (end.saturating_sub(base) >> STRETCH).saturating_add(1);
        let mut first = Vec::new();
        if stretches <= MOST_STRETCHES {
            let mut at = 0;
            for stretch in 0..stretches {
                let start = base + (stretch << STRETCH);
                while at < functions.len() && functions[at].end <= start {
                    at += 1;
                }
                first.push(at as u32);
            }
        }
        Self { base, first }
    }

    pub(crate) fn find(&self, functions: &[Function], address: u64) -> Option<usize> {
        let stretch = (address.checked_sub(self.base)? >> STRETCH) as usize;
        let from = self.first.get(stretch).map_or(0, |first| *first as usize);
        let to = self
            .first
            .get(stretch + 1)
            .map_or(functions.len(), |next| (*next as usize + 1).min(functions.len()));
        let after = from + functions[from..to].partition_point(|function| function.start <= address);
        let index = after.checked_sub(1)?;
        (address >= functions[index].start && address < functions[index].end).then_some(index)
    }
}
