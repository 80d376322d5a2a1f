//! The one place that knows how this architecture lays out a signal's context.

use core::ffi::c_void;
use lastwords_blackbox::layout::Crash;

#[cfg(target_arch = "x86_64")]
mod arch {
    use super::{Crash, c_void};
    use lastwords_blackbox::layout::ARCHITECTURE_X86_64;

    /// The kernel's order of general registers, put into DWARF's.
    const DWARF_ORDER: [i32; 17] = [
        libc::REG_RAX,
        libc::REG_RDX,
        libc::REG_RCX,
        libc::REG_RBX,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_RBP,
        libc::REG_RSP,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
        libc::REG_RIP,
    ];
    pub(crate) const PC: usize = 16;
    pub(crate) const SP: usize = 7;
    /// The ABI lets a function use this much below its stack pointer.
    pub(crate) const RED_ZONE: u64 = 128;

    pub(crate) unsafe fn save(context: *mut c_void, crash: &mut Crash) {
        // SAFETY: the kernel's ucontext of this signal.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        for (to, from) in crash.registers.iter_mut().zip(DWARF_ORDER) {
            *to = read(registers, from);
        }
        crash.architecture = ARCHITECTURE_X86_64;
        crash.register_count = DWARF_ORDER.len() as u32;
        crash.flags = read(registers, libc::REG_EFL);
        crash.trap = read(registers, libc::REG_TRAPNO);
        crash.trap_error = read(registers, libc::REG_ERR);
    }

    fn read(registers: &[i64], which: i32) -> u64 {
        registers.get(which as usize).map_or(0, |value| *value as u64)
    }

    pub(crate) unsafe fn redirect(context: *mut c_void, pc: u64, sp: u64) {
        // SAFETY: the kernel's ucontext of this signal.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        if let Some(place) = registers.get_mut(libc::REG_RIP as usize) {
            *place = pc as i64;
        }
        if let Some(place) = registers.get_mut(libc::REG_RSP as usize) {
            *place = sp as i64;
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use super::{Crash, c_void};
    use lastwords_blackbox::layout::ARCHITECTURE_AARCH64;

    pub(crate) const PC: usize = 32;
    pub(crate) const SP: usize = 31;
    pub(crate) const RED_ZONE: u64 = 0;

    pub(crate) unsafe fn save(context: *mut c_void, crash: &mut Crash) {
        // SAFETY: the kernel's ucontext of this signal.
        let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        let all = machine.regs.iter().chain([&machine.sp, &machine.pc]);
        for (to, from) in crash.registers.iter_mut().zip(all) {
            *to = *from;
        }
        crash.architecture = ARCHITECTURE_AARCH64;
        crash.register_count = 33;
        crash.flags = machine.pstate;
    }

    pub(crate) unsafe fn redirect(context: *mut c_void, pc: u64, sp: u64) {
        // SAFETY: the kernel's ucontext of this signal.
        let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
        machine.pc = pc;
        machine.sp = sp;
    }
}

pub(crate) use arch::{RED_ZONE, redirect, save};

pub(crate) fn pc(crash: &Crash) -> u64 {
    crash.registers.get(arch::PC).copied().unwrap_or(0)
}

pub(crate) fn sp(crash: &Crash) -> u64 {
    crash.registers.get(arch::SP).copied().unwrap_or(0)
}
