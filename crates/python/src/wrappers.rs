//! Standing around functions of Python itself, without a frame of ours in anybody's traceback.

use crate::crossing;
use lastwords_blackbox::layout::{EXCEPTION_FRAMES, EventKind};
use lastwords_blackbox::live;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

const OS_EXIT: &str = "os._exit";

/// What is done before and after the call.
enum Purpose {
    /// `os.kill` and `os.killpg`: SIGKILL tells nobody who sent it, so the sender leaves a note. A group's
    /// number is noted as kill(2) has it: negative.
    Kill { of_group: bool },
    /// Installs or removes signal handlers: it finds those before us, and we step in front again.
    BehindUs,
    /// `os.execv` and `os.execve`: from here on the process is another program, whose exit is its own affair.
    Exec,
    /// `os._exit` and `sys.exit`: an exit code tells nobody who called them. The record is that of an exception with their
    /// name, which none has.
    Leave { name: &'static str },
    /// `_imp.create_dynamic`, which loads every extension module: what it loads is noted, and covered.
    Import,
    /// `warnings._showwarnmsg_impl`: a library often warns before it dies.
    Warn,
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
            Purpose::Leave { name } => note_leave(args, name),
            Purpose::Import => note_import(args),
            Purpose::Warn => note_warning(args),
        }
    }

    fn after(&self) {
        match self.purpose {
            Purpose::Kill { .. } | Purpose::Leave { .. } | Purpose::Warn => {}
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

/// Before the call: `os._exit` does not come back. A worker of multiprocessing ends so when all is well.
fn note_leave(args: &Bound<'_, PyTuple>, name: &str) {
    let Some(frames) = frames_of_caller(args.py()) else {
        return;
    };
    if frames
        .first()
        .is_some_and(|(file, ..)| file.contains(WAYS_TO_KILL[0]))
    {
        return;
    }
    let code = exit_code(args).to_string();
    if let Some(mut writer) = live::ExceptionWriter::new(name.as_bytes(), code.as_bytes(), false) {
        for (file, line, function) in &frames {
            writer.frame(file.as_bytes(), *line, function.as_bytes());
        }
        writer.complete();
    }
}

/// As Python takes it: nothing is 0, and a text is printed and is 1.
fn exit_code(args: &Bound<'_, PyTuple>) -> i64 {
    match args.get_item(0) {
        Ok(code) if !code.is_none() => code.extract::<i64>().map_or(1, |code| code & 0xff),
        _ => 0,
    }
}

/// File, line and function, innermost first.
fn frames_of_caller(py: Python<'_>) -> Option<Vec<(String, u32, String)>> {
    let mut frames = Vec::new();
    let mut frame = py.import("sys").ok()?.getattr("_getframe").ok()?.call0().ok()?;
    while !frame.is_none() && frames.len() < EXCEPTION_FRAMES {
        let code = frame.getattr("f_code").ok()?;
        frames.push((
            code.getattr("co_filename").ok()?.extract().ok()?,
            frame.getattr("f_lineno").ok()?.extract().unwrap_or(0),
            code.getattr("co_name").ok()?.extract().ok()?,
        ));
        frame = frame.getattr("f_back").ok()?;
    }
    Some(frames)
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

/// `DeprecationWarning: and its text`. One that cannot be shown is Python's to complain about.
fn note_warning(args: &Bound<'_, PyTuple>) {
    let told = || -> PyResult<String> {
        let warning = args.get_item(0)?;
        let category: String = warning.getattr("category")?.getattr("__name__")?.extract()?;
        let message = warning.getattr("message")?.str()?;
        Ok(format!("{category}: {}", message.to_string_lossy()))
    };
    if let Ok(text) = told() {
        live::event(EventKind::Warning, 0, 0, text.as_bytes());
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

    /// By its name, as the function itself: a pool may be handed `os.kill`, and whoever loads it need not be recorded.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let function = self.function.bind(py);
        let module: String = function.getattr("__module__")?.extract()?;
        let name: String = function.getattr("__name__")?.extract()?;
        let public = PUBLIC.iter().find(|(inner, _)| *inner == module);
        let module = public.map_or(module.as_str(), |(_, outer)| *outer);
        let resolve = py.import("pkgutil")?.getattr("resolve_name")?;
        Ok((resolve, (format!("{module}:{name}"),)))
    }
}

/// Modules in which functions are made, and those that they are known by.
const PUBLIC: [(&str, &str); 2] = [("posix", "os"), ("_signal", "signal")];

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

/// `name`: `os._exit` or `sys.exit`.
#[pyfunction]
fn noted_exit(function: Py<PyAny>, name: &str) -> Around {
    let name = if name == OS_EXIT { OS_EXIT } else { "sys.exit" };
    Around {
        function,
        purpose: Purpose::Leave { name },
    }
}

#[pyfunction]
fn noted_import(function: Py<PyAny>) -> Around {
    Around {
        function,
        purpose: Purpose::Import,
    }
}

#[pyfunction]
fn noted_warning(function: Py<PyAny>) -> Around {
    Around {
        function,
        purpose: Purpose::Warn,
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
    m.add_function(wrap_pyfunction!(noted_exit, m)?)?;
    m.add_function(wrap_pyfunction!(noted_import, m)?)?;
    m.add_function(wrap_pyfunction!(noted_warning, m)?)?;
    m.add_function(wrap_pyfunction!(note_collection, m)?)?;
    Ok(())
}
