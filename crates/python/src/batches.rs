//! The items of a DataLoader's batch: each named while it is worked on, and then taken apart into columns.
//!
//! In Python the naming cost as much as a small item itself, and so did the columns.

use crate::marks::{Batch, COLLATE, FETCH, index_and_key};
use crate::record::mark_begin;
use crate::survive::ItemWords;
use lastwords_blackbox::clock::monotonic_ns;
use lastwords_blackbox::layout::NONE;
use lastwords_blackbox::live;
use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyFloat, PyInt, PyList, PyTuple};

/// Hands out the indices of a batch, each named until the next is asked for; after the last, the batch is.
///
/// An iterator, and no loop of its own: the interpreter runs `dataset[index]` of a class in Python without leaving its
/// own loop, and a call from here cost more than the name.
#[pyclass(module = "lastwords._native")]
struct NamedIndices {
    indices: Py<PyList>,
    words: Py<ItemWords>,
    batch: Batch,
    next: usize,
    since: u64,
    slowest: (u64, i64),
}

impl NamedIndices {
    /// Of the item that was handed out last.
    fn note_time(&mut self, now: u64) {
        let nanoseconds = now.saturating_sub(self.since);
        if self.next > 0 && nanoseconds > self.slowest.0 {
            self.slowest = (nanoseconds, self.next as i64 - 1);
        }
        self.since = now;
    }

    fn name(&mut self, index: &Bound<'_, PyAny>, now: u64) {
        let (number, key) = index_and_key(index);
        if self.next > 0 && number != NONE {
            live::advance_at(number, FETCH, now);
            lastwords_handler::refresh_if_due(now);
        } else {
            if self.next > 0 {
                live::end();
            }
            mark_begin(number, key.as_bytes(), FETCH);
        }
        self.batch.add(number, key);
    }
}

#[pymethods]
impl NamedIndices {
    #[new]
    fn new(indices: Py<PyList>, words: Py<ItemWords>) -> Self {
        Self {
            indices,
            words,
            batch: Batch::default(),
            next: 0,
            since: 0,
            slowest: (0, -1),
        }
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let now = monotonic_ns();
        self.note_time(now);
        let indices = self.indices.bind(py);
        let Some(index) = (self.next < indices.len())
            .then(|| indices.get_item(self.next).ok())
            .flatten()
        else {
            live::end();
            live::begin_step(self.batch.take().as_bytes(), COLLATE);
            return None;
        };
        self.name(&index, now);
        self.words.get().be_at(self.next, now);
        self.next += 1;
        Some(index)
    }

    /// Nanoseconds of the slowest item so far, and its position (-1: there was none).
    #[getter]
    fn slowest(&self) -> (u64, i64) {
        self.slowest
    }
}

/// Tuples or lists, part by part. None: they are not all of that type and of one length.
#[pyfunction]
#[pyo3(signature = (samples, /))]
fn columns<'py>(samples: &Bound<'py, PyList>) -> PyResult<Option<Vec<Bound<'py, PyTuple>>>> {
    let first = samples.get_item(0)?;
    if first.is_exact_instance_of::<PyTuple>() {
        taken_apart::<PyTuple>(samples, |row| row.len(), |row, part| row.get_item(part))
    } else {
        taken_apart::<PyList>(samples, |row| row.len(), |row, part| row.get_item(part))
    }
}

fn taken_apart<'py, T: PyTypeInfo>(
    samples: &Bound<'py, PyList>,
    length_of: impl Fn(&Bound<'py, T>) -> usize,
    part_of: impl Fn(&Bound<'py, T>, usize) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Option<Vec<Bound<'py, PyTuple>>>> {
    let exact = samples.iter().map(|sample| sample.cast_into_exact::<T>().ok());
    let Some(rows) = exact.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let width = rows.first().map_or(0, &length_of);
    if rows.iter().any(|row| length_of(row) != width) {
        return Ok(None);
    }
    let column = |part| {
        let parts = rows
            .iter()
            .map(|row| part_of(row, part))
            .collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(samples.py(), parts)
    };
    (0..width).map(column).collect::<PyResult<_>>().map(Some)
}

/// A column of Python's own numbers as those of the machine: `q` (int), `d` (float) or `?` (bool), and the bytes.
///
/// None: they are not all of one such type, or one is too large.
#[pyfunction]
#[pyo3(signature = (column, /))]
fn numbers<'py>(column: &Bound<'py, PyAny>) -> Option<(char, Bound<'py, PyByteArray>)> {
    let values: Vec<Bound<'py, PyAny>> = match column.cast::<PyTuple>() {
        Ok(column) => column.iter().collect(),
        Err(_) => column.cast::<PyList>().ok()?.iter().collect(),
    };
    let first = values.first()?;
    let (kind, bytes) = if first.is_exact_instance_of::<PyInt>() {
        ('q', machine_bytes::<PyInt, i64, 8>(&values, i64::to_ne_bytes)?)
    } else if first.is_exact_instance_of::<PyFloat>() {
        ('d', machine_bytes::<PyFloat, f64, 8>(&values, f64::to_ne_bytes)?)
    } else {
        (
            '?',
            machine_bytes::<PyBool, bool, 1>(&values, |value| [u8::from(value)])?,
        )
    };
    Some((kind, PyByteArray::new(column.py(), &bytes)))
}

/// None: one is not of exactly that type, or does not fit.
fn machine_bytes<'py, T: PyTypeInfo, V: for<'a> FromPyObject<'a, 'py>, const N: usize>(
    values: &[Bound<'py, PyAny>],
    bytes_of: impl Fn(V) -> [u8; N],
) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(N * values.len());
    for value in values {
        if !value.is_exact_instance_of::<T>() {
            return None;
        }
        bytes.extend_from_slice(&bytes_of(value.extract().ok()?));
    }
    Some(bytes)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<NamedIndices>()?;
    m.add_function(wrap_pyfunction!(columns, m)?)?;
    m.add_function(wrap_pyfunction!(numbers, m)?)
}
