//! How any process of the machine ended, told by the kernel's proc connector: for kernels that know no
//! PIDFD_GET_INFO. It needs root, and the first PID namespace.
//!
//! The kernel sends a message for each fork, exec and exit on the machine; a filter in front of the socket lets only
//! exits through. They are kept for a while, whoever they are of: a process may have ended before we hear of it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::pidfd::RawStatus;

/// Exits that are kept. One that nobody asks for is pushed out by newer ones.
const MOST_EXITS: usize = 1 << 16;
const RECEIVE_BUFFER: libc::c_int = 8 << 20;
const PATIENCE: Duration = Duration::from_millis(200);

// include/uapi/linux/connector.h and cn_proc.h
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const PROC_EVENT_NONE: u32 = 0;
const PROC_EVENT_EXIT: u32 = 0x8000_0000;

/// Where things are in a message: a netlink header, `struct cn_msg`, then `struct proc_event`.
const NETLINK_HEADER: usize = 16;
const EVENT: usize = NETLINK_HEADER + 20;
const EVENT_DATA: usize = EVENT + 16;
const LONGEST_MESSAGE: usize = 1024;

pub struct ProcConnector {
    socket: OwnedFd,
    exits: Exits,
}

impl ProcConnector {
    /// Fails where the kernel does not have it (ENOPROTOOPT, EPROTONOSUPPORT), where we may not listen (EPERM), and
    /// where it stays silent (ETIMEDOUT): it tells nothing to whoever lives in a PID namespace of their own.
    pub fn listen() -> io::Result<Self> {
        let socket = open()?;
        let mut connector = Self {
            socket,
            exits: Exits::default(),
        };
        connector.only_exits_and_answers()?;
        connector.subscribe()?;
        connector.await_answer()?;
        Ok(connector)
    }

    /// Readable when somebody has ended.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// How this process ended, waiting a moment for the word: a pidfd can be readable a little before it comes.
    /// `None`: it lives, or the word was lost because too many came at once. Asked again, it is no longer there.
    pub fn take(&mut self, pid: u32) -> Option<RawStatus> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.read_all();
            if let Some(status) = self.exits.take(pid) {
                return Some(status);
            }
            if !self.wait(until) {
                return None;
            }
        }
    }

    /// To be called often enough that the socket's buffer never fills.
    pub fn read_all(&mut self) {
        let mut message = [0_u8; LONGEST_MESSAGE];
        while let Some(length) = self.receive(&mut message) {
            if let Some(Event::Exit(exit)) = message.get(..length).and_then(parse) {
                self.exits.put(&exit);
            }
        }
    }

    /// `None`: nothing more for now. ENOBUFS (messages were lost) is not the end: the next read goes on.
    fn receive(&self, message: &mut [u8]) -> Option<usize> {
        loop {
            // SAFETY: the kernel writes at most the length of `message`.
            let length = unsafe {
                libc::recv(
                    self.descriptor(),
                    message.as_mut_ptr().cast(),
                    message.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            if let Ok(length) = usize::try_from(length) {
                return Some(length);
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::ENOBUFS | libc::EINTR) => {}
                _ => return None,
            }
        }
    }

    /// `false`: nothing came in time. On a busy machine there is always something that comes.
    fn wait(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let mut entry = libc::pollfd {
            fd: self.descriptor(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry.
        unsafe { !left.is_zero() && libc::poll(&raw mut entry, 1, left.as_millis() as libc::c_int) > 0 }
    }

    /// A classic BPF program that looks at `what` of each event, and drops all but two kinds in the kernel.
    fn only_exits_and_answers(&self) -> io::Result<()> {
        let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        let give = (libc::BPF_RET | libc::BPF_K) as u16;
        let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
        // BPF loads in network order.
        let mut program = [
            step(load, EVENT as u32, 0, 0),
            step(jump, PROC_EVENT_EXIT.to_be(), 1, 0),
            step(jump, PROC_EVENT_NONE, 0, 1),
            step(give, u32::MAX, 0, 0),
            step(give, 0, 0, 0),
        ];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        set_option(&self.socket, libc::SO_ATTACH_FILTER, &filter)
    }

    fn subscribe(&self) -> io::Result<()> {
        let mut message = Vec::with_capacity(EVENT + 4);
        let header = [(EVENT + 4) as u32, libc::NLMSG_DONE as u32, 0, 0];
        header.iter().for_each(|word| message.extend(word.to_ne_bytes()));
        let connector = [CN_IDX_PROC, CN_VAL_PROC, 0, 0, 4, PROC_CN_MCAST_LISTEN];
        connector
            .iter()
            .for_each(|word| message.extend(word.to_ne_bytes()));
        // SAFETY: the kernel reads the length of `message`.
        let sent = unsafe { libc::send(self.descriptor(), message.as_ptr().cast(), message.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// The kernel answers a subscription with an event of its own that carries an error number.
    fn await_answer(&mut self) -> io::Result<()> {
        let mut message = [0_u8; LONGEST_MESSAGE];
        let until = Instant::now() + PATIENCE;
        while self.wait(until) {
            let Some(length) = self.receive(&mut message) else {
                continue;
            };
            match message.get(..length).and_then(parse) {
                Some(Event::Answer { error: 0 }) => return Ok(()),
                Some(Event::Answer { error }) => return Err(io::Error::from_raw_os_error(error)),
                Some(Event::Exit(exit)) => self.exits.put(&exit),
                None => {}
            }
        }
        Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
    }
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: a new descriptor that nobody else owns.
    let socket = unsafe {
        match libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_CONNECTOR) {
            -1 => return Err(io::Error::last_os_error()),
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    // The first lifts the machine's limit, and needs a capability that the connector needs anyway.
    if set_option(&socket, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER).is_err() {
        let _ = set_option(&socket, libc::SO_RCVBUF, &RECEIVE_BUFFER);
    }
    // SAFETY: plain data; zero is the kernel as the peer, and a number of its choice for us.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = CN_IDX_PROC;
    let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: a valid address and its length.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_option<T>(socket: &OwnedFd, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let value = (value as *const T).cast();
    // SAFETY: the kernel reads `length` bytes at `value`.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[derive(PartialEq, Eq, Debug)]
enum Event {
    Answer { error: i32 },
    Exit(Exit),
}

/// One thread has ended.
#[derive(PartialEq, Eq, Debug)]
struct Exit {
    thread: u32,
    process: u32,
    status: RawStatus,
}

fn parse(message: &[u8]) -> Option<Event> {
    let word = |place: usize| {
        let bytes = message.get(place..place + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    match word(EVENT)? {
        PROC_EVENT_NONE => Some(Event::Answer {
            error: word(EVENT_DATA)? as i32,
        }),
        PROC_EVENT_EXIT => Some(Event::Exit(Exit {
            thread: word(EVENT_DATA)?,
            process: word(EVENT_DATA + 4)?,
            status: RawStatus(word(EVENT_DATA + 8)? as i32),
        })),
        _ => None,
    }
}

/// The last word of each process that has ended. Every thread sends one: those of threads that ended before it are no
/// end, and when all end together each says the same. Where the main thread has gone before the others
/// (pthread_exit), theirs are the end.
#[derive(Default)]
struct Exits {
    last: HashMap<u32, RawStatus>,
    order: VecDeque<u32>,
}

impl Exits {
    fn put(&mut self, exit: &Exit) {
        let is_known = self.last.contains_key(&exit.process);
        if !is_known && exit.thread != exit.process {
            return;
        }
        self.last.insert(exit.process, exit.status);
        if is_known {
            return;
        }
        self.order.push_back(exit.process);
        while self.order.len() > MOST_EXITS {
            if let Some(oldest) = self.order.pop_front() {
                self.last.remove(&oldest);
            }
        }
    }

    fn take(&mut self, process: u32) -> Option<RawStatus> {
        let found = self.last.remove(&process)?;
        self.order.retain(|one| *one != process);
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn exit_message(thread: u32, process: u32, status: u32) -> Vec<u8> {
        let mut message = vec![0_u8; EVENT];
        for word in [PROC_EVENT_EXIT, 0, 0, 0, thread, process, status, 17] {
            message.extend(word.to_ne_bytes());
        }
        message
    }

    #[test]
    fn messages_of_any_length_are_borne() {
        let whole = exit_message(7, 5, 0x300);
        let exit = Event::Exit(Exit {
            thread: 7,
            process: 5,
            status: RawStatus(0x300),
        });
        assert_eq!(parse(&whole), Some(exit));
        for length in 0..EVENT_DATA + 12 {
            assert_eq!(parse(whole.get(..length).unwrap()), None, "{length}");
        }
    }

    fn exit(thread: u32, process: u32, status: i32) -> Exit {
        Exit {
            thread,
            process,
            status: RawStatus(status),
        }
    }

    #[test]
    fn a_thread_that_ends_is_no_end_of_its_process() {
        let mut exits = Exits::default();
        exits.put(&exit(7, 5, 0));
        assert_eq!(exits.take(5), None);
    }

    #[test]
    fn the_last_word_of_a_process_counts_and_is_given_once() {
        let mut exits = Exits::default();
        exits.put(&exit(5, 5, 0));
        exits.put(&exit(7, 5, 9));
        assert_eq!(exits.take(5), Some(RawStatus(9)));
        assert_eq!(exits.take(5), None);
        assert!(exits.order.is_empty());
    }

    #[test]
    fn what_nobody_asks_for_is_pushed_out() {
        let mut exits = Exits::default();
        (0..MOST_EXITS as u32 + 10).for_each(|pid| exits.put(&exit(pid, pid, 0)));
        assert_eq!((exits.last.len(), exits.order.len()), (MOST_EXITS, MOST_EXITS));
        assert_eq!(exits.take(9), None);
        assert!(exits.take(10).is_some());
    }

    /// `None` where this machine does not let us listen: the test then has nothing to say.
    fn connector() -> Option<ProcConnector> {
        ProcConnector::listen().ok()
    }

    #[test]
    fn ends_that_others_waited_for() {
        let Some(mut connector) = connector() else { return };
        for (script, expected) in [("exit 42", 42 << 8), ("kill -9 $$", 9), ("kill -15 $$", 15)] {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            child.wait().unwrap();
            assert_eq!(connector.take(child.id()), Some(RawStatus(expected)), "{script}");
        }
    }

    #[test]
    fn a_living_process_has_no_end() {
        let Some(mut connector) = connector() else { return };
        assert_eq!(connector.take(std::process::id()), None);
    }
}
