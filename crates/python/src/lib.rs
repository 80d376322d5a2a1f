//! `lastwords._native`: glue and nothing else. Each room of the core registers its own functions.

use pyo3::prelude::*;

mod calls;
mod marks;
mod pool;
mod read;
mod record;
mod watch;
mod wrappers;

#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    record::register(m)?;
    marks::register(m)?;
    calls::register(m)?;
    pool::register(m)?;
    wrappers::register(m)?;
    read::register(m)?;
    watch::register(m)?;
    Ok(())
}
