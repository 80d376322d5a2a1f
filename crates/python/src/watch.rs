//! lastwords_watch for Python: how processes ended, and what signals came from whom.

use lastwords_watch::cgroup::{self, OomKills, Version};
use lastwords_watch::close_look::CloseLook;
use lastwords_watch::curve::Point;
use lastwords_watch::pidfd::{self, RawStatus, Refused};
use lastwords_watch::proc_connector;
use lastwords_watch::sampler::Sampler;
use lastwords_watch::{core_dump, signals, subreaper};
use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::prelude::*;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

fn answer(asked: Result<Option<RawStatus>, Refused>) -> PyResult<Option<i32>> {
    match asked {
        Ok(status) => Ok(status.map(|raw| raw.0)),
        Err(Refused::Error(error)) => Err(error.into()),
        Err(Refused::Unsupported) => Err(PyNotImplementedError::new_err("this kernel cannot say")),
    }
}

/// The wait status of a process that has ended and was reaped, by anyone; None before that.
#[pyfunction]
fn exit_status(pidfd: i32) -> PyResult<Option<i32>> {
    answer(pidfd::exit_status(pidfd))
}

/// The wait status of a child of ours that has ended, without reaping it; None while it lives.
#[pyfunction]
fn peek_child(pidfd: i32) -> PyResult<Option<i32>> {
    answer(pidfd::peek_child(pidfd))
}

/// Orphans among our descendants become our children.
#[pyfunction]
fn become_subreaper() -> PyResult<()> {
    Ok(subreaper::become_subreaper()?)
}

/// A non-blocking signalfd for these signals, which the caller has to block.
#[pyfunction]
fn signal_descriptor(signals: Vec<i32>) -> PyResult<i32> {
    Ok(signals::signal_descriptor(&signals)?.into_raw_fd())
}

/// (directory, cgroup version, kills so far) for the memory group of a process and each one above it.
#[pyfunction]
fn oom_kills(py: Python<'_>, pid: u32) -> Vec<(String, u8, u64)> {
    counters(py.detach(|| cgroup::oom_kills(pid)))
}

fn counters(found: Vec<OomKills>) -> Vec<(String, u8, u64)> {
    let named = |entry: OomKills| {
        (
            entry.group.to_string_lossy().into_owned(),
            number(entry.version),
            entry.count,
        )
    };
    found.into_iter().map(named).collect()
}

fn number(version: Version) -> u8 {
    match version {
        Version::V1 => 1,
        Version::V2 => 2,
    }
}

/// The same for a process that is gone, of the lines of its /proc/PID/cgroup.
#[pyfunction]
fn oom_kills_of(py: Python<'_>, membership: &str) -> Vec<(String, u8, u64)> {
    counters(py.detach(|| cgroup::oom_kills_of(membership)))
}

/// (directory, cgroup version) of the groups a process is in for a controller, its own first.
#[pyfunction]
fn control_groups(py: Python<'_>, pid: u32, controller: &str) -> Vec<(String, u8)> {
    directories(py.detach(|| cgroup::groups(pid, controller)))
}

/// The same for a process that is gone, of the lines of its /proc/PID/cgroup.
#[pyfunction]
fn control_groups_of(py: Python<'_>, membership: &str, controller: &str) -> Vec<(String, u8)> {
    directories(py.detach(|| cgroup::groups_of(membership, controller)))
}

fn directories(found: Vec<(PathBuf, Version)>) -> Vec<(String, u8)> {
    let named =
        |(group, version): (PathBuf, Version)| (group.to_string_lossy().into_owned(), number(version));
    found.into_iter().map(named).collect()
}

/// The counter of one group that `oom_kills` named; None when it cannot be read any more.
#[pyfunction]
fn oom_kills_in(directory: &str, version: u8) -> PyResult<Option<u64>> {
    let version = match version {
        1 => Version::V1,
        2 => Version::V2,
        _ => return Err(PyValueError::new_err("cgroups have version 1 or 2")),
    };
    Ok(cgroup::count_in(Path::new(directory), version))
}

/// This process leaves no core file, whatever it dies of.
#[pyfunction]
fn leave_no_core() -> PyResult<()> {
    Ok(core_dump::leave_no_core()?)
}

/// Hears of the end of every process of the machine. Raises OSError where the kernel tells us nothing.
#[pyclass(frozen, module = "lastwords._native")]
struct ProcConnector(Mutex<proc_connector::ProcConnector>);

#[pymethods]
impl ProcConnector {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self(Mutex::new(
            py.detach(proc_connector::ProcConnector::listen)?,
        )))
    }

    /// A descriptor that is readable when there is something for `read_all`.
    fn descriptor(&self) -> i32 {
        self.lock().descriptor()
    }

    /// Takes in what has come, before there is too much of it.
    fn read_all(&self) {
        self.lock().read_all();
    }

    /// The wait status of a process that has ended; None: it lives, or its word was lost. To be asked once.
    fn take(&self, py: Python<'_>, pid: u32) -> Option<i32> {
        py.detach(|| self.lock().take(pid)).map(|raw| raw.0)
    }
}

impl ProcConnector {
    fn lock(&self) -> std::sync::MutexGuard<'_, proc_connector::ProcConnector> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Samples the memory of processes on a thread of its own. Points are (monotonic ns, resident KiB, swap KiB).
#[pyclass(frozen, module = "lastwords._native")]
struct MemorySampler(Sampler);

fn triples(points: Vec<Point>) -> Vec<(u64, u64, u64)> {
    let triple = |point: Point| (point.time_ns, point.resident_kib, point.swap_kib);
    points.into_iter().map(triple).collect()
}

type Look = (u64, Option<u64>, Option<u64>, Option<u64>, Option<u64>);

fn in_a_row(look: CloseLook) -> Look {
    let owned = look.ownership;
    (
        look.time_ns,
        look.descriptors,
        look.threads,
        owned.map(|one| one.proportional_kib),
        owned.map(|one| one.private_kib),
    )
}

#[pymethods]
impl MemorySampler {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Self(Sampler::start()?))
    }

    /// Watches a process from now on; False when it is gone already.
    #[pyo3(signature = (pid, pidfd = None))]
    fn add(&self, py: Python<'_>, pid: u32, pidfd: Option<i32>) -> bool {
        py.detach(|| self.0.add(pid, pidfd))
    }

    /// A descriptor that is readable when there are alarms.
    fn bell(&self) -> i32 {
        self.0.bell()
    }

    /// Processes that are about to reach their memory limit, since this was last asked.
    fn alarms(&self, py: Python<'_>) -> Vec<u32> {
        py.detach(|| self.0.alarms())
    }

    /// What was seen so far, oldest first.
    fn points(&self, py: Python<'_>, pid: u32) -> Vec<(u64, u64, u64)> {
        triples(py.detach(|| self.0.points(pid)))
    }

    /// (descriptors, threads) when that was last asked; None where nobody knows.
    fn counts(&self, py: Python<'_>, pid: u32) -> (Option<u64>, Option<u64>) {
        let found = py.detach(|| self.0.counts(pid));
        (found.descriptors, found.threads)
    }

    /// (monotonic ns, descriptors, threads, proportional KiB, private KiB), oldest first; None: not asked then.
    fn close_looks(&self, py: Python<'_>, pid: u32) -> Vec<Look> {
        let looks = py.detach(|| self.0.close_looks(pid));
        looks.into_iter().map(in_a_row).collect()
    }

    /// Monotonic nanoseconds at which it ended; None: it lives, or nobody could see it.
    fn ended(&self, py: Python<'_>, pid: u32) -> Option<u64> {
        py.detach(|| self.0.ended(pid))
    }

    /// Like `oom_kills`, for the groups that it was moved to since it is watched; None: it stayed where it was.
    fn moved(&self, py: Python<'_>, pid: u32) -> Option<Vec<(String, u8, u64)>> {
        py.detach(|| self.0.moved(pid)).map(counters)
    }

    /// The same as `points`, and looks at it no more.
    fn remove(&self, py: Python<'_>, pid: u32) -> Vec<(u64, u64, u64)> {
        triples(py.detach(|| self.0.remove(pid)))
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<MemorySampler>()?;
    m.add_class::<ProcConnector>()?;
    m.add_function(wrap_pyfunction!(exit_status, m)?)?;
    m.add_function(wrap_pyfunction!(peek_child, m)?)?;
    m.add_function(wrap_pyfunction!(become_subreaper, m)?)?;
    m.add_function(wrap_pyfunction!(signal_descriptor, m)?)?;
    m.add_function(wrap_pyfunction!(oom_kills, m)?)?;
    m.add_function(wrap_pyfunction!(oom_kills_in, m)?)?;
    m.add_function(wrap_pyfunction!(oom_kills_of, m)?)?;
    m.add_function(wrap_pyfunction!(control_groups, m)?)?;
    m.add_function(wrap_pyfunction!(control_groups_of, m)?)?;
    m.add_function(wrap_pyfunction!(leave_no_core, m)?)
}
