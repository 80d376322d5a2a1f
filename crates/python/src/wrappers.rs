//! Standing around functions of Python itself, without a frame of ours in anybody's traceback.

use lastwords_blackbox::layout::EventKind;
use lastwords_blackbox::live;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// `os.kill` that leaves a note of whom it killed: SIGKILL itself leaves none.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct NotedKill {
    function: Py<PyAny>,
    of_group: bool,
}

#[pymethods]
impl NotedKill {
    /// `of_group`: the function is `os.killpg`, and its number is a group's. Noted as kill(2) has it: negative.
    #[new]
    #[pyo3(signature = (function, of_group=false))]
    fn new(function: Py<PyAny>, of_group: bool) -> Self {
        Self { function, of_group }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let numbers = (
            args.get_item(0).and_then(|target| target.extract::<i64>()),
            args.get_item(1).and_then(|signal| signal.extract::<i64>()),
        );
        // Before the call: after a kill of oneself there is no later. Signal 0 only asks.
        if let (Ok(target), Ok(signal)) = numbers
            && signal != 0
        {
            let target = if self.of_group { -target } else { target };
            live::event(EventKind::SentSignal, target, signal, b"");
        }
        self.function.bind(py).call(args, kwargs)
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(py).getattr(name)
    }
}

/// A function that installs or removes signal handlers, made to do so behind ours: whoever it finds there is
/// the handler before us, and we step in front again afterwards.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct BehindUs {
    function: Py<PyAny>,
}

#[pymethods]
impl BehindUs {
    #[new]
    fn new(function: Py<PyAny>) -> Self {
        Self { function }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        lastwords_handler::stand_aside();
        let result = self.function.bind(py).call(args, kwargs);
        lastwords_handler::come_back();
        result
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(py).getattr(name)
    }
}

/// `os.execv` and `os.execve`: from here on the process is another program, and what it exits with is that
/// program's affair.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct NotedExec {
    function: Py<PyAny>,
}

#[pymethods]
impl NotedExec {
    #[new]
    fn new(function: Py<PyAny>) -> Self {
        Self { function }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        live::event(EventKind::Exec, 0, 0, b"");
        let failed = self.function.bind(py).call(args, kwargs);
        // Only a call that failed returns: it is the same program still.
        live::event(EventKind::Note, 0, 0, b"exec failed");
        failed
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(py).getattr(name)
    }
}

/// `_imp.create_dynamic`, which loads every extension module: what it loads is noted, and covered.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct NotedImport {
    function: Py<PyAny>,
}

#[pymethods]
impl NotedImport {
    #[new]
    fn new(function: Py<PyAny>) -> Self {
        Self { function }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let name = args.get_item(0).and_then(|spec| spec.getattr("name"));
        // Before the load: an initialiser that crashes is the event of interest.
        if let Ok(name) = name.and_then(|name| name.extract::<String>()) {
            live::event(EventKind::NativeImport, 0, 0, name.as_bytes());
        }
        let result = self.function.bind(py).call(args, kwargs);
        lastwords_handler::refresh();
        result
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(py).getattr(name)
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
    m.add_class::<NotedKill>()?;
    m.add_class::<BehindUs>()?;
    m.add_class::<NotedExec>()?;
    m.add_class::<NotedImport>()?;
    m.add_function(wrap_pyfunction!(note_collection, m)?)?;
    Ok(())
}
