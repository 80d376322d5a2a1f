//! The one box of this process: made once, renewed in every forked child, found by the handler.
//!
//! All state is a few atomics and a directory name that is written once, before anything else can read
//! it. That is what makes it usable between fork and exec and inside a signal handler.

use crate::announce::announce;
use crate::clock;
use crate::file::{self, BoxFile, Refused, file_identity};
use crate::identity;
use crate::layout::{CRASH_AT, Crash, EventKind, IDENTITY_AT, Identity, PYTHON_AT};
use crate::live;
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

const PATH_MAX: usize = 4096;

/// A path built without allocation; what does not fit is cut, and then simply does not open.
pub struct PathBuffer {
    bytes: [u8; PATH_MAX],
    length: usize,
}

impl PathBuffer {
    pub const fn new() -> Self {
        Self {
            bytes: [0; PATH_MAX],
            length: 0,
        }
    }

    pub fn push(&mut self, text: &[u8]) {
        for byte in text {
            if self.length + 1 < PATH_MAX
                && let Some(place) = self.bytes.get_mut(self.length)
            {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    pub fn push_number(&mut self, mut value: u64) {
        let mut digits = [0_u8; 20];
        let mut count = 0;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (value % 10) as u8;
            value /= 10;
            count += 1;
            if value == 0 {
                break;
            }
        }
        self.push(digits.get(20 - count..).unwrap_or(&[]));
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl Default for PathBuffer {
    fn default() -> Self {
        Self::new()
    }
}

struct WrittenOnce(UnsafeCell<PathBuffer>);
// SAFETY: written by `start` alone, before STARTED is set; only read after.
unsafe impl Sync for WrittenOnce {}

static DIRECTORY: WrittenOnce = WrittenOnce(UnsafeCell::new(PathBuffer::new()));
/// The box's own path: written when the box is made, which is before any thread of this process could read it.
static BOX_PATH: WrittenOnce = WrittenOnce(UnsafeCell::new(PathBuffer::new()));
static STARTED: AtomicBool = AtomicBool::new(false);
static BASE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static BOX_FD: AtomicI32 = AtomicI32::new(-1);
/// A second descriptor of the same file that stands at the Python section: CPython's traceback dumper
/// was given this number once and writes to it for ever, so the number must stay the same over forks.
static TEXT_FD: AtomicI32 = AtomicI32::new(-1);
/// Device and inode of the box that both descriptors above belong to.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
/// Descriptors are moved up here, out of the way of programs that count on small numbers.
const LOWEST_FD: i32 = 200;

fn directory() -> &'static PathBuffer {
    // SAFETY: see WrittenOnce.
    unsafe { &*DIRECTORY.0.get() }
}

/// The start of the mapped box, or null when nothing is recorded.
#[inline]
pub fn base() -> *mut u8 {
    BASE.load(Ordering::Acquire)
}

/// A struct of the mapped box. Null stays null.
#[inline]
pub fn section<T>(offset: u64) -> *mut T {
    let base = base();
    if base.is_null() {
        return ptr::null_mut();
    }
    base.wrapping_add(offset as usize).cast()
}

pub fn crash() -> *mut Crash {
    section(CRASH_AT)
}

pub fn identity() -> *mut Identity {
    section(IDENTITY_AT)
}

/// The descriptor to write the box with, if that number is still ours. Programs close descriptors they
/// do not know (`os.closerange`) and get the number again for a file of their own: never write there.
pub fn box_fd() -> Option<i32> {
    still_ours(BOX_FD.load(Ordering::Relaxed))
}

pub fn text_fd() -> Option<i32> {
    still_ours(TEXT_FD.load(Ordering::Relaxed))
}

fn still_ours(fd: i32) -> Option<i32> {
    let ours = (DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed));
    (fd >= 0 && file_identity(fd) == Some(ours)).then_some(fd)
}

pub fn is_started() -> bool {
    STARTED.load(Ordering::Acquire)
}

/// Starts recording this process in `run_directory`. Called once, from ordinary code.
pub fn start(run_directory: &[u8]) -> Result<(), Refused> {
    if STARTED.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    // SAFETY: the swap above lets one caller in, once.
    unsafe { (*DIRECTORY.0.get()).push(run_directory) };
    open_box(None)
}

/// In the child of a fork: the box that is mapped is the parent's, and from here on not ours to touch.
pub fn renew_after_fork() {
    if !is_started() {
        return;
    }
    let inherited = base();
    let parent_identity = identity();
    let inherited_fd = box_fd();
    BASE.store(ptr::null_mut(), Ordering::Release);
    if inherited.is_null() {
        announce(directory(), b"");
        return;
    }
    // SAFETY: still mapped, and plain data.
    let parent = unsafe { *parent_identity };
    let made = open_box(Some(&parent));
    if made.is_err() {
        BOX_FD.store(-1, Ordering::Relaxed);
    }
    file::forget(BoxFile {
        base: inherited,
        // Where the new box could be made, it has taken this number over.
        fd: inherited_fd.filter(|_| made.is_err()).unwrap_or(-1),
    });
    if made.is_ok() {
        live::event(EventKind::Fork, i64::from(parent.pid), 0, b"");
    }
}

/// A process made by a raw clone(2) or fork(2) call ran no fork hook: the box that is mapped is still its
/// parent's. Found out when it crashes, which is early enough.
pub fn renew_if_forked_unseen() {
    let identity = identity();
    // SAFETY: mapped for the life of the process; getpid cannot fail.
    if !identity.is_null() && unsafe { (*identity).pid != libc::getpid() } {
        renew_after_fork();
    }
}

fn open_box(parent: Option<&Identity>) -> Result<(), Refused> {
    let mut path = PathBuffer::new();
    path.push(directory().as_bytes());
    path.push(b"/");
    let mut name = PathBuffer::new();
    // SAFETY: getpid cannot fail.
    name.push_number(unsafe { libc::getpid() } as u64);
    name.push(b"-");
    name.push_number(clock::unix_ns());
    name.push(b".box");
    path.push(name.as_bytes());
    let made = file::create(path.as_c_str());
    match made {
        Ok(new) => {
            adopt(new, path.as_c_str(), parent);
            announce(directory(), name.as_bytes());
            Ok(())
        }
        Err(why) => {
            announce(directory(), b"");
            Err(why)
        }
    }
}

/// Where the box lies, if there is one.
pub fn box_path() -> Option<&'static [u8]> {
    // SAFETY: see BOX_PATH.
    let path = unsafe { &*BOX_PATH.0.get() };
    (!base().is_null()).then_some(path.as_bytes())
}

fn adopt(new: BoxFile, path: &CStr, parent: Option<&Identity>) {
    // SAFETY: see BOX_PATH. In a forked child there is one thread.
    unsafe {
        *BOX_PATH.0.get() = PathBuffer::new();
        (*BOX_PATH.0.get()).push(path.to_bytes());
    }
    let identity = new.base.wrapping_add(IDENTITY_AT as usize).cast::<Identity>();
    // SAFETY: a fresh mapping of ours, page-aligned sections.
    let identity = unsafe { &mut *identity };
    match parent {
        Some(parent) => identity::fill_forked(identity, parent),
        None => identity::fill(identity),
    }
    live::reset(new.base);
    // Asked before the inode changes: a number that is no longer the parent's box is somebody's file.
    let (box_number, text_number) = (box_fd(), text_fd());
    let (device, inode) = file_identity(new.fd).unwrap_or((0, 0));
    DEVICE.store(device, Ordering::Relaxed);
    INODE.store(inode, Ordering::Relaxed);
    BOX_FD.store(place(new.fd, box_number), Ordering::Relaxed);
    TEXT_FD.store(place(open_text(path), text_number), Ordering::Relaxed);
    BASE.store(new.base, Ordering::Release);
}

fn open_text(path: &CStr) -> i32 {
    // SAFETY: `path` is NUL-terminated.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::lseek(fd, PYTHON_AT as libc::off_t, libc::SEEK_SET);
        }
        fd
    }
}

/// Moves `fd` to the number that it had in the parent, or else to a high one.
fn place(fd: i32, number: Option<i32>) -> i32 {
    if fd < 0 {
        return -1;
    }
    // SAFETY: plain calls on our own descriptors. In a forked child `number` is the parent's box, which
    // this replaces in one step.
    unsafe {
        let moved = match number {
            Some(number) => libc::dup3(fd, number, libc::O_CLOEXEC),
            None => libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, LOWEST_FD),
        };
        if moved < 0 {
            return fd;
        }
        libc::close(fd);
        moved
    }
}
