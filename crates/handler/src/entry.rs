//! The way in for a signal: the stack is put straight before compiled code runs on it.
//!
//! The ABI promises a function a stack aligned to 16 bytes, and the compiler uses instructions that fault where it is
//! not. The kernel keeps the promise for a signal's handler. qemu-user does not before its version 9.1 (seen with 7.2):
//! there the handler's first vector store faulted, the fault came back to the handler, and a SIGILL that the emulated
//! CPU had rightly raised ended as SIGSEGV with nothing recorded. tests/zoo has that death: `avx2-without-fma`.

/// `aligned!(entry, handler)` makes `entry`, which calls `handler` with the same arguments on an aligned stack.
macro_rules! aligned {
    ($entry:ident, $handler:ident) => {
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        unsafe extern "C" fn $entry(signal: i32, info: *mut libc::siginfo_t, context: *mut core::ffi::c_void) {
            // rbp survives the call (it is callee-saved) and brings the kernel's stack pointer back.
            core::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "and rsp, -16",
                "call {handler}",
                "mov rsp, rbp",
                "pop rbp",
                "ret",
                handler = sym $handler,
            )
        }

        #[cfg(not(target_arch = "x86_64"))]
        use $handler as $entry;
    };
}

pub(crate) use aligned;
