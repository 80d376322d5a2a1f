//! Marking items from inside other people's loops, without a Python frame of ours in their tracebacks.
//!
//! A job's output must be the same with and without lastwords, its tracebacks included. Callables written
//! in Python would add a line to each; these do not, and cost less as well.

use crate::crossing;
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
pub(crate) const COLLATE: u32 = 3;
pub(crate) const RUN: u32 = 5;
/// A key is shown on one line: that much of an index is kept.
const KEY_BYTES: usize = 120;
/// Indices of a batch that are named; the rest are counted.
const NAMED: usize = 8;

/// An index as it is shown: a number where it is one, else its repr, cut.
pub(crate) fn index_and_key(index: &Bound<'_, PyAny>) -> (i64, String) {
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
pub(crate) fn tell(py: Python<'_>, listener: &Py<PyAny>, error: &PyErr) {
    if error.is_instance_of::<PyException>(py) && !error.is_instance_of::<PyStopIteration>(py) {
        let value = error.value(py);
        // Before Python 3.12 a caught exception's traceback lies beside it and not yet on it.
        if let Some(traceback) = error.traceback(py) {
            let _ = value.setattr("__traceback__", traceback);
        }
        let _ = listener.call1(py, (value,));
    }
}

/// Stands before `fetch` of torch's fetcher of map-style datasets, as an attribute of that class, and names each index
/// while it is worked on.
///
/// It hands the method the indices through an iterator that marks each as it is asked for. A stand-in for the dataset
/// would do as well, but the interpreter runs `self.dataset[index]` without leaving its loop only for a class in Python:
/// that cost more than the mark.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct MarkedFetch {
    fetch: Py<PyAny>,
    on_error: Py<PyAny>,
}

#[pymethods]
impl MarkedFetch {
    #[new]
    fn new(fetch: Py<PyAny>, on_error: Py<PyAny>) -> Self {
        Self { fetch, on_error }
    }

    fn __get__(
        slf: Py<Self>,
        py: Python<'_>,
        fetcher: Py<PyAny>,
        _kind: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        if fetcher.is_none(py) {
            return Ok(slf.into_any());
        }
        Ok(Py::new(py, FetchOf { marked: slf, fetcher })?.into_any())
    }

    fn __call__<'py>(
        &self,
        fetcher: &Bound<'py, PyAny>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = fetcher.py();
        let fetch = self.fetch.bind(py);
        let collate = fetcher.getattr(intern!(py, "collate_fn"))?;
        let Ok(collate) = collate.cast::<MarkedCollate>() else {
            return crossing::call(|| fetch.call1((fetcher, index)));
        };
        collate.get().forget();
        let result = match item_by_item(fetcher, index)? {
            Some(indices) => {
                let collate = collate.clone().unbind();
                let indices = Bound::new(py, MarkedIndices { indices, collate })?;
                crossing::call(|| fetch.call1((fetcher, indices)))
            }
            None => {
                let (number, key) = index_and_key(index);
                mark_begin(number, key.as_bytes(), FETCH);
                crossing::call(|| fetch.call1((fetcher, index)))
            }
        };
        if let Err(error) = &result
            && live::current_phase() == FETCH
        {
            tell(py, &self.on_error, error);
            live::end();
        }
        result
    }
}

/// The same, for one fetcher and one call: a fetcher that held it would hold itself, and its dataset, for ever.
#[pyclass(module = "lastwords._native", frozen)]
struct FetchOf {
    marked: Py<MarkedFetch>,
    fetcher: Py<PyAny>,
}

#[pymethods]
impl FetchOf {
    fn __call__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.marked.get().__call__(self.fetcher.bind(py), index)
    }
}

/// The indices, if the method is about to go through them one by one; it decides in the same way.
fn item_by_item(fetcher: &Bound<'_, PyAny>, index: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyIterator>>> {
    let py = fetcher.py();
    if !fetcher.getattr(intern!(py, "auto_collation"))?.is_truthy()? {
        return Ok(None);
    }
    let dataset = fetcher.getattr(intern!(py, "dataset"))?;
    let whole = dataset.getattr_opt(intern!(py, "__getitems__"))?;
    if whole.is_some_and(|method| method.is_truthy().unwrap_or(true)) {
        return Ok(None);
    }
    Ok(index.try_iter().ok().map(Bound::unbind))
}

/// The indices of one batch. Each stays marked until the next is asked for.
#[pyclass(module = "lastwords._native", frozen)]
struct MarkedIndices {
    indices: Py<PyIterator>,
    collate: Py<MarkedCollate>,
}

#[pymethods]
impl MarkedIndices {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Option<PyResult<Bound<'py, PyAny>>> {
        let next = self.indices.bind(py).clone().next();
        if let Some(Ok(index)) = &next {
            let (number, key) = index_and_key(index);
            self.collate.get().begin(number, key);
        }
        next
    }
}

/// Stands in for the fetcher's collate function: names the batch that is collated.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct MarkedCollate {
    collate: Py<PyAny>,
    on_error: Py<PyAny>,
    batch: Mutex<Batch>,
}

impl MarkedCollate {
    /// What is left of a batch that failed.
    fn forget(&self) {
        if let Ok(mut batch) = self.batch.lock() {
            *batch = Batch::default();
        }
    }

    fn begin(&self, number: i64, key: String) {
        let Ok(mut batch) = self.batch.lock() else {
            return;
        };
        if batch.count > 0 && number != NONE {
            mark_next(number, FETCH);
        } else {
            if batch.count > 0 {
                live::end();
            }
            mark_begin(number, key.as_bytes(), FETCH);
        }
        batch.add(number, key);
    }
}

#[pymethods]
impl MarkedCollate {
    #[new]
    fn new(collate: Py<PyAny>, on_error: Py<PyAny>) -> Self {
        Self {
            collate,
            on_error,
            batch: Mutex::default(),
        }
    }

    fn __call__<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let key = self
            .batch
            .lock()
            .map(|mut batch| batch.take())
            .unwrap_or_default();
        live::end();
        live::begin_step(key.as_bytes(), COLLATE);
        let result = crossing::call(|| self.collate.bind(py).call1((data,)));
        if let Err(error) = &result {
            tell(py, &self.on_error, error);
        }
        live::rest();
        result
    }

    /// A collate function may have attributes that others read.
    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.collate.bind(py).getattr(name)
    }
}

/// The items of the batch at hand. Put into words only when it is collated: this is filled once per item.
#[derive(Default)]
pub(crate) struct Batch {
    named: [i64; NAMED],
    /// Of indices that are no numbers, by their place.
    keys: Vec<(usize, String)>,
    count: usize,
}

impl Batch {
    pub(crate) fn add(&mut self, index: i64, key: String) {
        if let Some(place) = self.named.get_mut(self.count) {
            *place = index;
            if index == NONE {
                self.keys.push((self.count, key));
            }
        }
        self.count += 1;
    }

    pub(crate) fn take(&mut self) -> String {
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

const PLAIN: [&str; 4] = [
    "range_iterator",
    "list_iterator",
    "tuple_iterator",
    "dict_keyiterator",
];

/// What `lastwords.each` gives: the items of any iterator, each marked by its number until the next is asked for.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct MarkedItems {
    items: Py<PyIterator>,
    /// Of a range, a list or another type of Python itself: its next item runs no code that could throw through us.
    are_plain: bool,
    on_error: Py<PyAny>,
    count: AtomicI64,
}

#[pymethods]
impl MarkedItems {
    #[new]
    fn new(items: Bound<'_, PyIterator>, on_error: Py<PyAny>) -> Self {
        Self {
            are_plain: is_plain(&items),
            items: items.unbind(),
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
        let mut items = self.items.bind(py).clone();
        let next = if self.are_plain {
            items.next()
        } else {
            crossing::call(|| items.next())
        };
        match &next {
            Some(Ok(_)) => {
                let number = self.count.load(Ordering::Relaxed);
                self.count.store(number + 1, Ordering::Relaxed);
                mark_next(number, RUN);
            }
            Some(Err(error)) => {
                tell(py, &self.on_error, error);
                live::end();
            }
            None => live::end(),
        }
        next
    }
}

fn is_plain(items: &Bound<'_, PyIterator>) -> bool {
    let kind = items.get_type();
    let is_builtin = kind.module().is_ok_and(|name| name == "builtins");
    is_builtin
        && kind
            .name()
            .is_ok_and(|name| PLAIN.iter().any(|known| name == *known))
}

/// A callable whose exceptions are told before they go on.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct Told {
    function: Py<PyAny>,
    on_error: Py<PyAny>,
}

#[pymethods]
impl Told {
    #[new]
    fn new(function: Py<PyAny>, on_error: Py<PyAny>) -> Self {
        Self { function, on_error }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let result = crossing::call(|| self.function.bind(py).call(args, kwargs));
        if let Err(error) = &result {
            tell(py, &self.on_error, error);
        }
        result
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<MarkedFetch>()?;
    m.add_class::<MarkedCollate>()?;
    m.add_class::<MarkedIterator>()?;
    m.add_class::<MarkedItems>()?;
    m.add_class::<Told>()?;
    Ok(())
}
