//! Standing around functions of Python itself, without a frame of ours in anybody's traceback.

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
        live::event(EventKind::SentSignal, target, signal, b"");
    }
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
        let result = self.function.bind(py).call(args, kwargs);
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
