//! Becoming the parent of every orphan below us, so that no status of a double-forked process is lost.

use std::io;

/// From here on the orphans among our descendants become our children, and ours to reap.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: changes one flag of this process.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_set() {
        become_subreaper().unwrap();
        let mut flag: libc::c_int = 0;
        // SAFETY: the kernel writes one int.
        unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut flag, 0, 0, 0) };
        assert_eq!(flag, 1);
    }
}
