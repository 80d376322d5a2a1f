//! What a pass over the code writes down of each function. The same for every CPU.

use crate::functions::Function;
use crate::image::Code;
use rayon::prelude::*;
use std::ops::Range;

/// A set of extensions: bit n stands for the n-th of the machine's list.
pub(crate) type Set = u64;

pub(crate) fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..64).filter(move |index| set >> index & 1 == 1)
}

/// For tables that are looked up by name while compiling.
pub(crate) const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut index = 0;
    while index < a.len() {
        if a[index] != b[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// What the instructions of a function tell about the way it was compiled.
pub(crate) mod trait_of {
    /// A vector instruction that every CPU of this kind has: SSE in its old encoding, NEON.
    pub(crate) const PLAIN: u16 = 1;
    /// One in the wider encoding: VEX, SVE.
    pub(crate) const WIDE: u16 = 2;
    /// EVEX.
    pub(crate) const WIDEST: u16 = 4;
    /// Somebody asks the CPU.
    pub(crate) const ASKS: u16 = 8;
    /// What a compiler that may use the extension makes of a common thing (shlx for a shift, ldadd for an atomic) …
    pub(crate) const MODERN: u16 = 16;
    /// … and what every other compiler makes of it.
    pub(crate) const OLD: u16 = 32;
}

/// What a function does, in the order of its addresses. The target's address is in the low 48 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Call(u64),
    /// A call whose result is looked at, or returned: how one asks a detector.
    Ask(u64),
    /// Out of this function.
    Jump(u64),
    /// Takes the address of code.
    TakeCode(u64),
    /// Takes the address of a variable or of a table.
    TakeData(u64),
    Read(u64),
    Write(u64),
    /// Calls or jumps through a slot.
    CallSlot(u64),
    /// The first instruction in this function that needs this extension.
    Needs(u64),
    /// cpuid or xgetbv.
    Cpuid,
    /// The first conditional branch: what comes before it runs on every call.
    Branch,
}

#[derive(Clone, Copy)]
pub(crate) struct Packed(u64);

impl Packed {
    pub(crate) fn new(event: Event) -> Self {
        let (tag, value) = match event {
            Event::Call(v) => (0, v),
            Event::Ask(v) => (1, v),
            Event::Jump(v) => (2, v),
            Event::TakeCode(v) => (3, v),
            Event::Read(v) => (4, v),
            Event::Write(v) => (5, v),
            Event::CallSlot(v) => (6, v),
            Event::Needs(v) => (7, v),
            Event::Cpuid => (8, 0),
            Event::TakeData(v) => (9, v),
            Event::Branch => (10, 0),
        };
        Self(tag << 56 | value & ((1 << 56) - 1))
    }

    pub(crate) fn event(self) -> Event {
        let value = self.0 & ((1 << 56) - 1);
        match self.0 >> 56 {
            0 => Event::Call(value),
            1 => Event::Ask(value),
            2 => Event::Jump(value),
            3 => Event::TakeCode(value),
            4 => Event::Read(value),
            5 => Event::Write(value),
            6 => Event::CallSlot(value),
            7 => Event::Needs(value),
            9 => Event::TakeData(value),
            10 => Event::Branch,
            _ => Event::Cpuid,
        }
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Swept {
    pub(crate) needs: Set,
    pub(crate) traits: u16,
    /// Bytes that are no instruction: data inside code, so nothing here is believed.
    pub(crate) is_damaged: bool,
    pub(crate) events: (u32, u32, u32),
}

pub(crate) struct Sweep {
    pub(crate) functions: Vec<Swept>,
    chunks: Vec<Vec<Packed>>,
}

impl Sweep {
    pub(crate) fn events(&self, function: usize) -> impl Iterator<Item = Event> + '_ {
        let (chunk, start, end) = self.functions[function].events;
        let events = self
            .chunks
            .get(chunk as usize)
            .map_or(&[][..], |chunk| &chunk[start as usize..end as usize]);
        events.iter().map(|packed| packed.event())
    }

    pub(crate) fn event_count(&self, function: usize) -> usize {
        let (_, start, end) = self.functions[function].events;
        (end - start) as usize
    }
}

/// Which addresses are worth an event: code, and what the loader or the program may write.
pub(crate) struct Places {
    pub(crate) code: Range<u64>,
    pub(crate) data: Range<u64>,
}

const FUNCTIONS_PER_CHUNK: usize = 512;

/// Reads the code of one function into a list of events.
pub(crate) trait Reader: Default + Send {
    fn read(&mut self, places: &Places, bytes: &[u8], function: &Function, events: &mut Vec<Packed>)
    -> Swept;
}

pub(crate) fn sweep<R: Reader>(
    sections: &[Code],
    functions: &[Function],
    places: &Places,
    done: &(dyn Fn(&[u8]) + Sync),
) -> Sweep {
    let read_chunk = |(chunk, functions): (usize, &[Function])| {
        let (mut reader, mut events) = (R::default(), Vec::new());
        let mut swept = Vec::with_capacity(functions.len());
        for function in functions {
            let start = events.len() as u32;
            let mut one = reader.read(places, bytes_of(sections, function), function, &mut events);
            one.events = (chunk as u32, start, events.len() as u32);
            swept.push(one);
        }
        events.shrink_to_fit();
        if let (Some(first), Some(last)) = (functions.first(), functions.last()) {
            done(bytes_of(
                sections,
                &Function {
                    start: first.start,
                    end: last.end,
                },
            ));
        }
        (swept, events)
    };
    let parts: Vec<_> = functions
        .par_chunks(FUNCTIONS_PER_CHUNK)
        .enumerate()
        .map(read_chunk)
        .collect();
    let mut found = Sweep {
        functions: Vec::with_capacity(functions.len()),
        chunks: Vec::with_capacity(parts.len()),
    };
    for (swept, events) in parts {
        found.functions.extend(swept);
        found.chunks.push(events);
    }
    found
}

pub(crate) fn bytes_of<'a>(sections: &[Code<'a>], function: &Function) -> &'a [u8] {
    let section = sections
        .iter()
        .rev()
        .find(|section| section.range().contains(&function.start));
    let Some(section) = section else { return &[] };
    let start = (function.start - section.address) as usize;
    let length = (function.end - function.start) as usize;
    &section.bytes[start..section.bytes.len().min(start.saturating_add(length))]
}
