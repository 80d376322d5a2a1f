//! Letting the handler that was there before us speak, without letting it end the process its own way.
//!
//! torch's worker handlers and faulthandler print something and then `raise()` the signal again. That
//! second signal has no fault address and `raise` as its top frame; it is what the core and the exit
//! status would show. So the signal is blocked while they run, and what they raised is taken away again.

use crate::guard;
use crate::signals;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::{size_of, transmute, zeroed};
use core::ptr;

#[derive(PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nobody was there before us, or what was there gave up on the process.
    Dies,
    /// It repaired the fault and the program goes on, as a JVM does at its safe points.
    Repaired,
}

const SIGNALS: usize = 65;
struct Saved(UnsafeCell<[libc::sigaction; SIGNALS]>);
// SAFETY: written by install and come_back from ordinary code, one thread at a time; read by the handler.
unsafe impl Sync for Saved {}
// SAFETY: sigaction is plain data.
static SAVED: Saved = Saved(UnsafeCell::new(unsafe { zeroed() }));

pub(crate) fn save(signal: i32, action: &libc::sigaction) {
    // SAFETY: see Saved.
    if let Some(place) = unsafe { (*SAVED.0.get()).get_mut(signal as usize) } {
        *place = *action;
    }
}

pub(crate) fn saved(signal: i32) -> Option<libc::sigaction> {
    // SAFETY: see Saved.
    unsafe { (*SAVED.0.get()).get(signal as usize).copied() }
}

struct Call {
    signal: i32,
    action: libc::sigaction,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
}

/// # Safety
/// Called from a signal handler with that handler's own arguments, by the owner of the crash.
pub(crate) unsafe fn speak(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) -> Outcome {
    let Some(action) = saved(signal) else {
        return Outcome::Dies;
    };
    // SAFETY: passed on from the handler.
    let was_sent = unsafe { !is_fault(info) };
    match action.sa_sigaction {
        libc::SIG_DFL => Outcome::Dies,
        // The kernel honours SIG_IGN for a signal that was sent, and kills for a fault all the same.
        libc::SIG_IGN if was_sent => Outcome::Repaired,
        libc::SIG_IGN => Outcome::Dies,
        // SAFETY: an installed handler, called with what the kernel would have called it with.
        _ => unsafe {
            ask(Call {
                signal,
                action,
                info,
                context,
            })
        },
    }
}

/// Signals that were sent have codes up to zero.
unsafe fn is_fault(info: *const libc::siginfo_t) -> bool {
    // SAFETY: the kernel's siginfo of this signal.
    unsafe { (*info).si_code > 0 }
}

unsafe fn ask(mut call: Call) -> Outcome {
    // SAFETY: set operations on a local; a fault inside the handler is kept inside by the guard.
    unsafe {
        let mut only_this: libc::sigset_t = zeroed();
        libc::sigemptyset(&mut only_this);
        libc::sigaddset(&mut only_this, call.signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &only_this, ptr::null_mut());
        let returned = guard::CRASH.call(invoke, (&raw mut call).cast());
        let raised_again = take_pending(&only_this);
        let mut now: libc::sigaction = zeroed();
        libc::sigaction(call.signal, ptr::null(), &mut now);
        let gave_up = now.sa_sigaction == libc::SIG_DFL || call.action.sa_flags & libc::SA_RESETHAND != 0;
        let cannot_repair = is_fault(call.info) && signals::is_python_trampoline(call.action.sa_sigaction);
        if !returned || raised_again || gave_up || cannot_repair {
            Outcome::Dies
        } else {
            Outcome::Repaired
        }
    }
}

unsafe extern "C" fn invoke(argument: *mut c_void) {
    // SAFETY: the call that `ask` made; the handler's type is told by its flags.
    unsafe {
        let call = &*argument.cast::<Call>();
        if call.action.sa_flags & libc::SA_SIGINFO != 0 {
            type Three = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
            transmute::<usize, Three>(call.action.sa_sigaction)(call.signal, call.info, call.context);
        } else {
            transmute::<usize, extern "C" fn(i32)>(call.action.sa_sigaction)(call.signal);
        }
    }
}

/// Takes one pending signal of the set away, if there is one.
unsafe fn take_pending(set: &libc::sigset_t) -> bool {
    let no_time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the raw call, because glibc's wrapper is a cancellation point; the kernel's set has 8 bytes.
    let taken = unsafe {
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            ptr::from_ref(set),
            ptr::null_mut::<libc::siginfo_t>(),
            &raw const no_time,
            size_of::<u64>(),
        )
    };
    taken > 0
}
