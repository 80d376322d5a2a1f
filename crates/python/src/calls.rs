//! A call as one short line, `work(5, path='a.png')`: the item of a pool's worker.
//!
//! Native, because a pool of short tasks pays for it on every one of them.

use crate::record::mark_begin;
use lastwords_blackbox::layout::NONE;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::fmt::Write;
use std::sync::Mutex;

const MOST_ARGUMENTS: usize = 4;
const LONGEST_TEXT: usize = 40;

/// The last function and its name: a pool calls the same one over and over, and asking it costs most of this.
static LAST_NAMED: Mutex<Option<(Py<PyAny>, String)>> = Mutex::new(None);

fn push_name(line: &mut String, function: &Bound<'_, PyAny>) {
    let Ok(mut last) = LAST_NAMED.try_lock() else {
        return line.push_str(&name_of(function));
    };
    match &*last {
        Some((known, name)) if known.is(function) => line.push_str(name),
        _ => {
            let name = name_of(function);
            line.push_str(&name);
            *last = Some((function.clone().unbind(), name));
        }
    }
}

fn name_of(function: &Bound<'_, PyAny>) -> String {
    // functools.partial: what it calls is what the user calls it.
    if let Ok(inner) = function.getattr("func")
        && inner.is_callable()
    {
        return name_of(&inner);
    }
    function
        .getattr("__qualname__")
        .or_else(|_| function.get_type().getattr("__qualname__"))
        .and_then(|name| name.extract::<String>())
        .unwrap_or_else(|_| "?".to_owned())
}

/// A bounded repr. Large things are named by their type: the repr of a tensor can take seconds.
fn push_value(line: &mut String, value: &Bound<'_, PyAny>, depth: usize) {
    let is_small =
        value.is_none() || value.is_exact_instance_of::<PyBool>() || value.is_exact_instance_of::<PyFloat>();
    if value.is_exact_instance_of::<PyInt>() {
        // Beyond 64 bits its text could have millions of digits.
        match value.extract::<i64>() {
            Ok(number) => push_number(line, number),
            Err(_) => line.push_str("<large int>"),
        }
    } else if is_small {
        push_repr(line, value);
    } else if let Ok(text) = value.cast_exact::<PyString>() {
        push_cut(line, text.as_any(), text.len().unwrap_or(0));
    } else if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        push_cut(line, bytes.as_any(), bytes.as_bytes().len());
    } else if depth > 0
        && let Ok(tuple) = value.cast_exact::<PyTuple>()
    {
        push_all(line, ('(', ')'), tuple.iter(), tuple.len(), depth);
    } else if depth > 0
        && let Ok(list) = value.cast_exact::<PyList>()
    {
        push_all(line, ('[', ']'), list.iter(), list.len(), depth);
    } else {
        push_type(line, value);
    }
}

/// Without the formatter, whose code no worker has in its caches.
fn push_number(line: &mut String, number: i64) {
    let mut digits = [0_u8; 20];
    let mut first = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        line.push('-');
    }
    line.push_str(str::from_utf8(&digits[first..]).unwrap_or("?"));
}

fn push_type(line: &mut String, value: &Bound<'_, PyAny>) {
    let name = value.get_type().qualname();
    let name = name.map_or_else(|_| "?".to_owned(), |name| name.to_string());
    let _ = write!(line, "<{name}>");
}

fn push_repr(line: &mut String, value: &Bound<'_, PyAny>) {
    match value.repr() {
        Ok(text) => line.push_str(&text.to_string_lossy()),
        Err(_) => line.push('?'),
    }
}

/// The first letters of a text or of bytes, in quotes, with a sign where it goes on.
fn push_cut(line: &mut String, value: &Bound<'_, PyAny>, length: usize) {
    if length <= LONGEST_TEXT {
        return push_repr(line, value);
    }
    let slice = pyo3::types::PySlice::new(value.py(), 0, LONGEST_TEXT as isize, 1);
    let Ok(head) = value.get_item(slice) else {
        return line.push('?');
    };
    push_repr(line, &head);
    if let Some(quote) = line.pop() {
        line.push('…');
        line.push(quote);
    }
}

fn push_all<'py>(
    line: &mut String,
    brackets: (char, char),
    values: impl Iterator<Item = Bound<'py, PyAny>>,
    length: usize,
    depth: usize,
) {
    if length > MOST_ARGUMENTS {
        let _ = write!(line, "{}… {length} values{}", brackets.0, brackets.1);
        return;
    }
    line.push(brackets.0);
    for (number, value) in values.enumerate() {
        if number > 0 {
            line.push_str(", ");
        }
        push_value(line, &value, depth - 1);
    }
    line.push(brackets.1);
}

#[pyfunction]
#[pyo3(signature = (function, args, kwargs, /))]
pub(crate) fn describe_call(
    function: &Bound<'_, PyAny>,
    args: &Bound<'_, PyAny>,
    kwargs: Option<&Bound<'_, PyAny>>,
) -> String {
    let mut line = String::with_capacity(64);
    push_name(&mut line, function);
    line.push('(');
    let mut shown = 0;
    let mut total = 0;
    if let Ok(args) = args.cast::<PyTuple>() {
        total += args.len();
        for value in args.iter().take(MOST_ARGUMENTS) {
            separate(&mut line, &mut shown);
            push_value(&mut line, &value, 2);
        }
    }
    if let Some(Ok(kwargs)) = kwargs.map(|kwargs| kwargs.cast::<PyDict>()) {
        total += kwargs.len();
        for (name, value) in kwargs.iter().take(MOST_ARGUMENTS.saturating_sub(shown)) {
            separate(&mut line, &mut shown);
            let _ = write!(line, "{name}=");
            push_value(&mut line, &value, 2);
        }
    }
    if total > shown {
        separate(&mut line, &mut shown);
        line.push('…');
    }
    line.push(')');
    line
}

fn separate(line: &mut String, shown: &mut usize) {
    if *shown > 0 {
        line.push_str(", ");
    }
    *shown += 1;
}

/// Tells of each function that differs from the one before.
pub(crate) struct Called {
    note: Py<PyAny>,
    last: Mutex<Option<Py<PyAny>>>,
}

impl Called {
    pub(crate) fn new(note: Py<PyAny>) -> Self {
        Self {
            note,
            last: Mutex::default(),
        }
    }

    pub(crate) fn tell(&self, function: &Bound<'_, PyAny>) {
        let Ok(mut last) = self.last.try_lock() else {
            return;
        };
        if !last.as_ref().is_some_and(|known| known.is(function)) {
            *last = Some(function.clone().unbind());
            let _ = self.note.call1(function.py(), (function,));
        }
    }
}

/// Marks that a worker begins a call.
#[pyfunction]
#[pyo3(signature = (index, phase, function, args, kwargs, /))]
fn begin_call(
    index: Option<i64>,
    phase: u32,
    function: &Bound<'_, PyAny>,
    args: &Bound<'_, PyAny>,
    kwargs: Option<&Bound<'_, PyAny>>,
) {
    let line = describe_call(function, args, kwargs);
    mark_begin(index.unwrap_or(NONE), line.as_bytes(), phase);
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(describe_call, m)?)?;
    m.add_function(wrap_pyfunction!(begin_call, m)?)?;
    Ok(())
}
