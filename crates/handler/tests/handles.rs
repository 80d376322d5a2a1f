//! The handler in a process of its own, without Python: what it writes, and that the death stays true. These
//! are the tests that also run on other architectures (`qemu-user`).

use lastwords_blackbox::layout::CRASH_COMPLETE;
use lastwords_blackbox::reader::BoxReader;
use lastwords_blackbox::recorder;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

fn scratch(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("lastwords-handler-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// Records a forked process that does `body`; its wait status and its box.
fn record(name: &str, body: impl FnOnce()) -> (i32, Vec<u8>) {
    let directory = scratch(name);
    // SAFETY: the child runs `body` and dies; it never returns into the test harness.
    let status = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            recorder::start(directory.as_os_str().as_bytes()).unwrap();
            lastwords_handler::install();
            body();
            libc::_exit(99);
        }
        let mut status = 0;
        libc::waitpid(pid, &mut status, 0);
        status
    };
    let path = std::fs::read_dir(&directory)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let bytes = std::fs::read(path).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    (status, bytes)
}

#[test]
fn a_null_read_is_recorded_and_kills() {
    let (status, bytes) = record("null", || {
        // SAFETY: the crash is what is wanted.
        unsafe { core::ptr::read_volatile(core::ptr::without_provenance::<u64>(16)) };
    });
    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    let reader = BoxReader::open(&bytes).unwrap();
    let crash = reader.crash().unwrap();
    assert_eq!(
        (crash.state, crash.signal, crash.address),
        (CRASH_COMPLETE, libc::SIGSEGV, 16)
    );
    assert_eq!(crash.steps_failed, 0);
    assert!(crash.code_length > 0 && crash.maps_length > 0);
    let (address, stack) = reader.stack()[0];
    let registers = reader.record().crash.unwrap().registers;
    let sp = registers.get("rsp").or(registers.get("sp")).copied().unwrap();
    assert!(address <= sp && sp < address + stack.len() as u64);
}

#[test]
fn abort_is_recorded_and_kills() {
    let (status, bytes) = record("abort", || {
        // SAFETY: the crash is what is wanted.
        unsafe { libc::abort() };
    });
    assert_eq!(libc::WTERMSIG(status), libc::SIGABRT);
    assert_eq!(
        BoxReader::open(&bytes).unwrap().crash().unwrap().signal,
        libc::SIGABRT
    );
}

#[test]
fn a_handler_that_raises_again_speaks_and_does_not_decide() {
    extern "C" fn as_torch_does(signal: i32) {
        // SAFETY: what torch's worker handlers do.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    let (status, bytes) = record("raise", || {
        lastwords_handler::stand_aside();
        // SAFETY: installs a handler and crashes.
        unsafe {
            libc::signal(libc::SIGSEGV, as_torch_does as *const () as usize);
            lastwords_handler::come_back();
            core::ptr::read_volatile(core::ptr::without_provenance::<u64>(24));
        }
    });
    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    let crash = BoxReader::open(&bytes).unwrap().crash().unwrap();
    assert_eq!((crash.address, crash.state), (24, CRASH_COMPLETE));
    assert_ne!(crash.previous_handler, 0);
}

#[test]
fn a_fault_in_the_frame_dumper_is_survived() {
    extern "C" fn dumps_badly(_: i32) {
        // SAFETY: the nested crash is what is wanted.
        unsafe { core::ptr::read_volatile(core::ptr::without_provenance::<u64>(32)) };
    }
    let (status, bytes) = record("nested", || {
        // SAFETY: an `extern "C" fn(i32)`, which crashes; then another crash.
        unsafe {
            lastwords_handler::set_python_dumper(dumps_badly as *const () as usize, 0);
            core::ptr::read_volatile(core::ptr::without_provenance::<u64>(16));
        }
    });
    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    let record = BoxReader::open(&bytes).unwrap().record().crash.unwrap();
    assert_eq!((record.address, record.state), (16, "complete"));
    assert_eq!((record.nested_step, record.nested_address), (Some("python"), 32));
    assert_eq!(record.steps_failed, ["python"]);
    assert!(record.steps_done.contains(&"threads"));
}
