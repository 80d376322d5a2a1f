//! The worker's side of `multiprocessing.Pool`: the task at hand is its item until it asks for the next.

use crate::calls::{Called, describe_call};
use crate::crossing;
use crate::marks::RUN;
use crate::record::mark_begin;
use lastwords_blackbox::layout::NONE;
use lastwords_blackbox::live;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Stands before the queue of tasks in one worker. Everything but `get` is the queue's own.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct MarkedQueue {
    queue: Py<PyAny>,
    take: Py<PyAny>,
    /// What `map` and `starmap` have called in the worker, with a function and a chunk.
    mapstar: Py<PyAny>,
    starmapstar: Py<PyAny>,
    called: Called,
}

#[pymethods]
impl MarkedQueue {
    #[new]
    fn new(
        queue: &Bound<'_, PyAny>,
        mapstar: Py<PyAny>,
        starmapstar: Py<PyAny>,
        note_called: Py<PyAny>,
    ) -> PyResult<Self> {
        Ok(Self {
            take: queue.getattr("get")?.unbind(),
            queue: queue.clone().unbind(),
            mapstar,
            starmapstar,
            called: Called::new(note_called),
        })
    }

    fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        live::end(); // the result before it has been sent
        let task = crossing::call(|| self.take.bind(py).call0())?;
        // A pool that is built otherwise than we know goes unmarked, and works.
        let _ = self.mark(&task);
        Ok(task)
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.queue.bind(py).getattr(name)
    }
}

type Task<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyTuple>,
    Bound<'py, PyDict>,
);

impl MarkedQueue {
    fn mark(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        if task.is_none() {
            return Ok(()); // the pool closes
        }
        let (_job, index, function, args, kwargs): Task<'_> = task.extract()?;
        let is_starred = function.is(&self.starmapstar);
        if is_starred || function.is(&self.mapstar) {
            return self.mark_chunk(&index, &args, is_starred);
        }
        self.called.tell(&function);
        let line = describe_call(&function, args.as_any(), Some(kwargs.as_any()));
        mark_begin(index.extract().unwrap_or(NONE), line.as_bytes(), RUN);
        Ok(())
    }

    /// A function, and the arguments that it is called with in turn.
    fn mark_chunk(
        &self,
        index: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        is_starred: bool,
    ) -> PyResult<()> {
        let (function, calls): (Bound<'_, PyAny>, Bound<'_, PyTuple>) = args.get_item(0)?.extract()?;
        self.called.tell(&function);
        let first = if is_starred {
            calls.get_item(0)?
        } else {
            calls.get_slice(0, 1).into_any()
        };
        let first = describe_call(&function, &first, None);
        let count = calls.len();
        if count == 1 {
            mark_begin(NONE, first.as_bytes(), RUN);
        } else {
            let line = format!("chunk {index} of {count} calls, the first {first}");
            mark_begin(NONE, line.as_bytes(), RUN);
        }
        Ok(())
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<MarkedQueue>()
}
