//! A box is read whatever state its file is in. Each recording happens in a process of its own, forked here,
//! because a process has one recorder.
#![cfg(feature = "reader")]

use lastwords_blackbox::layout::{Header, Section, VERSION};
use lastwords_blackbox::reader::{BoxReader, NotABox};
use lastwords_blackbox::record::Record;
use lastwords_blackbox::{live, recorder};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

fn scratch(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("lastwords-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// Runs `body` in a forked process that then kills itself, so that nothing of it is written in order.
fn die_in_child(body: impl FnOnce()) -> i32 {
    // SAFETY: the child runs `body` and ends; it never returns into the test harness.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            body();
            libc::kill(libc::getpid(), libc::SIGKILL);
        }
        let mut status = 0;
        libc::waitpid(pid, &mut status, 0);
        status
    }
}

fn boxes(directory: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "box"))
        .collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// A process that was killed on its second item.
fn killed_on_item_five(name: &str) -> Vec<u8> {
    let directory = scratch(name);
    let status = die_in_child(|| {
        recorder::start(directory.as_os_str().as_bytes()).unwrap();
        live::begin(4, b"four", 1);
        live::end();
        live::begin(5, "fünf".as_bytes(), 1);
    });
    assert_eq!(status, libc::SIGKILL);
    let mut found = boxes(&directory);
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn read(bytes: &[u8]) -> Record {
    BoxReader::open(bytes).unwrap().record()
}

#[test]
fn sigkill_leaves_the_item_and_what_was_done() {
    let record = read(&killed_on_item_five("item"));
    let live = record.live.unwrap();
    let current = live.current.unwrap();
    assert_eq!((current.index, current.key.as_deref()), (Some(5), Some("fünf")));
    assert_eq!((live.items_begun, live.items_done), (2, 1));
    assert_eq!(record.items[0].key.as_deref(), Some("four"));
    assert!(!live.exit_said);
    assert!(record.crash.is_none());
}

#[test]
fn every_truncation_is_read_or_refused() {
    let bytes = killed_on_item_five("cut");
    let mut readable = 0;
    for length in (0..bytes.len()).step_by(997) {
        if let Ok(reader) = BoxReader::open(&bytes[..length]) {
            reader.record();
            reader.stack();
            reader.maps();
            readable += 1;
        }
    }
    assert!(readable > 1000, "only the very first bytes make it a box");
}

#[test]
fn damage_never_panics() {
    let bytes = killed_on_item_five("damage");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // The parts a reader looks at: everything before the stack.
    let interesting = 128 << 10;
    for _ in 0..300 {
        let mut damaged = bytes.clone();
        for _ in 0..200 {
            let place = (random() as usize) % interesting;
            damaged[place] = random() as u8;
        }
        damaged[..8].copy_from_slice(&bytes[..8]);
        let reader = BoxReader::open(&damaged).unwrap();
        reader.record();
        reader.stack();
        reader.maps();
    }
}

#[test]
fn a_section_that_claims_to_be_anywhere_is_bounded() {
    let mut bytes = killed_on_item_five("claims");
    let sections = std::mem::offset_of!(Header, sections);
    for number in 0..11 {
        let at = sections + number * std::mem::size_of::<Section>();
        bytes[at + 8..at + 16].copy_from_slice(&(u64::MAX - 3).to_le_bytes());
        bytes[at + 16..at + 24].copy_from_slice(&u64::MAX.to_le_bytes());
    }
    let record = read(&bytes);
    assert!(record.identity.is_none() && record.live.is_none());
}

#[test]
fn a_newer_box_is_read_with_a_note() {
    let mut bytes = killed_on_item_five("newer");
    let version = std::mem::offset_of!(Header, version);
    bytes[version..version + 4].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let record = read(&bytes);
    assert_eq!(record.live.unwrap().items_begun, 2);
    assert!(record.notes[0].contains("newer"));
}

#[test]
fn an_older_box_with_shorter_sections_is_read() {
    let mut bytes = killed_on_item_five("older");
    let live = std::mem::offset_of!(Header, sections) + std::mem::size_of::<Section>();
    // As if the item slots had not been invented yet.
    bytes[live + 16..live + 24].copy_from_slice(&24_u64.to_le_bytes());
    let record = read(&bytes);
    assert_eq!(record.live.unwrap().items_begun, 2);
}

#[test]
fn what_is_no_box_is_refused_with_its_reason() {
    let reason = |bytes: &[u8]| match BoxReader::open(bytes) {
        Err(NotABox(reason)) => reason,
        Ok(_) => panic!("taken for a box"),
    };
    assert!(reason(b"").contains("0 bytes"));
    assert!(reason(&[0; 4096]).contains("zeros"));
    assert!(reason(b"\x7fELF........").contains("mark"));
}

#[test]
fn a_forked_child_has_a_box_of_its_own() {
    let directory = scratch("fork");
    die_in_child(|| {
        recorder::start(directory.as_os_str().as_bytes()).unwrap();
        live::begin(1, b"parent", 1);
        die_in_child(|| {
            recorder::renew_after_fork();
            live::begin(2, b"child", 1);
        });
    });
    let mut keys: Vec<_> = boxes(&directory)
        .iter()
        .map(|bytes| {
            let record = read(bytes);
            let identity = record.identity.unwrap();
            (
                identity.forked,
                record.live.unwrap().current.unwrap().key.unwrap(),
            )
        })
        .collect();
    keys.sort();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(keys, [(false, "parent".to_owned()), (true, "child".to_owned())]);
}

#[test]
fn a_descriptor_number_that_became_somebody_elses_is_left_alone() {
    let directory = scratch("closed");
    let status = die_in_child(|| {
        recorder::start(directory.as_os_str().as_bytes()).unwrap();
        let ours = recorder::box_fd().unwrap();
        let theirs = directory.join("precious");
        std::fs::write(&theirs, b"precious").unwrap();
        let opened = std::fs::File::open(&theirs).unwrap();
        // SAFETY: what `os.closerange` and a later open do to us.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&opened), ours) };
        if recorder::box_fd().is_some() {
            std::process::exit(1);
        }
    });
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(
        status,
        libc::SIGKILL,
        "the recorder took somebody's file for its box"
    );
}

#[test]
fn a_directory_that_is_not_there_is_refused() {
    let status = die_in_child(|| {
        let refused = recorder::start(b"/nowhere/at/all").unwrap_err();
        if (refused.call, refused.errno) != ("open", libc::ENOENT) || live::is_recording() {
            std::process::exit(1);
        }
        live::begin(1, b"goes on", 1);
        live::end();
    });
    assert_eq!(status, libc::SIGKILL);
}
