//! Waiting for time to pass, for somebody to wake us, and for processes to end, all at once.

use crate::system::{event_descriptor, ring, silence};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const MOST_AT_ONCE: usize = 64;
const AWAKE: u64 = u64::MAX;
const MILLISECOND: u64 = 1_000_000;

pub(crate) struct Waiting {
    epoll: OwnedFd,
    bell: OwnedFd,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    Wake,
    /// Who was listened to under this number has ended.
    End(u64),
}

impl Waiting {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a new descriptor that nobody else owns.
        let epoll = unsafe {
            match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        let waiting = Self {
            epoll,
            bell: event_descriptor()?,
        };
        waiting.add(waiting.bell.as_raw_fd(), libc::EPOLLIN as u32, AWAKE)?;
        Ok(waiting)
    }

    /// Tells once, when the process of this pidfd ends. Its owner may close it before: then nothing is told.
    pub(crate) fn listen(&self, pidfd: RawFd, number: u64) {
        let _ = self.add(pidfd, (libc::EPOLLIN | libc::EPOLLONESHOT) as u32, number);
    }

    pub(crate) fn wake(&self) {
        ring(&self.bell);
    }

    /// What came first, if anything did before `pause` (nanoseconds) was over. `None`: as long as it takes.
    pub(crate) fn wait(&self, pause: Option<u64>) -> Vec<Came> {
        let patience = pause.map_or(-1, |pause| {
            i32::try_from(pause.div_ceil(MILLISECOND)).unwrap_or(i32::MAX)
        });
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST_AT_ONCE];
        // SAFETY: the kernel fills at most as many events as there is room for.
        let count = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                MOST_AT_ONCE as i32,
                patience,
            )
        };
        let count = usize::try_from(count).unwrap_or(0);
        events
            .iter()
            .take(count)
            .map(|event| self.came(event.u64))
            .collect()
    }

    fn came(&self, number: u64) -> Came {
        if number == AWAKE {
            silence(&self.bell);
            return Came::Wake;
        }
        Came::End(number)
    }

    fn add(&self, descriptor: RawFd, events: u32, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: number };
        // SAFETY: one valid event, copied by the kernel.
        match unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                descriptor,
                &raw mut event,
            )
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_and_somebody_wakes_us() {
        let waiting = Waiting::new().unwrap();
        assert!(waiting.wait(Some(MILLISECOND)).is_empty());
        waiting.wake();
        waiting.wake();
        assert_eq!(waiting.wait(None), [Came::Wake]);
        assert!(waiting.wait(Some(0)).is_empty());
    }

    #[test]
    fn what_is_no_descriptor_is_borne() {
        let waiting = Waiting::new().unwrap();
        waiting.listen(-1, 1);
        assert!(waiting.wait(Some(0)).is_empty());
    }
}
