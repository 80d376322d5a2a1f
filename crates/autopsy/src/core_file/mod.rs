//! Core files: mapped, not read. A torch worker's core has 700 MB, of which an autopsy touches a few
//! pages of notes and the stacks.

mod layout;
mod notes;
mod space;

use std::fmt;
use std::path::Path;

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::FileHeader as _;
use serde::Serialize;

use crate::examine;
use crate::fault::Fault;
use crate::image::map_file;
use crate::mappings::Mapping;
use crate::registers::{Architecture, Registers};
use crate::report::Autopsy;
use crate::scene::Scene;
use crate::snapshot::Limits;
use crate::unwind::{self, RawStack};
use notes::{CoreNotes, CoreThread};
use space::CoreSpace;

/// Why a file could not be examined at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreError {
    /// The file cannot be opened or mapped.
    Unreadable(String),
    /// It is something else.
    NotACore(String),
    /// A core file of a machine that we do not know.
    UnknownMachine(u16),
    /// A core file without a single thread in it: torn, most likely by a full disk.
    NoThreads,
}

impl fmt::Display for CoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(formatter, "cannot read the core file: {why}"),
            Self::NotACore(why) => write!(formatter, "not a core file: {why}"),
            Self::UnknownMachine(number) => {
                write!(
                    formatter,
                    "a core file of an unknown machine (ELF machine {number})"
                )
            }
            Self::NoThreads => write!(
                formatter,
                "the core file has no threads in it: cut short, perhaps by a full disk"
            ),
        }
    }
}

impl std::error::Error for CoreError {}

/// Everything that one core file told.
#[derive(Clone, Debug, Serialize)]
pub struct CoreAutopsy {
    /// Of the machine that dumped it.
    pub architecture: Architecture,
    /// Process id.
    pub pid: Option<i32>,
    /// Parent's process id.
    pub parent_pid: Option<i32>,
    /// The executable's short name, 15 characters at most.
    pub name: Option<String>,
    /// The first 80 characters of the command line.
    pub command: Option<String>,
    /// The executable's path, from the auxiliary vector.
    pub executable: Option<String>,
    /// Number.
    pub signal: Option<i32>,
    /// `si_code`
    pub signal_code: Option<i32>,
    /// Who sent it, for signals that were sent.
    pub sender_pid: Option<i32>,
    /// `si_addr`, for signals that have one.
    pub fault_address: Option<u64>,
    /// The one that crashed first.
    pub threads: Vec<ThreadAutopsy>,
    /// Threads beyond the limit.
    pub threads_omitted: usize,
    /// Every segment of the core, with the file it was mapped from.
    pub mappings: Vec<Mapping>,
    /// The file is shorter than it says: the disk was full, or the dump was limited.
    pub truncated: bool,
    /// For maintainers and the curious: what could not be done, and why.
    pub notes: Vec<String>,
}

/// One thread of a core file.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadAutopsy {
    /// Thread id.
    pub tid: i32,
    /// What its stack told; the instruction only for the thread that crashed.
    pub autopsy: Autopsy,
    /// At the dump.
    pub registers: Registers,
}

/// Examines a core file: all threads up to the limit, the one that crashed first.
pub fn from_core(path: &Path, limits: &Limits) -> Result<CoreAutopsy, CoreError> {
    let map = map_file(path).map_err(CoreError::Unreadable)?;
    from_core_bytes(&map, limits)
}

/// The same for a core file that is already in memory.
pub fn from_core_bytes(bytes: &[u8], limits: &Limits) -> Result<CoreAutopsy, CoreError> {
    let not_a_core = |error: object::Error| CoreError::NotACore(error.to_string());
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(not_a_core)?;
    if !header.is_little_endian() || header.e_type(LittleEndian) != elf::ET_CORE {
        return Err(CoreError::NotACore("an ELF file of another kind".to_owned()));
    }
    let architecture = match header.e_machine(LittleEndian) {
        elf::EM_X86_64 => Architecture::X86_64,
        elf::EM_AARCH64 => Architecture::Aarch64,
        other => return Err(CoreError::UnknownMachine(other.0)),
    };
    let segments = header.program_headers(LittleEndian, bytes).map_err(not_a_core)?;
    let notes = CoreNotes::read(segments, bytes, architecture);
    if notes.threads.is_empty() {
        return Err(CoreError::NoThreads);
    }
    let space = CoreSpace::read(segments, bytes, &notes);
    let scene = Scene::new(&space.mappings, &space.regions, limits);
    let threads = examine_threads(&scene, &notes, limits);
    let executable = notes
        .executable_name_at
        .and_then(|address| read_path(&scene, address));
    let scene_notes = scene.notes();
    Ok(CoreAutopsy {
        architecture,
        pid: notes.pid,
        parent_pid: notes.parent_pid,
        name: notes.name,
        command: notes.command,
        executable,
        signal: notes.signal,
        signal_code: notes.signal_code,
        sender_pid: notes.sender_pid,
        fault_address: notes.fault_address,
        threads_omitted: notes.threads.len() - threads.len(),
        threads,
        mappings: space.mappings,
        truncated: space.truncated,
        notes: scene_notes,
    })
}

/// All stacks first and all names after, so that each library is searched once.
fn examine_threads(scene: &Scene<'_>, notes: &CoreNotes, limits: &Limits) -> Vec<ThreadAutopsy> {
    let threads = &notes.threads[..notes.threads.len().min(limits.max_threads)];
    let walk = |(index, thread): (usize, &CoreThread)| {
        let max_frames = if index == 0 {
            limits.max_frames
        } else {
            limits.max_frames_of_others
        };
        unwind::walk(scene, &thread.registers, limits, max_frames)
    };
    let stacks: Vec<RawStack> = threads.iter().enumerate().map(walk).collect();
    let names = examine::name_all(scene, &stacks, limits);
    let mut examined: Vec<ThreadAutopsy> = threads
        .iter()
        .zip(stacks)
        .map(|(thread, stack)| ThreadAutopsy {
            tid: thread.tid,
            autopsy: examine::of_stack(scene, stack, &names),
            registers: thread.registers.clone(),
        })
        .collect();
    if let Some(crashed) = examined.first_mut() {
        let fault = Fault {
            registers: &crashed.registers,
            code: None,
            address: notes.fault_address,
            signal_code: notes.signal_code,
        };
        examine::add_fault(&mut crashed.autopsy, scene, &fault);
    }
    examined
}

fn read_path(scene: &Scene<'_>, address: u64) -> Option<String> {
    let mut bytes = [0; 4096];
    let (length, _) = scene.read(address, &mut bytes)?;
    Some(crate::text::until_nul(&bytes[..length])).filter(|path| !path.is_empty())
}
