//! Memory that is looked at after each batch, and seldom has changed.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A copy of a random generator's state, to be compared with it. In Python each look made a new copy, of which there are
/// three to a batch, and comparing them took longer than making them.
#[pyclass(module = "lastwords._native")]
struct KeptMemory {
    kept: Vec<u8>,
}

#[pymethods]
impl KeptMemory {
    /// Of `length` bytes at `address`, which whoever asks knows to be there, now and at each look.
    #[new]
    fn new(address: usize, length: usize) -> Self {
        let mut new = Self {
            kept: vec![0; length],
        };
        new.look(address);
        new
    }

    /// Whether the same length at `address` differs from the copy, which is that of the new state then.
    #[pyo3(signature = (address, /))]
    fn look(&mut self, address: usize) -> bool {
        let place = std::ptr::with_exposed_provenance::<u8>(address);
        // SAFETY: the address is that of a state which its generator, or the tensor it was copied to, keeps for us. Under
        // the GIL, which whoever draws a random number holds as well.
        let now = unsafe { std::slice::from_raw_parts(place, self.kept.len()) };
        let has_changed = now != self.kept;
        if has_changed {
            self.kept.copy_from_slice(now);
        }
        has_changed
    }

    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.kept)
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<KeptMemory>()
}
