//! Names from symbol tables: one pass over the table for all addresses asked.

use object::elf::{self, FileHeader64};
use object::read::elf::{Sym as _, SymbolTable};
use object::{LittleEndian, StringTable};

use crate::image::Elf;
use crate::text::bounded;

/// Symbols that cover many addresses each are an attack, not a program.
const MAX_COMPARISONS: usize = 1 << 26;

/// A symbol that covers an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) start: u64,
}

#[derive(Clone, Copy)]
struct Candidate<'data> {
    start: u64,
    size: u64,
    rank: u8,
    section: elf::SymbolSection,
    name_at: u32,
    strings: StringTable<'data>,
}

impl Candidate<'_> {
    fn named(&self) -> Option<Named> {
        let name = self
            .strings
            .get(self.name_at)
            .ok()
            .filter(|name| !name.is_empty())?;
        // aarch64's "$x" only marks where code starts.
        (!name.starts_with(b"$")).then(|| Named {
            name: bounded(name),
            start: self.start,
        })
    }
}

/// The best symbol for each address, in the order asked; addresses must be sorted.
pub(super) fn lookup(elf: &Elf<'_>, addresses: &[u64]) -> Vec<Option<Named>> {
    let mut search = Search {
        addresses,
        covering: vec![None; addresses.len()],
        preceding: vec![None; addresses.len()],
        budget: MAX_COMPARISONS,
    };
    for table in [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()] {
        search.scan(table);
    }
    search.finish(elf)
}

/// Hand-written assembly has symbols without a size. They reach to the next symbol, and not past
/// the end of their section: a nearest name with a gap between is no claim.
fn is_open_ended(near: &Candidate<'_>, elf: &Elf<'_>, address: u64) -> bool {
    use object::read::elf::SectionHeader as _;
    let index = object::SectionIndex(usize::from(near.section.0));
    near.size == 0
        && elf.elf_section_table().section(index).is_ok_and(|section| {
            let start = section.sh_addr(LittleEndian);
            address
                .checked_sub(start)
                .is_some_and(|inside| inside < section.sh_size(LittleEndian))
        })
}

struct Search<'q, 'data> {
    addresses: &'q [u64],
    covering: Vec<Option<Candidate<'data>>>,
    /// The last symbol that starts at or before an address and after the address before it.
    preceding: Vec<Option<Candidate<'data>>>,
    budget: usize,
}

impl<'data> Search<'_, 'data> {
    fn scan(&mut self, table: &SymbolTable<'data, FileHeader64<LittleEndian>>) {
        let Some(highest) = self.addresses.last() else {
            return;
        };
        for symbol in table.iter() {
            let start = symbol.st_value(LittleEndian);
            if start != 0 && start <= *highest && is_code(symbol) {
                self.offer(symbol, start, table);
            }
        }
    }

    fn offer(
        &mut self,
        symbol: &elf::Sym64<LittleEndian>,
        start: u64,
        table: &SymbolTable<'data, FileHeader64<LittleEndian>>,
    ) {
        let size = symbol.st_size(LittleEndian);
        let first = self.addresses.partition_point(|address| *address < start);
        let inside = |address: &u64| *address - start < size.max(1);
        let end = first + self.addresses[first..].partition_point(inside);
        let candidate = Candidate {
            start,
            size,
            rank: rank(symbol),
            section: symbol.st_shndx(LittleEndian),
            name_at: symbol.st_name(LittleEndian),
            strings: table.strings(),
        };
        self.budget = self.budget.saturating_sub(end - first);
        if self.budget > 0 {
            for slot in &mut self.covering[first..end] {
                replace_if_better(slot, &candidate);
            }
        }
        replace_if_better(&mut self.preceding[first], &candidate);
    }

    fn finish(self, elf: &Elf<'_>) -> Vec<Option<Named>> {
        let mut nearest = None;
        let mut names = Vec::with_capacity(self.addresses.len());
        for (index, address) in self.addresses.iter().enumerate() {
            nearest = self.preceding[index].or(nearest);
            let open_ended = || nearest.filter(|near| is_open_ended(near, elf, *address));
            names.push(
                self.covering[index]
                    .or_else(open_ended)
                    .and_then(|best| best.named()),
            );
        }
        names
    }
}

fn is_code(symbol: &elf::Sym64<LittleEndian>) -> bool {
    let kind = symbol.st_type();
    !symbol.is_undefined(LittleEndian)
        && (kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC || kind == elf::STT_NOTYPE)
}

/// Of two names for one address: functions before labels, global before weak before local.
fn rank(symbol: &elf::Sym64<LittleEndian>) -> u8 {
    let binding = match symbol.st_bind() {
        elf::STB_GLOBAL => 3,
        elf::STB_WEAK => 2,
        _ => 1,
    };
    binding + if symbol.st_type() == elf::STT_NOTYPE { 0 } else { 4 }
}

fn replace_if_better<'data>(slot: &mut Option<Candidate<'data>>, candidate: &Candidate<'data>) {
    if slot.is_none_or(|known| (candidate.start, candidate.rank) > (known.start, known.rank)) {
        *slot = Some(*candidate);
    }
}
