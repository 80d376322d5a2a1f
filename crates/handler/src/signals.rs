//! Taking the signals, standing in front, and dying as the kernel would have it.

use crate::alternate_stack;
use crate::capture;
use crate::entry::aligned;
use crate::exception;
use crate::got;
use crate::guard;
use crate::previous::{self, Outcome};
use crate::threads;
use core::ffi::c_void;
use core::mem::zeroed;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use lastwords_blackbox::clock;
use lastwords_blackbox::layout::{
    CRASH_BEGUN, CRASH_COMPLETE, CRASH_HANDLED, Crash, STEP_PREVIOUS_HANDLER, Text,
};
use lastwords_blackbox::recorder;

pub(crate) const SIGNALS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Thread id of the thread whose crash is being recorded.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The siginfo of the signal under way: a handler that calls on to its own predecessor comes back with it.
static UNDER_WAY: AtomicPtr<libc::siginfo_t> = AtomicPtr::new(ptr::null_mut());
static PYTHON_TRAMPOLINE: AtomicUsize = AtomicUsize::new(0);
static INSTALLED: AtomicBool = AtomicBool::new(false);
static ABORT_MESSAGE: AtomicPtr<*const u8> = AtomicPtr::new(ptr::null_mut());

pub(crate) fn abort_message_place() -> *mut *const u8 {
    ABORT_MESSAGE.load(Ordering::Relaxed)
}

fn our_action() -> libc::sigaction {
    // SAFETY: sigaction is plain data; set operations on a local.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = enter as *const () as usize;
        // SA_NODEFER: a fault inside the handler must come back to us and not end the process unrecorded.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigfillset(&mut action.sa_mask);
        for signal in SIGNALS {
            libc::sigdelset(&mut action.sa_mask, signal);
        }
        action
    }
}

/// Installs the handler, the alternate stack and the fork hook. Called once, from ordinary code.
pub fn install() {
    if INSTALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    find_abort_message();
    // SAFETY: the hook only makes system calls.
    unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    refresh();
}

/// Looks up what `install` needs and installs nothing. For a process that is not recorded and forks children that are: each
/// of them then reads no library's tables, and has less memory of its own.
pub fn prepare() {
    find_abort_message();
    threads::note();
    exception::find_runtime();
    capture::find_second_dumper();
}

fn find_abort_message() {
    if !ABORT_MESSAGE.load(Ordering::Relaxed).is_null() {
        return;
    }
    // SAFETY: constant names; __abort_msg is glibc's pointer to its last words.
    let place = unsafe {
        libc::dlvsym(
            libc::RTLD_DEFAULT,
            c"__abort_msg".as_ptr(),
            c"GLIBC_PRIVATE".as_ptr(),
        )
    };
    ABORT_MESSAGE.store(place.cast(), Ordering::Relaxed);
}

/// Looks whether anything was loaded or installed since we last looked: new objects get our thread hook, new
/// handlers get us in front of them. Cheap when nothing happened; called between items and after imports.
pub fn refresh() {
    if !INSTALLED.load(Ordering::Relaxed) {
        return; // items may be marked in a process that is not recorded: it keeps its own handlers
    }
    if got::is_stale() {
        threads::cover();
        exception::find_runtime();
    }
    come_back();
}

/// When to `refresh` next, on the monotonic clock.
static NEXT_LOOK: AtomicU64 = AtomicU64::new(0);
const BETWEEN_LOOKS_NS: u64 = 1_000_000_000;

/// Called at the start of every item with the time that was read for it anyway: looks before the first item
/// of a process and then once a second. That is how handlers are found that a library installed from C.
#[inline]
pub fn refresh_if_due(now_ns: u64) {
    if now_ns >= NEXT_LOOK.load(Ordering::Relaxed) {
        NEXT_LOOK.store(now_ns.saturating_add(BETWEEN_LOOKS_NS), Ordering::Relaxed);
        refresh();
    }
}

/// The C function behind every handler that was set with `signal.signal`. It only leaves a note for the
/// interpreter, which runs the Python function between two bytecodes: after a fault there is no "between",
/// and without us such a program hangs, faulting for ever. It is never taken for one that repairs faults.
pub fn set_python_trampoline(address: usize) {
    PYTHON_TRAMPOLINE.store(address, Ordering::Relaxed);
}

pub(crate) fn is_python_trampoline(address: usize) -> bool {
    address != 0 && PYTHON_TRAMPOLINE.load(Ordering::Relaxed) == address
}

unsafe extern "C" fn in_forked_child() {
    OWNER.store(0, Ordering::Relaxed);
    NEXT_LOOK.store(0, Ordering::Relaxed);
    recorder::renew_after_fork();
}

/// Takes us out of the way while somebody else installs or removes a handler: he then saves what was
/// there before us, and neither of us ever calls the other twice.
pub fn stand_aside() {
    for signal in SIGNALS {
        if is_ours(signal)
            && let Some(action) = previous::saved(signal)
        {
            // SAFETY: puts back what was installed.
            unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
        }
    }
}

/// Puts us in front of whatever is installed now, on this thread with an alternate stack.
pub fn come_back() {
    alternate_stack::ensure();
    let ours = our_action();
    for signal in SIGNALS {
        if is_ours(signal) {
            continue;
        }
        // SAFETY: plain calls; `current` is filled before it is saved. Saved first, so that a signal in
        // between finds its previous handler.
        unsafe {
            let mut current: libc::sigaction = zeroed();
            libc::sigaction(signal, ptr::null(), &mut current);
            previous::save(signal, &current);
            libc::sigaction(signal, &ours, ptr::null_mut());
        }
    }
}

fn is_ours(signal: i32) -> bool {
    // SAFETY: only asks.
    unsafe {
        let mut current: libc::sigaction = zeroed();
        libc::sigaction(signal, ptr::null(), &mut current);
        current.sa_sigaction == enter as *const () as usize
    }
}

aligned!(enter, on_signal);

unsafe extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: called by the kernel with a signal's own arguments; only the owner goes on past the first
    // comparison, so the crash part of the box has one writer.
    unsafe {
        let me = libc::syscall(libc::SYS_gettid) as i32;
        if guard::PROBE.resume(me, context) {
            return; // the snapshot of a living process stumbled; the process must not
        }
        let errno = *libc::__errno_location();
        match OWNER.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire) {
            Err(owner) if owner == me => return nested(signal, info, context),
            Err(_) => return after_the_first(signal, info),
            Ok(_) => {}
        }
        UNDER_WAY.store(info, Ordering::Relaxed);
        let outcome = record(signal, info, context);
        if outcome == Outcome::Dies {
            die(signal, info);
        } else {
            OWNER.store(0, Ordering::Release);
        }
        *libc::__errno_location() = errno;
    }
}

unsafe fn record(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) -> Outcome {
    // SAFETY: passed on from on_signal; `crash` is checked for null.
    unsafe {
        recorder::renew_if_forked_unseen();
        let crash = recorder::crash();
        if !crash.is_null() {
            begin(crash);
            capture::all(crash, signal, info, context);
            (*crash).previous_handler =
                previous::saved(signal).map_or(0, |action| action.sa_sigaction as u64);
            (*crash).duration_ns = clock::monotonic_ns().saturating_sub((*crash).time_ns);
            (*crash).state = CRASH_COMPLETE;
        }
        capture::CURRENT_STEP.store(STEP_PREVIOUS_HANDLER, Ordering::Relaxed);
        let outcome = previous::speak(signal, info, context);
        if !crash.is_null() && outcome == Outcome::Repaired {
            (*crash).state = CRASH_HANDLED;
        }
        outcome
    }
}

/// An earlier signal may have been repaired: nothing of it may show in this one.
unsafe fn begin(crash: *mut Crash) {
    // SAFETY: the mapped crash part, of which we are the one writer.
    let crash = unsafe { &mut *crash };
    crash.steps_done = 0;
    crash.steps_failed = 0;
    crash.address = 0;
    crash.sender_pid = 0;
    crash.thread_count = 0;
    crash.stack_length = 0;
    crash.stack_base_length = 0;
    crash.maps_length = 0;
    crash.python_length = 0;
    crash.nested_signal = 0;
    crash.abort_message = Text::EMPTY;
    crash.exception_type = Text::EMPTY;
    crash.exception_what = Text::EMPTY;
    crash.state = CRASH_BEGUN;
}

/// A fault inside the handler: the step under way is lost, the next one runs.
unsafe fn nested(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    if UNDER_WAY.load(Ordering::Relaxed) == info {
        // No fault: the handler before us had saved us as its own predecessor, and calls on.
        return;
    }
    // SAFETY: passed on from on_signal.
    unsafe {
        let crash = recorder::crash();
        if !crash.is_null() {
            (*crash).nested_step = capture::CURRENT_STEP.load(Ordering::Relaxed);
            (*crash).nested_signal = signal;
            (*crash).nested_address = if (*info).si_code > 0 {
                (*info).si_addr() as u64
            } else {
                0
            };
        }
        if !guard::CRASH.resume(OWNER.load(Ordering::Relaxed), context) {
            die(signal, info);
        }
    }
}

/// Another thread crashed first and is being recorded: its record is the one that counts. Wait for it to
/// end the process, but not for ever.
unsafe fn after_the_first(signal: i32, info: *mut libc::siginfo_t) {
    const TRIES: u32 = 500;
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: 10_000_000,
    };
    // SAFETY: passed on from on_signal; the counter is only a hint, so a lost update does not matter.
    unsafe {
        let crash = recorder::crash();
        if !crash.is_null() {
            (*crash).other_crashes = (*crash).other_crashes.wrapping_add(1);
            (*crash).other_tid = libc::syscall(libc::SYS_gettid) as i32;
        }
        for _ in 0..TRIES {
            libc::nanosleep(&pause, ptr::null_mut());
            if OWNER.load(Ordering::Acquire) == 0 {
                // The first one was repaired. Returning makes our fault happen again, and then it is ours.
                return resend_if_needed(signal, info);
            }
        }
        die(signal, info);
    }
}

/// Leaves the rest to the kernel: under SIG_DFL the fault that is returned to happens again.
unsafe fn die(signal: i32, info: *mut libc::siginfo_t) {
    // SAFETY: plain calls with this signal's own arguments.
    unsafe {
        let mut default: libc::sigaction = zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &default, ptr::null_mut());
        resend_if_needed(signal, info);
    }
}

/// A signal that was sent, and a trap whose instruction is already behind us, does not come again by
/// itself. It is queued once more with its original siginfo (which a process may do to itself), blocked
/// until the handler has returned, so that a core shows the place and not our frames.
unsafe fn resend_if_needed(signal: i32, info: *mut libc::siginfo_t) {
    // SAFETY: the kernel copies siginfo; the mask is restored when the handler returns.
    unsafe {
        let is_fault = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE);
        const BUS_MCEERR_AO: i32 = 5;
        let comes_later = signal == libc::SIGBUS && (*info).si_code == BUS_MCEERR_AO;
        if is_fault && (*info).si_code > 0 && !comes_later {
            return;
        }
        let mut only_this: libc::sigset_t = zeroed();
        libc::sigemptyset(&mut only_this);
        libc::sigaddset(&mut only_this, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &only_this, ptr::null_mut());
        let tid = libc::syscall(libc::SYS_gettid);
        let queued = libc::syscall(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), tid, signal, info);
        if queued != 0 {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal);
        }
    }
}
