//! Reading a box back. Whatever the file says is a claim: it may be torn, cut short, from an older or
//! newer version, or made to hurt. Every length is bounded by what is really there; nothing panics.

use crate::layout::{
    CRASH_NONE, Crash, Header, MAGIC, MAX_SECTIONS, MAX_THREADS, POINTED_BYTES, Plain, RegisterMemory,
    STACK_BASE_CAPACITY, SectionId, Threads, VERSION,
};
use crate::record::{
    CrashRecord, IdentityRecord, LiveRecord, Pointed, Record, Thread, c_text, events, exceptions, hex, items,
    register_names,
};
use core::mem::{MaybeUninit, size_of};
use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

#[derive(Debug, PartialEq, Eq)]
pub struct NotABox(pub String);

/// A box of somebody's process, section by section; the large ones are borrowed, not copied.
pub struct BoxReader<'a> {
    bytes: &'a [u8],
    header: Header,
    notes: Vec<String>,
}

pub(crate) fn load<T: Plain>(bytes: &[u8]) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    let length = bytes.len().min(size_of::<T>());
    // SAFETY: T is Plain, so zeros and any copied bytes are a value; `length` bounds both sides.
    unsafe {
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast::<u8>(), length);
        value.assume_init()
    }
}

impl<'a> BoxReader<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, NotABox> {
        let Some(magic) = bytes.get(..MAGIC.len()) else {
            return Err(NotABox(format!("it has only {} bytes", bytes.len())));
        };
        if magic.iter().all(|byte| *byte == 0) {
            return Err(NotABox(
                "it is all zeros at its start: the process died before the box was made".to_string(),
            ));
        }
        if magic != MAGIC {
            return Err(NotABox("it does not start with the mark of a box".to_string()));
        }
        let header: Header = load(bytes);
        let mut notes = Vec::new();
        if header.version > VERSION {
            notes.push(format!(
                "written by a newer lastwords (format {}, this one reads {VERSION}): some facts may be missing",
                header.version
            ));
        }
        Ok(Self { bytes, header, notes })
    }

    /// The bytes of a section that are really in the file.
    pub fn section(&self, id: SectionId) -> Option<&'a [u8]> {
        let count = (self.header.section_count as usize).min(MAX_SECTIONS);
        let section = self
            .header
            .sections
            .iter()
            .take(count)
            .find(|section| section.id == id as u32)?;
        let start = usize::try_from(section.offset).ok()?;
        let length = usize::try_from(section.length).ok()?;
        let end = start.saturating_add(length).min(self.bytes.len());
        self.bytes.get(start..end)
    }

    fn load<T: Plain>(&self, id: SectionId) -> Option<T> {
        self.section(id).map(load)
    }

    pub fn crash(&self) -> Option<Crash> {
        self.load::<Crash>(SectionId::Crash)
            .filter(|crash| crash.state != CRASH_NONE)
    }

    fn large(&self, id: SectionId, length: u64) -> Option<&'a [u8]> {
        let bytes = self.section(id)?;
        Some(&bytes[..bytes.len().min(usize::try_from(length).unwrap_or(0))])
    }

    /// The saved pieces of the crashed thread's stack: from the stack pointer up, and the base.
    pub fn stack(&self) -> Vec<(u64, &'a [u8])> {
        let (Some(crash), Some(bytes)) = (self.crash(), self.section(SectionId::Stack)) else {
            return Vec::new();
        };
        let base_at = bytes.len().saturating_sub(STACK_BASE_CAPACITY as usize);
        let piece = |from: usize, length: u64| {
            let end = from.saturating_add(usize::try_from(length).unwrap_or(0));
            bytes.get(from..end.min(bytes.len())).unwrap_or(&[])
        };
        let mut pieces = Vec::from([(crash.stack_address, piece(0, crash.stack_length))]);
        if crash.stack_base_length > 0 {
            pieces.push((crash.stack_base_address, piece(base_at, crash.stack_base_length)));
        }
        pieces
    }

    pub fn maps(&self) -> Option<&'a [u8]> {
        self.large(SectionId::Maps, self.crash()?.maps_length)
            .filter(|maps| !maps.is_empty())
    }

    /// CPython writes this one itself, so its length is where the zeros begin.
    fn python_text(&self) -> Option<String> {
        let bytes = self.section(SectionId::PythonText)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        (end > 0).then(|| String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    pub fn record(&self) -> Record {
        let crash = self.crash();
        Record {
            version: self.header.version,
            identity: self
                .load(SectionId::Identity)
                .map(|identity| IdentityRecord::from(&identity)),
            live: self.load(SectionId::Live).map(|live| LiveRecord::from(&live)),
            items: self.load(SectionId::Items).map_or_else(Vec::new, items),
            events: self.load(SectionId::Events).map_or_else(Vec::new, events),
            exceptions: self.load(SectionId::Exceptions).map_or_else(Vec::new, exceptions),
            pointed: self.pointed(crash.as_ref()),
            threads: self.threads(crash.as_ref()),
            crash: crash.as_ref().map(CrashRecord::from),
            python_text: self.python_text(),
            notes: self.notes.clone(),
        }
    }

    fn pointed(&self, crash: Option<&Crash>) -> BTreeMap<String, Pointed> {
        let (Some(crash), Some(memory)) = (crash, self.load::<RegisterMemory>(SectionId::RegisterMemory))
        else {
            return BTreeMap::new();
        };
        register_names(crash)
            .into_iter()
            .zip(memory.pointed)
            .filter(|(_, pointed)| pointed.length > 0)
            .map(|(name, pointed)| {
                let length = (pointed.length as usize).min(POINTED_BYTES);
                (
                    name,
                    Pointed {
                        bytes: hex(&pointed.bytes[..length]),
                        mapping: None,
                        offset: None,
                    },
                )
            })
            .collect()
    }

    fn threads(&self, crash: Option<&Crash>) -> Vec<Thread> {
        let (Some(crash), Some(threads)) = (crash, self.load::<Threads>(SectionId::Threads)) else {
            return Vec::new();
        };
        let count = usize::try_from(crash.thread_count).unwrap_or(0).min(MAX_THREADS);
        threads
            .ring
            .iter()
            .take(count)
            .map(|thread| Thread {
                tid: thread.tid,
                name: c_text(&thread.name),
            })
            .collect()
    }
}
