//! Dying of a signal on purpose, without leaving a core file that nobody asked for.

use std::io;

/// No core of this process, whatever its limits: a core pattern that is a pipe is not bound by RLIMIT_CORE.
pub fn leave_no_core() -> io::Result<()> {
    // SAFETY: changes one flag of this process.
    match unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_cleared() {
        leave_no_core().unwrap();
        // SAFETY: asks for the flag, and sets it again for the tests beside this one.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0), 0);
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        }
    }
}
