//! The rows of batches, one after another, each marked by its number: what a Spark worker takes its rows from.
//!
//! It does the work of `itertools.chain.from_iterable` itself instead of standing in front of it, and so costs a row little
//! more than that. No code of the user runs between two rows of a batch.

use crate::crossing;
use crate::marks::{RUN, tell};
use lastwords_blackbox::live;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyIterator, PyType};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// A row that took longer is kept among the last items of its worker. More than a tick of the clock: any row can end in one.
const SLOW_NS: u64 = 15_000_000;

/// An object with a type of our own making: PyO3's way into `__next__` takes longer than all that is done there. All of it
/// zero is one without rows, which is what `type(rows)()` makes.
#[repr(C)]
struct MarkedRows {
    head: ffi::PyObject,
    /// The iterator they come from.
    batches: *mut ffi::PyObject,
    on_error: *mut ffi::PyObject,
    /// An iterator of the list at hand; null before the first and after the last.
    batch: Cell<*mut ffi::PyObject>,
    /// Its `__next__`. Called so, it is what `itertools.chain` calls as well.
    step: Cell<Option<ffi::iternextfunc>>,
    count: Cell<i64>,
    /// When the row before was marked.
    marked_ns: Cell<u64>,
}

/// Iterates over the rows of all batches. What the source raises, `on_error` is told.
#[pyfunction]
fn marked_rows(batches: Bound<'_, PyIterator>, on_error: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let py = batches.py();
    let kind = kind(py)?;
    // SAFETY: of that type's size, zeroed, and ours alone until it is returned.
    unsafe {
        let object = ffi::PyType_GenericAlloc(kind.as_ptr().cast(), 0);
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        let rows = object.as_ptr().cast::<MarkedRows>();
        (*rows).batches = batches.into_ptr();
        (*rows).on_error = on_error.into_ptr();
        Ok(object.unbind())
    }
}

fn kind(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static KIND: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let made = KIND.get_or_try_init(py, || {
        let mut slots = [
            slot(ffi::Py_tp_iter, ffi::PyObject_SelfIter as *mut c_void),
            slot(ffi::Py_tp_iternext, next as *mut c_void),
            slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
            slot(0, null_mut()),
        ];
        let mut spec = ffi::PyType_Spec {
            name: c"lastwords._native.MarkedRows".as_ptr(),
            basicsize: size_of::<MarkedRows>() as c_int,
            itemsize: 0,
            flags: ffi::Py_TPFLAGS_DEFAULT as u32,
            slots: slots.as_mut_ptr(),
        };
        // SAFETY: the slots are functions of their signatures, and Python copies both.
        let kind = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec))? };
        Ok::<_, PyErr>(kind.cast_into::<PyType>()?.unbind())
    })?;
    Ok(made.bind(py))
}

/// `__next__`: null without an exception at the end.
unsafe extern "C" fn next(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: Python calls it with an object of our type, and holds the GIL.
    let rows = unsafe { &*object.cast::<MarkedRows>() };
    loop {
        let row = rows.row();
        if !row.is_null() {
            rows.mark();
            return row;
        }
        // The row before stays marked meanwhile, as with MarkedItems.
        if !crossing::call(|| rows.refill()) {
            rows.forget();
            return null_mut();
        }
    }
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: nobody else knows it any more. An instance of a heap type owns a reference to its type.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        let rows = object.cast::<MarkedRows>();
        for owned in [(*rows).batch.get(), (*rows).batches, (*rows).on_error] {
            ffi::Py_XDECREF(owned);
        }
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}

impl MarkedRows {
    /// A reference to it; null: the batch has no more.
    #[inline]
    fn row(&self) -> *mut ffi::PyObject {
        match self.step.get() {
            // SAFETY: it belongs to the type of `batch`, of which we own a reference; the GIL is held.
            Some(step) => unsafe { step(self.batch.get()) },
            None => null_mut(),
        }
    }

    #[inline]
    fn mark(&self) {
        let number = self.count.get();
        self.count.set(number + 1);
        let now = coarse_ns();
        let took = now.saturating_sub(self.marked_ns.get());
        self.marked_ns.set(now);
        if took >= SLOW_NS || !live::pass_on(number, RUN, now) {
            live::advance_at(number, RUN, now);
            lastwords_handler::refresh_if_due(now);
        }
    }

    /// False: there is no other batch, and an exception is set if that is the reason.
    fn refill(&self) -> bool {
        if self.batches.is_null() {
            return false;
        }
        // SAFETY: the GIL is held, and `batches` is an iterator of which we own a reference.
        unsafe {
            let batch = ffi::PyIter_Next(self.batches);
            let rows = if batch.is_null() || ffi::PyList_CheckExact(batch) != 0 {
                batch
            } else {
                let rows = ffi::PySequence_List(batch);
                ffi::Py_DECREF(batch);
                rows
            };
            if rows.is_null() || !self.keep(rows) {
                self.tell_error();
                return false;
            }
        }
        true
    }

    /// Takes the list. False: there is no memory for an iterator.
    fn keep(&self, rows: *mut ffi::PyObject) -> bool {
        // SAFETY: `rows` is a list of which we own a reference. The slot of an iterator's type is what it is named after.
        unsafe {
            let iterator = ffi::PyObject_GetIter(rows);
            ffi::Py_DECREF(rows);
            if iterator.is_null() {
                return false;
            }
            let step = ffi::PyType_GetSlot(ffi::Py_TYPE(iterator), ffi::Py_tp_iternext);
            self.replace(
                iterator,
                transmute::<*mut c_void, Option<ffi::iternextfunc>>(step),
            );
        }
        true
    }

    fn replace(&self, batch: *mut ffi::PyObject, step: Option<ffi::iternextfunc>) {
        self.step.set(step);
        let before = self.batch.replace(batch);
        // SAFETY: null, or the iterator whose reference we own.
        unsafe { ffi::Py_XDECREF(before) };
    }

    fn forget(&self) {
        self.replace(null_mut(), None);
        live::end();
    }

    /// What is raised stays raised.
    fn tell_error(&self) {
        let told = catch_unwind(AssertUnwindSafe(|| {
            Python::attach(|py| {
                if let Some(error) = PyErr::take(py) {
                    // SAFETY: a reference of ours, which `dealloc` gives back.
                    let on_error = unsafe { Bound::from_borrowed_ptr(py, self.on_error) };
                    tell(py, &on_error.unbind(), &error);
                    error.restore(py);
                }
            });
        }));
        if told.is_err() {
            // PyO3 goes on with a panic of ours that it finds as a Python exception. From here it would abort the process;
            // with nothing raised, the rows would seem to end.
            // SAFETY: the GIL is held.
            unsafe {
                ffi::PyErr_SetString(
                    ffi::PyExc_RuntimeError,
                    c"lastwords panicked in the source of these rows".as_ptr(),
                )
            };
        }
    }
}

/// The monotonic clock as of the kernel's last tick, ten milliseconds ago at most: whether a row hangs can be told as well by
/// that, and to read the exact one took a third of marking a row.
#[inline]
fn coarse_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(marked_rows, m)?)
}
