//! A swept file as a graph: where calls, slots and tables of pointers lead.

use crate::addresses::{AddressMap, AddressSet};
use crate::events::{Event, Places, Sweep, bytes_of, sweep};
use crate::functions::{self, Function, Index};
use crate::image::{Code, Image, Machine, Pointer, Symbol, SymbolKind, lookup, pointed};
use crate::{arm, x86};
use rayon::prelude::*;
use std::ops::Range;

pub(crate) struct Program<'a> {
    pub(crate) image: &'a Image<'a>,
    pub(crate) functions: Vec<Function>,
    index: Index,
    code: Range<u64>,
    linkage: Range<u64>,
    sections: Vec<Code<'a>>,
    pub(crate) sweep: Sweep,
    pub(crate) symbols: Vec<Symbol<'a>>,
    pub(crate) pointers: Vec<(u64, Pointer)>,
    imports: Vec<(u64, &'a [u8])>,
    /// PLT entry → the slot it jumps through.
    stubs: AddressMap<u64>,
    /// Functions that choose an implementation while the loader relocates.
    pub(crate) resolvers: AddressSet,
    /// Data objects by address, with their sizes.
    objects: Vec<(u64, u64)>,
    /// Addresses that code refers to: where an object without a symbol ends.
    mentioned: Vec<u64>,
    /// Functions' names by address.
    names: Vec<(u64, &'a [u8])>,
}

pub(crate) enum Target<'a> {
    Function(usize),
    /// Chosen by a resolver: whatever it is, a guard has picked it.
    Chosen,
    Import(&'a [u8]),
    Data(u64),
    Nothing,
}

/// An object without a symbol and without a neighbour that is mentioned is not longer than this.
const LONGEST_TABLE: u64 = 64 << 10;

impl<'a> Program<'a> {
    pub(crate) fn read(image: &'a Image<'a>, machine: Machine, done: &(dyn Fn(&[u8]) + Sync)) -> Self {
        let code = image.code();
        let symbols = image.symbols();
        let imports = image.dynamic_symbols();
        let pointers = image.pointers(&imports);
        let functions = functions::find(image, &code, &symbols);
        let places = places(image, &code);
        let sweep = match machine {
            Machine::X86_64 => sweep::<x86::sweep::X86>(&code, &functions, &places, done),
            Machine::Aarch64 => sweep::<arm::sweep::Arm>(&code, &functions, &places, done),
        };
        let resolvers = resolvers(&symbols);
        let mut objects: Vec<(u64, u64)> = symbols
            .iter()
            .filter(|symbol| symbol.kind == SymbolKind::Data && symbol.size > 0)
            .map(|symbol| (symbol.address, symbol.size))
            .collect();
        objects.sort_unstable();
        let stubs = stubs(machine, &code);
        let names = names(&symbols);
        let (index, linkage) = (
            Index::new(&functions),
            span(code.iter().filter(|code| code.is_linkage).map(Code::range)),
        );
        let (sections, code) = (code, places.code.clone());
        let mut program = Self {
            image,
            functions,
            index,
            code,
            linkage,
            sections,
            sweep,
            symbols,
            pointers,
            imports,
            stubs,
            resolvers,
            objects,
            mentioned: Vec::new(),
            names,
        };
        program.mentioned = program.mentions();
        program
    }

    /// The code of a function.
    pub(crate) fn bytes_of(&self, function: usize) -> &'a [u8] {
        bytes_of(&self.sections, &self.functions[function])
    }

    fn mentions(&self) -> Vec<u64> {
        if self.pointers.is_empty() {
            return Vec::new();
        }
        let of_function = |function: usize| {
            self.sweep.events(function).filter_map(|event| match event {
                Event::TakeData(address) => Some(address),
                _ => None,
            })
        };
        let mut found: Vec<u64> = (0..self.functions.len())
            .into_par_iter()
            .flat_map_iter(of_function)
            .collect();
        found.par_sort_unstable();
        found.dedup();
        found
    }

    pub(crate) fn code_at(&self, address: u64) -> Target<'a> {
        if !self.code.contains(&address) {
            return Target::Nothing;
        }
        if let Some(slot) = self
            .linkage
            .contains(&address)
            .then(|| self.stubs.get(&address))
            .flatten()
        {
            return self.through(*slot);
        }
        if !self.resolvers.is_empty() && self.resolvers.contains(&address) {
            return Target::Chosen;
        }
        self.function_at(address)
            .map_or(Target::Nothing, Target::Function)
    }

    pub(crate) fn function_at(&self, address: u64) -> Option<usize> {
        self.index.find(&self.functions, address)
    }

    /// What a slot (of the GOT, say) holds once the file is loaded.
    pub(crate) fn through(&self, slot: u64) -> Target<'a> {
        match lookup(&self.pointers, slot) {
            Some(Pointer::Inside(address)) => self.thing_at(address),
            Some(Pointer::Import(index)) => {
                Target::Import(self.imports.get(index as usize).map_or(b"", |(_, name)| name))
            }
            None => Target::Nothing,
        }
    }

    fn thing_at(&self, address: u64) -> Target<'a> {
        match self.code_at(address) {
            Target::Nothing => Target::Data(address),
            found => found,
        }
    }

    /// What the table at `address` points to.
    pub(crate) fn table(&self, address: u64) -> impl Iterator<Item = Target<'a>> + '_ {
        let end = self.end_of_object(address);
        let first = self.pointers.partition_point(|(place, _)| *place < address);
        self.pointers[first..]
            .iter()
            .take_while(move |(place, _)| *place < end)
            .map(|(_, pointer)| match pointer {
                Pointer::Inside(target) => self.thing_at(*target),
                Pointer::Import(_) => Target::Nothing,
            })
    }

    /// The data object with a symbol that holds `address`.
    pub(crate) fn object_at(&self, address: u64) -> Option<Range<u64>> {
        let after = self.objects.partition_point(|(start, _)| *start <= address);
        let (start, size) = self.objects[after.checked_sub(1)?];
        let range = start..start.saturating_add(size);
        range.contains(&address).then_some(range)
    }

    fn end_of_object(&self, address: u64) -> u64 {
        if let Some(object) = self.object_at(address) {
            return object.end;
        }
        let after = self.objects.partition_point(|(start, _)| *start <= address);
        let next_object = self.objects.get(after).map_or(u64::MAX, |(start, _)| *start);
        let next_mention = self
            .mentioned
            .get(self.mentioned.partition_point(|place| *place <= address));
        let limit = address.saturating_add(LONGEST_TABLE);
        next_object
            .min(next_mention.copied().unwrap_or(u64::MAX))
            .min(limit)
    }

    /// PLT entries that lead to one of these addresses, beside the addresses themselves.
    pub(crate) fn with_stubs(&self, addresses: &AddressSet) -> AddressSet {
        let leads_there = |slot: &u64| matches!(lookup(&self.pointers, *slot), Some(Pointer::Inside(a)) if addresses.contains(&a));
        let stubs = self
            .stubs
            .iter()
            .filter(|(_, slot)| leads_there(slot))
            .map(|(stub, _)| *stub);
        addresses.iter().copied().chain(stubs).collect()
    }

    /// PLT entries that lead out of this file, to something whose name fits.
    pub(crate) fn stubs_of_imports(&self, fits: impl Fn(&[u8]) -> bool) -> Vec<u64> {
        let leads_there = |slot: &u64| matches!(self.through(*slot), Target::Import(name) if fits(name));
        self.stubs
            .iter()
            .filter(|(_, slot)| leads_there(slot))
            .map(|(stub, _)| *stub)
            .collect()
    }

    /// Nothing beyond what every CPU has: no need to look further.
    pub(crate) fn is_plain(&self) -> bool {
        self.sweep.functions.iter().all(|function| function.needs == 0)
    }

    pub(crate) fn import_names(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.imports
            .iter()
            .filter(|(address, _)| *address == 0)
            .map(|(_, name)| *name)
    }

    /// Exported functions that the file itself calls or points to. Most C++ libraries export everything; what
    /// nobody inside uses is their interface.
    pub(crate) fn used_inside(&self) -> AddressSet {
        let mut leads_to: AddressMap<u64> = self
            .symbols
            .iter()
            .filter(|symbol| symbol.is_exported && symbol.kind == SymbolKind::Function)
            .map(|symbol| (symbol.address, symbol.address))
            .collect();
        let inside =
            |slot: u64| pointed(&self.pointers, slot).filter(|address| leads_to.contains_key(address));
        let stubs: Vec<_> = self
            .stubs
            .iter()
            .filter_map(|(stub, slot)| Some((*stub, inside(*slot)?)))
            .collect();
        leads_to.extend(stubs);
        let slots: AddressSet = self.stubs.values().copied().collect();
        let in_tables = self
            .pointers
            .iter()
            .filter(|(place, _)| !slots.contains(place))
            .filter_map(|(_, pointer)| match pointer {
                Pointer::Inside(address) => leads_to.get(address).copied(),
                Pointer::Import(_) => None,
            });
        let called = |function: usize| {
            let start = self.functions[function].start;
            let leads_to = &leads_to;
            self.sweep.events(function).filter_map(move |event| match event {
                Event::Call(target) | Event::Ask(target) | Event::Jump(target) | Event::TakeCode(target) => {
                    leads_to.get(&target).copied().filter(|target| *target != start)
                }
                _ => None,
            })
        };
        let called: AddressSet = (0..self.functions.len())
            .into_par_iter()
            .flat_map_iter(called)
            .collect();
        called.into_iter().chain(in_tables).collect()
    }

    pub(crate) fn name_of(&self, function: usize) -> Option<&'a [u8]> {
        let index = self
            .names
            .binary_search_by_key(&self.functions[function].start, |(address, _)| *address)
            .ok()?;
        Some(self.names[index].1)
    }
}

fn names<'a>(symbols: &[Symbol<'a>]) -> Vec<(u64, &'a [u8])> {
    let of_code = symbols.iter().filter(|symbol| symbol.kind != SymbolKind::Data);
    let mut found: Vec<_> = of_code.map(|symbol| (symbol.address, symbol.name)).collect();
    found.sort_by_key(|(address, _)| *address);
    found.dedup_by_key(|(address, _)| *address);
    found
}

fn resolvers(symbols: &[Symbol]) -> AddressSet {
    symbols
        .iter()
        .filter(|symbol| symbol.kind == SymbolKind::Indirect)
        .map(|symbol| symbol.address)
        .collect()
}

fn places(image: &Image, code: &[Code]) -> Places {
    Places {
        code: span(code.iter().map(Code::range)),
        data: span(image.writable().into_iter()),
    }
}

/// From the first to the last; empty when there are none.
fn span(ranges: impl Iterator<Item = Range<u64>>) -> Range<u64> {
    ranges
        .reduce(|whole, range| whole.start.min(range.start)..whole.end.max(range.end))
        .unwrap_or(0..0)
}

fn stubs(machine: Machine, code: &[Code]) -> AddressMap<u64> {
    let of_section = match machine {
        Machine::X86_64 => x86::stubs,
        Machine::Aarch64 => arm::sweep::stubs,
    };
    let linkage = code.iter().filter(|section| section.is_linkage);
    linkage
        .flat_map(|section| of_section(section.address, section.bytes))
        .collect()
}
