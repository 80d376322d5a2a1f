//! Small questions to the kernel that the sampler asks.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub(crate) fn event_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor that nobody else owns.
    unsafe {
        match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

pub(crate) fn ring(bell: &OwnedFd) {
    let one = 1_u64;
    // SAFETY: our own eventfd, eight bytes. A full counter is as good as a ring.
    unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), 8) };
}

pub(crate) fn silence(bell: &OwnedFd) {
    let mut count = 0_u64;
    // SAFETY: our own eventfd, non-blocking, eight bytes.
    unsafe { libc::read(bell.as_raw_fd(), (&raw mut count).cast(), 8) };
}

pub(crate) struct MachineMemory {
    pub(crate) total_kib: u64,
    pub(crate) free_kib: u64,
    pub(crate) has_swap: bool,
}

pub(crate) fn machine_memory() -> MachineMemory {
    // SAFETY: sysinfo is plain data that the kernel fills.
    let info = unsafe {
        let mut info: libc::sysinfo = std::mem::zeroed();
        libc::sysinfo(&raw mut info);
        info
    };
    let unit = u64::from(info.mem_unit.max(1));
    MachineMemory {
        total_kib: (info.totalram as u64).saturating_mul(unit) / 1024,
        free_kib: (info.freeram as u64).saturating_mul(unit) / 1024,
        has_swap: info.totalswap > 0,
    }
}

pub(crate) fn has_ended(pidfd: RawFd) -> bool {
    let mut entry = libc::pollfd {
        fd: pidfd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry, and no waiting.
    unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
}

/// Signals of the job are for the thread that reads them.
pub(crate) fn block_signals() {
    // SAFETY: the mask of this thread alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// The clock that black boxes are written with.
pub(crate) fn now_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// The CPU time of this thread: on a busy machine, what something costs is not how long it takes.
pub(crate) fn thread_cpu_ns() -> u64 {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    // SAFETY: timespec is plain data that the kernel fills.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &raw mut time);
        time
    };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}
