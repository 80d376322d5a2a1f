//! Telling the watcher that this process exists, without waiting for it.
//!
//! A process sends the name of its box and a pidfd of itself over a Unix socket in the run's directory.
//! The pidfd travels as a file, so it stays valid in the socket's queue even when the process is dead
//! and reaped before the watcher looks: no status is ever lost to that race.
//!
//! SOCK_SEQPACKET, not SOCK_DGRAM: a datagram socket queues only net.unix.max_dgram_qlen messages (10 by
//! default), and 64 workers are forked at once.

use crate::recorder::PathBuffer;
use core::mem::{size_of, zeroed};
use core::ptr;

const PIDFD_ROOM: usize = 64;

/// Sends `box_name` (empty: no box could be made) to DIRECTORY/watcher. Nobody listening is no error.
pub(crate) fn announce(directory: &PathBuffer, box_name: &[u8]) {
    // SAFETY: all descriptors are made and closed here; every pointer handed to the kernel outlives its
    // call. MSG_DONTWAIT and SOCK_NONBLOCK: a watcher that is stuck must not hold up a worker.
    unsafe {
        let place = libc::open(
            directory.as_c_str().as_ptr(),
            libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC,
        );
        if place < 0 {
            return;
        }
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = libc::socket(libc::AF_UNIX, kind, 0);
        if socket >= 0 {
            if connect(socket, place) {
                let pidfd = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as i32;
                send(socket, pidfd, box_name);
                if pidfd >= 0 {
                    libc::close(pidfd);
                }
            }
            libc::close(socket);
        }
        libc::close(place);
    }
}

/// By way of /proc/self/fd, because a socket's path may have 107 bytes and a home directory more.
unsafe fn connect(socket: i32, place: i32) -> bool {
    let mut path = PathBuffer::new();
    path.push(b"/proc/self/fd/");
    path.push_number(place as u64);
    path.push(b"/watcher");
    // SAFETY: sockaddr_un is plain data; the path is far shorter than sun_path.
    unsafe {
        let mut address: libc::sockaddr_un = zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path.iter_mut().zip(path.as_bytes()) {
            *to = *from as libc::c_char;
        }
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        libc::connect(socket, ptr::from_ref(&address).cast(), length) == 0
    }
}

unsafe fn send(socket: i32, pidfd: i32, box_name: &[u8]) {
    // SAFETY: the control buffer is aligned for cmsghdr by its element type and larger than the one
    // descriptor needs; iov and message live until sendmsg returns.
    unsafe {
        let mut pid_and_name = [0_u8; 256];
        let pid = (libc::getpid() as u32).to_le_bytes();
        let filled = pid.iter().chain(box_name).count().min(pid_and_name.len());
        for (to, from) in pid_and_name.iter_mut().zip(pid.iter().chain(box_name)) {
            *to = *from;
        }
        let mut part = libc::iovec {
            iov_base: pid_and_name.as_mut_ptr().cast(),
            iov_len: filled,
        };
        let mut control = [0_u64; PIDFD_ROOM / 8];
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if pidfd >= 0 {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
            let head = libc::CMSG_FIRSTHDR(&message);
            if !head.is_null() {
                (*head).cmsg_level = libc::SOL_SOCKET;
                (*head).cmsg_type = libc::SCM_RIGHTS;
                (*head).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
                libc::CMSG_DATA(head).cast::<i32>().write_unaligned(pidfd);
            }
        }
        libc::sendmsg(socket, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    }
}
