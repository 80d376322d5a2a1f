//! Marking items from inside other people's loops, without a Python frame of ours in their tracebacks.
//!
//! A job's output must be the same with and without lastwords, its tracebacks included. Callables written
//! in Python would add a line to each; these do not, and cost less as well.

use crate::record::{mark_begin, mark_next};
use lastwords_blackbox::layout::NONE;
use lastwords_blackbox::live;
use pyo3::exceptions::{PyException, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyIterator, PyTuple};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

pub(crate) const FETCH: u32 = 1;
const COLLATE: u32 = 3;
const RUN: u32 = 5;
/// A key is shown on one line: that much of an index is kept.
const KEY_BYTES: usize = 120;
/// Indices of a batch that are named; the rest are counted.
const NAMED: usize = 8;

/// An index as it is shown: a number where it is one, else its repr, cut.
fn index_and_key(index: &Bound<'_, PyAny>) -> (i64, String) {
    if index.is_instance_of::<PyInt>()
        && let Ok(number) = index.extract::<i64>()
    {
        return (number, String::new());
    }
    let key = index
        .repr()
        .map_or_else(|_| "?".to_owned(), |text| text.to_string_lossy().into_owned());
    (NONE, key.chars().take(KEY_BYTES).collect())
}

/// Hands an exception to the recorder. Whatever goes wrong there must not replace the user's exception.
fn tell(py: Python<'_>, listener: &Py<PyAny>, error: &PyErr) {
    if error.is_instance_of::<PyException>(py) && !error.is_instance_of::<PyStopIteration>(py) {
        let value = error.value(py);
        // Before Python 3.12 a caught exception's traceback lies beside it and not yet on it.
        if let Some(traceback) = error.traceback(py) {
            let _ = value.setattr("__traceback__", traceback);
        }
        let _ = listener.call1(py, (value,));
    }
}

/// Stands in for a dataset inside torch's fetcher: names each index while it is worked on.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct MarkedDataset {
    dataset: Py<PyAny>,
    collate: Py<PyAny>,
    on_error: Py<PyAny>,
    batch: Mutex<Batch>,
}

/// The items of the batch at hand. Put into words only when it is collated: this is filled once per item.
#[derive(Default)]
struct Batch {
    named: [i64; NAMED],
    /// Of indices that are no numbers, by their place.
    keys: Vec<(usize, String)>,
    count: usize,
}

impl Batch {
    fn add(&mut self, index: i64, key: String) {
        if let Some(place) = self.named.get_mut(self.count) {
            *place = index;
            if index == NONE {
                self.keys.push((self.count, key));
            }
        }
        self.count += 1;
    }

    fn take(&mut self) -> String {
        let mut text = format!("batch of {}: ", self.count);
        for (place, number) in self.named.iter().take(self.count).enumerate() {
            let separator = if place > 0 { ", " } else { "" };
            let _ = match self.keys.iter().find(|(keyed, _)| *keyed == place) {
                Some((_, key)) => write!(text, "{separator}{key}"),
                None => write!(text, "{separator}{number}"),
            };
        }
        if self.count > NAMED {
            text.push_str(", …");
        }
        *self = Self::default();
        text
    }
}

#[pymethods]
impl MarkedDataset {
    #[new]
    fn new(dataset: Py<PyAny>, collate: Py<PyAny>, on_error: Py<PyAny>) -> Self {
        Self {
            dataset,
            collate,
            on_error,
            batch: Mutex::default(),
        }
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (number, key) = index_and_key(index);
        mark_begin(number, key.as_bytes(), FETCH);
        match self.dataset.bind(py).get_item(index) {
            Ok(value) => {
                live::end();
                if let Ok(mut batch) = self.batch.lock() {
                    batch.add(number, key);
                }
                Ok(value)
            }
            Err(error) => {
                tell(py, &self.on_error, &error);
                live::end();
                Err(error)
            }
        }
    }

    /// Called by the fetcher in place of the user's collate function.
    #[pyo3(name = "collate")]
    fn collate_marked<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let key = self
            .batch
            .lock()
            .map(|mut batch| batch.take())
            .unwrap_or_default();
        live::begin_step(key.as_bytes(), COLLATE);
        let result = self.collate.bind(py).call1((data,));
        if let Err(error) = &result {
            tell(py, &self.on_error, error);
        }
        live::rest();
        result
    }

    /// The dataset's own `__getitems__` is wrapped, everything else is the dataset's.
    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let value = self.dataset.bind(py).getattr(name)?;
        if name == "__getitems__" && !value.is_none() {
            let marked = Told {
                function: value.unbind(),
                on_error: self.on_error.clone_ref(py),
                phase: Some(FETCH),
            };
            return Ok(Bound::new(py, marked)?.into_any());
        }
        Ok(value)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.dataset.bind(py).len()
    }
}

/// Stands in for the iterator of an iterable dataset: the n-th sample of this worker is item n.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct MarkedIterator {
    iterator: Py<PyAny>,
    on_error: Py<PyAny>,
    count: AtomicI64,
}

#[pymethods]
impl MarkedIterator {
    #[new]
    fn new(iterator: Py<PyAny>, on_error: Py<PyAny>) -> Self {
        Self {
            iterator,
            on_error,
            count: AtomicI64::new(0),
        }
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        mark_begin(number, b"", FETCH);
        let result = self.iterator.bind(py).call_method0(intern!(py, "__next__"));
        if let Err(error) = &result {
            tell(py, &self.on_error, error);
        }
        live::end();
        result
    }
}

/// What `lastwords.each` gives: the items of any iterator, each marked by its number until the next is asked for.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct MarkedItems {
    items: Py<PyIterator>,
    on_error: Py<PyAny>,
    count: AtomicI64,
}

#[pymethods]
impl MarkedItems {
    #[new]
    fn new(items: Py<PyIterator>, on_error: Py<PyAny>) -> Self {
        Self {
            items,
            on_error,
            count: AtomicI64::new(0),
        }
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Option<PyResult<Bound<'py, PyAny>>> {
        // The item before it stays marked while the next one is made: a source that dies making item 6 is
        // found "after item 5", and an iterator marks nothing while nobody asks it.
        let next = self.items.bind(py).clone().next();
        match &next {
            Some(Ok(_)) => mark_next(self.count.fetch_add(1, Ordering::Relaxed), RUN),
            Some(Err(error)) => {
                tell(py, &self.on_error, error);
                live::end();
            }
            None => live::end(),
        }
        next
    }
}

/// A callable whose exceptions are told before they go on. With a phase, its first argument is an item.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct Told {
    function: Py<PyAny>,
    on_error: Py<PyAny>,
    phase: Option<u32>,
}

#[pymethods]
impl Told {
    #[new]
    fn new(function: Py<PyAny>, on_error: Py<PyAny>) -> Self {
        Self {
            function,
            on_error,
            phase: None,
        }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let (Some(phase), Ok(first)) = (self.phase, args.get_item(0)) {
            let (number, key) = index_and_key(&first);
            mark_begin(number, key.as_bytes(), phase);
        }
        let result = self.function.bind(py).call(args, kwargs);
        if let Err(error) = &result {
            tell(py, &self.on_error, error);
        }
        if self.phase.is_some() {
            live::end();
        }
        result
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<MarkedDataset>()?;
    m.add_class::<MarkedIterator>()?;
    m.add_class::<MarkedItems>()?;
    m.add_class::<Told>()?;
    Ok(())
}
