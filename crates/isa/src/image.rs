//! One ELF file as far as a scan needs it: code, symbols, relocations, notes. Every offset in it is hostile.

use object::LittleEndian;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela, SectionHeader, Sym};
use std::ops::Range;

const LE: LittleEndian = LittleEndian;
type Header = FileHeader64<LittleEndian>;
type Section = SectionHeader64<LittleEndian>;
type Segment = ProgramHeader64<LittleEndian>;

/// More than any file we have seen (libtorch has 1.2 million); beyond it, a table is taken for a lie.
const MOST_RELOCATIONS: usize = 16 << 20;
const MOST_SYMBOLS: usize = 16 << 20;

/// Why a file cannot be judged, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl Unreadable {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    X86_64,
    Aarch64,
}

pub(crate) struct Symbol<'a> {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) name: &'a [u8],
    pub(crate) kind: SymbolKind,
    pub(crate) is_exported: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    Function,
    /// Its address is a resolver that the loader calls; calls go to what the resolver returns.
    Indirect,
    Data,
}

/// What the loader writes at `place`.
#[derive(Clone, Copy)]
pub(crate) enum Pointer {
    /// An address in this file.
    Inside(u64),
    /// Dynamic symbol with this index, defined elsewhere.
    Import(u32),
}

pub(crate) struct Code<'a> {
    pub(crate) address: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) is_linkage: bool,
}

impl Code<'_> {
    pub(crate) fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.bytes.len() as u64)
    }
}

pub(crate) struct Image<'a> {
    data: &'a [u8],
    header: &'a Header,
    sections: Vec<(&'a [u8], &'a Section)>,
    segments: &'a [Segment],
}

impl<'a> Image<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, Unreadable> {
        check_kind(data)?;
        let header =
            Header::parse(data).map_err(|error| Unreadable::new(format!("damaged ELF header: {error}")))?;
        let segments = header
            .program_headers(LE, data)
            .map_err(|_| Unreadable::new("truncated: its program headers lie beyond its end"))?;
        let sections = named_sections(header, data);
        if sections.is_empty() && segments.is_empty() {
            return Err(Unreadable::new("truncated: it has neither segments nor sections"));
        }
        Ok(Self {
            data,
            header,
            sections,
            segments,
        })
    }

    pub(crate) fn machine(&self) -> Option<Machine> {
        match self.header.e_machine(LE) {
            elf::EM_X86_64 => Some(Machine::X86_64),
            elf::EM_AARCH64 => Some(Machine::Aarch64),
            _ => None,
        }
    }

    /// Where a program begins. A shared library has such a field too, and nonsense in it.
    pub(crate) fn entry(&self) -> Option<u64> {
        let is_program = self.header.e_type(LE) == elf::ET_EXEC
            || self
                .segments
                .iter()
                .any(|segment| segment.p_type(LE) == elf::PT_INTERP);
        is_program.then(|| self.header.e_entry(LE))
    }

    pub(crate) fn is_loadable(&self) -> bool {
        matches!(self.header.e_type(LE), elf::ET_DYN | elf::ET_EXEC)
    }

    pub(crate) fn section(&self, name: &[u8]) -> Option<(u64, &'a [u8])> {
        let (_, section) = self.sections.iter().find(|(found, _)| *found == name)?;
        Some((section.sh_addr(LE), section.data(LE, self.data).ok()?))
    }

    /// Executable sections; the executable segments of a file that has lost its section table.
    pub(crate) fn code(&self) -> Vec<Code<'a>> {
        let mut found: Vec<Code<'a>> = self
            .sections
            .iter()
            .filter(|(_, section)| section.sh_flags(LE).contains(elf::SHF_EXECINSTR))
            .filter_map(|(name, section)| {
                let bytes = section.data(LE, self.data).ok()?;
                Some(Code {
                    address: section.sh_addr(LE),
                    bytes,
                    is_linkage: name.starts_with(b".plt"),
                })
            })
            .collect();
        if found.is_empty() {
            found = self
                .loaded(elf::PF_X)
                .map(|(address, bytes)| Code {
                    address,
                    bytes,
                    is_linkage: false,
                })
                .collect();
        }
        found.retain(|code| {
            !code.bytes.is_empty() && code.address.checked_add(code.bytes.len() as u64).is_some()
        });
        found.sort_by_key(|code| code.address);
        found
    }

    /// The file ends before its segments or its section table do.
    pub(crate) fn is_cut(&self) -> bool {
        let end = self.data.len() as u64;
        let loaded = self
            .segments
            .iter()
            .filter(|segment| segment.p_type(LE) == elf::PT_LOAD);
        let mut ends = loaded.map(|segment| segment.p_offset(LE).saturating_add(segment.p_filesz(LE)));
        ends.any(|last| last > end) || self.header.e_shoff(LE) > end
    }

    fn loaded(&self, flag: elf::ProgramFlags) -> impl Iterator<Item = (u64, &'a [u8])> + '_ {
        self.segments
            .iter()
            .filter(move |segment| segment.p_type(LE) == elf::PT_LOAD && segment.p_flags(LE).contains(flag))
            .filter_map(|segment| Some((segment.p_vaddr(LE), segment.data(LE, self.data).ok()?)))
    }

    /// Addresses that are writable when the loader begins: variables, tables of pointers, the GOT.
    pub(crate) fn writable(&self) -> Vec<Range<u64>> {
        self.segments
            .iter()
            .filter(|segment| segment.p_type(LE) == elf::PT_LOAD && segment.p_flags(LE).contains(elf::PF_W))
            .map(|segment| {
                let start = segment.p_vaddr(LE);
                start..start.saturating_add(segment.p_memsz(LE))
            })
            .collect()
    }

    /// `length` bytes at an address as they are in the file.
    pub(crate) fn bytes_at(&self, address: u64, length: usize) -> Option<&'a [u8]> {
        self.segments
            .iter()
            .filter(|segment| segment.p_type(LE) == elf::PT_LOAD)
            .find_map(|segment| {
                let inside = address.checked_sub(segment.p_vaddr(LE))?;
                let bytes = segment.data(LE, self.data).ok()?;
                bytes.get(usize::try_from(inside).ok()?..)?.get(..length)
            })
    }

    fn word_at(&self, address: u64) -> Option<u64> {
        self.bytes_at(address, 8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// Functions and data objects of both symbol tables, each address and name as the file has it.
    pub(crate) fn symbols(&self) -> Vec<Symbol<'a>> {
        let mut found = Vec::new();
        for (kind, is_dynamic) in [(elf::SHT_DYNSYM, true), (elf::SHT_SYMTAB, false)] {
            let Some(section) = self
                .sections
                .iter()
                .map(|(_, s)| *s)
                .find(|s| s.sh_type(LE) == kind)
            else {
                continue;
            };
            let Some(names) = self.linked_strings(section) else {
                continue;
            };
            let entries: &[elf::Sym64<LittleEndian>] = section.data_as_array(LE, self.data).unwrap_or(&[]);
            for symbol in entries.iter().take(MOST_SYMBOLS) {
                found.extend(defined(symbol, names, is_dynamic));
            }
        }
        found
    }

    fn linked_strings(&self, section: &Section) -> Option<&'a [u8]> {
        // The table was indexed with its null section, so the link is an index into it.
        let linked = self.header.sections(LE, self.data).ok()?;
        let index = object::SectionIndex(section.sh_link(LE) as usize);
        linked.section(index).ok()?.data(LE, self.data).ok()
    }

    /// Names of dynamic symbols by index, for imports.
    pub(crate) fn dynamic_symbols(&self) -> Vec<(u64, &'a [u8])> {
        let section = self
            .sections
            .iter()
            .map(|(_, s)| *s)
            .find(|s| s.sh_type(LE) == elf::SHT_DYNSYM);
        let Some(section) = section else { return Vec::new() };
        let names = self.linked_strings(section).unwrap_or(&[]);
        let entries: &[elf::Sym64<LittleEndian>] = section.data_as_array(LE, self.data).unwrap_or(&[]);
        let address = |s: &elf::Sym64<LittleEndian>| {
            if s.st_shndx(LE) == elf::SHN_UNDEF {
                0
            } else {
                s.st_value(LE)
            }
        };
        entries
            .iter()
            .take(MOST_SYMBOLS)
            .map(|s| (address(s), text_at(names, s.st_name(LE) as usize)))
            .collect()
    }

    /// What the loader fills in, sorted by place. `symbols` is `dynamic_symbols()`.
    pub(crate) fn pointers(&self, symbols: &[(u64, &[u8])]) -> Vec<(u64, Pointer)> {
        let mut found = Vec::new();
        for (_, section) in &self.sections {
            let allocated = section.sh_flags(LE).contains(elf::SHF_ALLOC);
            match section.sh_type(LE) {
                elf::SHT_RELA if allocated => self.plain(section, symbols, &mut found),
                elf::SHT_RELR => self.packed(section, &mut found),
                _ => {}
            }
        }
        found.sort_unstable_by_key(|(place, _)| *place);
        found
    }

    fn plain(&self, section: &Section, symbols: &[(u64, &[u8])], found: &mut Vec<(u64, Pointer)>) {
        let entries: &[elf::Rela64<LittleEndian>] = section.data_as_array(LE, self.data).unwrap_or(&[]);
        for entry in entries.iter().take(MOST_RELOCATIONS) {
            let symbol = entry.r_sym(LE, false);
            let addend = entry.r_addend(LE) as u64;
            let pointer = match symbols.get(symbol as usize) {
                _ if symbol == 0 => Pointer::Inside(addend),
                Some((0, _)) => Pointer::Import(symbol),
                Some((address, _)) => Pointer::Inside(address.wrapping_add(addend)),
                None => continue,
            };
            found.push((entry.r_offset(LE), pointer));
        }
    }

    /// DT_RELR: an address, then bitmaps of the 63 words that follow.
    fn packed(&self, section: &Section, found: &mut Vec<(u64, Pointer)>) {
        let (entries, _) = section.data(LE, self.data).unwrap_or(&[]).as_chunks::<8>();
        let mut place = 0_u64;
        let mut add = |at: u64| {
            if let (true, Some(target)) = (found.len() < MOST_RELOCATIONS, self.word_at(at)) {
                found.push((at, Pointer::Inside(target)));
            }
        };
        for entry in entries.iter().map(|entry| u64::from_le_bytes(*entry)) {
            if entry & 1 == 0 {
                add(entry);
                place = entry.wrapping_add(8);
                continue;
            }
            (0..63)
                .filter(|bit| entry >> (bit + 1) & 1 == 1)
                .for_each(|bit| add(place.wrapping_add(bit * 8)));
            place = place.wrapping_add(63 * 8);
        }
    }

    /// Where the loader calls into this file before anybody asked: DT_INIT, then the arrays.
    pub(crate) fn constructors(&self, pointers: &[(u64, Pointer)]) -> Vec<u64> {
        let mut found = Vec::new();
        if let Some((address, _)) = self.section(b".init") {
            found.push(address);
        }
        for (kind, section) in &self.sections {
            if !matches!(section.sh_type(LE), elf::SHT_INIT_ARRAY | elf::SHT_PREINIT_ARRAY)
                && *kind != b".ctors"
            {
                continue;
            }
            let (start, words) = (section.sh_addr(LE), section.sh_size(LE) / 8);
            for place in (0..words.min(1 << 20)).map(|word| start.wrapping_add(word * 8)) {
                found.extend(pointed(pointers, place).or_else(|| self.word_at(place)));
            }
        }
        found.retain(|address| *address != 0 && *address != u64::MAX);
        found
    }

    pub(crate) fn build_id(&self) -> Option<String> {
        let (_, note) = self.section(b".note.gnu.build-id")?;
        let id = note.get(16..)?;
        (!id.is_empty() && id.len() <= 64).then(|| id.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// x86 ISA levels that the linker was told the file needs (`-z x86-64-v3`), as a bit mask: 1 is v1.
    pub(crate) fn needed_level(&self) -> u32 {
        const X86_ISA_1_NEEDED: u32 = 0xc000_8002;
        let Some((_, note)) = self.section(b".note.gnu.property") else {
            return 0;
        };
        let mut rest = note.get(16..).unwrap_or(&[]);
        while let Some(head) = rest.get(..8) {
            let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (kind, size) = (word(0), word(4) as usize);
            let value = rest
                .get(8..12)
                .map_or(0, |v| u32::from_le_bytes([v[0], v[1], v[2], v[3]]));
            if kind == X86_ISA_1_NEEDED && size == 4 {
                return value;
            }
            let Some(next) = size
                .checked_add(15)
                .map(|end| end & !7)
                .and_then(|end| rest.get(end..))
            else {
                break;
            };
            rest = next;
        }
        0
    }

    /// Libraries that the loader brings along.
    pub(crate) fn has_dynamic_table(&self) -> bool {
        let found = self
            .segments
            .iter()
            .find_map(|segment| segment.dynamic(LE, self.data).ok().flatten());
        found.is_some_and(|entries| entries.iter().any(|entry| entry.tag32(LE).is_some()))
    }
}

fn named_sections<'a>(header: &'a Header, data: &'a [u8]) -> Vec<(&'a [u8], &'a Section)> {
    let Ok(table) = header.sections(LE, data) else {
        return Vec::new();
    };
    table
        .iter()
        .map(|section| (table.section_name(LE, section).unwrap_or(b""), section))
        .collect()
}

fn defined<'a>(symbol: &elf::Sym64<LittleEndian>, names: &'a [u8], is_exported: bool) -> Option<Symbol<'a>> {
    let kind = match symbol.st_type() {
        elf::STT_FUNC => SymbolKind::Function,
        elf::STT_GNU_IFUNC => SymbolKind::Indirect,
        elf::STT_OBJECT => SymbolKind::Data,
        _ => return None,
    };
    let address = symbol.st_value(LE);
    if symbol.st_shndx(LE) == elf::SHN_UNDEF || address == 0 {
        return None;
    }
    let name = text_at(names, symbol.st_name(LE) as usize);
    Some(Symbol {
        address,
        size: symbol.st_size(LE),
        name,
        kind,
        is_exported,
    })
}

fn text_at(strings: &[u8], offset: usize) -> &[u8] {
    let rest = strings.get(offset..).unwrap_or(&[]);
    let end = rest.iter().take(4096).position(|byte| *byte == 0).unwrap_or(0);
    &rest[..end]
}

/// The address inside this file that the loader writes at `place`.
pub(crate) fn pointed(pointers: &[(u64, Pointer)], place: u64) -> Option<u64> {
    match lookup(pointers, place)? {
        Pointer::Inside(address) => Some(address),
        Pointer::Import(_) => None,
    }
}

pub(crate) fn lookup(pointers: &[(u64, Pointer)], place: u64) -> Option<Pointer> {
    let index = pointers.binary_search_by_key(&place, |(at, _)| *at).ok()?;
    Some(pointers[index].1)
}

/// Says what else a file is, where it is no 64-bit little-endian ELF.
fn check_kind(data: &[u8]) -> Result<(), Unreadable> {
    let start = data
        .get(..4)
        .ok_or_else(|| Unreadable::new("not a library: shorter than any header"))?;
    match start {
        [0x7f, b'E', b'L', b'F'] => {}
        [b'M', b'Z', ..] => return Err(Unreadable::new("a Windows library (PE): Linux cannot load it")),
        [0xcf | 0xce, 0xfa, 0xed, 0xfe] | [0xca, 0xfe, 0xba, 0xbe] => {
            return Err(Unreadable::new("a macOS library (Mach-O): Linux cannot load it"));
        }
        _ => return Err(Unreadable::new("not a library: no ELF header")),
    }
    match (data.get(4), data.get(5)) {
        (Some(2), Some(1)) => Ok(()),
        (Some(1), Some(1)) => Err(Unreadable::new(
            "a 32-bit library: a 64-bit Python cannot load it",
        )),
        (Some(_), Some(2)) => Err(Unreadable::new(
            "a big-endian library: no CPU that lastwords knows",
        )),
        _ => Err(Unreadable::new("truncated: it ends inside its ELF header")),
    }
}
