//! Making, reserving and mapping one box file, with system calls alone.

use crate::layout::{FILE_LENGTH, Header, MAGIC, MAPPED_LENGTH, MAX_SECTIONS, SECTIONS, VERSION};
use core::ffi::CStr;
use core::ptr;

/// A box file that is open and whose first part is mapped.
#[derive(Clone, Copy)]
pub struct BoxFile {
    pub base: *mut u8,
    pub fd: i32,
}

/// Why a box could not be made: the system call, for the one line that we may say about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub call: &'static str,
    pub errno: i32,
}

pub fn errno() -> i32 {
    // SAFETY: __errno_location is valid for the life of the calling thread.
    unsafe { *libc::__errno_location() }
}

fn refused(call: &'static str) -> Refused {
    Refused { call, errno: errno() }
}

/// Creates `path` (it must not exist), reserves its mapped part on disk and maps it.
pub fn create(path: &CStr) -> Result<BoxFile, Refused> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: `path` is NUL-terminated.
    let fd = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
    if fd < 0 {
        return Err(refused("open"));
    }
    match reserve(fd).and_then(|()| map(fd)) {
        Ok(base) => {
            write_header(base);
            Ok(BoxFile { base, fd })
        }
        Err(why) => {
            // SAFETY: both were made above and are used by nobody else.
            unsafe {
                libc::close(fd);
                libc::unlink(path.as_ptr());
            }
            Err(why)
        }
    }
}

/// Takes the disk space of everything that is ever written through the mapping. Without this a store
/// into a hole of the file on a full disk is a SIGBUS that kills the job we were to protect.
fn reserve(fd: i32) -> Result<(), Refused> {
    // SAFETY: plain calls on our own descriptor.
    unsafe {
        if libc::ftruncate(fd, FILE_LENGTH as libc::off_t) != 0 {
            return Err(refused("ftruncate"));
        }
        if libc::fallocate(fd, 0, 0, MAPPED_LENGTH as libc::off_t) == 0 {
            return Ok(());
        }
    }
    if errno() != libc::EOPNOTSUPP {
        return Err(refused("fallocate"));
    }
    // NFS before 4.2, some FUSE file systems: write the zeros.
    let zeros = [0_u8; 4096];
    let mut at = 0;
    while at < MAPPED_LENGTH {
        // SAFETY: `zeros` is as long as said.
        let written = unsafe { libc::pwrite(fd, zeros.as_ptr().cast(), zeros.len(), at as libc::off_t) };
        if written <= 0 {
            return Err(refused("pwrite"));
        }
        at += written as u64;
    }
    Ok(())
}

fn map(fd: i32) -> Result<*mut u8, Refused> {
    // SAFETY: a new mapping of our own file; the kernel chooses the place.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            MAPPED_LENGTH as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(refused("mmap"));
    }
    Ok(base.cast())
}

fn write_header(base: *mut u8) {
    let header = base.cast::<Header>();
    // SAFETY: `base` is the start of a mapping much larger than the header, page-aligned, ours alone.
    unsafe {
        (*header).version = VERSION;
        (*header).section_count = SECTIONS.len().min(MAX_SECTIONS) as u32;
        for (to, from) in (*header).sections.iter_mut().zip(SECTIONS) {
            *to = from;
        }
        // Last: a file without its magic was never a box.
        (*header).magic = MAGIC;
    }
}

/// Gives back what `create` made, in the child of a fork where it is the parent's.
pub fn forget(file: BoxFile) {
    // SAFETY: the caller hands over the mapping and the descriptor.
    unsafe {
        libc::munmap(file.base.cast(), MAPPED_LENGTH as usize);
        libc::close(file.fd);
    }
}

/// Device and inode: is this descriptor number still the file we think it is?
pub fn file_identity(fd: i32) -> Option<(u64, u64)> {
    // SAFETY: stat is plain data, filled by the kernel.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}
