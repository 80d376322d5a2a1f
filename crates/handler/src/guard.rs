//! Calling something that may crash, from inside the crash handler.
//!
//! The JVM guards every step of its error reports the same way: a step that faults is given up, the next
//! one runs. `setjmp` cannot be called from Rust, so the two instructions that matter are written out: the
//! call remembers its stack pointer, and a nested fault resumes behind the call with that stack pointer,
//! where the callee-saved registers lie.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".hidden lastwords_guarded_call",
    ".hidden lastwords_guarded_fault",
    ".globl lastwords_guarded_call",
    ".globl lastwords_guarded_fault",
    // (step: rdi, argument: rsi, save: rdx) -> eax: 0 returned, 1 faulted
    "lastwords_guarded_call:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "mov [rdx], rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "xor eax, eax",
    "2:",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    "lastwords_guarded_fault:",
    "mov eax, 1",
    "jmp 2b",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".hidden lastwords_guarded_call",
    ".hidden lastwords_guarded_fault",
    ".globl lastwords_guarded_call",
    ".globl lastwords_guarded_fault",
    // (step: x0, argument: x1, save: x2) -> w0: 0 returned, 1 faulted
    "lastwords_guarded_call:",
    "stp x29, x30, [sp, #-160]!",
    "stp x19, x20, [sp, #16]",
    "stp x21, x22, [sp, #32]",
    "stp x23, x24, [sp, #48]",
    "stp x25, x26, [sp, #64]",
    "stp x27, x28, [sp, #80]",
    "stp d8, d9, [sp, #96]",
    "stp d10, d11, [sp, #112]",
    "stp d12, d13, [sp, #128]",
    "stp d14, d15, [sp, #144]",
    "mov x9, sp",
    "str x9, [x2]",
    "mov x9, x0",
    "mov x0, x1",
    "blr x9",
    "mov w0, #0",
    "2:",
    "ldp d14, d15, [sp, #144]",
    "ldp d12, d13, [sp, #128]",
    "ldp d10, d11, [sp, #112]",
    "ldp d8, d9, [sp, #96]",
    "ldp x27, x28, [sp, #80]",
    "ldp x25, x26, [sp, #64]",
    "ldp x23, x24, [sp, #48]",
    "ldp x21, x22, [sp, #32]",
    "ldp x19, x20, [sp, #16]",
    "ldp x29, x30, [sp], #160",
    "ret",
    "lastwords_guarded_fault:",
    "mov w0, #1",
    "b 2b",
);

type Step = unsafe extern "C" fn(*mut c_void);

unsafe extern "C" {
    fn lastwords_guarded_call(step: Step, argument: *mut c_void, save: *mut usize) -> i32;
    fn lastwords_guarded_fault();
}

/// Stack pointer of the guarded call under way; zero: none.
static RESUME_AT: AtomicUsize = AtomicUsize::new(0);

/// Calls `step`; false if it faulted.
///
/// # Safety
/// Only one thread at a time (the owner of the crash), and only with `resume` wired into its handler.
pub(crate) unsafe fn call(step: Step, argument: *mut c_void) -> bool {
    // SAFETY: the assembly above keeps the C calling convention.
    let faulted = unsafe { lastwords_guarded_call(step, argument, RESUME_AT.as_ptr()) };
    RESUME_AT.store(0, Ordering::Relaxed);
    faulted == 0
}

/// In a nested fault: makes the handler's return land behind the guarded call. False: none is under way.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub(crate) unsafe fn resume(context: *mut c_void) -> bool {
    let stack_pointer = RESUME_AT.load(Ordering::Relaxed);
    if stack_pointer == 0 {
        return false;
    }
    let landing = lastwords_guarded_fault as *const () as usize;
    // SAFETY: the kernel gave us this context and reads it back when the handler returns.
    unsafe { crate::registers::redirect(context, landing as u64, stack_pointer as u64) };
    true
}
