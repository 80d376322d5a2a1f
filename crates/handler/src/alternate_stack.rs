//! A stack for the handler to run on: on a stack overflow there is no other.

use core::mem::zeroed;
use core::ptr;

/// A signal frame alone takes 11 KiB where the CPU has AMX; CPython's dumper and a nested fault run here
/// too. Only touched pages cost memory.
const SIZE: usize = 256 << 10;
/// What a stack that somebody else installed must have for us to leave it in place.
const ENOUGH: usize = 128 << 10;
const GUARD: usize = 4096;

/// Gives the calling thread an alternate stack that is large enough, if it has none.
pub fn ensure() -> bool {
    // SAFETY: asks and sets this thread's own alternate stack; the mapping is fresh and ours, and is
    // never freed while the thread could run on it.
    unsafe {
        let mut current: libc::stack_t = zeroed();
        if libc::sigaltstack(ptr::null(), &mut current) != 0 {
            return false;
        }
        let is_set = current.ss_flags & libc::SS_DISABLE == 0;
        if is_set && (current.ss_size >= ENOUGH || current.ss_flags & libc::SS_ONSTACK != 0) {
            return true;
        }
        let place = libc::mmap(
            ptr::null_mut(),
            SIZE + GUARD,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
            -1,
            0,
        );
        if place == libc::MAP_FAILED {
            return false;
        }
        libc::mprotect(place, GUARD, libc::PROT_NONE);
        let stack = libc::stack_t {
            ss_sp: place.cast::<u8>().wrapping_add(GUARD).cast(),
            ss_flags: 0,
            ss_size: SIZE,
        };
        libc::sigaltstack(&stack, ptr::null_mut()) == 0
    }
}
