//! The dead process as far as it can still be seen: its mappings, saved memory and files.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use crate::image::Image;
use crate::mappings::{AddressSpace, Mapping};
use crate::report::ByteSource;
use crate::snapshot::{Limits, Region};

/// Files opened for one autopsy: a torch worker maps about a hundred.
const MAX_IMAGES: usize = 4096;

/// Notes are for people.
const MAX_NOTES: usize = 64;

/// Saved pieces that cover one address.
const MAX_OVERLAPPING: usize = 4;

/// Of a library in memory: headers and build id.
const FIRST_PAGE: usize = 4096;

/// The vdso has two to four pages.
const MAX_VDSO: usize = 64 << 10;

/// An address, seen from the ELF file that it lies in.
pub(crate) struct Located {
    pub(crate) image: Rc<Image>,
    /// Address in the process minus address in the ELF file.
    pub(crate) bias: u64,
    /// Address as the ELF file numbers it.
    pub(crate) address: u64,
}

/// By path, and whether it was deleted: a library and its predecessor can be loaded side by side.
type Images<'a> = BTreeMap<(&'a str, bool), Option<Rc<Image>>>;

pub(crate) struct Scene<'a> {
    pub(crate) space: AddressSpace<'a>,
    /// In address order.
    regions: Vec<Region<'a>>,
    images: RefCell<Images<'a>>,
    notes: RefCell<Vec<String>>,
    deadline: Option<Instant>,
    overdue: Cell<bool>,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(mappings: &'a [Mapping], memory: &[Region<'a>], limits: &Limits) -> Self {
        let mut regions: Vec<_> = memory
            .iter()
            .filter(|region| !region.bytes.is_empty())
            .copied()
            .collect();
        regions.sort_by_key(|region| region.address);
        Self {
            space: AddressSpace::new(mappings),
            regions,
            images: RefCell::default(),
            notes: RefCell::default(),
            deadline: Instant::now().checked_add(limits.max_duration),
            overdue: Cell::new(false),
        }
    }

    /// Whether the time is up. Asked between steps, each of which is bounded by a file's size.
    pub(crate) fn is_overdue(&self) -> bool {
        let overdue = self.deadline.is_some_and(|deadline| Instant::now() > deadline);
        if overdue && !self.overdue.replace(true) {
            self.note("the time limit was reached: the rest was left out".to_owned());
        }
        overdue
    }

    pub(crate) fn note(&self, note: String) {
        let mut notes = self.notes.borrow_mut();
        if notes.len() < MAX_NOTES && !notes.contains(&note) {
            notes.push(note);
        }
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    pub(crate) fn is_executable(&self, address: u64) -> bool {
        self.space.at(address).is_some_and(|mapping| mapping.executable)
    }

    /// The saved piece of memory that holds this address. Pieces may overlap (code that runs on the
    /// stack), so a few that start below are asked.
    pub(crate) fn region_at(&self, address: u64) -> Option<&Region<'a>> {
        let after = self.regions.partition_point(|region| region.address <= address);
        let mut below = self.regions[..after].iter().rev().take(MAX_OVERLAPPING);
        below.find(|region| !region.from(address, 1).is_empty())
    }

    /// The saved piece of memory with the lowest address above this one.
    pub(crate) fn region_after(&self, address: u64) -> Option<&Region<'a>> {
        let after = self.regions.partition_point(|region| region.address <= address);
        self.regions.get(after)
    }

    /// What the process itself held, else what the file holds that it was mapped from.
    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> Option<(usize, ByteSource)> {
        if let Some(region) = self.region_at(address) {
            let saved = region.from(address, into.len());
            into[..saved.len()].copy_from_slice(saved);
            if saved.len() == into.len() {
                return Some((saved.len(), ByteSource::Memory));
            }
            // The rest may lie in the region that follows without a gap.
            let next = address.checked_add(saved.len() as u64)?;
            let more = self.region_at(next).map_or(0, |region| {
                let bytes = region.from(next, into.len() - saved.len());
                into[saved.len()..saved.len() + bytes.len()].copy_from_slice(bytes);
                bytes.len()
            });
            return Some((saved.len() + more, ByteSource::Memory));
        }
        self.read_file(address, into)
            .map(|length| (length, ByteSource::File))
    }

    pub(crate) fn read_u64(&self, address: u64) -> Option<u64> {
        self.read_sized(address, 8)
    }

    /// Little-endian, up to 8 bytes.
    pub(crate) fn read_sized(&self, address: u64, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        let (length, _) = self.read(address, bytes.get_mut(..size)?)?;
        (length == size).then(|| u64::from_le_bytes(bytes))
    }

    /// From the file, where the process cannot have changed it. The segment decides and not the
    /// mapping: RELRO pages look read-only but hold relocated pointers.
    pub(crate) fn read_file(&self, address: u64, into: &mut [u8]) -> Option<usize> {
        let mapping = self.space.at(address)?;
        let image = self.image_of(mapping)?;
        let offset = (address - mapping.start).checked_add(mapping.offset)?;
        let segment = image.segment_at_offset(offset)?;
        if mapping.writable || segment.writable {
            return None;
        }
        let end = segment.file.end.min(offset.saturating_add(into.len() as u64));
        let bytes = image
            .bytes()
            .get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)?;
        into[..bytes.len()].copy_from_slice(bytes);
        Some(bytes.len())
    }

    /// Which ELF file holds this address, and where in it.
    pub(crate) fn locate(&self, address: u64) -> Option<Located> {
        let mapping = self.space.at(address)?;
        let image = self.image_of(mapping)?;
        let offset = (address - mapping.start).checked_add(mapping.offset)?;
        let inside = image.address_of_offset(offset)?;
        Some(Located {
            image,
            bias: address.wrapping_sub(inside),
            address: inside,
        })
    }

    pub(crate) fn image_of(&self, mapping: &'a Mapping) -> Option<Rc<Image>> {
        let key = (mapping.path.as_str(), mapping.deleted);
        if let Some(known) = self.images.borrow().get(&key) {
            return known.clone();
        }
        if self.images.borrow().len() >= MAX_IMAGES {
            return None;
        }
        let image = self.open(mapping).map(Rc::new);
        self.images.borrow_mut().insert(key, image.clone());
        image
    }

    fn open(&self, mapping: &Mapping) -> Option<Image> {
        if mapping.path == "[vdso]" {
            return self.vdso(mapping);
        }
        if !mapping.is_file() {
            return None;
        }
        if mapping.deleted {
            self.note(format!(
                "{}: deleted or replaced since it was loaded",
                mapping.path
            ));
            return None;
        }
        match Image::open(Path::new(&mapping.path)) {
            Ok(image) if self.is_another_build(mapping, &image) => {
                self.note(format!(
                    "{}: the file is another build than the one that ran",
                    mapping.path
                ));
                None
            }
            Ok(image) => Some(image),
            Err(reason) => {
                self.note(format!("{}: {reason}", mapping.path));
                None
            }
        }
    }

    /// An upgrade between the death and the autopsy would give wrong names to everything. Core files
    /// hold the first page of each library, and with it the build id of the one that ran.
    fn is_another_build(&self, mapping: &Mapping, image: &Image) -> bool {
        let first = self
            .space
            .iter()
            .find(|other| other.offset == 0 && other.path == mapping.path);
        let page = first.and_then(|first| Some(self.region_at(first.start)?.from(first.start, FIRST_PAGE)));
        let loaded = page.and_then(|page| Image::from_bytes(page.to_vec()).ok());
        match (loaded.and_then(|loaded| loaded.build_id), &image.build_id) {
            (Some(loaded), Some(on_disk)) => loaded != *on_disk,
            _ => false,
        }
    }

    /// The vdso has no file; core files hold its bytes, black boxes do not.
    fn vdso(&self, mapping: &Mapping) -> Option<Image> {
        let region = self.region_at(mapping.start)?;
        let length = usize::try_from(mapping.end - mapping.start).ok()?.min(MAX_VDSO);
        Image::from_bytes(region.from(mapping.start, length).to_vec()).ok()
    }
}
