//! Who this process is, read from /proc with system calls alone (it also runs between fork and exec).

use crate::clock;
use crate::cpuid;
use crate::layout::{Identity, NONE, Text};
use core::ffi::CStr;

/// Reads a small file of /proc into `buffer`; how much was read.
pub fn read_small(path: &CStr, buffer: &mut [u8]) -> usize {
    // SAFETY: `path` is NUL-terminated; read is bounded by the buffer's length.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return 0;
        }
        let read = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(fd);
        read.max(0) as usize
    }
}

/// Field 22 of /proc/self/stat. The second field is a name in brackets that may itself hold spaces and
/// brackets, so counting starts after the last `)`.
fn start_ticks() -> u64 {
    let mut buffer = [0_u8; 1024];
    let read = read_small(c"/proc/self/stat", &mut buffer);
    let text = buffer.get(..read).unwrap_or(&[]);
    let Some(close) = text.iter().rposition(|byte| *byte == b')') else {
        return 0;
    };
    let after = text.get(close + 1..).unwrap_or(&[]);
    let field = after
        .split(|byte| *byte == b' ')
        .filter(|field| !field.is_empty())
        .nth(19);
    field.map_or(0, |digits| {
        digits.iter().fold(0_u64, |value, digit| {
            value
                .wrapping_mul(10)
                .wrapping_add(u64::from(digit.wrapping_sub(b'0')))
        })
    })
}

const CONTROLLERS: [&[u8]; 3] = [b"memory", b"cpu", b"pids"];

/// Lines are `number:controllers:path`; that of version 2 names no controller.
fn is_of_interest(line: &[u8]) -> bool {
    let mut controllers = line.split(|byte| *byte == b':').skip(1);
    controllers.next().is_some_and(|names| {
        names.is_empty()
            || names
                .split(|byte| *byte == b',')
                .any(|name| CONTROLLERS.contains(&name))
    })
}

/// Whole lines only: half a path is another group.
fn keep_groups<const N: usize>(text: &mut Text<N>, file: &[u8]) {
    let mut kept = 0;
    for line in file.split_inclusive(|byte| *byte == b'\n') {
        if let Some(room) = text.bytes.get_mut(kept..kept + line.len())
            && is_of_interest(line)
        {
            for (to, from) in room.iter_mut().zip(line) {
                *to = *from;
            }
            kept += line.len();
        }
    }
    text.length = kept as u32;
}

/// The digits of a link like `cgroup:[4026531835]`.
fn number_in(link: &[u8]) -> u32 {
    let digits = link.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0_u32, |value, digit| {
        value
            .wrapping_mul(10)
            .wrapping_add(u32::from(digit.wrapping_sub(b'0')))
    })
}

fn fill_groups(identity: &mut Identity) {
    let mut buffer = [0_u8; 4096];
    let read = read_small(c"/proc/self/cgroup", &mut buffer);
    keep_groups(&mut identity.cgroup, buffer.get(..read).unwrap_or(&[]));
    let mut link = [0_u8; 64];
    let path = c"/proc/self/ns/cgroup";
    // SAFETY: `path` is NUL-terminated; readlink is bounded by the buffer's length.
    let read = unsafe { libc::readlink(path.as_ptr(), link.as_mut_ptr().cast(), link.len()) };
    identity.cgroup_namespace = number_in(link.get(..read.max(0) as usize).unwrap_or(&[]));
}

fn fill_life(identity: &mut Identity) {
    // SAFETY: these cannot fail.
    unsafe {
        identity.pid = libc::getpid();
        identity.parent = libc::getppid();
        identity.uid = libc::getuid();
    }
    identity.start_ticks = start_ticks();
    identity.born_unix_ns = clock::unix_ns();
    identity.born_monotonic_ns = clock::monotonic_ns();
    identity.worker = NONE;
    identity.rank = NONE;
    identity.role = Text::EMPTY;
    fill_groups(identity);
}

/// A process that starts from nothing.
pub(crate) fn fill(identity: &mut Identity) {
    fill_life(identity);
    identity.forked = 0;
    identity.cpuid = cpuid::read();
    let mut buffer = [0_u8; 1020];
    let read = read_small(c"/proc/self/cmdline", &mut buffer);
    identity.command.set(
        buffer
            .get(..read)
            .unwrap_or(&[])
            .strip_suffix(b"\0")
            .unwrap_or(&[]),
    );
    // SAFETY: the buffers are bounded by the lengths given; readlink does not end its text with a NUL.
    unsafe {
        let read = libc::readlink(
            c"/proc/self/exe".as_ptr(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        );
        identity
            .executable
            .set(buffer.get(..read.max(0) as usize).unwrap_or(&[]));
        let mut host = [0_u8; 68];
        libc::gethostname(host.as_mut_ptr().cast(), host.len() - 1);
        identity
            .host
            .set(host.split(|byte| *byte == 0).next().unwrap_or(&[]));
    }
}

/// The child of a fork: it is its parent in all but its life.
pub(crate) fn fill_forked(identity: &mut Identity, parent: &Identity) {
    *identity = *parent;
    fill_life(identity);
    identity.forked = 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_whole_lines_of_the_controllers_that_kill_and_slow() {
        let file =
            b"7:cpuset:/a\n4:memory:/job:7\n3:cpu,cpuacct:/slow\n2:pids:/p\n1:name=systemd:/x\n0::/new\n";
        let mut text = Text::<64>::EMPTY;
        keep_groups(&mut text, file);
        assert_eq!(
            text.kept(),
            b"4:memory:/job:7\n3:cpu,cpuacct:/slow\n2:pids:/p\n0::/new\n"
        );
        let mut small = Text::<20>::EMPTY;
        keep_groups(&mut small, file);
        assert_eq!(
            small.kept(),
            b"4:memory:/job:7\n",
            "what does not fit is left out"
        );
        keep_groups(&mut small, b"");
        assert_eq!(small.kept(), b"");
    }

    #[test]
    fn a_namespace_is_known_by_its_inode() {
        assert_eq!(number_in(b"cgroup:[4026531835]"), 4_026_531_835);
        assert_eq!(number_in(b""), 0);
    }

    #[test]
    fn start_ticks_are_those_of_proc() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: std::vec::Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
        assert_eq!(start_ticks(), fields[19].parse::<u64>().unwrap());
    }
}
