//! What supervised workers need below Python: claims on tasks, names for the items of a chunk, and an end that follows
//! the parent's.

use crate::marks::RUN;
use lastwords_blackbox::{clock, live};
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicUsize, Ordering, fence};

const FREE: u8 = 0;
const CLAIMED: u8 = 1;
const REVOKED: u8 = 2;

/// A part of a memfd, mapped for as long as this lives, and reached by processes that share nothing else.
pub(crate) struct Mapping {
    base: *mut u8,
    length: usize,
}

// SAFETY: the mapping lives as long as the object; what both sides write is only reached through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) const PAGE: usize = 4096;

    fn new(descriptor: i32, at: i64, length: usize) -> PyResult<Self> {
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
        Ok(Self {
            base: base.cast(),
            length,
        })
    }

    /// A page of words of 8 bytes, with these numbers among them, and `more` bytes behind it.
    pub(crate) fn with_words(descriptor: i32, at: i64, more: usize, words: &[usize]) -> PyResult<Self> {
        if words.iter().any(|word| *word >= Self::PAGE / size_of::<i64>()) {
            return Err(PyIndexError::new_err("a page has no such word"));
        }
        Self::new(descriptor, at, Self::PAGE + more)
    }

    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        self.base.wrapping_add(offset)
    }

    /// One of those that `with_words` was asked for.
    pub(crate) fn word(&self, number: usize) -> &AtomicI64 {
        // SAFETY: `with_words` has checked that it lies in the first page, whose beginning is aligned.
        unsafe { AtomicI64::from_ptr(self.base.cast::<i64>().wrapping_add(number)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nothing reaches it any more.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

/// One byte for each task that a worker was handed, in memory that it shares with its supervisor.
///
/// The worker claims a task before it starts, the supervisor revokes one to hand it to somebody else. Exactly one
/// of them succeeds, and neither waits: that is why this is native, and no lock that a dead worker could hold.
#[pyclass(module = "lastwords._native", frozen)]
struct Claims {
    bytes: Mapping,
}

impl Claims {
    fn at(&self, index: usize) -> PyResult<&AtomicU8> {
        let length = self.bytes.length;
        if index >= length {
            return Err(PyIndexError::new_err(format!("claim {index} of {length}")));
        }
        // SAFETY: within the mapping, and a byte is always aligned.
        Ok(unsafe { AtomicU8::from_ptr(self.bytes.at(index)) })
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
        let bytes = Mapping::new(descriptor, 0, length)?;
        Ok(Self { bytes })
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
            self.at(index % self.bytes.length)?.store(FREE, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Words of a page that a worker shares with its supervisor: the item of its task that it is at, and since when; which
/// task that is; and which of its items the supervisor has taken back.
#[pyclass(module = "lastwords._native", frozen)]
pub(crate) struct ItemWords {
    page: Mapping,
    item: usize,
    began: usize,
    running: usize,
    step: usize,
    limit: usize,
}

/// Values of the word `step`; more are in worker.py.
const BETWEEN: i64 = 0;
const LOADING: i64 = 1;
/// The phase of the black box that goes with it.
const LOAD: u32 = 6;

/// Of the word `limit`: the number of the task is above them, below is the first item that it must not begin.
const ITEM_BITS: u32 = 20;

impl ItemWords {
    pub(crate) fn be_at(&self, position: usize, now: u64) {
        let number = i64::try_from(position).unwrap_or(i64::MAX);
        self.page.word(self.item).store(number, Ordering::Release);
        self.page
            .word(self.began)
            .store(i64::try_from(now).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// As `be_at`, of a task whose items can be taken back; False: this one was, and is not to be run.
    ///
    /// Each side says what it wants and then looks at what the other has said, so at least one of them sees the other:
    /// it never happens that both take an item to be theirs.
    pub(crate) fn begin(&self, task: i64, position: usize, now: u64) -> bool {
        self.be_at(position, now);
        fence(Ordering::SeqCst);
        let limit = self.page.word(self.limit).load(Ordering::Relaxed);
        let is_taken = limit >> ITEM_BITS == task && position as i64 >= limit & ((1 << ITEM_BITS) - 1);
        if is_taken {
            self.be_at(position.saturating_sub(1), now);
        }
        !is_taken
    }
}

#[pymethods]
impl ItemWords {
    /// The words with these numbers of the page at `at` of a memfd.
    #[new]
    fn new(
        descriptor: i32,
        at: i64,
        item: usize,
        began: usize,
        running: usize,
        step: usize,
        limit: usize,
    ) -> PyResult<Self> {
        let page = Mapping::with_words(descriptor, at, 0, &[item, began, running, step, limit])?;
        Ok(Self {
            page,
            item,
            began,
            running,
            step,
            limit,
        })
    }

    /// The worker begins a task, and loads it first; when that was.
    #[pyo3(signature = (number, label, /))]
    fn begin_task(&self, number: i64, label: i64) -> u64 {
        let now = live::begin(label, b"", LOAD);
        let word = |which| self.page.word(which);
        word(self.step).store(LOADING, Ordering::Relaxed);
        // Before the number: whoever reads that takes the time to be this task's.
        word(self.began).store(now as i64, Ordering::Relaxed);
        word(self.running).store(number, Ordering::Release);
        lastwords_handler::refresh_if_due(now);
        now
    }

    /// Its result is published.
    fn end_task(&self) {
        self.page.word(self.running).store(0, Ordering::Release);
        self.page.word(self.step).store(BETWEEN, Ordering::Relaxed);
        live::end();
    }

    /// Takes back the items of a task from number `first` on. True: the worker has begun none of them, and never will.
    /// False: it may run some of them, and says in the end how far it came.
    #[pyo3(signature = (task, first, /))]
    fn take_back(&self, task: i64, first: i64) -> bool {
        self.page
            .word(self.limit)
            .store((task << ITEM_BITS) | first, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let item = self.page.word(self.item).load(Ordering::Acquire);
        // After the item: a worker that is at this task now was at none later when it said so.
        item < first && self.page.word(self.running).load(Ordering::Acquire) == task
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
        self.words.get().be_at(at, now);
        live::advance_at(self.label.wrapping_add_unsigned(at as u64), RUN, now);
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
