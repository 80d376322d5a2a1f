//! What a black box holds: registers, mappings and a window or two of the stack. Everything else
//! must come from the files.

mod support;

use lastwords_autopsy::{Autopsy, CoreAutopsy, Limits, Region, Snapshot, Trust, autopsy, from_core};
use support::{Victim, obstacle, skip, stack_of};

struct Death {
    victim: Victim,
    core: CoreAutopsy,
    bytes: Vec<u8>,
}

fn death(how: &str) -> Option<Death> {
    if let Some(reason) = obstacle() {
        skip(&reason);
        return None;
    }
    let victim = Victim::compile("deaths.c", &[]);
    let path = victim.die(&[how]).unwrap();
    let core = from_core(&path, &Limits::default()).unwrap();
    let bytes = std::fs::read(path).unwrap();
    Some(Death { victim, core, bytes })
}

impl Death {
    fn stack(&self) -> Region<'_> {
        stack_of(&self.bytes, self.core.threads[0].registers.sp())
    }

    fn snapshot<'a>(&'a self, memory: Vec<Region<'a>>) -> Snapshot<'a> {
        Snapshot {
            registers: self.core.threads[0].registers.clone(),
            memory,
            mappings: self.core.mappings.clone(),
            code: None,
            fault_address: self.core.fault_address,
            signal: self.core.signal,
            signal_code: self.core.signal_code,
        }
    }
}

fn names(autopsy: &Autopsy) -> Vec<&str> {
    autopsy
        .frames
        .iter()
        .map(|frame| frame.function.as_deref().unwrap_or("?"))
        .collect()
}

fn window(region: Region<'_>, from: usize, length: usize) -> Region<'_> {
    let end = (from + length).min(region.bytes.len());
    Region {
        address: region.address + from as u64,
        bytes: &region.bytes[from..end],
    }
}

#[test]
fn the_stack_alone_gives_the_same_frames_as_the_whole_core() {
    for how in ["null-read", "aligned-frame", "handler", "abort"] {
        let Some(death) = death(how) else { return };
        let result = autopsy(&death.snapshot(vec![death.stack()]), &Limits::default());
        assert_eq!(result.frames, death.core.threads[0].autopsy.frames, "{how}");
        assert_eq!(result.stopped_because, "outermost frame");
        if how == "null-read" {
            let instruction = result.instruction.unwrap();
            assert_eq!(instruction.source, lastwords_autopsy::ByteSource::File);
        }
    }
}

#[test]
fn a_torn_stack_overflow_shows_top_and_base() {
    let Some(death) = death("recursion") else { return };
    let stack = death.stack();
    let top = death.core.threads[0].registers.sp().saturating_sub(stack.address) as usize & !4095;
    let base = stack.bytes.len() - (16 << 10);
    let windows = vec![window(stack, top, 64 << 10), window(stack, base, 16 << 10)];
    let result = autopsy(&death.snapshot(windows), &Limits::default());
    let names = names(&result);
    let gap = result.omitted.as_ref().unwrap();
    assert_eq!(gap.count, None);
    assert_eq!(names[0], "recurse");
    assert_eq!(names[gap.before_frame], "recurse");
    assert_eq!(result.frames[gap.before_frame].trust, Trust::Scan);
    assert!(
        names.ends_with(&["_start"]) && names.contains(&"main"),
        "{names:?}"
    );
    assert_eq!(result.stopped_because, "outermost frame");
}

#[test]
fn without_a_base_the_walk_says_where_the_stack_ends() {
    let Some(death) = death("recursion") else { return };
    let stack = death.stack();
    let top = death.core.threads[0].registers.sp().saturating_sub(stack.address) as usize & !4095;
    let result = autopsy(
        &death.snapshot(vec![window(stack, top, 8 << 10)]),
        &Limits::default(),
    );
    assert!(
        result.stopped_because.contains("was not saved"),
        "{}",
        result.stopped_because
    );
    assert!(result.frames.len() > 10);
}

#[test]
fn a_library_that_is_gone_leaves_guesses_and_says_so() {
    let Some(death) = death("null-read") else { return };
    let mut snapshot = death.snapshot(vec![death.stack()]);
    let program = death.victim.program.to_str().unwrap();
    for mapping in snapshot
        .mappings
        .iter_mut()
        .filter(|mapping| mapping.path == program)
    {
        mapping.deleted = true;
    }
    let result = autopsy(&snapshot, &Limits::default());
    assert!(
        result.notes.iter().any(|note| note.contains("deleted")),
        "{:?}",
        result.notes
    );
    assert_eq!(result.frames[0].function, None);
    assert_eq!(result.frames[0].library.as_deref(), Some(program));
    assert!(result.frames[1..].iter().any(|frame| frame.trust == Trust::Guess));
}

#[test]
fn another_build_of_the_same_library_is_not_believed() {
    let Some(death) = death("null-read") else { return };
    let other = Victim::compile("inlines.cpp", &[]);
    std::fs::remove_file(&death.victim.program).unwrap();
    std::fs::copy(&other.program, &death.victim.program).unwrap();
    let core = lastwords_autopsy::from_core_bytes(&death.bytes, &Limits::default()).unwrap();
    assert!(
        core.notes.iter().any(|note| note.contains("another build")),
        "{:?}",
        core.notes
    );
    assert_eq!(core.threads[0].autopsy.frames[0].function, None);
}

#[test]
fn changed_code_is_noticed() {
    let Some(death) = death("trap") else { return };
    let pc = death.core.threads[0].registers.pc();
    assert_eq!(death.core.threads[0].autopsy.code_matches_file, None);
    for (bytes, same) in [([0x0f, 0x0b], true), ([0x0f, 0x0a], false)] {
        let mut snapshot = death.snapshot(vec![death.stack()]);
        snapshot.code = Some(Region {
            address: pc,
            bytes: &bytes,
        });
        assert_eq!(
            autopsy(&snapshot, &Limits::default()).code_matches_file,
            Some(same)
        );
    }
}

#[test]
fn mini_debug_info_names_what_was_stripped() {
    if let Some(reason) = obstacle().or_else(|| (!support::has("xz")).then(|| "no xz here".to_owned())) {
        return skip(&reason);
    }
    let victim = Victim::compile("deaths.c", &[]);
    victim.embed_mini_debug_info();
    let core = from_core(&victim.die(&["null-read"]).unwrap(), &Limits::default()).unwrap();
    assert_eq!(
        core.threads[0].autopsy.frames[0].function.as_deref(),
        Some("null_read")
    );
    let tight = Limits {
        max_decompressed_bytes: 100,
        ..Limits::default()
    };
    let core = from_core(&victim.die(&["null-read"]).unwrap(), &tight).unwrap();
    assert_eq!(core.threads[0].autopsy.frames[0].function, None);
    assert!(
        core.notes
            .iter()
            .any(|note| note.contains("larger than the limit")),
        "{:?}",
        core.notes
    );
}

#[test]
fn names_that_dwz_moved_into_a_shared_file_are_found() {
    if let Some(reason) = obstacle().or_else(|| (!support::has("dwz")).then(|| "no dwz here".to_owned())) {
        return skip(&reason);
    }
    let (victim, twin) = (
        Victim::compile("deaths.c", &["-g"]),
        Victim::compile("deaths.c", &["-g", "-O1"]),
    );
    // The symbol table must not help.
    let strip = std::process::Command::new("strip")
        .args(["-N", "null_read"])
        .arg(&victim.program)
        .status();
    assert!(strip.unwrap().success());
    let shared = victim.folder.path().join("shared.debug");
    let mut dwz = std::process::Command::new("dwz");
    dwz.arg("-m")
        .arg(&shared)
        .arg("-M")
        .arg(&shared)
        .args([&victim.program, &twin.program]);
    assert!(dwz.status().unwrap().success() && shared.exists());
    let core = from_core(&victim.die(&["null-read"]).unwrap(), &Limits::default()).unwrap();
    let frame = &core.threads[0].autopsy.frames[0];
    assert_eq!(frame.function.as_deref(), Some("null_read"));
    assert!(frame.file.as_deref().unwrap().ends_with("deaths.c"), "{frame:?}");
}

/// Hand-written assembly, JIT code and some Fortran have no tables at all.
#[test]
fn without_tables_the_callers_are_found_and_trusted_less() {
    if let Some(reason) = obstacle() {
        return skip(&reason);
    }
    let no_tables = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for frame_pointer in ["-fno-omit-frame-pointer", "-fomit-frame-pointer"] {
        let victim = Victim::compile("deaths.c", &[no_tables[0], no_tables[1], frame_pointer]);
        let core = from_core(&victim.die(&["null-read"]).unwrap(), &Limits::default()).unwrap();
        let result = &core.threads[0].autopsy;
        let names = names(result);
        assert_eq!(names[0], "null_read");
        assert!(
            names.contains(&"main") && names.contains(&"_start"),
            "{frame_pointer} {names:?}"
        );
        let main = result
            .frames
            .iter()
            .find(|frame| frame.function.as_deref() == Some("main"));
        assert_eq!(main.unwrap().trust, Trust::Scan);
    }
}

/// Here gdb is no yardstick: it finds the tables by section only and prints stack words as frames.
#[test]
fn without_section_headers_the_walk_is_the_same() {
    if let Some(reason) = obstacle() {
        return skip(&reason);
    }
    let victim = Victim::compile("deaths.c", &[]);
    let offsets = |core: std::path::PathBuf| -> Vec<_> {
        let core = from_core(&core, &Limits::default()).unwrap();
        core.threads[0]
            .autopsy
            .frames
            .iter()
            .map(|frame| frame.offset_in_library)
            .collect()
    };
    let with_sections = offsets(victim.die(&["aligned-frame"]).unwrap());
    victim.forget_sections();
    let core = victim.die(&["aligned-frame"]).unwrap();
    assert_eq!(offsets(core), with_sections);
    assert!(with_sections.len() > 5);
}
