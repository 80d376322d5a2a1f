//! What a recorded process calls. Thin: each function hands over to `blackbox` or `handler`.

use lastwords_blackbox::layout::{EventKind, NONE, STOP_REASONS};
use lastwords_blackbox::{live, recorder};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Starts recording this process in `directory`: box, crash handler, fork hook.
#[pyfunction]
fn start(directory: std::path::PathBuf) -> PyResult<()> {
    use std::os::unix::ffi::OsStrExt;
    let made = recorder::start(directory.as_os_str().as_bytes());
    // Also without a box: a child may be able to make one, and every process announces itself.
    lastwords_handler::install();
    made.map_err(|refused| PyOSError::new_err((refused.errno, format!("{} failed", refused.call))))
}

/// For a process that is not recorded and forks workers that are.
#[pyfunction]
fn prepare_to_fork() {
    lastwords_handler::prepare();
}

#[pyfunction]
fn is_recording() -> bool {
    live::is_recording()
}

#[pyfunction]
#[pyo3(signature = (*, role=None, worker=None, rank=None, runtime=None))]
fn describe(role: Option<&str>, worker: Option<i64>, rank: Option<i64>, runtime: Option<&str>) {
    live::describe(
        role.unwrap_or("").as_bytes(),
        worker.unwrap_or(NONE),
        rank.unwrap_or(NONE),
        runtime.unwrap_or("").as_bytes(),
    );
}

fn bytes_of<'a>(text: Option<&'a Bound<'_, PyString>>) -> std::borrow::Cow<'a, [u8]> {
    match text {
        // A key with lone surrogates (os.fsdecode of a strange file name) is no reason to fail a worker.
        Some(text) => match text.to_string_lossy() {
            std::borrow::Cow::Borrowed(words) => std::borrow::Cow::Borrowed(words.as_bytes()),
            std::borrow::Cow::Owned(words) => std::borrow::Cow::Owned(words.into_bytes()),
        },
        None => std::borrow::Cow::Borrowed(b""),
    }
}

#[pyfunction]
#[pyo3(signature = (index, key, phase, /))]
fn begin(index: Option<i64>, key: Option<&Bound<'_, PyString>>, phase: u32) {
    mark_begin(index.unwrap_or(NONE), &bytes_of(key), phase);
}

/// One item ends and the next, known by its number alone, begins.
pub(crate) fn mark_next(index: i64, phase: u32) {
    let now = live::advance(index, phase);
    lastwords_handler::refresh_if_due(now);
}

/// Every item begins here, whoever marks it.
pub(crate) fn mark_begin(index: i64, key: &[u8], phase: u32) {
    let now = live::begin(index, key, phase);
    lastwords_handler::refresh_if_due(now);
}

#[pyfunction]
#[pyo3(signature = (number, /))]
fn phase(number: u32) {
    live::phase(number);
}

#[pyfunction]
#[pyo3(signature = (place, /))]
fn calls(place: &Bound<'_, PyString>) {
    live::calls(&bytes_of(Some(place)));
}

#[pyfunction]
fn end() {
    live::end();
}

#[pyfunction]
#[pyo3(signature = (text, /))]
fn note(text: &Bound<'_, PyString>) {
    live::event(EventKind::Note, 0, 0, &bytes_of(Some(text)));
}

/// This process is about to end another, and this is why. `kind` is one of `STOP_REASONS`.
#[pyfunction]
#[pyo3(signature = (pid, kind, text, /))]
fn note_stop(pid: i64, kind: &str, text: &Bound<'_, PyString>) {
    let number = STOP_REASONS.iter().position(|name| *name == kind).unwrap_or(0);
    live::event(EventKind::StopReason, pid, number as i64, &bytes_of(Some(text)));
}

/// `frames`: (file, line, function), innermost first.
#[pyfunction]
fn exception(
    kind: &Bound<'_, PyString>,
    message: &Bound<'_, PyString>,
    frames: Vec<(Bound<'_, PyString>, u32, Bound<'_, PyString>)>,
    fatal: bool,
) {
    let writer = live::ExceptionWriter::new(&bytes_of(Some(kind)), &bytes_of(Some(message)), fatal);
    if let Some(mut writer) = writer {
        for (file, line, function) in &frames {
            writer.frame(&bytes_of(Some(file)), *line, &bytes_of(Some(function)));
        }
        writer.complete();
    }
}

#[pyfunction]
#[pyo3(signature = (code, /))]
fn say_exit(code: Option<i32>) {
    live::say_exit(code.unwrap_or(i32::MIN));
}

/// Takes the C function behind `signal.signal`, which Python has just installed for `signal`.
#[pyfunction]
#[pyo3(signature = (signal, /))]
fn adopt_python_trampoline(signal: i32) {
    // SAFETY: only asks.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction > 1 {
            lastwords_handler::set_python_trampoline(action.sa_sigaction);
        }
    }
}

/// The descriptor at which CPython is to write its frames.
#[pyfunction]
fn text_descriptor() -> Option<i32> {
    recorder::text_fd()
}

/// Takes the C function that `faulthandler.register` installed for `signal` as the one to call in a crash.
/// Its handler dumps every thread's Python frames, never raises the signal again, and has been made to run
/// in signal handlers; reached this way it needs no private symbol of any Python version. The signal itself
/// becomes the one by which a living process is asked for a snapshot.
#[pyfunction]
#[pyo3(signature = (signal, /))]
fn adopt_python_dumper(signal: i32) -> bool {
    // SAFETY: asks for and replaces the disposition of one signal; the handler found there is
    // faulthandler_user(int), because Python registered it a moment ago.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut action) != 0 || action.sa_sigaction <= 1 {
            return false;
        }
        lastwords_handler::set_python_dumper(action.sa_sigaction, signal);
        lastwords_handler::find_second_dumper();
        // With its first handler faulthandler puts a stack of its own in place of ours: some 16 KiB of the heap, less
        // than a snapshot needs, and below it the job's data. See test_the_handler_has_its_own_stack_from_the_start.
        lastwords_handler::ensure_alternate_stack();
        let listens = lastwords_handler::listen_for_probes(signal);
        if listens {
            live::say_probe_signal(signal as u32);
        }
        listens
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(start, m)?)?;
    m.add_function(wrap_pyfunction!(prepare_to_fork, m)?)?;
    m.add_function(wrap_pyfunction!(is_recording, m)?)?;
    m.add_function(wrap_pyfunction!(describe, m)?)?;
    m.add_function(wrap_pyfunction!(begin, m)?)?;
    m.add_function(wrap_pyfunction!(phase, m)?)?;
    m.add_function(wrap_pyfunction!(calls, m)?)?;
    m.add_function(wrap_pyfunction!(end, m)?)?;
    m.add_function(wrap_pyfunction!(note, m)?)?;
    m.add_function(wrap_pyfunction!(note_stop, m)?)?;
    m.add_function(wrap_pyfunction!(exception, m)?)?;
    m.add_function(wrap_pyfunction!(say_exit, m)?)?;
    m.add_function(wrap_pyfunction!(adopt_python_trampoline, m)?)?;
    m.add_function(wrap_pyfunction!(text_descriptor, m)?)?;
    m.add_function(wrap_pyfunction!(adopt_python_dumper, m)?)?;
    Ok(())
}
