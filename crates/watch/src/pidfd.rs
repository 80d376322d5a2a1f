//! How a process ended, asked through a pidfd.
//!
//! `exit_status` works for any process whose pidfd was opened while it lived (Linux 6.15 and later), and
//! takes nothing away from the parent's own wait. `peek_child` is for our real children.

use std::io;
use std::mem::size_of;
use std::os::fd::RawFd;

/// A wait status as wait(2) gives it: signal in the low seven bits, core flag, exit code above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawStatus(pub i32);

#[derive(Debug)]
pub enum Refused {
    /// This kernel cannot say (older than 6.15, or an emulated one).
    Unsupported,
    /// The descriptor is no pidfd, or the process is no child of ours.
    Error(io::Error),
}

/// `struct pidfd_info` of include/uapi/linux/pidfd.h in its first version (PIDFD_INFO_SIZE_VER0, 64 bytes),
/// which every later kernel still takes. libc does not have it yet in the versions we build with.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup_id: u64,
    pid: u32,
    thread_group: u32,
    parent: u32,
    real_user: u32,
    real_group: u32,
    effective_user: u32,
    effective_group: u32,
    saved_user: u32,
    saved_group: u32,
    filesystem_user: u32,
    filesystem_group: u32,
    exit_code: i32,
}

const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// `_IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info)`: direction, size, type, number.
const PIDFD_GET_INFO: u64 = (3 << 30) | ((size_of::<PidfdInfo>() as u64) << 16) | (0xff << 8) | 11;

/// The status of an ended **and reaped** process; `None` while it lives or is a zombie.
pub fn exit_status(pidfd: RawFd) -> Result<Option<RawStatus>, Refused> {
    let mut info = PidfdInfo {
        mask: PIDFD_INFO_EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: the kernel writes at most the size that is encoded in the request, which is that of `info`.
    let answer = unsafe { libc::ioctl(pidfd, PIDFD_GET_INFO as _, &raw mut info) };
    if answer != 0 {
        return Err(refusal(io::Error::last_os_error()));
    }
    Ok((info.mask & PIDFD_INFO_EXIT != 0).then_some(RawStatus(info.exit_code)))
}

/// ENOTTY and EINVAL: the kernel has no such call. ESRCH: 6.13 and 6.14 have it, and know of no reaped
/// process even when asked for its exit; since 6.15 that question is always answered.
fn refusal(error: io::Error) -> Refused {
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::ESRCH) => {
            Refused::Unsupported
        }
        _ => Refused::Error(error),
    }
}

/// The status of a real child that ended, leaving the zombie for whoever waits for it.
///
/// Never call it for a child that another thread waits for: the two race, and the loser sees ECHILD.
pub fn peek_child(pidfd: RawFd) -> Result<Option<RawStatus>, Refused> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: siginfo_t is plain data, and waitid fills it or leaves it zero.
    let (answer, found) = unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        let answer = libc::waitid(libc::P_PIDFD, pidfd as libc::id_t, &raw mut found, options);
        (answer, found)
    };
    if answer != 0 {
        return Err(child_refusal(io::Error::last_os_error()));
    }
    // SAFETY: after a successful waitid the SIGCHLD fields hold, or are zero: nothing has ended.
    let (pid, status) = unsafe { (found.si_pid(), found.si_status()) };
    Ok((pid != 0).then(|| raw_status(found.si_code, status)))
}

/// Before Linux 5.4 waitid does not know P_PIDFD.
fn child_refusal(error: io::Error) -> Refused {
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::ENOSYS) => Refused::Unsupported,
        _ => Refused::Error(error),
    }
}

/// waitid tells code and status apart; everybody else speaks in wait statuses.
fn raw_status(code: i32, status: i32) -> RawStatus {
    const CORE_DUMPED: i32 = 0x80;
    RawStatus(match code {
        libc::CLD_KILLED => status & 0x7f,
        libc::CLD_DUMPED => (status & 0x7f) | CORE_DUMPED,
        _ => (status & 0xff) << 8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, ExitStatus};

    fn open(child: &Child) -> RawFd {
        // SAFETY: pidfd_open only makes a descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) } as RawFd;
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        fd
    }

    fn close(fd: RawFd) {
        // SAFETY: a descriptor that `open` made, closed once.
        unsafe { libc::close(fd) };
    }

    fn wait_until_ended(fd: RawFd) {
        let mut entry = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry.
        assert_eq!(unsafe { libc::poll(&raw mut entry, 1, 10_000) }, 1);
    }

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    /// `None` where this machine's kernel is too old: the test then has nothing to say.
    fn status_or_unsupported(fd: RawFd) -> Option<Option<RawStatus>> {
        match exit_status(fd) {
            Ok(status) => Some(status),
            Err(Refused::Unsupported) => None,
            Err(Refused::Error(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn the_structure_is_the_kernels_first_version() {
        assert_eq!(size_of::<PidfdInfo>(), 64);
        assert_eq!(PIDFD_GET_INFO, 0xc040_ff0b);
    }

    #[test]
    fn a_reaped_process_still_has_its_status() {
        for (script, expected) in [("exit 42", 42 << 8), ("kill -9 $$", 9), ("kill -15 $$", 15)] {
            let mut child = shell(script);
            let fd = open(&child);
            wait_until_ended(fd);
            child.wait().unwrap();
            if let Some(status) = status_or_unsupported(fd) {
                assert_eq!(status, Some(RawStatus(expected)), "{script}");
            }
            close(fd);
        }
    }

    #[test]
    fn a_living_process_and_a_zombie_have_none() {
        let mut child = shell("read nothing");
        let fd = open(&child);
        if let Some(status) = status_or_unsupported(fd) {
            assert_eq!(status, None);
        }
        child.kill().unwrap();
        wait_until_ended(fd);
        if let Some(status) = status_or_unsupported(fd) {
            assert_eq!(status, None, "a zombie");
        }
        child.wait().unwrap();
        close(fd);
    }

    #[test]
    fn peeking_leaves_the_zombie_for_the_parent() {
        let mut child = shell("exit 7");
        let fd = open(&child);
        wait_until_ended(fd);
        assert_eq!(peek_child(fd).ok().flatten(), Some(RawStatus(7 << 8)));
        assert_eq!(child.wait().unwrap(), ExitStatus::from_raw(7 << 8));
        assert!(matches!(peek_child(fd), Err(Refused::Error(error))
            if error.raw_os_error() == Some(libc::ECHILD)));
        close(fd);
    }

    #[test]
    fn what_is_no_pidfd_is_refused() {
        let pipe = std::io::pipe().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&pipe.0);
        assert!(matches!(exit_status(fd), Err(Refused::Unsupported)));
        assert!(matches!(exit_status(-1), Err(Refused::Error(_))));
    }

    #[test]
    fn statuses_of_waitid_become_those_of_wait() {
        assert_eq!(raw_status(libc::CLD_EXITED, 3), RawStatus(0x300));
        assert_eq!(raw_status(libc::CLD_KILLED, 9), RawStatus(9));
        assert_eq!(raw_status(libc::CLD_DUMPED, 11), RawStatus(0x8b));
    }
}
