//! Calling the user's code so that a C++ exception which nothing of his catches ends the process as it would without us.
//!
//! Such an exception looks for a handler up the stack: through Python, and through us. PyO3 catches panics, and any catch of
//! Rust's looks like a handler to it. The stack would be unwound up to there, and Rust, which cannot hold a foreign
//! exception, would abort: std::terminate() never called, its words ("terminate called after throwing an instance of
//! 'std::bad_alloc'") unsaid, the place of the throw gone, and we to blame. So the call goes through a frame that answers
//! the search with "there is no way on", upon which C++ calls std::terminate() where the exception was thrown.

use core::ffi::{c_int, c_void};
use std::arch::global_asm;

// Names and values of the Itanium C++ ABI for exceptions.
const SEARCH_PHASE: c_int = 1;
const FATAL_PHASE1_ERROR: c_int = 3;
const CONTINUE_UNWIND: c_int = 8;
/// Of Rust's own panics, which pass: PyO3 makes Python exceptions of them.
const RUST: u64 = u64::from_be_bytes(*b"MOZ\0RUST");

/// Asked by the unwinder about the frame below. Forced unwinding (pthread_exit) has no search, and passes.
extern "C" fn no_passage(
    _version: c_int,
    actions: c_int,
    class: u64,
    _exception: *mut c_void,
    _context: *mut c_void,
) -> c_int {
    if actions & SEARCH_PHASE != 0 && class != RUST {
        FATAL_PHASE1_ERROR
    } else {
        CONTINUE_UNWIND
    }
}

type Run = unsafe extern "C-unwind" fn(*mut c_void);

unsafe extern "C-unwind" {
    /// Calls `run(data)`.
    fn lastwords_crossing(data: *mut c_void, run: Run);
}

// 0x1b: the address of the routine is kept in four bytes, relative to where it is kept.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".hidden lastwords_crossing",
    ".globl lastwords_crossing",
    ".type lastwords_crossing,@function",
    "lastwords_crossing:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, {no_passage}",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "call rsi",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size lastwords_crossing, . - lastwords_crossing",
    no_passage = sym no_passage,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".hidden lastwords_crossing",
    ".globl lastwords_crossing",
    ".type lastwords_crossing,@function",
    "lastwords_crossing:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, {no_passage}",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset w30, -8",
    ".cfi_offset w29, -16",
    "mov x29, sp",
    ".cfi_def_cfa w29, 16",
    "blr x1",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa sp, 0",
    ".cfi_restore w30",
    ".cfi_restore w29",
    "ret",
    ".cfi_endproc",
    ".size lastwords_crossing, . - lastwords_crossing",
    no_passage = sym no_passage,
);

struct Call<F, R> {
    work: Option<F>,
    result: Option<R>,
}

unsafe extern "C-unwind" fn run<F: FnOnce() -> R, R>(data: *mut c_void) {
    // SAFETY: `call` below hands over a Call of these very types, and waits for us.
    let call = unsafe { &mut *data.cast::<Call<F, R>>() };
    call.result = call.work.take().map(|work| work());
}

/// `work()`, which calls code of the user.
pub(crate) fn call<F: FnOnce() -> R, R>(work: F) -> R {
    let mut call = Call {
        work: Some(work),
        result: None,
    };
    // SAFETY: `call` outlives the crossing, and `run` is the one of its types.
    unsafe { lastwords_crossing((&raw mut call).cast(), run::<F, R>) };
    match call.result {
        Some(result) => result,
        None => unreachable!("the crossing came back without having called"),
    }
}
