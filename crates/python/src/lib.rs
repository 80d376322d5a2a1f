//! `lastwords._native`: glue and nothing else. Each room of the core registers its own functions.

use pyo3::prelude::*;

mod alarms;
mod batches;
mod calls;
mod crossing;
mod isa;
mod kept;
mod marks;
mod needs;
mod pool;
mod pool_queue;
mod read;
mod record;
mod ring;
mod rows;
mod stretches;
mod survive;
mod watch;
mod wrappers;

#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    alarms::register(m)?;
    needs::register(m)?;
    record::register(m)?;
    marks::register(m)?;
    calls::register(m)?;
    pool::register(m)?;
    pool_queue::register(m)?;
    wrappers::register(m)?;
    read::register(m)?;
    watch::register(m)?;
    isa::register(m)?;
    survive::register(m)?;
    ring::register(m)?;
    rows::register(m)?;
    stretches::register(m)?;
    batches::register(m)?;
    kept::register(m)?;
    Ok(())
}
