//! What is asked of a process now and then: how many descriptors and threads it has, and how much of its memory is its
//! own. Each of these can leak while the resident size stays as it was: after a fork, the pages that a child writes to
//! become its own without counting as more.

use crate::bounded::read_text;
use std::path::Path;

pub const MOST_LOOKS: usize = 96;
const LARGEST_FILE: u64 = 8 << 10;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CloseLook {
    pub time_ns: u64,
    /// `None`: this kernel does not say it cheaply.
    pub descriptors: Option<u64>,
    pub threads: Option<u64>,
    /// `None`: not asked this time.
    pub ownership: Option<Ownership>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// Shared pages count by their part.
    pub proportional_kib: u64,
    /// Pages that nobody else has.
    pub private_kib: u64,
}

impl Ownership {
    /// `None`: it is gone, is not ours to look at, or the kernel is older than 4.14.
    pub fn of(pid: u32) -> Option<Self> {
        let text = read_text(Path::new(&format!("/proc/{pid}/smaps_rollup")), LARGEST_FILE)?;
        Some(Self {
            proportional_kib: field(&text, "Pss:")?,
            private_kib: field(&text, "Private_Clean:")? + field(&text, "Private_Dirty:")?,
        })
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// A bounded list. When it is full, every second of the older half goes; the first stays.
#[derive(Default)]
pub struct Closely(Vec<CloseLook>);

impl Closely {
    pub fn looks(&self) -> &[CloseLook] {
        &self.0
    }

    pub fn push(&mut self, look: CloseLook) {
        if self.0.len() >= MOST_LOOKS {
            self.thin();
        }
        self.0.push(look);
    }

    fn thin(&mut self) {
        let half = self.0.len() / 2;
        let mut place = 0;
        self.0.retain(|look| {
            let keep = place >= half || place % 2 == 0 || look.ownership.is_some() && place % 4 == 1;
            place += 1;
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_has_an_owner() {
        let Some(found) = Ownership::of(std::process::id()) else {
            return; // A kernel without the file.
        };
        assert!(found.private_kib > 0 && found.proportional_kib >= found.private_kib / 2);
        assert_eq!(Ownership::of(u32::MAX), None);
    }

    #[test]
    fn fields_of_another_form_are_none() {
        assert_eq!(field("Pss:   12 kB\n", "Pss:"), Some(12));
        assert_eq!(field("Pss: many kB\n", "Pss:"), None);
        assert_eq!(field("Pss: 12\n", "Pss:"), None);
        assert_eq!(field("", "Pss:"), None);
    }

    #[test]
    fn the_list_is_bounded_and_keeps_its_ends() {
        let mut closely = Closely::default();
        for time_ns in 0..10_000 {
            closely.push(CloseLook {
                time_ns,
                ..CloseLook::default()
            });
        }
        let looks = closely.looks();
        assert!(looks.len() <= MOST_LOOKS);
        assert_eq!(looks.first().map(|look| look.time_ns), Some(0));
        assert_eq!(looks.last().map(|look| look.time_ns), Some(9_999));
        assert!(looks.is_sorted_by_key(|look| look.time_ns));
    }
}
