//! The living part of the box: current item, rings, what the process says about its end.
//!
//! Called from Python on every item, so each call is a few stores into mapped memory. One thread at a
//! time (the GIL) writes items; events may come from any thread and reserve their place atomically.

use crate::clock;
use crate::layout::{
    EVENT_RING, EVENTS_AT, EXCEPTION_FRAMES, EXCEPTION_RING, EXCEPTIONS_AT, EXIT_SAID, EventKind, Events,
    Exception, Exceptions, FinishedItem, ITEM_RING, ITEMS_AT, Item, Items, LIVE_AT, Live, NONE, PythonFrame,
    Text,
};
use crate::recorder::{base, section};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Items shorter than this do not pay for reading their memory growth.
const RSS_WORTH_NS: u64 = 1_000_000;
/// Between two looks at the memory. One takes 2 µs in a loop, but 30 between two items that have filled the caches: that
/// was 2 % of decoding a JPEG.
const RSS_PAUSE_NS: u64 = 10_000_000;
/// When to look next, on the monotonic clock.
static NEXT_RSS: AtomicU64 = AtomicU64::new(0);

/// A counter of the mapped file as an atomic, so that a reader of the living file sees writes in order.
fn counter<'a>(at: *mut u64) -> &'a AtomicU64 {
    // SAFETY: callers pass a field of the mapped, 8-aligned box, which lives as long as the process.
    unsafe { AtomicU64::from_ptr(at) }
}

pub(crate) fn reset(base: *mut u8) {
    let live = base.wrapping_add(LIVE_AT as usize).cast::<Live>();
    let items = base.wrapping_add(ITEMS_AT as usize).cast::<Items>();
    // SAFETY: a fresh mapping of ours.
    unsafe {
        (*live).current[0].index = NONE;
        (*live).current[1].index = NONE;
        // It is zero. Where a mapped file is read first and written to later, the kernel maps fifteen pages beside the one.
        (&raw mut (*items).written).write_volatile(0);
    }
}

#[inline]
fn live() -> *mut Live {
    section(LIVE_AT)
}

/// Marks that work on an item begins; when that was.
#[inline]
pub fn begin(index: i64, key: &[u8], phase: u32) -> u64 {
    let now = clock::monotonic_ns();
    publish(|item| {
        item.index = index;
        item.phase = phase;
        item.started_ns = now;
        item.key.set(key);
    });
    let live = live();
    if !live.is_null() {
        // SAFETY: mapped for the life of the process.
        unsafe { (*live).items_begun = (*live).items_begun.wrapping_add(1) };
    }
    now
}

/// Marks work that is no item of its own but may well kill: collating a batch, sending a result.
pub fn begin_step(key: &[u8], phase: u32) {
    publish(|item| {
        item.index = NONE;
        item.phase = phase;
        item.started_ns = clock::monotonic_ns();
        item.key.set(key);
    });
}

/// Between items.
pub fn rest() {
    rest_since(clock::monotonic_ns());
}

#[inline]
fn rest_since(now: u64) {
    publish(|item| {
        item.index = NONE;
        item.phase = 0;
        item.started_ns = now;
        item.key.length = 0;
    });
}

/// The same item goes on in another phase. Written in its place: one word is never torn.
pub fn phase(phase: u32) {
    let live = live();
    if live.is_null() {
        return;
    }
    // SAFETY: mapped for the life of the process, and 4-aligned.
    unsafe {
        let published = counter(&raw mut (*live).published).load(Ordering::Relaxed);
        let at = &raw mut (*live).current[(published % 2) as usize].phase;
        AtomicU32::from_ptr(at).store(phase, Ordering::Release);
    }
}

/// The phase of the item at hand; 0 between items and where nothing is recorded.
pub fn current_phase() -> u32 {
    let live = live();
    if live.is_null() {
        return 0;
    }
    // SAFETY: mapped for the life of the process.
    unsafe {
        let published = counter(&raw mut (*live).published).load(Ordering::Relaxed);
        (*live).current[(published % 2) as usize].phase
    }
}

#[inline]
fn publish(fill: impl FnOnce(&mut Item)) {
    let live = live();
    if live.is_null() {
        return;
    }
    // SAFETY: mapped for the life of the process; the slot that holds is the other one.
    unsafe {
        let published = counter(&raw mut (*live).published);
        let next = published.load(Ordering::Relaxed).wrapping_add(1);
        fill(&mut (*live).current[(next % 2) as usize]);
        published.store(next, Ordering::Release);
    }
}

/// The item is done: into the ring with it, and the process is idle.
#[inline]
pub fn end() {
    let now = clock::monotonic_ns();
    finish_current(now);
    rest_since(now);
}

/// The item is done and the next one, known by its number alone, begins: one look at the clock for both.
#[inline]
pub fn advance(index: i64, phase: u32) -> u64 {
    let now = clock::monotonic_ns();
    advance_at(index, phase, now);
    now
}

/// The same, for whoever has looked at the clock already.
#[inline]
pub fn advance_at(index: i64, phase: u32, now: u64) {
    finish_current(now);
    publish(|item| {
        item.index = index;
        item.phase = phase;
        item.started_ns = now;
        item.key.length = 0;
    });
    let live = live();
    if !live.is_null() {
        // SAFETY: mapped for the life of the process.
        unsafe { (*live).items_begun = (*live).items_begun.wrapping_add(1) };
    }
}

/// The same, of items so quick that the ring keeps none of them: their number goes up in its place. One word is never torn,
/// and the time beside it is at most a few milliseconds off until it is written, too. False: the item at hand is another one.
#[inline]
pub fn pass_on(index: i64, phase: u32, now: u64) -> bool {
    let live = live();
    if live.is_null() {
        return false;
    }
    // SAFETY: mapped for the life of the process.
    unsafe {
        let published = counter(&raw mut (*live).published).load(Ordering::Relaxed);
        let item = &mut (*live).current[(published % 2) as usize];
        if item.phase != phase || item.key.length != 0 || item.index != index.wrapping_sub(1) {
            return false;
        }
        item.index = index;
        item.started_ns = now;
        (*live).items_begun = (*live).items_begun.wrapping_add(1);
        (*live).items_done = (*live).items_done.wrapping_add(1);
    }
    true
}

#[inline]
fn finish_current(now: u64) {
    let live = live();
    if live.is_null() {
        return;
    }
    // SAFETY: mapped for the life of the process.
    unsafe {
        let published = counter(&raw mut (*live).published).load(Ordering::Relaxed);
        let item = &(*live).current[(published % 2) as usize];
        if item.index != NONE || item.key.length != 0 {
            finish(item, now);
            (*live).items_done = (*live).items_done.wrapping_add(1);
        }
    }
}

#[inline]
fn finish(item: &Item, now: u64) {
    let items = section::<Items>(ITEMS_AT);
    let duration_ns = now.saturating_sub(item.started_ns);
    // SAFETY: mapped for the life of the process; the ring index is reduced below its length.
    unsafe {
        let written = counter(&raw mut (*items).written);
        let number = written.load(Ordering::Relaxed);
        let place: *mut FinishedItem = &raw mut (*items).ring[(number % ITEM_RING as u64) as usize];
        (*place).index = item.index;
        (*place).started_ns = item.started_ns;
        (*place).duration_ns = duration_ns;
        (*place).rss_change = 0;
        (*place).key.set(item.key.kept());
        if duration_ns >= RSS_WORTH_NS && now >= NEXT_RSS.load(Ordering::Relaxed) {
            NEXT_RSS.store(now.saturating_add(RSS_PAUSE_NS), Ordering::Relaxed);
            share_growth(&mut (*items).ring, number);
        }
        written.store(number.wrapping_add(1), Ordering::Release);
    }
}

/// What memory has grown by since the last look, in equal shares to the items since then that are worth it. `number`
/// is the last of them.
fn share_growth(ring: &mut [FinishedItem; ITEM_RING], number: u64) {
    static NEXT_TO_SHARE: AtomicU64 = AtomicU64::new(0);
    let oldest = number.saturating_sub(ITEM_RING as u64 - 1);
    // After a fork the box is new and its count begins again.
    let first = NEXT_TO_SHARE
        .swap(number.wrapping_add(1), Ordering::Relaxed)
        .clamp(oldest, number);
    let growth = rss_change();
    let places = || (first..=number).map(|one| (one % ITEM_RING as u64) as usize);
    let count = places()
        .filter(|at| ring[*at].duration_ns >= RSS_WORTH_NS)
        .count();
    for at in places() {
        if ring[at].duration_ns >= RSS_WORTH_NS {
            // Not `/`, which can panic: a panic is code the handler must not have.
            ring[at].rss_change = growth.checked_div(count as i64).unwrap_or(0);
        }
    }
}

/// Growth of resident memory since this was last asked, in KiB.
fn rss_change() -> i64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let mut buffer = [0_u8; 128];
    let read = crate::identity::read_small(c"/proc/self/statm", &mut buffer);
    let pages = buffer
        .get(..read)
        .unwrap_or(&[])
        .split(|byte| *byte == b' ')
        .nth(1)
        .map_or(0, |digits| {
            digits.iter().fold(0_u64, |value, digit| {
                value
                    .wrapping_mul(10)
                    .wrapping_add(u64::from(digit.wrapping_sub(b'0')))
            })
        });
    let now = pages.wrapping_mul(4);
    let before = LAST.swap(now, Ordering::Relaxed);
    if before == 0 {
        0
    } else {
        now as i64 - before as i64
    }
}

/// Adds one line to the ring of recent events.
pub fn event(kind: EventKind, a: i64, b: i64, text: &[u8]) {
    let events = section::<Events>(EVENTS_AT);
    if events.is_null() {
        return;
    }
    // SAFETY: mapped for the life of the process; the ring index is reduced below its length.
    unsafe {
        let number = counter(&raw mut (*events).written).fetch_add(1, Ordering::AcqRel);
        let place = &raw mut (*events).ring[(number % EVENT_RING as u64) as usize];
        (*place).time_ns = clock::monotonic_ns();
        (*place).kind = kind as u32;
        (*place).tid = libc::syscall(libc::SYS_gettid) as i32;
        (*place).a = a;
        (*place).b = b;
        (*place).text.set(text);
    }
}

/// An exception's name and words; its frames come one by one through `ExceptionWriter::frame`.
pub struct ExceptionWriter {
    place: *mut Exception,
}

impl ExceptionWriter {
    pub fn new(kind: &[u8], message: &[u8], fatal: bool) -> Option<Self> {
        let exceptions = section::<Exceptions>(EXCEPTIONS_AT);
        if exceptions.is_null() {
            return None;
        }
        // SAFETY: mapped for the life of the process; the ring index is reduced below its length.
        unsafe {
            let number = counter(&raw mut (*exceptions).written).fetch_add(1, Ordering::AcqRel);
            let place = &raw mut (*exceptions).ring[(number % EXCEPTION_RING as u64) as usize];
            (*place).complete = 0;
            (*place).fatal = u32::from(fatal);
            (*place).time_ns = clock::monotonic_ns();
            (*place).time_unix_ns = clock::unix_ns();
            (*place).kind.set(kind);
            (*place).message.set(message);
            (*place).frame_count = 0;
            let live = live();
            let published = counter(&raw mut (*live).published).load(Ordering::Acquire);
            let item = &(*live).current[(published % 2) as usize];
            (*place).index = item.index;
            (*place).key.set(item.key.kept());
            Some(Self { place })
        }
    }

    pub fn frame(&mut self, file: &[u8], line: u32, function: &[u8]) {
        // SAFETY: see `new`; frame_count is checked against the array's length.
        unsafe {
            let count = (*self.place).frame_count as usize;
            if count < EXCEPTION_FRAMES {
                let frame: *mut PythonFrame = &raw mut (*self.place).frames[count];
                (*frame).line = line;
                (*frame).file.set(file);
                (*frame).function.set(function);
                (*self.place).frame_count = count as u32 + 1;
            }
        }
    }

    pub fn complete(self) {
        fence(Ordering::Release);
        // SAFETY: see `new`.
        unsafe { (*self.place).complete = 1 };
    }
}

/// Names the function that is called for the items from here on.
pub fn calls(place: &[u8]) {
    let live = live();
    if !live.is_null() {
        // SAFETY: mapped for the life of the process.
        unsafe { (*live).called.set(place) };
    }
}

/// The process says how it is going to end: what comes after that is no death.
pub fn say_exit(code: i32) {
    let live = live();
    if !live.is_null() {
        // SAFETY: mapped for the life of the process.
        unsafe {
            (*live).exit_code = code;
            (*live).exit_mark = EXIT_SAID;
        }
    }
}

/// Role, worker number and rank; `NONE` and empty leave what is there.
pub fn describe(role: &[u8], worker: i64, rank: i64, runtime: &[u8]) {
    let identity = crate::recorder::identity();
    if identity.is_null() {
        return;
    }
    // SAFETY: mapped for the life of the process.
    let identity = unsafe { &mut *identity };
    let keep = |to: &mut Text<60>, from: &[u8]| {
        if !from.is_empty() {
            to.set(from);
        }
    };
    keep(&mut identity.role, role);
    keep(&mut identity.runtime, runtime);
    if worker != NONE {
        identity.worker = worker;
    }
    if rank != NONE {
        identity.rank = rank;
    }
}

/// Which signal asks this process for a snapshot.
pub fn say_probe_signal(signal: u32) {
    let identity = crate::recorder::identity();
    if !identity.is_null() {
        // SAFETY: mapped for the life of the process.
        unsafe { (*identity).probe_signal = signal };
    }
}

/// Is anything recorded at all?
pub fn is_recording() -> bool {
    !base().is_null()
}
