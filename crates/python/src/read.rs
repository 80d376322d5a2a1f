//! Reading boxes back, as JSON: one typed boundary, checked on the Python side by msgspec.

use lastwords_autopsy::{
    Architecture, Autopsy, CoreError, Limits, Mapping, MinidumpExtra, Region, Registers, Snapshot, autopsy,
    from_core, minidump, parse_maps,
};
use lastwords_blackbox::layout::{ARCHITECTURE_AARCH64, Crash, MAX_REGISTERS};
use lastwords_blackbox::probe_reader::ProbeReader;
use lastwords_blackbox::reader::{BoxReader, NotABox};
use lastwords_blackbox::record::Record;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Serialize;
use std::io::Read;
use std::path::PathBuf;

/// Ten times the size that we write: enough for any later version, too little to hurt.
const LARGEST_BOX: u64 = 20 << 20;

fn read(path: &PathBuf) -> PyResult<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(LARGEST_BOX).read_to_end(&mut bytes))
        .map_err(|error| {
            PyOSError::new_err((error.raw_os_error().unwrap_or(0), error.to_string(), path.clone()))
        })?;
    Ok(bytes)
}

fn open(bytes: &[u8]) -> PyResult<BoxReader<'_>> {
    BoxReader::open(bytes).map_err(|NotABox(reason)| PyValueError::new_err(reason))
}

fn json<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyBytes>> {
    let text = serde_json::to_vec(value).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &text))
}

/// Everything the box says, but for its memory.
#[pyfunction]
fn read_box(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyBytes>> {
    let bytes = read(&path)?;
    let reader = open(&bytes)?;
    let mut record = reader.record();
    name_mappings(&mut record, &parse_maps(reader.maps().unwrap_or(&[])));
    json(py, &record)
}

/// Says of each register's target which file or area it lies in, and how far into it.
fn name_mappings(record: &mut Record, mappings: &[Mapping]) {
    let registers = record.crash.as_ref().map(|crash| &crash.registers);
    for (name, pointed) in &mut record.pointed {
        let address = registers.and_then(|registers| registers.get(name)).copied();
        let mapping = address.and_then(|address| mappings.iter().find(|mapping| mapping.contains(address)));
        if let (Some(address), Some(mapping)) = (address, mapping) {
            let is_anonymous = mapping.path.is_empty();
            pointed.mapping = Some(if is_anonymous {
                "anonymous".to_owned()
            } else {
                mapping.path.clone()
            });
            pointed.offset = Some(address - mapping.start + mapping.offset);
        }
    }
}

/// The native stack and the faulting instruction; `null` where nothing crashed.
#[pyfunction]
fn autopsy_box(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyBytes>> {
    let bytes = read(&path)?;
    let reader = open(&bytes)?;
    let report = py.detach(|| {
        let crash = reader.crash()?;
        Some(autopsy(&snapshot(&reader, &crash), &Limits::default()))
    });
    json(py, &report)
}

/// The crash as a minidump, for lldb and other tools; None where nothing crashed.
#[pyfunction]
fn minidump_box(py: Python<'_>, path: PathBuf) -> PyResult<Option<Bound<'_, PyBytes>>> {
    let bytes = read(&path)?;
    let reader = open(&bytes)?;
    let Some(crash) = reader.crash() else {
        return Ok(None);
    };
    let extra = MinidumpExtra {
        process_id: reader.record().identity.map_or(0, |identity| identity.pid as u32),
        thread_id: crash.tid as u32,
        time: u32::try_from(crash.time_unix_ns / 1_000_000_000).unwrap_or(0),
        thread_name: None,
    };
    let dump = minidump(&snapshot(&reader, &crash), &extra);
    Ok(Some(PyBytes::new(py, &dump)))
}

/// A core file taken apart: process, signal, every thread's native stack.
#[pyfunction]
fn autopsy_core(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyBytes>> {
    let report = py
        .detach(|| from_core(&path, &Limits::default()))
        .map_err(|error| match error {
            CoreError::Unreadable(_) => PyOSError::new_err(error.to_string()),
            _ => PyValueError::new_err(error.to_string()),
        })?;
    json(py, &report)
}

/// A snapshot of a living process, without its memory.
#[pyfunction]
fn read_probe(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyBytes>> {
    let bytes = read(&path)?;
    json(py, &open_probe(&bytes)?.record())
}

/// The native stack of each thread of a snapshot, in the snapshot's order; `null` for one that did not answer.
#[pyfunction]
fn autopsy_probe(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyBytes>> {
    let bytes = read(&path)?;
    let reader = open_probe(&bytes)?;
    let stacks = py.detach(|| probed_stacks(&reader));
    json(py, &stacks)
}

fn open_probe(bytes: &[u8]) -> PyResult<ProbeReader<'_>> {
    ProbeReader::open(bytes).map_err(|NotABox(reason)| PyValueError::new_err(reason))
}

fn probed_stacks(reader: &ProbeReader<'_>) -> Vec<Option<Autopsy>> {
    let mappings = parse_maps(reader.maps());
    let threads = reader.threads().iter().enumerate();
    threads
        .map(|(slot, thread)| {
            let (address, bytes) = reader.stack(slot);
            let living = Snapshot {
                registers: registers(reader.architecture(), &thread.registers, thread.register_count),
                memory: vec![Region { address, bytes }],
                mappings: mappings.clone(),
                code: None,
                fault_address: None,
                signal: None,
                signal_code: None,
            };
            (thread.answered == 1).then(|| autopsy(&living, &Limits::default()))
        })
        .collect()
}

fn registers(architecture: u32, values: &[u64; MAX_REGISTERS], count: u32) -> Registers {
    Registers {
        architecture: if architecture == ARCHITECTURE_AARCH64 {
            Architecture::Aarch64
        } else {
            Architecture::X86_64
        },
        values: values[..(count as usize).min(MAX_REGISTERS)].to_vec(),
    }
}

fn snapshot<'a>(reader: &BoxReader<'a>, crash: &'a Crash) -> Snapshot<'a> {
    let code_length = (crash.code_length as usize).min(crash.code_bytes.len());
    Snapshot {
        registers: registers(crash.architecture, &crash.registers, crash.register_count),
        memory: reader
            .stack()
            .into_iter()
            .map(|(address, bytes)| Region { address, bytes })
            .collect(),
        mappings: parse_maps(reader.maps().unwrap_or(&[])),
        code: (code_length > 0).then_some(Region {
            address: crash.code_address,
            bytes: &crash.code_bytes[..code_length],
        }),
        fault_address: (crash.code > 0).then_some(crash.address),
        signal: Some(crash.signal),
        signal_code: Some(crash.code),
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(read_box, m)?)?;
    m.add_function(wrap_pyfunction!(autopsy_box, m)?)?;
    m.add_function(wrap_pyfunction!(minidump_box, m)?)?;
    m.add_function(wrap_pyfunction!(autopsy_core, m)?)?;
    m.add_function(wrap_pyfunction!(read_probe, m)?)?;
    m.add_function(wrap_pyfunction!(autopsy_probe, m)?)?;
    Ok(())
}
