//! An alternate stack for every thread, those that C code starts included.
//!
//! A stack overflow on a thread without one is a death without a record: the kernel has nowhere to put the
//! signal's frame. So every `pthread_create` of the process goes through ours, which gives the new thread a
//! stack to crash on and takes it away again when the thread ends.

use crate::got;
use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use lastwords_blackbox::layout::EventKind;
use lastwords_blackbox::live;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create =
    unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> i32;

const NAME: &CStr = c"pthread_create";
const SIZE: usize = 128 << 10;
const GUARD: usize = 4096;

/// What the new thread needs to know, kept at the top of its alternate stack: nothing else is allocated.
#[repr(C)]
struct Begin {
    start: Start,
    argument: *mut c_void,
    place: *mut c_void,
}

static REAL: AtomicUsize = AtomicUsize::new(0);
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Redirects `pthread_create` in everything that is loaded by now.
pub(crate) fn cover() -> usize {
    if REAL.load(Ordering::Relaxed) == 0 && !prepare() {
        return 0;
    }
    got::redirect(NAME, create as *const () as usize)
}

/// Finds what `cover` will redirect, and redirects nothing.
pub(crate) fn note() {
    if REAL.load(Ordering::Relaxed) != 0 || prepare() {
        got::note(NAME, create as *const () as usize);
    }
}

fn prepare() -> bool {
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: constant name; the key's destructor only frees what `begin` stored under it.
    unsafe {
        let real = libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr());
        if real.is_null() || libc::pthread_key_create(&mut key, Some(free)) != 0 {
            return false;
        }
        KEY.store(key, Ordering::Relaxed);
        REAL.store(real as usize, Ordering::Release);
    }
    true
}

unsafe extern "C" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> i32 {
    // SAFETY: REAL is set before any slot points here; the mapping is ours and handed to the new thread.
    unsafe {
        let real = core::mem::transmute::<usize, Create>(REAL.load(Ordering::Acquire));
        live::event(EventKind::ThreadStart, start as *const () as i64, 0, b"");
        let place = libc::mmap(
            ptr::null_mut(),
            SIZE + GUARD,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
            -1,
            0,
        );
        if place == libc::MAP_FAILED {
            return real(thread, attributes, start, argument);
        }
        libc::mprotect(place, GUARD, libc::PROT_NONE);
        let begin = top(place);
        *begin = Begin {
            start,
            argument,
            place,
        };
        let created = real(thread, attributes, begin_thread, begin.cast());
        if created != 0 {
            libc::munmap(place, SIZE + GUARD);
        }
        created
    }
}

fn top(place: *mut c_void) -> *mut Begin {
    let below = (size_of::<Begin>() + 63) & !63;
    place.cast::<u8>().wrapping_add(SIZE + GUARD - below).cast()
}

extern "C" fn begin_thread(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `create` made it for this thread alone. The stack reaches up to it, not over it.
    unsafe {
        let Begin {
            start,
            argument,
            place,
        } = argument.cast::<Begin>().read();
        let low = place.cast::<u8>().wrapping_add(GUARD);
        let stack = libc::stack_t {
            ss_sp: low.cast(),
            ss_flags: 0,
            ss_size: top(place) as usize - low as usize,
        };
        if libc::sigaltstack(&stack, ptr::null_mut()) == 0 {
            libc::pthread_setspecific(KEY.load(Ordering::Relaxed), place);
        } else {
            libc::munmap(place, SIZE + GUARD);
        }
        start(argument)
    }
}

/// The thread ends: nothing may run on the stack any more when it goes.
unsafe extern "C" fn free(place: *mut c_void) {
    // SAFETY: the mapping that `create` made for this thread.
    unsafe {
        let off = libc::stack_t {
            ss_sp: ptr::null_mut(),
            ss_flags: libc::SS_DISABLE,
            ss_size: 0,
        };
        libc::sigaltstack(&off, ptr::null_mut());
        libc::munmap(place, SIZE + GUARD);
    }
}
