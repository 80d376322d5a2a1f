//! The memory of watched processes over time, taken by a thread of its own.
//!
//! Most workers are quiet most of the time, and a look at each every tenth of a second is enough. One that takes
//! a gigabyte in a tenth of a second must leave a curve all the same: so the thread also asks, a hundred times a
//! second, one cheap question about the whole machine (how much memory is free), and when that fell it looks at
//! everybody at once. Who is found growing fast is then looked at every five milliseconds.
//!
//! The same thread notes when each of them ended, to the fraction of a millisecond: whoever asks later may have been
//! busy, and a pool that finds a worker dead signals it once more.
//!
//! What a process shares and what is its own is asked rarely (smaps_rollup walks all page tables), and the more rarely
//! the longer the answer takes: see `OWNERSHIP_SHARE`.

use crate::alarm::{self, Held, Limit};
use crate::bounded::read_text;
use crate::cgroup::{self, OomKills};
use crate::close_look::{CloseLook, Closely, Ownership};
use crate::curve::{Curve, Point};
use crate::system::{
    block_signals, event_descriptor, has_ended, machine_memory, now_ns, ring, silence, thread_cpu_ns,
};
use crate::waiting::{Came, Waiting};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

const MILLISECOND: u64 = 1_000_000;
const TICK_NS: u64 = 10 * MILLISECOND;
const QUIET_NS: u64 = 100 * MILLISECOND;
/// For one whose memory has been level for a while. A sudden grab is seen by the machine's free memory.
const IDLE_NS: u64 = 500 * MILLISECOND;
const IDLE_AFTER_NS: u64 = 3_000 * MILLISECOND;
const FAST_NS: u64 = 5 * MILLISECOND;
/// Workers are mostly moved right after they began.
const FIRST_RARE_NS: u64 = 20 * MILLISECOND;
const RARE_NS: u64 = 3_000 * MILLISECOND;
/// While descriptors or threads become more.
const GROWING_NS: u64 = 200 * MILLISECOND;
/// The first look at what is shared; the next ones as rarely as they have to be.
const FIRST_OWNERSHIP_NS: u64 = 500 * MILLISECOND;
/// The part of one core that these looks may take for all processes together: one in this many, and one in so many more
/// for each process. A few workers are looked at often enough to see their pages copied; sixty-four take a thousandth.
const OWNERSHIP_SHARE: u64 = 400;
const OWNERSHIP_SHARE_EACH: u64 = 10;
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
    waiting: Waiting,
    /// An eventfd that rings when there are alarms.
    bell: OwnedFd,
}

#[derive(Default)]
struct State {
    watched: HashMap<u32, Watched>,
    free_kib: u64,
    /// How many were ever watched: numbers of processes are used again, these are not.
    added: u64,
    alarms: Vec<u32>,
    stop: bool,
}

struct Watched {
    /// Bound to the process, not to its number: once it is gone, reading fails for ever.
    statm: File,
    curve: Curve,
    pid: u32,
    added: u64,
    ended_ns: Option<u64>,
    swap_kib: u64,
    counts: Counts,
    membership: String,
    limit: Limit,
    alarm_level: usize,
    moved: Option<Vec<OomKills>>,
    closely: Closely,
    ownership_due_ns: u64,
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

impl Counts {
    fn exceed(self, before: Self) -> bool {
        self.descriptors > before.descriptors || self.threads > before.threads
    }
}

impl Sampler {
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            waiting: Waiting::new()?,
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
        let Some(mut watched) = Watched::open(pid) else {
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
        state.added += 1;
        watched.added = state.added;
        state.watched.insert(pid, watched);
        if let Some(pidfd) = pidfd {
            self.shared.waiting.listen(pidfd, state.added);
        }
        drop(state);
        self.shared.waiting.wake();
        true
    }

    /// Readable when there are alarms to be taken.
    pub fn bell(&self) -> RawFd {
        self.shared.bell.as_raw_fd()
    }

    /// Processes that are about to reach their memory limit, since this was last asked.
    pub fn alarms(&self) -> Vec<u32> {
        silence(&self.shared.bell);
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

    /// What was asked now and then, oldest first.
    pub fn close_looks(&self, pid: u32) -> Vec<CloseLook> {
        let state = self.shared.lock();
        state
            .watched
            .get(&pid)
            .map_or_else(Vec::new, |one| one.closely.looks().to_vec())
    }

    /// When it ended, on the monotonic clock; `None`: it lives, or has no pidfd that would say.
    pub fn ended(&self, pid: u32) -> Option<u64> {
        self.shared.lock().watched.get(&pid)?.ended_ns
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
        self.shared.waiting.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(pause) = self.look() {
            for came in self.waiting.wait(pause) {
                if let Came::End(number) = came {
                    self.lock().note_end(number, now_ns());
                }
            }
        }
    }

    /// Nanoseconds until the next look is due, or until somebody wakes us; `None`: it is over.
    fn look(&self) -> Option<Option<u64>> {
        let mut state = self.lock();
        if state.stop {
            return None;
        }
        if state.watched.is_empty() {
            return Some(None);
        }
        let pause = state.look(now_ns());
        if !state.alarms.is_empty() {
            ring(&self.bell);
        }
        Some(Some(pause))
    }
}

impl State {
    /// Looks at those that are due, and says how long until somebody is again.
    fn look(&mut self, now: u64) -> u64 {
        let memory = machine_memory();
        let is_taken = self.free_kib.saturating_sub(memory.free_kib) >= TAKEN_KIB;
        self.free_kib = memory.free_kib;
        let mut next = on_a_tick(now + 1);
        let mut has_grown = false;
        let everybody = self.watched.len() as u64;
        for watched in self.watched.values_mut() {
            if is_taken || watched.due_ns <= now {
                has_grown |= watched.sample(now, memory.has_swap, everybody);
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
    fn note_end(&mut self, number: u64, now: u64) {
        if let Some(one) = self.watched.values_mut().find(|one| one.added == number) {
            one.ended_ns.get_or_insert(now);
        }
    }

    fn raise_alarms(&mut self) {
        let held = self.watched.iter_mut().map(|(pid, one)| Held {
            pid: *pid,
            limit: &one.limit,
            resident_kib: one.curve.points().last().map_or(0, |point| point.resident_kib),
            level: &mut one.alarm_level,
        });
        let used = |limit: &Limit| cgroup::working_set(&limit.group).map(|bytes| bytes / 1024);
        self.alarms.extend(alarm::due(held.collect(), used));
    }
}

impl Watched {
    fn open(pid: u32) -> Option<Self> {
        let membership = cgroup::membership(pid).unwrap_or_default();
        Some(Self {
            statm: File::open(format!("/proc/{pid}/statm")).ok()?,
            curve: Curve::default(),
            pid,
            added: 0,
            ended_ns: None,
            swap_kib: 0,
            counts: Counts::default(),
            limit: Limit::narrowest(&membership, machine_memory().total_kib),
            alarm_level: 0,
            membership,
            moved: None,
            closely: Closely::default(),
            ownership_due_ns: now_ns() + FIRST_OWNERSHIP_NS,
            rare_due_ns: 0,
            rare_interval_ns: FIRST_RARE_NS,
            due_ns: 0,
            interval_ns: QUIET_NS,
            changed_ns: 0,
        })
    }

    /// `true`: it has grown.
    fn sample(&mut self, now: u64, has_swap: bool, everybody: u64) -> bool {
        let Some(resident_kib) = read_resident(&self.statm) else {
            // Gone, or a zombie without memory. Whoever hears of its end removes it.
            self.due_ns = on_a_tick(now + QUIET_NS);
            return false;
        };
        if self.rare_due_ns <= now {
            let before = self.counts;
            self.look_closer(now, has_swap, everybody);
            self.notice_move();
            let rarest = if self.counts.exceed(before) {
                GROWING_NS
            } else {
                RARE_NS
            };
            let until_ownership = self.ownership_due_ns.saturating_sub(now).max(FIRST_RARE_NS);
            self.rare_due_ns = now + self.rare_interval_ns.min(rarest).min(until_ownership);
            self.rare_interval_ns = (2 * self.rare_interval_ns).min(rarest);
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
        let due_ns = (now + self.interval_ns).min(self.rare_due_ns);
        self.due_ns = if self.interval_ns < TICK_NS {
            due_ns
        } else {
            on_a_tick(due_ns)
        };
        self.curve.push(point);
        has_grown
    }
}

/// What is asked now and then only. Files are opened anew: one descriptor for each process is enough.
impl Watched {
    fn look_closer(&mut self, now: u64, has_swap: bool, everybody: u64) {
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
        let ownership = self.ownership(now, everybody);
        self.closely.push(CloseLook {
            time_ns: now,
            descriptors: self.counts.descriptors,
            threads: self.counts.threads,
            ownership,
        });
    }

    /// `None`: not now, or this kernel does not say it.
    fn ownership(&mut self, now: u64, everybody: u64) -> Option<Ownership> {
        if now < self.ownership_due_ns {
            return None;
        }
        let before = thread_cpu_ns();
        let found = Ownership::of(self.pid);
        let took = thread_cpu_ns().saturating_sub(before);
        let share = OWNERSHIP_SHARE + OWNERSHIP_SHARE_EACH * everybody;
        let pause = took.saturating_mul(share).saturating_mul(everybody);
        self.ownership_due_ns = now + pause.max(FIRST_OWNERSHIP_NS);
        found
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

/// Not before then, and when the thread is awake anyway: sixty-four workers, each due at a moment of its own, would
/// wake it three hundred times a second instead of a hundred.
fn on_a_tick(time_ns: u64) -> u64 {
    time_ns.next_multiple_of(TICK_NS)
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
    use std::os::fd::FromRawFd;
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
    fn the_moment_of_the_end_is_noted_though_nobody_asks() {
        let sampler = Sampler::start().unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        // SAFETY: pidfd_open only makes a descriptor, and it is closed once.
        let pidfd =
            unsafe { OwnedFd::from_raw_fd(libc::syscall(libc::SYS_pidfd_open, child.id(), 0) as RawFd) };
        assert!(sampler.add(child.id(), Some(pidfd.as_raw_fd())));
        assert_eq!(sampler.ended(child.id()), None);
        let before = now_ns();
        child.kill().unwrap();
        child.wait().unwrap();
        let ended = loop {
            match sampler.ended(child.id()) {
                Some(ended) => break ended,
                None => std::thread::yield_now(),
            }
        };
        assert!(before <= ended && ended <= now_ns());
        drop(pidfd);
        assert_eq!(
            sampler.ended(child.id()),
            Some(ended),
            "it stays until it is removed"
        );
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
