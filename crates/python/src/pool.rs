//! The worker's side of `concurrent.futures.ProcessPoolExecutor`: each call is an item from the moment it is
//! taken off the queue until its result is sent.
//!
//! All native. A pool's worker wakes for a hundred microseconds and sleeps again, so whatever runs around a task
//! runs with cold caches: the same marks set by three small Python functions cost 5 µs a task there, against 1 µs
//! in a loop.

use crate::calls::describe_call;
use crate::crossing;
use crate::record::mark_begin;
use lastwords_blackbox::layout::NONE;
use lastwords_blackbox::live;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyTuple};
use std::sync::Mutex;

const SEND: u32 = 4;
const RUN: u32 = 5;

/// What the adapter found in `concurrent.futures.process`, and whom to tell.
struct Pool {
    take: Py<PyAny>,
    process_chunk: Py<PyAny>,
    partial: Py<PyAny>,
    /// Told of each function that differs from the one before.
    note_called: Py<PyAny>,
    last_called: Mutex<Option<Py<PyAny>>>,
}

impl Pool {
    /// Names are interned: made anew for each task, six short strings cost 4 µs.
    fn mark(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = task.py();
        let function = task.getattr(intern!(py, "fn"))?;
        let index = task
            .getattr(intern!(py, "work_id"))?
            .extract::<i64>()
            .unwrap_or(NONE);
        match self.mapped(&function)? {
            Some(mapped) => {
                let args = task.getattr(intern!(py, "args"))?.cast_into::<PyTuple>()?;
                let chunk = MarkedChunk::new(mapped, &args.get_item(0)?, index)?;
                self.tell_called(chunk.function.bind(py));
                task.setattr(intern!(py, "args"), (Bound::new(py, chunk)?,))
            }
            None => {
                self.tell_called(&function);
                let function = function.unbind();
                task.setattr(intern!(py, "fn"), Bound::new(py, MarkedCall { function, index })?)
            }
        }
    }

    /// `map` sends chunks, as `partial(_process_chunk, function)`: the function, if this is one.
    fn mapped<'py>(&self, function: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = function.py();
        if !function.get_type().is(&self.partial)
            || !function.getattr(intern!(py, "func"))?.is(&self.process_chunk)
        {
            return Ok(None);
        }
        let args = function.getattr(intern!(py, "args"))?.cast_into::<PyTuple>()?;
        Ok(Some(args.get_item(0)?))
    }

    fn tell_called(&self, function: &Bound<'_, PyAny>) {
        let Ok(mut last) = self.last_called.try_lock() else {
            return;
        };
        if !last.as_ref().is_some_and(|known| known.is(function)) {
            *last = Some(function.clone().unbind());
            let _ = self.note_called.call1(function.py(), (function,));
        }
    }
}

/// Stands in for `_SafeQueue.get`, which nobody calls but the workers.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct TakesTasks {
    pool: Pool,
}

#[pymethods]
impl TakesTasks {
    #[new]
    fn new(take: Py<PyAny>, process_chunk: Py<PyAny>, partial: Py<PyAny>, note_called: Py<PyAny>) -> Self {
        Self {
            pool: Pool {
                take,
                process_chunk,
                partial,
                note_called,
                last_called: Mutex::default(),
            },
        }
    }

    fn __get__<'py>(
        slf: Bound<'py, Self>,
        queue: Bound<'py, PyAny>,
        _owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if queue.is_none() {
            return Ok(slf.into_any()); // asked of the class
        }
        let bound = BoundTake {
            takes: slf.clone().unbind(),
            queue: queue.unbind(),
        };
        Ok(Bound::new(slf.py(), bound)?.into_any())
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.pool.take.bind(py).getattr(name)
    }
}

#[pyclass(module = "lastwords._native", frozen)]
struct BoundTake {
    takes: Py<TakesTasks>,
    queue: Py<PyAny>,
}

#[pymethods]
impl BoundTake {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        live::end(); // the result before it has been sent
        let pool = &self.takes.get().pool;
        let task = if args.is_empty() {
            pool.take.bind(py).call((&self.queue,), kwargs)?
        } else {
            let mut with_queue = vec![self.queue.bind(py).clone()];
            with_queue.extend(args.iter());
            pool.take.bind(py).call(PyTuple::new(py, with_queue)?, kwargs)?
        };
        if !task.is_none() {
            // A pool that is built otherwise than we know goes unmarked, and works.
            let _ = pool.mark(&task);
        }
        Ok(task)
    }
}

/// A submitted call: the item until it returns, then what is being sent.
#[pyclass(module = "lastwords._native", frozen)]
struct MarkedCall {
    function: Py<PyAny>,
    index: i64,
}

#[pymethods]
impl MarkedCall {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = self.function.bind(py);
        let line = describe_call(function, args, kwargs.map(Bound::as_any));
        mark_begin(self.index, line.as_bytes(), RUN);
        let result = crossing::call(|| function.call(args, kwargs));
        if result.is_ok() {
            live::phase(SEND);
        }
        result
    }
}

/// The argument tuples of a chunk: each is the item until the next is asked for.
#[pyclass(module = "lastwords._native", frozen)]
struct MarkedChunk {
    calls: Py<PyIterator>,
    function: Py<PyAny>,
    index: i64,
    is_single: bool,
}

impl MarkedChunk {
    /// In a chunk of several the task's number says nothing about one call: its arguments do.
    fn new(function: Bound<'_, PyAny>, chunk: &Bound<'_, PyAny>, index: i64) -> PyResult<Self> {
        let is_single = chunk.len()? == 1;
        Ok(Self {
            calls: chunk.try_iter()?.unbind(),
            function: function.unbind(),
            index: if is_single { index } else { NONE },
            is_single,
        })
    }
}

#[pymethods]
impl MarkedChunk {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Option<PyResult<Bound<'py, PyAny>>> {
        let next = crossing::call(|| self.calls.bind(py).clone().next());
        match &next {
            Some(Ok(args)) => {
                let line = describe_call(self.function.bind(py), args, None);
                live::end();
                mark_begin(self.index, line.as_bytes(), RUN);
            }
            Some(Err(_)) => {}
            None if self.is_single => live::phase(SEND),
            None => {
                live::end();
                live::begin_step(b"the results of a chunk", SEND);
            }
        }
        next
    }
}

/// For a worker that leaves in order after its last task: what it sent has arrived.
#[pyfunction]
fn end_sent() {
    if live::current_phase() == SEND {
        live::end();
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<TakesTasks>()?;
    m.add_function(wrap_pyfunction!(end_sent, m)?)?;
    Ok(())
}
