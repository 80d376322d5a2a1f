//! Every physical frame must be gdb's: address by address, and by name inside the victim.

mod support;

use std::path::Path;

use lastwords_autopsy::{Autopsy, CoreAutopsy, Frame, Limits, from_core};
use support::{GdbFrame, Victim, gdb_frames, has, obstacle, skip};

/// gdb stops where the test's script does.
const COMPARED: usize = 200;

fn examine(core: &Path) -> CoreAutopsy {
    from_core(core, &Limits::default()).unwrap()
}

fn crashed(core: &CoreAutopsy) -> &Autopsy {
    &core.threads[0].autopsy
}

fn physical(autopsy: &Autopsy) -> Vec<&Frame> {
    autopsy
        .frames
        .iter()
        .filter(|frame| !frame.inlined)
        .take(COMPARED)
        .collect()
}

/// gdb gives C++ names without parameters and keeps the suffix that GCC adds to clones.
fn same_name(ours: Option<&str>, gdb: Option<&str>) -> bool {
    match (ours, gdb) {
        (Some(ours), Some(gdb)) => ours.contains(gdb.split('.').next().unwrap_or(gdb)),
        (ours, gdb) => ours.is_none() == gdb.is_none(),
    }
}

fn compare(program: &Path, core: &Path) -> CoreAutopsy {
    let ours = examine(core);
    let gdb: Vec<GdbFrame> = gdb_frames(program, core)
        .into_iter()
        .filter(|frame| frame.kind != "inline")
        .collect();
    let frames = physical(crashed(&ours));
    let theirs: Vec<&GdbFrame> = gdb.iter().take(COMPARED).collect();
    let addresses = |frames: &[&Frame]| frames.iter().map(|frame| frame.address).collect::<Vec<_>>();
    assert_eq!(
        addresses(&frames),
        theirs.iter().map(|frame| frame.pc).collect::<Vec<_>>(),
        "{core:?}\n{frames:#?}\n{gdb:#?}",
    );
    assert!(frames.len() > 3, "gdb and we agree on too little: {frames:#?}");
    for (ours, theirs) in frames.iter().zip(theirs) {
        let in_victim = ours.library.as_deref() == program.to_str();
        // Of a jump into data gdb names the variable. We name functions only.
        if in_victim && theirs.name.as_deref() != Some("data") {
            assert!(
                same_name(ours.function.as_deref(), theirs.name.as_deref()),
                "{ours:?} {theirs:?}"
            );
        }
        assert_eq!(ours.signal_frame, theirs.kind == "signal", "{ours:?} {theirs:?}");
    }
    ours
}

fn ready() -> bool {
    let obstacle = obstacle().or_else(|| (!has("gdb")).then(|| "no gdb here".to_owned()));
    if let Some(reason) = &obstacle {
        skip(reason);
    }
    obstacle.is_none()
}

const DEATHS: [&str; 14] = [
    "null-read",
    "null-call",
    "data-call",
    "trap",
    "fma4",
    "divide",
    "non-canonical",
    "recursion",
    "handler",
    "dynamic-frame",
    "aligned-frame",
    "thread",
    "vdso",
    "abort",
];

fn all_deaths(victim: &Victim) {
    for how in DEATHS {
        match victim.die(&[how]) {
            Ok(core) => {
                compare(&victim.program, &core);
                std::fs::remove_file(core).unwrap();
            }
            // AMD's Bulldozer family has FMA4.
            Err(reason) => skip(&format!("{how}: {reason}")),
        }
    }
}

#[test]
fn with_debug_information() {
    if ready() {
        all_deaths(&Victim::compile("deaths.c", &["-g"]));
    }
}

#[test]
fn stripped() {
    if ready() {
        let victim = Victim::compile("deaths.c", &[]);
        victim.strip();
        all_deaths(&victim);
    }
}

#[test]
fn not_position_independent_and_compressed() {
    if ready() {
        all_deaths(&Victim::compile("deaths.c", &["-no-pie", "-g", "-gz=zlib"]));
    }
}

/// Tables in other places: no sorted index, and none but those for the debugger.
#[test]
fn without_an_index_and_with_debug_tables_only() {
    if ready() {
        for flags in [
            &["-Wl,--no-eh-frame-hdr"][..],
            &["-g", "-fno-asynchronous-unwind-tables"],
        ] {
            let victim = Victim::compile("deaths.c", flags);
            for how in ["null-read", "aligned-frame"] {
                compare(&victim.program, &victim.die(&[how]).unwrap());
            }
        }
    }
}

#[test]
fn templates_and_inlined_calls() {
    if !ready() {
        return;
    }
    let victim = Victim::compile("inlines.cpp", &["-g"]);
    let core = victim.die(&[]).unwrap();
    let ours = compare(&victim.program, &core);
    let frames = &crashed(&ours).frames;
    assert!(frames[0].inlined && !frames[1].inlined, "{frames:#?}");
    assert_eq!(
        frames[0].function.as_deref(),
        Some("shop::Shelf<double>::take(int)")
    );
    assert_eq!(
        frames[1].function.as_deref(),
        Some("double shop::sell<double>(shop::Shelf<double>&, int)")
    );
    assert!(frames[0].file.as_deref().unwrap().ends_with("inlines.cpp"));
    assert_eq!(frames[0].line, Some(12));
    let inlined = gdb_frames(&victim.program, &core);
    assert_eq!(inlined[0].kind, "inline");
}

#[test]
fn a_cpp_exception_that_nobody_catches() {
    if ready() {
        let victim = Victim::compile("inlines.cpp", &[]);
        let core = victim.die(&["throw"]).unwrap();
        let ours = compare(&victim.program, &core);
        let names: Vec<_> = crashed(&ours)
            .frames
            .iter()
            .filter_map(|frame| frame.function.as_deref())
            .collect();
        assert!(names.iter().any(|name| name.contains("terminate")), "{names:?}");
    }
}
