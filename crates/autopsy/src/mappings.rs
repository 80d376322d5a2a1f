//! The dead process's memory map, and the question asked of it most: what lies at this address?

use serde::Serialize;

/// The kernel's own default limit is 65,530; hosts that raise it rarely pass a million.
const MAX_MAPPINGS: usize = 1 << 18;

/// One line of /proc/PID/maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// `r`
    pub readable: bool,
    /// `w`
    pub writable: bool,
    /// `x`
    pub executable: bool,
    /// `s` (shared) as against `p` (private).
    pub shared: bool,
    /// Where in the file the mapping starts.
    pub offset: u64,
    /// 0 for anonymous memory.
    pub inode: u64,
    /// Without the kernel's " (deleted)"; empty for anonymous memory; `[stack]` and the like as they are.
    pub path: String,
    /// The file had no name any more: what lies at `path` today is another file.
    pub deleted: bool,
}

impl Mapping {
    /// Whether the address lies in it.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// As in /proc/PID/maps: `r-xp`.
    #[must_use]
    pub fn permissions(&self) -> String {
        let flag = |set: bool, letter: char| if set { letter } else { '-' };
        [
            flag(self.readable, 'r'),
            flag(self.writable, 'w'),
            flag(self.executable, 'x'),
            if self.shared { 's' } else { 'p' },
        ]
        .into_iter()
        .collect()
    }

    /// Backed by a file that can be opened by its name.
    pub(crate) fn is_file(&self) -> bool {
        self.path.starts_with('/')
    }
}

/// Reads the text of /proc/PID/maps. Broken lines (a torn record) are skipped, not guessed at.
#[must_use]
pub fn parse_maps(text: &[u8]) -> Vec<Mapping> {
    text.split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .take(MAX_MAPPINGS)
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let line = String::from_utf8_lossy(line);
    let (range, rest) = line.split_once(' ')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (_device, rest) = rest.split_once(' ')?;
    // The inode is followed by padding and the path; anonymous lines may end right after it.
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let (start, end) = range.split_once('-')?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let flags = permissions.as_bytes();
    if start >= end || flags.len() != 4 {
        return None;
    }
    let (path, deleted) = split_deleted(path.trim_start_matches(' '));
    Some(Mapping {
        start,
        end,
        readable: flags[0] == b'r',
        writable: flags[1] == b'w',
        executable: flags[2] == b'x',
        shared: flags[3] == b's',
        offset: hexadecimal(offset)?,
        inode: inode.parse().ok()?,
        path: path.to_owned(),
        deleted,
    })
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// The kernel appends the mark to the path itself, in maps and in core files alike.
pub(crate) fn split_deleted(path: &str) -> (&str, bool) {
    path.strip_suffix(" (deleted)")
        .map_or((path, false), |path| (path, true))
}

/// Mappings in address order, for lookups by binary search.
pub(crate) struct AddressSpace<'a> {
    sorted: Vec<&'a Mapping>,
}

impl<'a> AddressSpace<'a> {
    pub(crate) fn new(mappings: &'a [Mapping]) -> Self {
        let mut sorted: Vec<_> = mappings.iter().take(MAX_MAPPINGS).collect();
        sorted.sort_by_key(|mapping| mapping.start);
        Self { sorted }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a Mapping> + '_ {
        self.sorted.iter().copied()
    }

    pub(crate) fn at(&self, address: u64) -> Option<&'a Mapping> {
        let after = self.sorted.partition_point(|mapping| mapping.start <= address);
        let candidate = self.sorted.get(after.checked_sub(1)?)?;
        candidate.contains(address).then_some(*candidate)
    }

    /// The closest mapping on either side of an unmapped address, and the bytes between.
    pub(crate) fn nearest(&self, address: u64) -> Option<(&'a Mapping, u64)> {
        let after = self.sorted.partition_point(|mapping| mapping.start <= address);
        let below = after.checked_sub(1).and_then(|index| self.sorted.get(index));
        let below = below.map(|mapping| (*mapping, address.saturating_sub(mapping.end)));
        let above = self
            .sorted
            .get(after)
            .map(|mapping| (*mapping, mapping.start - address));
        below
            .into_iter()
            .chain(above)
            .min_by_key(|(_, distance)| *distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
555500000000-555500001000 r-xp 00002000 08:01 42                         /opt/my libs/lib a.so\n\
7f0000000000-7f0000002000 rw-s 00000000 00:05 7                          /dev/shm/x (deleted)\n\
7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0                          [stack]\n\
7ffe00100000-7ffe00101000 rw-p 00000000 00:00 0 \n\
7ffe00200000-7ffe00201000 ---p 00000000 00:00 0\n\
nonsense\n\
2000-1000 r--p 00000000 00:00 0\n\
7fff00000000-7fff0000";

    #[test]
    fn reads_spaces_deleted_marks_and_skips_broken_lines() {
        let mappings = parse_maps(TEXT);
        assert_eq!(mappings.len(), 5);
        assert_eq!(mappings[0].path, "/opt/my libs/lib a.so");
        assert_eq!((mappings[0].offset, mappings[0].inode), (0x2000, 42));
        assert_eq!(mappings[0].permissions(), "r-xp");
        assert_eq!(
            (mappings[1].path.as_str(), mappings[1].deleted),
            ("/dev/shm/x", true)
        );
        assert_eq!(mappings[1].permissions(), "rw-s");
        assert_eq!(mappings[2].path, "[stack]");
        assert_eq!(mappings[3].path, "");
    }

    #[test]
    fn finds_what_lies_at_and_near_an_address() {
        let mappings = parse_maps(TEXT);
        let space = AddressSpace::new(&mappings);
        assert_eq!(space.at(0x5555_0000_0fff).map(|m| m.inode), Some(42));
        assert!(space.at(0x5555_0000_1000).is_none());
        let (mapping, distance) = space.nearest(0x7ffd_ffff_fff0).unwrap();
        assert_eq!((mapping.path.as_str(), distance), ("[stack]", 0x10));
        assert_eq!(
            space.nearest(u64::MAX).map(|(m, _)| m.start),
            Some(0x7ffe_0020_0000)
        );
        assert!(AddressSpace::new(&[]).nearest(1).is_none());
    }
}
