//! The memory of watched processes over time, taken by a thread of its own.
//!
//! Most workers are quiet most of the time, and a look at each every tenth of a second is enough. One that takes
//! a gigabyte in a tenth of a second must leave a curve all the same: so the thread also asks, a hundred times a
//! second, one cheap question about the whole machine (how much memory is free), and when that fell it looks at
//! everybody at once. Who is found growing fast is then looked at every five milliseconds.
//!
//! PSS is not sampled: smaps_rollup walks all page tables under the lock that page faults of the worker need.

use crate::alarm::{self, Held, Limit};
use crate::bounded::read_text;
use crate::cgroup::{self, OomKills};
use crate::curve::{Curve, Point};
use crate::system::{block_signals, event_descriptor, has_ended, machine_memory, now_ns};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const MILLISECOND: u64 = 1_000_000;
const TICK_NS: u64 = 10 * MILLISECOND;
const QUIET_NS: u64 = 100 * MILLISECOND;
/// For one whose memory has been level for a while. A sudden grab is seen by the machine's free memory.
const IDLE_NS: u64 = 250 * MILLISECOND;
const IDLE_AFTER_NS: u64 = 3_000 * MILLISECOND;
const FAST_NS: u64 = 5 * MILLISECOND;
/// Workers are mostly moved right after they began.
const FIRST_RARE_NS: u64 = 20 * MILLISECOND;
const RARE_NS: u64 = 3_000 * MILLISECOND;
/// Growth that is worth a closer look: KiB in a second.
const FAST_KIB: u64 = 64 << 10;
/// Free memory of the machine that fell by this much in one tick: somebody is taking it.
const TAKEN_KIB: u64 = 8 << 10;
const NOTABLE_KIB: u64 = 256;
const MOST_PROCESSES: usize = 4096;

pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// An eventfd that rings when there are alarms.
    bell: OwnedFd,
}

#[derive(Default)]
struct State {
    watched: HashMap<u32, Watched>,
    free_kib: u64,
    alarms: Vec<u32>,
    stop: bool,
}

struct Watched {
    /// Bound to the process, not to its number: once it is gone, reading fails for ever.
    statm: File,
    curve: Curve,
    pid: u32,
    swap_kib: u64,
    counts: Counts,
    membership: String,
    limit: Limit,
    alarm_level: usize,
    moved: Option<Vec<OomKills>>,
    rare_due_ns: u64,
    rare_interval_ns: u64,
    due_ns: u64,
    interval_ns: u64,
    changed_ns: u64,
}

/// Of which a process may have only so many. `None`: this kernel does not say it cheaply.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    pub descriptors: Option<u64>,
    pub threads: Option<u64>,
}

impl Sampler {
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            wake: Condvar::default(),
            bell: event_descriptor()?,
        });
        let its_own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("lastwords-sampler".to_owned())
            .spawn(move || {
                block_signals();
                its_own.run();
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Watches a process from now on. `false`: it is gone already, or too many are watched.
    pub fn add(&self, pid: u32, pidfd: Option<RawFd>) -> bool {
        let Some(watched) = Watched::open(pid) else {
            return false;
        };
        // Its number may have been given to another before we opened the file, but not while it lives.
        if pidfd.is_some_and(has_ended) {
            return false;
        }
        let mut state = self.shared.lock();
        if state.watched.len() >= MOST_PROCESSES {
            return false;
        }
        state.watched.insert(pid, watched);
        drop(state);
        self.shared.wake.notify_one();
        true
    }

    /// Readable when there are alarms to be taken.
    pub fn bell(&self) -> RawFd {
        self.shared.bell.as_raw_fd()
    }

    /// Processes that are about to reach their memory limit, since this was last asked.
    pub fn alarms(&self) -> Vec<u32> {
        let mut count = 0_u64;
        // SAFETY: our own descriptor, non-blocking, eight bytes.
        unsafe { libc::read(self.bell(), (&raw mut count).cast(), 8) };
        std::mem::take(&mut self.shared.lock().alarms)
    }

    /// What was seen so far, oldest first. Empty: it was never watched.
    pub fn points(&self, pid: u32) -> Vec<Point> {
        let state = self.shared.lock();
        state
            .watched
            .get(&pid)
            .map_or_else(Vec::new, |one| one.curve.points().to_vec())
    }

    /// How many descriptors and threads it had when that was last asked, some seconds ago at most.
    pub fn counts(&self, pid: u32) -> Counts {
        let state = self.shared.lock();
        state
            .watched
            .get(&pid)
            .map_or_else(Counts::default, |one| one.counts)
    }

    /// The memory groups that it was moved to since it is watched, with their counters at that time.
    pub fn moved(&self, pid: u32) -> Option<Vec<OomKills>> {
        self.shared.lock().watched.get(&pid)?.moved.clone()
    }

    /// The same as `points`, and looks at it no more.
    pub fn remove(&self, pid: u32) -> Vec<Point> {
        let removed = self.shared.lock().watched.remove(&pid);
        removed.map_or_else(Vec::new, |one| one.curve.into_points())
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        let one = 1_u64;
        // SAFETY: our own descriptor, eight bytes. A full counter is as good as a ring.
        unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.stop {
            if state.watched.is_empty() {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let pause = state.look(now_ns());
            if !state.alarms.is_empty() {
                self.ring();
            }
            let waited = self.wake.wait_timeout(state, Duration::from_nanos(pause));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// Looks at those that are due, and says how long until somebody is again.
    fn look(&mut self, now: u64) -> u64 {
        let memory = machine_memory();
        let is_taken = self.free_kib.saturating_sub(memory.free_kib) >= TAKEN_KIB;
        self.free_kib = memory.free_kib;
        let mut next = now + TICK_NS;
        let mut has_grown = false;
        for watched in self.watched.values_mut() {
            if is_taken || watched.due_ns <= now {
                has_grown |= watched.sample(now, memory.has_swap);
            }
            next = next.min(watched.due_ns);
        }
        if has_grown {
            self.raise_alarms();
        }
        next.saturating_sub(now).max(MILLISECOND)
    }
}

impl State {
    fn raise_alarms(&mut self) {
        let held = self.watched.iter_mut().map(|(pid, one)| Held {
            pid: *pid,
            limit: &one.limit,
            resident_kib: one.curve.points().last().map_or(0, |point| point.resident_kib),
            level: &mut one.alarm_level,
        });
        self.alarms.extend(alarm::due(held.collect()));
    }
}

impl Watched {
    fn open(pid: u32) -> Option<Self> {
        let membership = cgroup::membership(pid).unwrap_or_default();
        Some(Self {
            statm: File::open(format!("/proc/{pid}/statm")).ok()?,
            curve: Curve::default(),
            pid,
            swap_kib: 0,
            counts: Counts::default(),
            limit: Limit::narrowest(&membership, machine_memory().total_kib),
            alarm_level: 0,
            membership,
            moved: None,
            rare_due_ns: 0,
            rare_interval_ns: FIRST_RARE_NS,
            due_ns: 0,
            interval_ns: QUIET_NS,
            changed_ns: 0,
        })
    }

    /// `true`: it has grown.
    fn sample(&mut self, now: u64, has_swap: bool) -> bool {
        let Some(resident_kib) = read_resident(&self.statm) else {
            // Gone, or a zombie without memory. Whoever hears of its end removes it.
            self.due_ns = now + QUIET_NS;
            return false;
        };
        if self.rare_due_ns <= now {
            self.look_closer(has_swap);
            self.notice_move();
            self.rare_due_ns = now + self.rare_interval_ns;
            self.rare_interval_ns = (2 * self.rare_interval_ns).min(RARE_NS);
        }
        let point = Point {
            time_ns: now,
            resident_kib,
            swap_kib: self.swap_kib,
        };
        let last = self.curve.points().last();
        let has_grown = last.is_some_and(|last| resident_kib > last.resident_kib + NOTABLE_KIB);
        if has_grown || self.changed_ns == 0 {
            self.changed_ns = now;
        }
        let is_idle = now - self.changed_ns > IDLE_AFTER_NS;
        self.interval_ns = match last {
            Some(last) if grows_fast(last, &point) => FAST_NS,
            _ => (self.interval_ns * 2).min(if is_idle { IDLE_NS } else { QUIET_NS }),
        };
        self.due_ns = (now + self.interval_ns).min(self.rare_due_ns);
        self.curve.push(point);
        has_grown
    }
}

/// What is asked now and then only. Files are opened anew: one descriptor for each process is enough.
impl Watched {
    fn look_closer(&mut self, has_swap: bool) {
        if has_swap {
            self.swap_kib = read_swap(self.pid).unwrap_or(0);
        }
        let size = |name: &str| std::fs::metadata(format!("/proc/{}/{name}", self.pid)).ok();
        // Since Linux 6.2 the size of this directory is the number of open descriptors; before, it is 0.
        let descriptors = size("fd").map(|found| found.size()).filter(|count| *count > 0);
        let threads = size("task").and_then(|found| found.nlink().checked_sub(2));
        self.counts = Counts {
            descriptors: descriptors.or(self.counts.descriptors),
            threads: threads.filter(|count| *count > 0).or(self.counts.threads),
        };
    }

    /// Engines and schedulers put a worker into its own control group after it has begun. How often the kernel had
    /// killed there before has to be read now: after a death it is too late.
    fn notice_move(&mut self) {
        let now = cgroup::membership(self.pid).filter(|now| *now != self.membership);
        // A zombie is in the root group: it was moved by nobody.
        if let Some(now) = now.filter(|_| read_resident(&self.statm).is_some()) {
            self.moved = Some(cgroup::oom_kills_of(&now));
            self.limit = Limit::narrowest(&now, machine_memory().total_kib);
            self.membership = now;
        }
    }
}

fn grows_fast(last: &Point, now: &Point) -> bool {
    let grown = now.resident_kib.saturating_sub(last.resident_kib);
    let passed_ms = now.time_ns.saturating_sub(last.time_ns) / MILLISECOND;
    grown > 1 << 10 && grown * 1000 > FAST_KIB * passed_ms
}

fn read_small(file: &File, buffer: &mut [u8]) -> Option<usize> {
    file.read_at(buffer, 0).ok().filter(|read| *read > 0)
}

/// The second number of statm, in pages; a zombie says 0.
fn read_resident(file: &File) -> Option<u64> {
    let mut buffer = [0_u8; 128];
    let read = read_small(file, &mut buffer)?;
    let text = std::str::from_utf8(buffer.get(..read)?).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    (pages > 0).then(|| pages.saturating_mul(page_kib()))
}

fn read_swap(pid: u32) -> Option<u64> {
    let text = read_text(Path::new(&format!("/proc/{pid}/status")), 4096)?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmSwap:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

fn page_kib() -> u64 {
    // SAFETY: asks for a constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn wait_for_points(sampler: &Sampler, pid: u32, count: usize) -> Vec<Point> {
        let until = now_ns() + 20_000 * MILLISECOND;
        loop {
            let points = sampler.points(pid);
            if points.len() >= count || now_ns() > until {
                return points;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn our_own_memory_is_seen() {
        let sampler = Sampler::start().unwrap();
        let pid = std::process::id();
        assert!(sampler.add(pid, None));
        let points = wait_for_points(&sampler, pid, 2);
        assert!(points.iter().all(|point| point.resident_kib > 100));
        assert!(points.is_sorted_by_key(|point| point.time_ns));
        assert!(sampler.counts(pid).threads >= Some(2));
        assert!(sampler.counts(pid).descriptors.is_none_or(|count| count >= 3));
        assert!(sampler.remove(pid).len() >= 2);
        assert!(sampler.points(pid).is_empty());
    }

    #[test]
    fn a_process_that_is_gone_keeps_its_curve() {
        let sampler = Sampler::start().unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(sampler.add(child.id(), None));
        assert!(!wait_for_points(&sampler, child.id(), 1).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        let points = sampler.remove(child.id());
        assert!(points.iter().all(|point| point.resident_kib > 0));
        assert!(!sampler.add(child.id(), None), "nobody has that number now");
    }

    #[test]
    fn growth_is_fast_above_64_megabytes_a_second() {
        let at = |time_ms: u64, kib: u64| Point {
            time_ns: time_ms * MILLISECOND,
            resident_kib: kib,
            swap_kib: 0,
        };
        assert!(grows_fast(&at(0, 0), &at(5, 2 << 10)));
        assert!(!grows_fast(&at(0, 0), &at(100, 2 << 10)));
        assert!(!grows_fast(&at(0, 9 << 10), &at(5, 0)));
        assert!(
            !grows_fast(&at(0, 0), &at(0, 1000)),
            "less than a megabyte is noise"
        );
    }

    #[test]
    fn unwatched_processes_have_no_points() {
        let sampler = Sampler::start().unwrap();
        assert!(!sampler.add(u32::MAX, None));
        assert!(sampler.remove(1).is_empty());
    }
}
