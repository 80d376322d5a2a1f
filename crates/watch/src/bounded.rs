//! Reading small files of /proc and /sys without ever trusting their size.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// At most `limit` bytes of a file as text; `None` when it cannot be read. Bytes that are no UTF-8 become
/// replacement characters: a strange cgroup name must not cost us the other lines.
pub(crate) fn read_text(path: &Path, limit: u64) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_cut() {
        assert_eq!(
            read_text(Path::new("/dev/zero"), 100).map(|text| text.len()),
            Some(100)
        );
    }

    #[test]
    fn a_missing_file_is_none() {
        assert_eq!(read_text(Path::new("/proc/self/no-such-file"), 100), None);
    }
}
