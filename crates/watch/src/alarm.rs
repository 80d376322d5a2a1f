//! Who is about to be killed for want of memory: so that it can be asked for its stacks while it still has any.

use crate::cgroup;
use std::collections::HashMap;
use std::path::PathBuf;

/// Per cent of the limit at which a process is asked, once each.
const LEVELS: [u64; 3] = [80, 90, 95];
/// Below this the danger is over, and all levels count anew.
const OVER: u64 = 70;

/// A limit that some processes share.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Limit {
    /// Empty: the whole machine.
    pub group: PathBuf,
    pub kib: u64,
}

impl Limit {
    /// The narrowest of the groups in `membership`, or else the machine itself.
    pub fn narrowest(membership: &str, machine_kib: u64) -> Self {
        let machine = Self {
            group: PathBuf::new(),
            kib: machine_kib,
        };
        let groups = cgroup::memory_limits(membership).into_iter();
        groups
            .map(|(group, bytes)| Self {
                group,
                kib: bytes / 1024,
            })
            .filter(|limit| limit.kib > 0 && limit.kib < machine_kib)
            .min_by_key(|limit| limit.kib)
            .unwrap_or(machine)
    }
}

/// One process in the eyes of the alarm.
pub struct Held<'a> {
    pub pid: u32,
    pub limit: &'a Limit,
    pub resident_kib: u64,
    /// The highest level it was asked at.
    pub level: &'a mut usize,
}

/// Those that have to be asked now: where a limit is nearly reached, who holds much of it. The sum of the resident
/// sizes is never too small, and often too large: shared pages count for each of their holders, and a forked worker
/// holds much that was charged to its parent's group. So where it says "nearly full", `used` is asked (KiB).
pub fn due(mut held: Vec<Held<'_>>, used: impl Fn(&Limit) -> Option<u64>) -> Vec<u32> {
    let mut sums: HashMap<Limit, (u64, u64)> = HashMap::new();
    for one in &held {
        let (sum, largest) = sums.entry(one.limit.clone()).or_default();
        *sum += one.resident_kib;
        *largest = one.resident_kib.max(*largest);
    }
    for (limit, (sum, _)) in &mut sums {
        if sum.saturating_mul(100) >= limit.kib.saturating_mul(OVER) {
            *sum = used(limit).unwrap_or(*sum);
        }
    }
    let mut asked = Vec::new();
    for one in &mut held {
        let (sum, largest) = sums.get(one.limit).copied().unwrap_or_default();
        let full = sum.saturating_mul(100) / one.limit.kib.max(1);
        let level = LEVELS.iter().filter(|level| full >= **level).count();
        if full < OVER {
            *one.level = 0;
        } else if level > *one.level && one.resident_kib >= largest / 2 {
            *one.level = level;
            asked.push(one.pid);
        }
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(limit_kib: u64, residents: &[u64], levels: &mut [usize]) -> Vec<u32> {
        let limit = Limit {
            group: PathBuf::from("/g"),
            kib: limit_kib,
        };
        let held = residents.iter().zip(levels).enumerate();
        due(
            held.map(|(pid, (resident_kib, level))| Held {
                pid: pid as u32,
                limit: &limit,
                resident_kib: *resident_kib,
                level,
            })
            .collect(),
            |_| None,
        )
    }

    #[test]
    fn nobody_is_asked_while_there_is_room() {
        assert!(ask(1000, &[300, 400], &mut [0, 0]).is_empty());
    }

    #[test]
    fn who_holds_much_is_asked_once_for_each_level() {
        let mut levels = [0, 0];
        assert_eq!(ask(1000, &[100, 720], &mut levels), [1]);
        assert!(ask(1000, &[100, 750], &mut levels).is_empty());
        assert_eq!(ask(1000, &[100, 860], &mut levels), [1]);
        assert_eq!(levels, [0, 3]);
    }

    #[test]
    fn when_the_danger_is_over_all_begins_anew() {
        let mut levels = [3];
        assert!(ask(1000, &[750], &mut levels).is_empty());
        assert_eq!(levels, [3]);
        assert!(ask(1000, &[600], &mut levels).is_empty());
        assert_eq!(ask(1000, &[850], &mut levels), [0]);
    }

    #[test]
    fn what_is_held_counts_and_not_what_is_mapped() {
        let limit = Limit {
            group: PathBuf::from("/g"),
            kib: 1000,
        };
        let mut level = 0;
        let mut ask = |held_kib| {
            let one = Held {
                pid: 7,
                limit: &limit,
                resident_kib: 3000,
                level: &mut level,
            };
            due(vec![one], |_| Some(held_kib))
        };
        assert!(ask(100).is_empty());
        assert_eq!(ask(850), [7]);
    }

    #[test]
    fn without_a_group_the_machine_is_the_limit() {
        let limit = Limit::narrowest("", 77);
        assert_eq!((limit.group, limit.kib), (PathBuf::new(), 77));
    }
}
