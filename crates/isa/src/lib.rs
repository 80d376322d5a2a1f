//! What CPU and GPU a library needs: which instruction-set extensions it runs without having asked for them.

mod addresses;
mod arm;
mod events;
mod fatbin;
mod functions;
mod guards;
mod host;
mod image;
mod judge;
mod presumed;
mod program;
mod reach;
mod report;
mod x86;

pub use host::host_features;
pub use image::Unreadable;
pub use report::{Because, Need, Presumption, Report};

use image::{Image, Machine};
use std::path::Path;

/// The largest file that is looked at. libtorch_cuda is 1.5 GB.
const LARGEST: u64 = 16 << 30;

/// Scans one file, mapped and not read.
pub fn scan_file(path: &Path) -> Result<Report, Unreadable> {
    let unreadable = |error: std::io::Error| Unreadable(format!("cannot read it: {error}"));
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if !about.is_file() || about.len() == 0 || about.len() > LARGEST {
        return Err(Unreadable(
            "not a library: empty, enormous, or no plain file".to_owned(),
        ));
    }
    // SAFETY: a file that somebody truncates meanwhile would raise SIGBUS, as it would in the loader; installed
    // libraries are replaced by rename.
    let bytes = unsafe { memmap2::Mmap::map(&file) }.map_err(unreadable)?;
    // Read through once: what was decoded need not stay in memory (libtorch alone has 280 MB of code).
    scan_with(&bytes, |read| let_go(&bytes, read))
}

/// Hands pages of a mapped file back to the page cache.
fn let_go(file: &memmap2::Mmap, read: &[u8]) {
    let Some(offset) = (read.as_ptr() as usize).checked_sub(file.as_ptr() as usize) else {
        return;
    };
    // SAFETY: the mapping is of a file and never written to: a page that is dropped comes back the same.
    let _ = unsafe { file.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, read.len()) };
}

/// The build-id alone, for a cache: reads a page or two.
pub fn build_id(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok()?;
    // SAFETY: as in `scan_file`.
    let bytes = unsafe { memmap2::Mmap::map(&file) }.ok()?;
    Image::parse(&bytes).ok()?.build_id()
}

/// What an instruction needs beyond the baseline of x86-64, in /proc/cpuinfo's words; nothing if it is none.
pub fn instruction_needs(bytes: &[u8]) -> Vec<&'static str> {
    let set = x86::needs_of_instruction(bytes);
    events::members(set).map(x86::features::name).collect()
}

/// Scans what is in memory.
pub fn scan(bytes: &[u8]) -> Result<Report, Unreadable> {
    scan_with(bytes, |_| ())
}

/// `done` is called with each part of the code that has been read.
fn scan_with(bytes: &[u8], done: impl Fn(&[u8]) + Sync) -> Result<Report, Unreadable> {
    let image = Image::parse(bytes)?;
    let machine = image.machine().ok_or_else(|| {
        Unreadable("for a CPU that lastwords does not know (x86-64 and aarch64 it does)".to_owned())
    })?;
    if !image.is_loadable() {
        return Err(Unreadable(
            "an object file or a core: nothing loads it".to_owned(),
        ));
    }
    let program = program::Program::read(&image, machine, &done);
    let (guards, reached) = if program.is_plain() {
        (guards::Guards::default(), reach::Reached::default())
    } else {
        let guards = guards::Guards::find(&program);
        let reached = reach::walk(&program, &guards);
        (guards, reached)
    };
    let presumed = presumed::find(&program, &guards, machine, &reached.stopped);
    let counts = judge::Counts::of(&program);
    let judge = judge::Judge {
        machine,
        program: &program,
        guards: &guards,
        counts,
        reached,
    };
    let needs = judge.needs();
    Ok(Report {
        architecture: match machine {
            Machine::X86_64 => "x86_64",
            Machine::Aarch64 => "aarch64",
        },
        build_id: image.build_id(),
        dispatched: judge.dispatched(&needs),
        presumes: judge.presumes(&presumed, &needs),
        needs,
        gpu: gpu(&image),
        asks: guards.asks_anywhere,
        note: note(&image, &program),
    })
}

fn gpu(image: &Image) -> Vec<String> {
    let sections = [b".nv_fatbin".as_slice(), b"__nv_relfatbin"];
    let mut found: Vec<String> = sections
        .iter()
        .filter_map(|name| image.section(name))
        .flat_map(|(_, bytes)| fatbin::architectures(bytes))
        .collect();
    found.sort();
    found.dedup();
    found
}

fn note(image: &Image, program: &program::Program) -> Option<&'static str> {
    if image.is_cut() {
        Some("truncated: the file ends before its segments or its section table do")
    } else if !image.has_dynamic_table() && program.symbols.is_empty() && program.functions.len() <= 2 {
        Some("packed or stripped of everything: what it unpacks at run time cannot be seen")
    } else {
        None
    }
}
