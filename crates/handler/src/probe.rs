//! A snapshot of a living process, on request: how a hang is explained.
//!
//! Somebody sends the probe signal. The thread that gets it leads: it notes what /proc says about every
//! thread before it disturbs it, sends each the same signal, and waits. Each writes down its own registers
//! and stack, and stays in its handler until the leader has CPython write all Python frames: so the frames
//! stand still while they are read. Then everybody goes on. A thread that does not answer (uninterruptible
//! sleep) is waited for a fifth of a second and then left out.
//!
//! The same rules as in a crash: no lock, no allocation, every dangerous read under a guard.

use crate::capture;
use crate::entry::aligned;
use crate::guard;
use crate::maps;
use crate::registers;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use lastwords_blackbox::clock;
use lastwords_blackbox::identity::read_small;
use lastwords_blackbox::layout::{CRASH_NONE, Crash, MAPS_CAPACITY};
use lastwords_blackbox::probe_layout::{
    FUTEX_BYTES, PROBE_MAGIC, PROBE_MAPS_AT, PROBE_PYTHON_AT, PROBE_STACK, PROBE_STACKS_AT, PROBE_THREADS,
    PROBE_VERSION, Probe, ProbedThread, stack_at,
};
use lastwords_blackbox::recorder::{self, PathBuffer};

static LEADER: AtomicI32 = AtomicI32::new(0);
static PROBE_FD: AtomicI32 = AtomicI32::new(-1);
/// Threads that were asked and have not answered yet.
static AWAITED: AtomicU32 = AtomicU32::new(0);
static TIDS: [AtomicI32; PROBE_THREADS] = [const { AtomicI32::new(0) }; PROBE_THREADS];

struct LeadersScratch(UnsafeCell<(Probe, [u8; 4096])>);
// SAFETY: LEADER lets one thread in; the others write their answers into the file alone.
unsafe impl Sync for LeadersScratch {}
// SAFETY: plain data.
static SCRATCH: LeadersScratch = LeadersScratch(UnsafeCell::new((unsafe { core::mem::zeroed() }, [0; 4096])));

const PAUSE_NS: i64 = 200_000;
const PATIENCE: u32 = 1_000;

/// Installs the probe handler for `signal`.
pub fn listen(signal: i32) -> bool {
    // SAFETY: sigaction is plain data. SA_RESTART: a probe must not make system calls fail that could go on.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = enter as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        for crash in crate::signals::SIGNALS {
            libc::sigdelset(&mut action.sa_mask, crash);
        }
        libc::sigaction(signal, &action, ptr::null_mut()) == 0
    }
}

aligned!(enter, on_probe);

unsafe extern "C" fn on_probe(signal: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: called by the kernel with a signal's own arguments.
    unsafe {
        let errno = *libc::__errno_location();
        let me = libc::syscall(libc::SYS_gettid) as i32;
        match LEADER.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                lead(signal, me, context);
                LEADER.store(0, Ordering::Release);
            }
            Err(leader) if leader != me => answer(me, context),
            Err(_) => {}
        }
        *libc::__errno_location() = errno;
    }
}

unsafe fn lead(signal: i32, me: i32, context: *mut c_void) {
    let Some(fd) = open_probe() else {
        return;
    };
    // SAFETY: the leader's scratch is ours while LEADER is.
    unsafe {
        let (probe, buffer) = &mut *SCRATCH.0.get();
        let started = clock::monotonic_ns();
        *probe = core::mem::zeroed();
        probe.magic = PROBE_MAGIC;
        probe.version = PROBE_VERSION;
        probe.pid = libc::getpid();
        probe.time_ns = started;
        probe.time_unix_ns = clock::unix_ns();
        PROBE_FD.store(fd, Ordering::Release);
        list_threads(probe, buffer, me);
        write_probe(fd, probe);
        ask_others(signal, probe, me);
        let interrupted = save(fd, 0, context);
        await_answers();
        read_answers(fd, probe);
        if let Some(leader) = probe.threads.first_mut() {
            interrupted_call(fd, &interrupted, leader);
        }
        let (length, _) = maps::copy(fd, PROBE_MAPS_AT, MAPS_CAPACITY, buffer, 0);
        probe.maps_length = length;
        python_frames(fd);
        probe.duration_ns = clock::monotonic_ns().saturating_sub(started);
        probe.complete = 1;
        write_probe(fd, probe);
        PROBE_FD.store(-1, Ordering::Release);
        libc::close(fd);
        show_probe();
    }
}

/// The file's name while it is written, and when it is whole: whoever sees `.probe` sees all of it.
const UNFINISHED: &[u8] = b".probing";
const WHOLE: &[u8] = b".probe";

fn probe_path(ending: &[u8]) -> Option<PathBuffer> {
    let mut path = PathBuffer::new();
    path.push(recorder::box_path()?);
    path.push(ending);
    Some(path)
}

fn show_probe() {
    if let (Some(unfinished), Some(whole)) = (probe_path(UNFINISHED), probe_path(WHOLE)) {
        // SAFETY: both are NUL-terminated.
        unsafe { libc::rename(unfinished.as_c_str().as_ptr(), whole.as_c_str().as_ptr()) };
    }
}

fn open_probe() -> Option<i32> {
    let path = probe_path(UNFINISHED)?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: the path is NUL-terminated.
    let fd = unsafe { libc::open(path.as_c_str().as_ptr(), flags, 0o600) };
    (fd >= 0).then_some(fd)
}

unsafe fn write_probe(fd: i32, probe: &Probe) {
    // SAFETY: plain data of that size.
    unsafe { libc::pwrite(fd, ptr::from_ref(probe).cast(), size_of::<Probe>(), 0) };
}

/// Slot 0 is the leader's; the others follow in the order of /proc.
fn list_threads(probe: &mut Probe, buffer: &mut [u8], me: i32) {
    for place in &TIDS {
        place.store(0, Ordering::Relaxed);
    }
    add(probe, me);
    capture::each_thread(buffer, |tid| {
        if tid != me {
            add(probe, tid);
        }
    });
}

fn add(probe: &mut Probe, tid: i32) {
    let slot = probe.thread_count as usize;
    let (Some(thread), Some(place)) = (probe.threads.get_mut(slot), TIDS.get(slot)) else {
        probe.threads_left_out += 1;
        return;
    };
    describe(thread, tid);
    place.store(tid, Ordering::Release);
    probe.thread_count += 1;
}

fn task_file(tid: i32, name: &[u8]) -> PathBuffer {
    let mut path = PathBuffer::new();
    path.push(b"/proc/self/task/");
    path.push_number(tid as u64);
    path.push(name);
    path
}

/// What the kernel says about a thread that has not been disturbed yet.
fn describe(thread: &mut ProbedThread, tid: i32) {
    thread.tid = tid;
    let mut text = [0_u8; 160];
    let read = read_small(task_file(tid, b"/comm").as_c_str(), &mut thread.name);
    if let Some(newline) = read.checked_sub(1).and_then(|last| thread.name.get_mut(last)) {
        *newline = 0;
    }
    let read = read_small(task_file(tid, b"/stat").as_c_str(), &mut text);
    let stat = text.get(..read).unwrap_or(&[]);
    let close = stat.iter().rposition(|byte| *byte == b')').unwrap_or(0);
    thread.state = stat.get(close + 2).copied().map_or(0, u32::from);
    let read = read_small(task_file(tid, b"/wchan").as_c_str(), &mut text);
    thread.wait_channel.set(text.get(..read).unwrap_or(&[]));
    let read = read_small(task_file(tid, b"/syscall").as_c_str(), &mut text);
    let line = text.get(..read).unwrap_or(&[]);
    thread.syscall.set(line.strip_suffix(b"\n").unwrap_or(line));
    thread.futex_address = futex_of(line);
}

/// The first argument, if the call is futex(2) or one of its successors.
fn futex_of(line: &[u8]) -> u64 {
    let mut words = line.split(|byte| *byte == b' ');
    let number = words.next().unwrap_or(&[]).iter().fold(0_i64, |value, digit| {
        value
            .wrapping_mul(10)
            .wrapping_add(i64::from(digit.wrapping_sub(b'0')))
    });
    if number != libc::SYS_futex {
        return 0;
    }
    let argument = words.next().unwrap_or(&[]);
    argument
        .strip_prefix(b"0x")
        .unwrap_or(&[])
        .iter()
        .fold(0, |value, digit| {
            (value << 4) | u64::from(maps::hex_value(*digit))
        })
}

unsafe fn ask_others(signal: i32, probe: &Probe, me: i32) {
    AWAITED.store(0, Ordering::Release);
    for thread in probe.threads.iter().take(probe.thread_count as usize) {
        if thread.tid != me {
            AWAITED.fetch_add(1, Ordering::AcqRel);
            // SAFETY: our own threads.
            let sent = unsafe { libc::syscall(libc::SYS_tgkill, probe.pid, thread.tid, signal) };
            if sent != 0 {
                AWAITED.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

fn pause() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: PAUSE_NS,
    };
    // SAFETY: nanosleep is async-signal-safe.
    unsafe { libc::nanosleep(&time, ptr::null_mut()) };
}

fn await_answers() {
    for _ in 0..PATIENCE {
        if AWAITED.load(Ordering::Acquire) == 0 {
            return;
        }
        pause();
    }
}

/// Another thread's part: writes itself down, and waits until the leader has seen all frames.
unsafe fn answer(me: i32, context: *mut c_void) {
    let fd = PROBE_FD.load(Ordering::Acquire);
    let slot = TIDS.iter().position(|tid| tid.load(Ordering::Acquire) == me);
    let (Some(slot), true) = (slot, fd >= 0) else {
        return;
    };
    // SAFETY: this signal's own context; each thread has a slot of its own.
    unsafe { save(fd, slot, context) };
    AWAITED.fetch_sub(1, Ordering::AcqRel);
    for _ in 0..2 * PATIENCE {
        if PROBE_FD.load(Ordering::Acquire) < 0 {
            return;
        }
        pause();
    }
}

/// Registers and stack of the calling thread into its slot of the file.
unsafe fn save(fd: i32, slot: usize, context: *mut c_void) -> Crash {
    // SAFETY: a crash record is plain data; only its register part is used, as a carrier.
    let mut carrier: Crash = unsafe { core::mem::zeroed() };
    carrier.state = CRASH_NONE;
    // SAFETY: the kernel's context of this signal.
    unsafe { registers::save(context, &mut carrier) };
    let from = registers::sp(&carrier).wrapping_sub(registers::RED_ZONE) & !15;
    let copied = capture::copy_memory(fd, from, PROBE_STACK, stack_at(slot));
    let saved = Answer {
        registers: carrier.registers,
        register_count: carrier.register_count,
        architecture: carrier.architecture,
        stack_address: from,
        stack_length: copied,
    };
    // At the end of the thread's stack room: the head of the file is the leader's alone to write.
    let at = stack_at(slot) + PROBE_STACK - size_of::<Answer>() as u64;
    // SAFETY: plain data of that size.
    unsafe {
        libc::pwrite(
            fd,
            ptr::from_ref(&saved).cast(),
            size_of::<Answer>(),
            at as libc::off_t,
        )
    };
    carrier
}

/// The leader was disturbed before it could look at itself in /proc. But where the kernel is going to restart
/// the interrupted call it has put its number and the instruction back.
#[cfg(target_arch = "x86_64")]
fn interrupted_call(fd: i32, interrupted: &Crash, leader: &mut ProbedThread) {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    const RAX: usize = 0;
    const RDI: usize = 5;
    let at = stack_at(0) + PROBE_STACK - (size_of::<Answer>() + FUTEX_BYTES) as u64;
    let mut code = [0_u8; 2];
    if capture::copy_memory(fd, registers::pc(interrupted), 2, at) == 2 {
        // SAFETY: bounded by the array's own length.
        unsafe { libc::pread(fd, code.as_mut_ptr().cast(), code.len(), at as libc::off_t) };
    }
    let number = interrupted.registers.get(RAX).copied().unwrap_or(0);
    if code == SYSCALL {
        let mut text = PathBuffer::new();
        text.push_number(number);
        leader.syscall.set(text.as_bytes());
        leader.state = u32::from(b'S');
        if number == libc::SYS_futex as u64 {
            leader.futex_address = interrupted.registers.get(RDI).copied().unwrap_or(0);
            read_futex(fd, 0, leader);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn interrupted_call(_: i32, _: &Crash, _: &mut ProbedThread) {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Answer {
    registers: [u64; lastwords_blackbox::layout::MAX_REGISTERS],
    register_count: u32,
    architecture: u32,
    stack_address: u64,
    stack_length: u64,
}

unsafe fn read_answers(fd: i32, probe: &mut Probe) {
    for slot in 0..probe.thread_count as usize {
        let Some(thread) = probe.threads.get_mut(slot) else {
            return;
        };
        let at = stack_at(slot) + PROBE_STACK - size_of::<Answer>() as u64;
        // SAFETY: plain data, filled by the kernel up to its size.
        let (answer, read) = unsafe {
            let mut answer: Answer = core::mem::zeroed();
            let place = (&raw mut answer).cast();
            let read = libc::pread(fd, place, size_of::<Answer>(), at as libc::off_t);
            (answer, read)
        };
        if read == size_of::<Answer>() as isize && answer.register_count > 0 {
            thread.answered = 1;
            thread.registers = answer.registers;
            thread.register_count = answer.register_count;
            thread.stack_address = answer.stack_address;
            thread.stack_length = answer.stack_length.min(PROBE_STACK - size_of::<Answer>() as u64);
            probe.architecture = answer.architecture;
        }
        if thread.futex_address != 0 {
            read_futex(fd, slot, thread);
        }
    }
}

/// By way of the file, so that a bad address is an error and no fault.
fn read_futex(fd: i32, slot: usize, thread: &mut ProbedThread) {
    let at = PROBE_STACKS_AT + slot as u64 * PROBE_STACK + PROBE_STACK
        - (size_of::<Answer>() + FUTEX_BYTES) as u64;
    let copied = capture::copy_memory(fd, thread.futex_address, FUTEX_BYTES as u64, at);
    // SAFETY: bounded by the array's own length.
    let read = unsafe {
        libc::pread(
            fd,
            thread.futex_bytes.as_mut_ptr().cast(),
            copied as usize,
            at as libc::off_t,
        )
    };
    thread.futex_length = read.max(0) as u32;
}

/// CPython writes to one descriptor number for ever: for a moment that number is the probe's file.
unsafe fn python_frames(fd: i32) {
    let Some(text_fd) = recorder::text_fd() else {
        return;
    };
    // SAFETY: our own descriptors; the dump runs under the guard, so that frames that are being changed cost
    // the dump and not the process.
    unsafe {
        let kept = libc::fcntl(text_fd, libc::F_DUPFD_CLOEXEC, text_fd + 1);
        if kept < 0 || libc::dup3(fd, text_fd, libc::O_CLOEXEC) < 0 {
            return;
        }
        libc::lseek(text_fd, PROBE_PYTHON_AT as libc::off_t, libc::SEEK_SET);
        guard::PROBE.call(dump, ptr::null_mut());
        libc::dup3(kept, text_fd, libc::O_CLOEXEC);
        libc::close(kept);
    }
}

unsafe extern "C" fn dump(_: *mut c_void) {
    // SAFETY: see set_python_dumper.
    unsafe { capture::dump_python() };
}
