//! Finished results on their way from a worker to its supervisor, in memory that both have mapped.
//!
//! Native, because both sides pay for it with every task: in Python a record cost 0.9 µs to write and 0.5 µs to read.

use crate::survive::Mapping;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList};
use std::ptr;
use std::sync::atomic::Ordering;

/// Of a record: length of the payload, task number << 3 | kind, nanoseconds.
const HEADER: usize = 24;
/// In place of a length: the next record is at the ring's beginning.
const WRAP: i64 = -1;
const KIND_BITS: u32 = 3;
const PART: i64 = 3;
/// One result of a stretch, as two words. The reader makes a PART of neighbours.
const PLAIN: i64 = 6;
const PLAIN_LENGTH: usize = 16;

/// One writer, one reader, no lock: WRITTEN moves when a record is complete, so a torn one does not exist.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct Ring {
    memory: Mapping,
    start: usize,
    length: usize,
    written: usize,
    read: usize,
}

#[pymethods]
impl Ring {
    /// At `at` of a memfd lies a page of words, `written` and `read` among them; behind it `length` bytes of records.
    #[new]
    fn new(descriptor: i32, at: i64, length: usize, written: usize, read: usize) -> PyResult<Self> {
        let memory = Mapping::with_words(descriptor, at, length, &[written, read])?;
        Ok(Self {
            memory,
            start: Mapping::PAGE,
            length,
            written,
            read,
        })
    }

    /// Publishes one record; False: there is no room for it.
    #[pyo3(signature = (tag, nanoseconds, payload, /))]
    fn write(&self, tag: i64, nanoseconds: i64, payload: &[u8]) -> bool {
        self.put(tag, nanoseconds, payload.len(), |to| {
            // SAFETY: `put` has found room for so many bytes.
            unsafe { ptr::copy_nonoverlapping(payload.as_ptr(), to, payload.len()) };
        })
    }

    /// All records that were published and not read, as tag, nanoseconds and payload; and whether the rest can be
    /// believed: a worker may write over its own memory before it dies of that.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, bool)> {
        let written = self.memory.word(self.written).load(Ordering::Acquire);
        let mut at = self.memory.word(self.read).load(Ordering::Relaxed);
        let mut records = Records::new(py);
        let unread = written
            .checked_sub(at)
            .and_then(|count| usize::try_from(count).ok());
        let mut is_sound = at >= 0 && unread.is_some_and(|count| count <= self.length);
        while is_sound && at < written {
            let place = at as usize % self.length;
            match self.record_at(place) {
                Found::Nothing => at += (self.length - place) as i64,
                Found::Record(tag, nanoseconds, from, length) => {
                    is_sound = records.add(tag, nanoseconds, from, length)?;
                    at += rounded(HEADER + length) as i64;
                }
                Found::Nonsense => is_sound = false,
            }
        }
        self.memory.word(self.read).store(written, Ordering::Release);
        Ok((records.finished()?, is_sound))
    }
}

enum Found {
    /// Up to the ring's end.
    Nothing,
    Record(i64, i64, *const u8, usize),
    Nonsense,
}

impl Ring {
    /// A result that takes no pickle, by its type and 64 bits; False: it is another one, or there is no room.
    pub(crate) fn write_plain(&self, number: i64, nanoseconds: i64, value: &Bound<'_, PyAny>) -> bool {
        let Some((kind, bits)) = plain(value) else {
            return false;
        };
        self.put((number << KIND_BITS) | PLAIN, nanoseconds, PLAIN_LENGTH, |to| {
            // SAFETY: `put` has found room for the two of them.
            unsafe { to.cast::<[i64; 2]>().write_unaligned([kind, bits]) };
        })
    }

    fn put(&self, tag: i64, nanoseconds: i64, length: usize, fill: impl FnOnce(*mut u8)) -> bool {
        let written = self.memory.word(self.written).load(Ordering::Relaxed) as usize;
        let read = self.memory.word(self.read).load(Ordering::Acquire) as usize;
        let size = rounded(HEADER + length);
        let place = written % self.length;
        let left = self.length - place;
        let skipped = if size > left { left } else { 0 };
        if written.wrapping_add(skipped + size).wrapping_sub(read) > self.length {
            return false;
        }
        let to = self.memory.at(self.start + if skipped > 0 { 0 } else { place });
        // SAFETY: a record of that size fits between `to` and the ring's end; all sizes are multiples of 8, so the word
        // at the old place fits as well.
        unsafe {
            if skipped > 0 {
                self.memory
                    .at(self.start + place)
                    .cast::<i64>()
                    .write_unaligned(WRAP);
            }
            to.cast::<[i64; 3]>()
                .write_unaligned([length as i64, tag, nanoseconds]);
        }
        fill(to.wrapping_add(HEADER));
        let end = written.wrapping_add(skipped + size) as i64;
        self.memory.word(self.written).store(end, Ordering::Release);
        true
    }

    fn record_at(&self, place: usize) -> Found {
        let Some(left) = (self.length - place).checked_sub(HEADER) else {
            return Found::Nothing;
        };
        let from = self.memory.at(self.start + place);
        // SAFETY: a whole header lies between `from` and the ring's end.
        let [length, tag, nanoseconds] = unsafe { from.cast::<[i64; 3]>().read_unaligned() };
        match usize::try_from(length) {
            Ok(length) if length <= left => {
                Found::Record(tag, nanoseconds, from.wrapping_add(HEADER), length)
            }
            _ if length == WRAP => Found::Nothing,
            _ => Found::Nonsense,
        }
    }
}

fn rounded(size: usize) -> usize {
    size.next_multiple_of(8)
}

/// What was read so far. Plain results of one task, next to each other, become one list.
struct Records<'py> {
    py: Python<'py>,
    found: Bound<'py, PyList>,
    plain: Option<(i64, i64, Bound<'py, PyList>)>,
}

impl<'py> Records<'py> {
    fn new(py: Python<'py>) -> Self {
        Self {
            py,
            found: PyList::empty(py),
            plain: None,
        }
    }

    /// False: no record of ours. `from`: as many bytes as `length` says.
    fn add(&mut self, tag: i64, nanoseconds: i64, from: *const u8, length: usize) -> PyResult<bool> {
        if tag & ((1 << KIND_BITS) - 1) == PLAIN {
            return self.add_plain(tag >> KIND_BITS, nanoseconds, from, length);
        }
        self.end_list()?;
        let payload = PyBytes::new_with(self.py, length, |to| {
            // SAFETY: `from` is good for `length` bytes. Whoever writes there meanwhile spoils its own result.
            unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), length) };
            Ok(())
        })?;
        self.found.append((tag, nanoseconds, payload))?;
        Ok(true)
    }

    fn add_plain(&mut self, number: i64, nanoseconds: i64, from: *const u8, length: usize) -> PyResult<bool> {
        if length != PLAIN_LENGTH {
            return Ok(false);
        }
        // SAFETY: two words, as the length says.
        let [kind, bits] = unsafe { from.cast::<[i64; 2]>().read_unaligned() };
        let Some(value) = plain_value(self.py, kind, bits)? else {
            return Ok(false);
        };
        if self.plain.as_ref().is_none_or(|one| one.0 != number) {
            self.end_list()?;
            self.plain = Some((number, 0, PyList::empty(self.py)));
        }
        if let Some((_, total, values)) = &mut self.plain {
            *total = total.wrapping_add(nanoseconds);
            values.append(value)?;
        }
        Ok(true)
    }

    fn end_list(&mut self) -> PyResult<()> {
        match self.plain.take() {
            Some((number, total, values)) => self.found.append(((number << KIND_BITS) | PART, total, values)),
            None => Ok(()),
        }
    }

    fn finished(mut self) -> PyResult<Bound<'py, PyList>> {
        self.end_list()?;
        Ok(self.found)
    }
}

const NONE: i64 = 0;
const BOOL: i64 = 1;
const INT: i64 = 2;
const FLOAT: i64 = 3;

/// Those of exactly these types, subclasses not among them.
fn plain(value: &Bound<'_, PyAny>) -> Option<(i64, i64)> {
    if value.is_none() {
        Some((NONE, 0))
    } else if value.is_exact_instance_of::<PyInt>() {
        value.extract::<i64>().ok().map(|number| (INT, number))
    } else if let Ok(number) = value.cast_exact::<PyFloat>() {
        Some((FLOAT, number.value().to_bits() as i64))
    } else if let Ok(truth) = value.cast_exact::<PyBool>() {
        Some((BOOL, i64::from(truth.is_true())))
    } else {
        None
    }
}

fn plain_value(py: Python<'_>, kind: i64, bits: i64) -> PyResult<Option<Bound<'_, PyAny>>> {
    Ok(match kind {
        NONE => Some(py.None().into_bound(py)),
        BOOL => Some(PyBool::new(py, bits != 0).to_owned().into_any()),
        INT => Some(bits.into_pyobject(py)?.into_any()),
        FLOAT => Some(PyFloat::new(py, f64::from_bits(bits as u64)).into_any()),
        _ => None,
    })
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Ring>()
}
