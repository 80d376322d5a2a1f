//! The first sieve for long logs: which lines have one of a few hundred words in them.

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use memchr::{memchr2, memchr2_iter};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Words to look for, made ready once. A line ends at a line feed or a carriage return: progress bars use the latter.
#[pyclass(frozen, module = "lastwords._native")]
struct Alarms(AhoCorasick);

#[pymethods]
impl Alarms {
    #[new]
    fn new(words: Vec<Vec<u8>>) -> PyResult<Self> {
        AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::DFA))
            .match_kind(MatchKind::LeftmostFirst)
            .build(words)
            .map(Self)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The numbers of the lines that have a word, counted from 0.
    fn lines(&self, py: Python<'_>, text: &[u8]) -> Vec<usize> {
        py.detach(|| self.search(text))
    }
}

impl Alarms {
    fn search(&self, text: &[u8]) -> Vec<usize> {
        let (mut found, mut line, mut counted) = (Vec::new(), 0, 0);
        while let Some(word) = self.0.find(Input::new(text).span(counted..text.len())) {
            line += memchr2_iter(b'\n', b'\r', text.get(counted..word.start()).unwrap_or(&[])).count();
            found.push(line);
            let rest = text.get(word.end()..).unwrap_or(&[]);
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                break;
            };
            counted = word.end() + end + 1;
            line += 1;
        }
        found
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Alarms>()
}
