//! What supervised workers need below Python: claims on tasks, names for the items of a chunk, and an end that follows
//! the parent's.

use lastwords_blackbox::{clock, live};
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicUsize, Ordering};

const FREE: u8 = 0;
const CLAIMED: u8 = 1;
const REVOKED: u8 = 2;

/// One byte for each task that a worker was handed, in memory that it shares with its supervisor.
///
/// The worker claims a task before it starts, the supervisor revokes one to hand it to somebody else. Exactly one
/// of them succeeds, and neither waits: that is why this is native, and no lock that a dead worker could hold.
#[pyclass(module = "lastwords._native", frozen)]
struct Claims {
    base: *mut u8,
    length: usize,
}

// SAFETY: the mapping lives as long as the object, and is only reached through atomics.
unsafe impl Send for Claims {}
// SAFETY: as above.
unsafe impl Sync for Claims {}

impl Claims {
    fn at(&self, index: usize) -> PyResult<&AtomicU8> {
        if index >= self.length {
            return Err(PyIndexError::new_err(format!("claim {index} of {}", self.length)));
        }
        // SAFETY: within the mapping, and a byte is always aligned.
        Ok(unsafe { AtomicU8::from_ptr(self.base.wrapping_add(index)) })
    }

    fn step(&self, index: usize, to: u8) -> PyResult<bool> {
        let changed = self
            .at(index)?
            .compare_exchange(FREE, to, Ordering::SeqCst, Ordering::SeqCst);
        Ok(changed.is_ok())
    }
}

#[pymethods]
impl Claims {
    /// Maps `length` bytes at the beginning of a memfd.
    #[new]
    fn new(descriptor: i32, length: usize) -> PyResult<Self> {
        let base = map_shared(descriptor, 0, length)?;
        Ok(Self { base, length })
    }

    /// The worker starts this task, unless it was revoked.
    #[pyo3(signature = (index, /))]
    fn claim(&self, index: usize) -> PyResult<bool> {
        self.step(index, CLAIMED)
    }

    /// The supervisor takes this task back, unless the worker has started it.
    #[pyo3(signature = (index, /))]
    fn revoke(&self, index: usize) -> PyResult<bool> {
        self.step(index, REVOKED)
    }

    /// These places, the first behind the last where they do not fit, are used for other tasks.
    #[pyo3(signature = (first, count, /))]
    fn reset(&self, first: usize, count: usize) -> PyResult<()> {
        for index in first..first + count {
            self.at(index % self.length)?.store(FREE, Ordering::SeqCst);
        }
        Ok(())
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nothing reaches it any more.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

fn map_shared(descriptor: i32, at: libc::off_t, length: usize) -> PyResult<*mut u8> {
    // SAFETY: a fresh shared mapping; the kernel checks the descriptor and the place.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            descriptor,
            at,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(PyOSError::new_err(std::io::Error::last_os_error()));
    }
    Ok(base.cast())
}

const PAGE: usize = 4096;
const RUN: u32 = 5;

/// Two words of a page that a worker shares with its supervisor: the item of its task that it is at, and since when.
#[pyclass(module = "lastwords._native", frozen)]
struct ItemWords {
    page: *mut u8,
    item: usize,
    began: usize,
}

// SAFETY: the mapping lives as long as the object, and is only reached through atomics.
unsafe impl Send for ItemWords {}
// SAFETY: as above.
unsafe impl Sync for ItemWords {}

impl ItemWords {
    fn write(&self, word: usize, value: i64) {
        // SAFETY: `new` has checked that the word lies in the mapping, whose beginning is that of a page.
        let word = unsafe { AtomicI64::from_ptr(self.page.cast::<i64>().wrapping_add(word)) };
        word.store(value, Ordering::Relaxed);
    }
}

#[pymethods]
impl ItemWords {
    /// The words number `item` and `began` of the page at `at` of a memfd.
    #[new]
    fn new(descriptor: i32, at: i64, item: usize, began: usize) -> PyResult<Self> {
        if item.max(began) >= PAGE / size_of::<i64>() {
            return Err(PyIndexError::new_err("a page has no such word"));
        }
        let page = map_shared(descriptor, at, PAGE)?;
        Ok(Self { page, item, began })
    }

    /// The items of a chunk from number `first` on, for about `nanoseconds`. The first has the index `label + first`.
    #[pyo3(signature = (items, first, label, nanoseconds, /))]
    fn each(slf: Py<Self>, items: Py<PyList>, first: usize, label: i64, nanoseconds: u64) -> NamedItems {
        NamedItems {
            words: slf,
            items,
            label,
            until: clock::monotonic_ns().saturating_add(nanoseconds),
            next: AtomicUsize::new(first),
        }
    }
}

impl Drop for ItemWords {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nothing reaches it any more.
        unsafe { libc::munmap(self.page.cast(), PAGE) };
    }
}

/// Hands out items, each named before it is worked on: in the black box, and in the words that the supervisor reads.
///
/// Native, so that `map(work, items)` runs at the speed of the interpreter's own loop: the same in Python costs more
/// than a function of a microsecond can hide.
#[pyclass(module = "lastwords._native", frozen)]
struct NamedItems {
    words: Py<ItemWords>,
    items: Py<PyList>,
    label: i64,
    until: u64,
    next: AtomicUsize,
}

#[pymethods]
impl NamedItems {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Ends with the last item, or when its time is over.
    fn __next__<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let at = self.next.load(Ordering::Relaxed);
        let now = clock::monotonic_ns();
        let found = self.items.bind(py).get_item(at).ok();
        if found.is_none() || now > self.until {
            live::end();
            return None;
        }
        let number = i64::try_from(at).unwrap_or(i64::MAX);
        let words = self.words.get();
        words.write(words.item, number);
        words.write(words.began, i64::try_from(now).unwrap_or(i64::MAX));
        live::advance_at(self.label.wrapping_add(number), RUN, now);
        lastwords_handler::refresh_if_due(now);
        self.next.store(at + 1, Ordering::Relaxed);
        found
    }

    /// Of the item that would be next.
    #[getter]
    fn position(&self) -> usize {
        self.next.load(Ordering::Relaxed)
    }
}

/// The kernel kills this process when its parent ends, however that comes about. False: the parent, whose pid was
/// `parent`, has ended already.
///
/// The kernel goes by the parent's *thread*: whoever forks workers must do so from a thread that outlives them.
#[pyfunction]
#[pyo3(signature = (parent, /))]
fn end_with_parent(parent: i32) -> bool {
    // SAFETY: plain calls without pointers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::getppid() == parent
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Claims>()?;
    m.add_class::<ItemWords>()?;
    m.add_class::<NamedItems>()?;
    m.add_function(wrap_pyfunction!(end_with_parent, m)?)
}
