//! The same walk on another machine: a static aarch64 victim, killed under qemu-user.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lastwords_autopsy::{Architecture, Autopsy, Limits, Region, Snapshot, autopsy, from_core, minidump};
use support::{Victim, has, skip, stack_of};

/// Static, not position independent: linked for this address, file offset 0 first.
const LINKED_AT: u64 = 0x40_0000;

fn ready() -> bool {
    let missing = ["aarch64-linux-gnu-gcc", "qemu-aarch64"]
        .into_iter()
        .find(|tool| !has(tool));
    if let Some(tool) = missing {
        skip(&format!("no {tool} here"));
    }
    missing.is_none()
}

fn core_of(victim: &Victim, how: &str) -> Option<PathBuf> {
    let folder = victim.folder.path().join(how);
    std::fs::create_dir_all(&folder).unwrap();
    let script = "ulimit -c unlimited 2>/dev/null; exec qemu-aarch64 \"$0\" \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&victim.program).arg(how);
    command
        .current_dir(&folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().unwrap();
    let files = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    files
        .into_iter()
        .find(|path| path.extension().is_some_and(|kind| kind == "core"))
}

/// qemu's core files do not say which file was mapped where, so the test does.
fn examine(program: &Path, core_path: &Path) -> Autopsy {
    let core = from_core(core_path, &Limits::default()).unwrap();
    assert_eq!(core.architecture, Architecture::Aarch64);
    let bytes = std::fs::read(core_path).unwrap();
    let registers = core.threads[0].registers.clone();
    let stack: Region<'_> = stack_of(&bytes, registers.sp());
    let mut mappings = core.mappings;
    for mapping in mappings
        .iter_mut()
        .filter(|mapping| mapping.executable && mapping.start >= LINKED_AT)
    {
        mapping.path = program.to_str().unwrap().to_owned();
        mapping.offset = mapping.start - LINKED_AT;
    }
    let snapshot = Snapshot {
        registers,
        memory: vec![stack],
        mappings,
        code: None,
        fault_address: None,
        signal: core.signal,
        signal_code: core.signal_code,
    };
    assert!(minidump(&snapshot, &lastwords_autopsy::MinidumpExtra::default()).starts_with(b"MDMP"));
    autopsy(&snapshot, &Limits::default())
}

#[test]
fn walks_and_names_but_does_not_decode() {
    if !ready() {
        return;
    }
    let victim = Victim::compile_with("aarch64-linux-gnu-gcc", "deaths.c", &["-g", "-static"]);
    for (how, innermost) in [
        ("null-read", &["null_read", "die", "main"][..]),
        ("null-call", &["?", "null_call", "die", "main"]),
        (
            "aligned-frame",
            &["?", "null_call", "aligned_frame", "die", "main"],
        ),
    ] {
        let Some(core) = core_of(&victim, how) else {
            return skip("qemu wrote no core file");
        };
        let result = examine(&victim.program, &core);
        let names: Vec<_> = result
            .frames
            .iter()
            .map(|frame| frame.function.as_deref().unwrap_or("?"))
            .collect();
        assert!(names.starts_with(innermost), "{how}: {names:?}");
        assert!(
            names.ends_with(&["_start"]),
            "{how}: {names:?}, {}",
            result.stopped_because
        );
        assert!(result.instruction.is_none());
        if how == "null-read" {
            assert!(
                result.notes.iter().any(|note| note.contains("aarch64")),
                "{:?}",
                result.notes
            );
        }
    }
}
