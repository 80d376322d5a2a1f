//! Items of a `map` that were handed to a worker together, run one after the other.
//!
//! Each is a task in all but its transport: named by its call, begun only if the supervisor has not taken it back, and
//! its result is published before the next one begins. Native, because that took 8 µs of Python for each.

use crate::calls::describe_call;
use crate::crossing;
use crate::marks::RUN;
use crate::record::mark_begin;
use crate::ring::Ring;
use crate::survive::ItemWords;
use lastwords_blackbox::clock::monotonic_ns;
use lastwords_blackbox::live;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// `publish(value, nanoseconds)` takes results that are not plain, `fail(error, nanoseconds)` what an item raised; `bell()`
/// tells the supervisor that there is news, every `bell_ns` at most.
#[pyclass(module = "lastwords._native", frozen)]
struct Stretches {
    words: Py<ItemWords>,
    ring: Py<Ring>,
    publish: Py<PyAny>,
    fail: Py<PyAny>,
    bell: Py<PyAny>,
    bell_ns: u64,
}

#[pymethods]
impl Stretches {
    #[new]
    fn new(
        words: Py<ItemWords>,
        ring: Py<Ring>,
        publish: Py<PyAny>,
        fail: Py<PyAny>,
        bell: Py<PyAny>,
        bell_ns: u64,
    ) -> Self {
        Self {
            words,
            ring,
            publish,
            fail,
            bell,
            bell_ns,
        }
    }

    /// Up to the first item that the supervisor has taken back. `rows`: each item is the tuple of its arguments. `place`: the
    /// number of the task, the index of its first item, and when the bell was rung last.
    #[pyo3(signature = (work, items, rows, place, /))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        work: &Bound<'py, PyAny>,
        items: &Bound<'py, PyList>,
        rows: bool,
        place: (i64, i64, u64),
    ) -> PyResult<()> {
        let (number, label, mut rung) = place;
        let mut began = monotonic_ns();
        for (position, item) in items.iter().enumerate() {
            if !self.words.get().begin(number, position, began) {
                break;
            }
            let args = if rows {
                item.cast_into::<PyTuple>()?
            } else {
                PyTuple::new(py, [item])?
            };
            let line = describe_call(work, args.as_any(), None);
            mark_begin(label.wrapping_add(position as i64), line.as_bytes(), RUN);
            let outcome = crossing::call(|| work.call1(args));
            let now = monotonic_ns();
            self.say(py, number, outcome, now.saturating_sub(began))?;
            live::end();
            if now.saturating_sub(rung) > self.bell_ns {
                // What an interrupt raises there is for no item: the job hears of it as well, and tells us when to stop.
                let _ = self.bell.call0(py);
                rung = now;
            }
            began = now;
        }
        Ok(())
    }
}

impl Stretches {
    fn say(
        &self,
        py: Python<'_>,
        number: i64,
        outcome: PyResult<Bound<'_, PyAny>>,
        took: u64,
    ) -> PyResult<()> {
        match outcome {
            Ok(value) if self.ring.get().write_plain(number, took as i64, &value) => {}
            Ok(value) => {
                self.publish.call1(py, (value, took))?;
            }
            Err(error) => {
                self.fail.call1(py, (error.into_value(py), took))?; // with its traceback
            }
        }
        Ok(())
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Stretches>()
}
