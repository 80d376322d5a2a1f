//! Calling something that may crash, from inside the crash handler.
//!
//! The JVM guards every step of its error reports the same way: a step that faults is given up, the next
//! one runs. `setjmp` cannot be called from Rust, so the two instructions that matter are written out: the
//! call remembers its stack pointer, and a nested fault resumes behind the call with that stack pointer,
//! where the callee-saved registers lie.

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

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

pub(crate) type Step = unsafe extern "C" fn(*mut c_void);

unsafe extern "C" {
    fn lastwords_guarded_call(step: Step, argument: *mut c_void, save: *mut usize) -> i32;
    fn lastwords_guarded_fault();
}

/// One guarded call at a time, of one thread. The crash and the probe of the living have one each.
pub(crate) struct Guard {
    /// Stack pointer of the guarded call under way; zero: none.
    resume_at: AtomicUsize,
    thread: AtomicI32,
}

/// For the thread whose crash is being recorded.
pub(crate) static CRASH: Guard = Guard::new();
/// For the thread that takes a snapshot of a living process.
pub(crate) static PROBE: Guard = Guard::new();

impl Guard {
    const fn new() -> Self {
        Self {
            resume_at: AtomicUsize::new(0),
            thread: AtomicI32::new(0),
        }
    }

    /// Calls `step`; false if it faulted.
    ///
    /// # Safety
    /// One thread at a time, and with `resume` wired into the handler of its faults.
    pub(crate) unsafe fn call(&self, step: Step, argument: *mut c_void) -> bool {
        // SAFETY: the assembly above keeps the C calling convention.
        unsafe {
            let me = libc::syscall(libc::SYS_gettid) as i32;
            self.thread.store(me, Ordering::Relaxed);
            let faulted = lastwords_guarded_call(step, argument, self.resume_at.as_ptr());
            self.resume_at.store(0, Ordering::Relaxed);
            self.thread.store(0, Ordering::Relaxed);
            faulted == 0
        }
    }

    /// In a fault of `thread`: makes the handler's return land behind the guarded call. False: none is under
    /// way there.
    ///
    /// # Safety
    /// `context` is the third argument of a signal handler.
    pub(crate) unsafe fn resume(&self, thread: i32, context: *mut c_void) -> bool {
        let stack_pointer = self.resume_at.load(Ordering::Relaxed);
        if stack_pointer == 0 || self.thread.load(Ordering::Relaxed) != thread {
            return false;
        }
        let landing = lastwords_guarded_fault as *const () as usize;
        // SAFETY: the kernel gave us this context and reads it back when the handler returns.
        unsafe { crate::registers::redirect(context, landing as u64, stack_pointer as u64) };
        true
    }
}
