//! A minidump must be good enough for lldb to walk it to the end.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use lastwords_autopsy::{
    Architecture, CoreAutopsy, Limits, MinidumpExtra, Region, Registers, Snapshot, from_core, minidump,
};
use support::{Victim, has, obstacle, skip, stack_of};

fn u32_at(bytes: &[u8], offset: usize) -> usize {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap()) as usize
}

fn stream(dump: &[u8], kind: usize) -> Option<&[u8]> {
    (0..u32_at(dump, 8)).find_map(|index| {
        let entry = u32_at(dump, 12) + index * 12;
        let (size, offset) = (u32_at(dump, entry + 4), u32_at(dump, entry + 8));
        (u32_at(dump, entry) == kind).then(|| &dump[offset..offset + size])
    })
}

#[test]
fn the_layout_is_what_readers_expect() {
    let stack = [7u8; 64];
    let snapshot = Snapshot {
        registers: Registers {
            architecture: Architecture::X86_64,
            values: (0..17).collect(),
        },
        memory: vec![Region {
            address: 0,
            bytes: &stack,
        }],
        mappings: lastwords_autopsy::parse_maps(b"1000-2000 r-xp 00000000 00:00 5 /no/such/library.so"),
        code: None,
        fault_address: Some(0x55),
        signal: Some(11),
        signal_code: Some(1),
    };
    let extra = MinidumpExtra {
        process_id: 3,
        thread_id: 4,
        time: 5,
        thread_name: Some("worker"),
    };
    let dump = minidump(&snapshot, &extra);
    assert_eq!(&dump[..4], b"MDMP");
    assert_eq!(u32_at(&dump, 20), 5);
    let threads = stream(&dump, 3).unwrap();
    assert_eq!(
        (u32_at(threads, 0), u32_at(threads, 4), threads.len()),
        (1, 4, 52)
    );
    let (stack_size, stack_at) = (u32_at(threads, 36), u32_at(threads, 40));
    assert_eq!(&dump[stack_at..stack_at + stack_size], &stack);
    let context_at = u32_at(threads, 48);
    // rip and rsp in the CONTEXT record.
    assert_eq!(
        (u32_at(&dump, context_at + 0xf8), u32_at(&dump, context_at + 0x98)),
        (16, 7)
    );
    let exception = stream(&dump, 6).unwrap();
    assert_eq!(
        (exception.len(), u32_at(exception, 8), u32_at(exception, 24)),
        (168, 11, 0x55)
    );
    let modules = stream(&dump, 4).unwrap();
    assert_eq!(
        (u32_at(modules, 0), u32_at(modules, 4), modules.len()),
        (1, 0x1000, 4 + 108)
    );
    assert_eq!(stream(&dump, 7).unwrap().len(), 56);
    assert!(
        stream(&dump, 0x4767_0009)
            .unwrap()
            .starts_with(b"00001000-00002000 r-xp")
    );
}

#[test]
fn an_empty_snapshot_still_gives_a_file() {
    let snapshot = Snapshot {
        registers: Registers {
            architecture: Architecture::Aarch64,
            values: vec![],
        },
        memory: vec![],
        mappings: vec![],
        code: None,
        fault_address: None,
        signal: None,
        signal_code: None,
    };
    let dump = minidump(&snapshot, &MinidumpExtra::default());
    assert_eq!(u32_at(stream(&dump, 4).unwrap(), 0), 0);
}

/// The crashed thread of a core file as a snapshot with the stack alone, which is what a box holds.
fn dump_of(core: &CoreAutopsy, bytes: &[u8], folder: &Path) -> PathBuf {
    let thread = &core.threads[0];
    let stack = stack_of(bytes, thread.registers.sp());
    let snapshot = Snapshot {
        registers: thread.registers.clone(),
        memory: vec![stack],
        mappings: core.mappings.clone(),
        code: None,
        fault_address: core.fault_address,
        signal: core.signal,
        signal_code: core.signal_code,
    };
    let pid = core.pid.unwrap() as u32;
    let extra = MinidumpExtra {
        process_id: pid,
        thread_id: thread.tid as u32,
        ..Default::default()
    };
    let path = folder.join("victim.dmp");
    std::fs::write(&path, minidump(&snapshot, &extra)).unwrap();
    path
}

/// What a tool prints about a victim's minidump, or nothing where it cannot be tried.
fn told(how: &str, tool: &str, arguments: &[&str], after: &[&str]) -> Option<String> {
    if let Some(reason) = obstacle().or_else(|| (!has(tool)).then(|| format!("no {tool} here"))) {
        skip(&reason);
        return None;
    }
    let victim = Victim::compile("deaths.c", &["-g"]);
    let path = victim.die(&[how]).unwrap();
    let core = from_core(&path, &Limits::default()).unwrap();
    let dump = dump_of(&core, &std::fs::read(&path).unwrap(), victim.folder.path());
    let output = Command::new(tool)
        .args(arguments)
        .arg(&dump)
        .args(after)
        .output()
        .unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn lldb_walks_it_to_the_start() {
    for how in ["null-read", "aligned-frame"] {
        let arguments = ["--no-lldbinit", "--batch", "--core"];
        let Some(text) = told(how, "lldb", &arguments, &["-o", "bt"]) else {
            return;
        };
        for name in ["die", "main", "_start"] {
            assert!(text.contains(name), "{how}: no {name} in\n{text}");
        }
    }
}

#[test]
fn minidump_stackwalk_reads_it() {
    let Some(text) = told("null-read", "minidump-stackwalk", &["--human"], &[]) else {
        return;
    };
    for expected in ["SIGSEGV", "amd64", "victim", "libc.so.6"] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
}
