//! A descriptor from which signals are read together with who sent them.
//!
//! `lastwords run` must tell a Ctrl-C, which the terminal has already sent to the whole process group,
//! from a `kill` of itself alone, which it has to pass on. Only siginfo tells them apart.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A non-blocking signalfd for `signals`. The caller blocks them; reading is read(2).
pub fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: sigset_t is plain data that sigemptyset fills; the descriptor that the kernel returns is
    // new and owned by nobody else.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            if libc::sigaddset(&raw mut set, *signal) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::mem::{offset_of, size_of};

    #[test]
    fn a_signal_is_read_with_its_sender() {
        // SAFETY: the mask is this test thread's own, and the signal is sent to this thread alone.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGUSR1);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            let descriptor = signal_descriptor(&[libc::SIGUSR1]).unwrap();
            libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1);
            let mut bytes = [0_u8; size_of::<libc::signalfd_siginfo>()];
            File::from(descriptor).read_exact(&mut bytes).unwrap();
            let sender = offset_of!(libc::signalfd_siginfo, ssi_pid);
            assert_eq!(bytes[..4], (libc::SIGUSR1 as u32).to_ne_bytes());
            assert_eq!(bytes[sender..sender + 4], std::process::id().to_ne_bytes());
        }
    }

    #[test]
    fn no_such_signal_is_an_error() {
        assert!(signal_descriptor(&[1000]).is_err());
    }
}
