//! The items of a DataLoader's batch, fetched one after the other, each named while it is worked on.
//!
//! In Python the naming cost as much as a small item itself.

use crate::crossing;
use crate::marks::{Batch, COLLATE, FETCH, index_and_key, tell};
use crate::record::{mark_begin, mark_next};
use lastwords_blackbox::clock::monotonic_ns;
use lastwords_blackbox::layout::NONE;
use lastwords_blackbox::live;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::atomic::{AtomicI64, Ordering};

/// What a worker shares with its supervisor: which item of its batch it is at, and since when.
struct Place {
    item: *const AtomicI64,
    began: *const AtomicI64,
}

// SAFETY: both point into memory that stays mapped for the worker's life, and are only reached as atomics.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    fn be_at(&self, position: usize, now: u64) {
        // SAFETY: see above.
        unsafe {
            (*self.item).store(position as i64, Ordering::Relaxed);
            (*self.began).store(now as i64, Ordering::Relaxed);
        }
    }
}

#[pyclass(module = "lastwords._native", frozen)]
struct ItemByItem {
    dataset: Py<PyAny>,
    on_error: Py<PyAny>,
    place: Place,
}

/// Nanoseconds of the slowest item so far, and its position.
#[derive(Clone, Copy)]
struct Slowest(u64, i64);

impl Slowest {
    fn or(self, nanoseconds: u64, position: usize) -> Self {
        if nanoseconds > self.0 {
            Self(nanoseconds, position as i64)
        } else {
            self
        }
    }
}

#[pymethods]
impl ItemByItem {
    /// `item` and `began`: addresses of two aligned 64-bit words, mapped for as long as the process lives.
    #[new]
    fn new(dataset: Py<PyAny>, on_error: Py<PyAny>, item: usize, began: usize) -> Self {
        Self {
            dataset,
            on_error,
            place: Place {
                item: std::ptr::with_exposed_provenance(item),
                began: std::ptr::with_exposed_provenance(began),
            },
        }
    }

    /// `[dataset[index] for index in indices]`, the nanoseconds of the slowest of them, and its position.
    #[pyo3(signature = (indices, /))]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyList>,
    ) -> PyResult<(Bound<'py, PyList>, u64, i64)> {
        let dataset = self.dataset.bind(py);
        let found = PyList::empty(py);
        let mut batch = Batch::default();
        let mut slowest = Slowest(0, -1);
        let mut before = monotonic_ns();
        for (position, index) in indices.iter().enumerate() {
            let (number, key) = index_and_key(&index);
            if position == 0 || number == NONE {
                if position > 0 {
                    live::end();
                }
                mark_begin(number, key.as_bytes(), FETCH);
            } else {
                mark_next(number, FETCH);
            }
            self.place.be_at(position, before);
            let value = crossing::call(|| dataset.get_item(&index)).inspect_err(|error| {
                tell(py, &self.on_error, error);
                live::end();
            })?;
            found.append(value)?;
            batch.add(number, key);
            let now = monotonic_ns();
            slowest = slowest.or(now - before, position);
            before = now;
        }
        live::end();
        live::begin_step(batch.take().as_bytes(), COLLATE);
        Ok((found, slowest.0, slowest.1))
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ItemByItem>()
}
