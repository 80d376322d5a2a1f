//! The worker's side of `concurrent.futures.ProcessPoolExecutor`: each call is an item from the moment it is
//! taken off the queue until its result is sent.
//!
//! Nothing stands around a task. A pool's worker wakes for a hundred microseconds and sleeps again, so whatever is done for
//! a task is done with cold caches: standing around `get` and the call, all native, cost 7,000 instructions and 2 to 5 µs
//! a task. So the two small objects that a task travels in, there and back, are ours, and note what happens to them: a call
//! begins when its function is taken out, it is being sent when its result is pickled, and it is over when the worker lets
//! go of it. In between the interpreter calls the user's function itself. They are made, pickled and unpickled in less
//! time than the standard library's classes in Python, which pays for the marks.
//!
//! Their pickles name the standard library's classes, so either side may be without lastwords.

use crate::calls::{Called, describe_call};
use crate::crossing;
use crate::marks::RUN;
use crate::record::mark_begin;
use lastwords_blackbox::layout::NONE;
use lastwords_blackbox::live;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyIterator, PyTuple, PyType};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SEND: u32 = 4;

/// What the adapter found in `concurrent.futures.process`, and whom to tell.
struct Pool {
    call_item: Py<PyType>,
    result_item: Py<PyType>,
    process_chunk: Py<PyAny>,
    partial: Py<PyAny>,
    called: Called,
}

static POOL: PyOnceLock<Pool> = PyOnceLock::new();

impl Pool {
    /// `map` sends chunks, as `partial(_process_chunk, function)`: the function, if this is one.
    fn mapped<'py>(&self, function: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let py = function.py();
        if !function.get_type().is(&self.partial)
            || !function
                .getattr(intern!(py, "func"))
                .ok()?
                .is(&self.process_chunk)
        {
            return None;
        }
        let args = function.getattr(intern!(py, "args")).ok()?;
        args.cast::<PyTuple>().ok()?.get_item(0).ok()
    }
}

/// An object without attributes, as pickle makes it before it fills in what a class in Python had: the other side is
/// without lastwords, and the standard library's class reads what it wrote.
fn blank<'py>(py: Python<'py>, kind: impl Fn(&Pool) -> &Py<PyType>) -> PyResult<Bound<'py, PyAny>> {
    let Some(pool) = POOL.get(py) else {
        return Ok(py.None().into_bound(py));
    };
    let kind = kind(pool).bind(py);
    kind.call_method1(intern!(py, "__new__"), (kind,))
}

/// The calls that began in this process are counted, and the one at hand is known by its number; 0 between calls. Written
/// by whoever holds the GIL.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static AT_HAND: AtomicU64 = AtomicU64::new(0);

fn end_call(number: u64) {
    if number != 0 && AT_HAND.load(Ordering::Relaxed) == number {
        AT_HAND.store(0, Ordering::Relaxed);
        live::end();
    }
}

/// A call on its way to a worker: `_CallItem`.
#[pyclass(name = "_CallItem", module = "concurrent.futures.process", frozen)]
pub(crate) struct CallItem {
    #[pyo3(get)]
    work_id: Py<PyAny>,
    function: Py<PyAny>,
    arguments: Py<PyAny>,
    #[pyo3(get)]
    kwargs: Py<PyAny>,
    /// Among the calls that began in this process; 0: it has not begun here.
    number: AtomicU64,
    is_of_several: AtomicBool,
}

#[pymethods]
impl CallItem {
    #[new]
    #[pyo3(signature = (work_id=None, r#fn=None, args=None, kwargs=None))]
    fn make<'py>(
        py: Python<'py>,
        work_id: Option<Py<PyAny>>,
        r#fn: Option<Py<PyAny>>,
        args: Option<Py<PyAny>>,
        kwargs: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (Some(work_id), Some(function), Some(arguments), Some(kwargs)) = (work_id, r#fn, args, kwargs)
        else {
            return blank(py, |pool| &pool.call_item);
        };
        let item = Self {
            work_id,
            function,
            arguments,
            kwargs,
            number: AtomicU64::new(0),
            is_of_several: AtomicBool::new(false),
        };
        Ok(Bound::new(py, item)?.into_any())
    }

    /// Whoever takes the function out is about to call it: nobody but a worker does.
    #[getter(r#fn)]
    fn function(&self, py: Python<'_>) -> Py<PyAny> {
        if self.number.load(Ordering::Relaxed) == 0 {
            // A pool that is built otherwise than we know goes unmarked, and works.
            let _ = self.begin(py);
        }
        self.function.clone_ref(py)
    }

    /// In a chunk of several the calls are the items, one after the other.
    #[getter]
    fn args<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.is_of_several.load(Ordering::Relaxed)
            && let Some((function, calls)) = self.chunk(py)
        {
            let chunk = MarkedChunk {
                calls: calls.try_iter()?.unbind(),
                function: function.unbind(),
            };
            return Ok(PyTuple::new(py, [Bound::new(py, chunk)?])?.into_any());
        }
        Ok(self.arguments.bind(py).clone())
    }

    fn __reduce_ex__<'py>(
        slf: &Bound<'py, Self>,
        _protocol: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyTuple>)> {
        let item = slf.get();
        let fields = [&item.work_id, &item.function, &item.arguments, &item.kwargs];
        Ok((slf.get_type(), PyTuple::new(slf.py(), fields)?))
    }
}

impl CallItem {
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        let number = BEGUN.fetch_add(1, Ordering::Relaxed) + 1;
        self.number.store(number, Ordering::Relaxed);
        if AT_HAND.swap(number, Ordering::Relaxed) != 0 {
            live::end(); // somebody holds on to the call before it
        }
        let Some(pool) = POOL.get(py) else {
            return Ok(());
        };
        let index = self.work_id.extract::<i64>(py).unwrap_or(NONE);
        let function = self.function.bind(py);
        let line = match self.chunk(py) {
            None => {
                pool.called.tell(function);
                describe_call(function, self.arguments.bind(py), Some(self.kwargs.bind(py)))
            }
            Some((mapped, calls)) => {
                pool.called.tell(&mapped);
                if calls.len() > 1 {
                    self.is_of_several.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                describe_call(&mapped, &calls.get_item(0)?, None)
            }
        };
        mark_begin(index, line.as_bytes(), RUN);
        Ok(())
    }

    /// What `map` sends: its function and the arguments of each call.
    fn chunk<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let function = POOL.get(py)?.mapped(self.function.bind(py))?;
        let calls = self.arguments.bind(py).cast::<PyTuple>().ok()?.get_item(0).ok()?;
        Some((function, calls.cast_into().ok()?))
    }
}

/// The worker lets go of a call as soon as its result is sent.
impl Drop for CallItem {
    fn drop(&mut self) {
        end_call(*self.number.get_mut());
    }
}

/// The argument tuples of a chunk: each is the item until the next is asked for. The task's number says nothing about one
/// call of several: its arguments do.
#[pyclass(module = "lastwords._native", frozen)]
struct MarkedChunk {
    calls: Py<PyIterator>,
    function: Py<PyAny>,
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
                mark_begin(NONE, line.as_bytes(), RUN);
            }
            Some(Err(_)) => {}
            None => {
                live::end();
                live::begin_step(b"the results of a chunk", SEND);
            }
        }
        next
    }
}

/// What came of a call, on its way back: `_ResultItem`.
#[pyclass(name = "_ResultItem", module = "concurrent.futures.process", frozen)]
pub(crate) struct ResultItem {
    #[pyo3(get)]
    work_id: Py<PyAny>,
    #[pyo3(get)]
    exception: Py<PyAny>,
    #[pyo3(get)]
    result: Py<PyAny>,
    #[pyo3(get)]
    exit_pid: Py<PyAny>,
    is_failure: bool,
    is_sent: AtomicBool,
}

#[pymethods]
impl ResultItem {
    #[new]
    #[pyo3(signature = (work_id=None, exception=None, result=None, exit_pid=None))]
    fn make<'py>(
        py: Python<'py>,
        work_id: Option<Py<PyAny>>,
        exception: Option<Py<PyAny>>,
        result: Option<Py<PyAny>>,
        exit_pid: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(work_id) = work_id else {
            return blank(py, |pool| &pool.result_item);
        };
        let item = Self {
            work_id,
            is_failure: exception.is_some(),
            exception: exception.unwrap_or_else(|| py.None()),
            result: result.unwrap_or_else(|| py.None()),
            exit_pid: exit_pid.unwrap_or_else(|| py.None()),
            is_sent: AtomicBool::new(false),
        };
        Ok(Bound::new(py, item)?.into_any())
    }

    /// Whoever pickles a result is about to send it.
    fn __reduce_ex__<'py>(
        slf: &Bound<'py, Self>,
        _protocol: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyTuple>)> {
        let (py, item) = (slf.py(), slf.get());
        if AT_HAND.load(Ordering::Relaxed) != 0 {
            item.is_sent.store(true, Ordering::Relaxed);
            live::phase(SEND);
        }
        let fields = [&item.work_id, &item.exception, &item.result, &item.exit_pid];
        // Python 3.10 knows no `exit_pid`.
        let known = if item.exit_pid.is_none(py) { 3 } else { 4 };
        Ok((slf.get_type(), PyTuple::new(py, &fields[..known])?))
    }
}

/// A call that failed ends here, a moment early: whoever showed its traceback with all variables (sentry, loguru) holds on to
/// the call itself for as long as the worker's frame lives, before Python 3.13.
impl Drop for ResultItem {
    fn drop(&mut self) {
        if self.is_failure && *self.is_sent.get_mut() {
            end_call(AT_HAND.load(Ordering::Relaxed));
        }
    }
}

/// The two classes that stand in for `_CallItem` and `_ResultItem`.
#[pyfunction]
fn pool_items<'py>(
    py: Python<'py>,
    call_item: Py<PyType>,
    result_item: Py<PyType>,
    process_chunk: Py<PyAny>,
    partial: Py<PyAny>,
    note_called: Py<PyAny>,
) -> (Bound<'py, PyType>, Bound<'py, PyType>) {
    let _ = POOL.set(
        py,
        Pool {
            call_item,
            result_item,
            process_chunk,
            partial,
            called: Called::new(note_called),
        },
    );
    (py.get_type::<CallItem>(), py.get_type::<ResultItem>())
}

/// For a worker that leaves in order after its last task: what it sent has arrived.
#[pyfunction]
fn end_sent() {
    if live::current_phase() == SEND {
        live::end();
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(pool_items, m)?)?;
    m.add_function(wrap_pyfunction!(end_sent, m)?)?;
    Ok(())
}
