//! Standing around functions of Python itself, without a frame of ours in anybody's traceback.

use crate::crossing;
use lastwords_blackbox::layout::EventKind;
use lastwords_blackbox::live;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// What is done before and after the call.
enum Purpose {
    /// `os.kill` and `os.killpg`: SIGKILL tells nobody who sent it, so the sender leaves a note. A group's
    /// number is noted as kill(2) has it: negative.
    Kill { of_group: bool },
    /// Installs or removes signal handlers: it finds those before us, and we step in front again.
    BehindUs,
    /// `os.execv` and `os.execve`: from here on the process is another program, whose exit is its own affair.
    Exec,
    /// `_imp.create_dynamic`, which loads every extension module: what it loads is noted, and covered.
    Import,
}

/// A function of Python's, called as it was, with something of ours around it.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct Around {
    function: Py<PyAny>,
    purpose: Purpose,
}

impl Around {
    fn before(&self, args: &Bound<'_, PyTuple>) {
        match self.purpose {
            Purpose::Kill { of_group } => note_kill(args, of_group),
            Purpose::BehindUs => lastwords_handler::stand_aside(),
            Purpose::Exec => live::event(EventKind::Exec, 0, 0, b""),
            Purpose::Import => note_import(args),
        }
    }

    fn after(&self) {
        match self.purpose {
            Purpose::Kill { .. } => {}
            Purpose::BehindUs => lastwords_handler::come_back(),
            // Only a call that failed returns: it is the same program still.
            Purpose::Exec => live::event(EventKind::Note, 0, 0, b"exec failed"),
            Purpose::Import => lastwords_handler::refresh(),
        }
    }
}

/// Before the call: after a kill of oneself there is no later. Signal 0 only asks.
fn note_kill(args: &Bound<'_, PyTuple>, of_group: bool) {
    let number = |place: usize| args.get_item(place).and_then(|value| value.extract::<i64>());
    if let (Ok(target), Ok(signal)) = (number(0), number(1))
        && signal != 0
    {
        let target = if of_group { -target } else { target };
        let note = if is_ending(target) {
            ALREADY_ENDING.to_owned()
        } else {
            caller(args.py()).unwrap_or_default()
        };
        live::event(EventKind::SentSignal, target, signal, note.as_bytes());
    }
}

/// Frames of these are the way to the signal and not its reason.
const WAYS_TO_KILL: [&str; 4] = [
    "/multiprocessing/",
    "/concurrent/futures/",
    "/subprocess.py",
    "/psutil/",
];
const DEEPEST: usize = 16;
/// What an event has room for.
const LONGEST_NOTE: usize = 92;

/// `package/module.py:41 function`, of whoever decided to send it.
fn caller(py: Python<'_>) -> Option<String> {
    let mut frame = py.import("sys").ok()?.getattr("_getframe").ok()?.call0().ok()?;
    for _ in 0..DEEPEST {
        let code = frame.getattr("f_code").ok()?;
        let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
        if !WAYS_TO_KILL.iter().any(|way| file.contains(way)) {
            let function: String = code.getattr("co_name").ok()?.extract().ok()?;
            let line: i64 = frame.getattr("f_lineno").ok()?.extract().ok()?;
            let whole = format!("{}:{line} {function}", end_of_path(&file));
            return Some(whole.chars().take(LONGEST_NOTE).collect());
        }
        frame = frame.getattr("f_back").ok()?;
    }
    None
}

/// The file with its folder: `distributed/worker_memory.py`.
fn end_of_path(path: &str) -> &str {
    let from = path.rmatch_indices('/').nth(1).map_or(0, |(place, _)| place + 1);
    path.get(from..).unwrap_or(path)
}

/// A pool that sees a worker's pipe close signals all its workers, the dead one too: that signal ended nobody. The
/// watcher cannot tell by the clock, because the pipe closes a little before the kernel announces the end.
const ALREADY_ENDING: &str = "it was ending already";

/// The flag PF_EXITING of include/linux/sched.h in /proc/PID/stat, the seventh field after the name.
fn is_ending(pid: i64) -> bool {
    const EXITING: u64 = 0x4;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let flags = fields
        .split(' ')
        .nth(6)
        .and_then(|field| field.parse::<u64>().ok());
    pid > 0 && flags.is_some_and(|flags| flags & EXITING != 0)
}

/// Before the load: an initialiser that crashes is the event of interest.
fn note_import(args: &Bound<'_, PyTuple>) {
    let name = args.get_item(0).and_then(|spec| spec.getattr("name"));
    if let Ok(name) = name.and_then(|name| name.extract::<String>()) {
        live::event(EventKind::NativeImport, 0, 0, name.as_bytes());
    }
}

#[pymethods]
impl Around {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.before(args);
        let result = crossing::call(|| self.function.bind(py).call(args, kwargs));
        self.after();
        result
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(py).getattr(name)
    }
}

#[pyfunction]
#[pyo3(signature = (function, *, of_group=false))]
fn noted_kill(function: Py<PyAny>, of_group: bool) -> Around {
    Around {
        function,
        purpose: Purpose::Kill { of_group },
    }
}

#[pyfunction]
fn behind_us(function: Py<PyAny>) -> Around {
    Around {
        function,
        purpose: Purpose::BehindUs,
    }
}

#[pyfunction]
fn noted_exec(function: Py<PyAny>) -> Around {
    Around {
        function,
        purpose: Purpose::Exec,
    }
}

#[pyfunction]
fn noted_import(function: Py<PyAny>) -> Around {
    Around {
        function,
        purpose: Purpose::Import,
    }
}

/// A callback for `gc.callbacks` that notes the start of each full collection: a crash inside one is often
/// the first to touch an object that was broken long before.
#[pyfunction]
#[pyo3(signature = (phase, info, /))]
fn note_collection(phase: &str, info: &Bound<'_, PyDict>) -> PyResult<()> {
    const OLDEST: i64 = 2;
    let generation = match info.get_item("generation")? {
        Some(generation) => generation.extract::<i64>()?,
        None => return Ok(()),
    };
    if generation == OLDEST {
        live::event(
            EventKind::Collection,
            generation,
            i64::from(phase == "start"),
            phase.as_bytes(),
        );
    }
    Ok(())
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Around>()?;
    m.add_function(wrap_pyfunction!(noted_kill, m)?)?;
    m.add_function(wrap_pyfunction!(behind_us, m)?)?;
    m.add_function(wrap_pyfunction!(noted_exec, m)?)?;
    m.add_function(wrap_pyfunction!(noted_import, m)?)?;
    m.add_function(wrap_pyfunction!(note_collection, m)?)?;
    Ok(())
}
