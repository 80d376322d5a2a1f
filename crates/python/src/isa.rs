//! What CPU and GPU libraries need.

use lastwords_isa::{Report, Unreadable, build_id, host_features, instruction_needs, scan, scan_file};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rayon::prelude::*;
use serde::Serialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Files from this size on are scanned one after the other: two of them at once would need twice the memory.
const LARGE: u64 = 48 << 20;

#[derive(Serialize)]
struct Scanned {
    report: Option<Report>,
    problem: Option<String>,
}

impl From<Result<Report, Unreadable>> for Scanned {
    fn from(result: Result<Report, Unreadable>) -> Self {
        match result {
            Ok(report) => Self {
                report: Some(report),
                problem: None,
            },
            Err(Unreadable(reason)) => Self {
                report: None,
                problem: Some(reason),
            },
        }
    }
}

/// A file that breaks our decoder is a problem of that file, not of the scan.
fn guarded(scan: impl FnOnce() -> Result<Report, Unreadable>) -> Scanned {
    let broken = |_| {
        Err(Unreadable(
            "the scanner could not make sense of it: please report this file".to_owned(),
        ))
    };
    catch_unwind(AssertUnwindSafe(scan)).unwrap_or_else(broken).into()
}

fn scan_all(paths: &[PathBuf]) -> Vec<Scanned> {
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |about| about.len());
    let (large, small): (Vec<usize>, Vec<usize>) =
        (0..paths.len()).partition(|index| size(&paths[*index]) >= LARGE);
    let scan_one = |index: &usize| (*index, guarded(|| scan_file(&paths[*index])));
    // Side by side: a large file is not read on all cores all the time, and the small ones fill the gaps.
    let (large, small): (Vec<_>, Vec<_>) = rayon::join(
        || large.iter().map(scan_one).collect(),
        || small.par_iter().map(scan_one).collect(),
    );
    let mut found: Vec<_> = large.into_iter().chain(small).collect();
    found.sort_unstable_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, scanned)| scanned).collect()
}

fn json<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyBytes>> {
    let text = serde_json::to_vec(value).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &text))
}

/// A report or a problem for each path, in order.
#[pyfunction]
fn isa_scan(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Bound<'_, PyBytes>> {
    let found = py.detach(|| scan_all(&paths));
    json(py, &found)
}

/// The same for a library that is not a file, such as one inside a wheel.
#[pyfunction]
#[pyo3(signature = (data, /))]
fn isa_scan_bytes<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let found = py.detach(|| guarded(|| scan(data)));
    json(py, &found)
}

#[pyfunction]
fn isa_build_ids(py: Python<'_>, paths: Vec<PathBuf>) -> Vec<Option<String>> {
    py.detach(|| paths.par_iter().map(|path| build_id(path)).collect())
}

/// What an x86-64 instruction needs beyond the baseline; empty if these bytes are none.
#[pyfunction]
#[pyo3(signature = (code, /))]
fn isa_instruction_needs(code: &[u8]) -> Vec<&'static str> {
    instruction_needs(code)
}

/// What this CPU can do and the kernel has switched on; None where the CPU cannot be asked.
#[pyfunction]
fn cpu_features() -> Option<Vec<&'static str>> {
    host_features()
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(isa_scan, m)?)?;
    m.add_function(wrap_pyfunction!(isa_scan_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(isa_build_ids, m)?)?;
    m.add_function(wrap_pyfunction!(isa_instruction_needs, m)?)?;
    m.add_function(wrap_pyfunction!(cpu_features, m)?)
}
