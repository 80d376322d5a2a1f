//! What supervised workers need below Python: claims on tasks, and an end that follows the parent's.

use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

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
        // SAFETY: a fresh shared mapping; the kernel checks the descriptor.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                descriptor,
                0,
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
    m.add_function(wrap_pyfunction!(end_with_parent, m)?)
}
