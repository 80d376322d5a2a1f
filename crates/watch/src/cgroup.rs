//! How often the kernel killed for memory in the control groups of a process.
//!
//! A SIGKILL leaves no record of its own. The `oom_kill` counter of the process's group, or of a group
//! above it, that is higher after the death than before is the proof. Version 1 and version 2 of cgroups
//! are both found in the wild, side by side too (measured: version 1 memory under a bare version 2).

use crate::bounded::read_text;
use std::path::{Path, PathBuf};

const CGROUP_FILE_LIMIT: u64 = 64 << 10;
const MOUNTS_LIMIT: u64 = 1 << 20;
const COUNTER_FILE_LIMIT: u64 = 4 << 10;
const STAT_FILE_LIMIT: u64 = 16 << 10;
/// Nobody nests deeper; a hostile path must not make us read for ever.
const MAX_LEVELS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    V1,
    V2,
}

impl Version {
    fn limit_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.limit_in_bytes",
            Self::V2 => "memory.max",
        }
    }

    fn counter_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.oom_control",
            Self::V2 => "memory.events",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OomKills {
    /// The group's directory as it can be opened here.
    pub group: PathBuf,
    pub version: Version,
    pub count: u64,
}

/// The counters of the process's own group first, then of each group above it. Empty: none can be read.
pub fn oom_kills(pid: u32) -> Vec<OomKills> {
    oom_kills_of(&membership(pid).unwrap_or_default())
}

/// What /proc says of the groups of a process, for `oom_kills_of`. On version 1 a dead one is in none.
pub fn membership(pid: u32) -> Option<String> {
    read_text(Path::new(&format!("/proc/{pid}/cgroup")), CGROUP_FILE_LIMIT)
}

pub fn oom_kills_of(membership: &str) -> Vec<OomKills> {
    let with_count = |(group, version): (PathBuf, Version)| {
        let count = count_in(&group, version)?;
        Some(OomKills {
            group,
            version,
            count,
        })
    };
    groups_of(membership, "memory")
        .into_iter()
        .filter_map(with_count)
        .collect()
}

/// The directories of the groups that a process is in for `controller`, its own first, then those above it. For
/// version 2 they are the same for all controllers, whether or not this one is switched on there.
pub fn groups(pid: u32, controller: &str) -> Vec<(PathBuf, Version)> {
    groups_of(&membership(pid).unwrap_or_default(), controller)
}

/// The memory limits of these groups in bytes, where they have one (`max` is none).
pub fn memory_limits(membership: &str) -> Vec<(PathBuf, u64)> {
    let with_limit = |(group, version): (PathBuf, Version)| {
        let text = read_text(&group.join(version.limit_file()), COUNTER_FILE_LIMIT)?;
        let limit = text.trim().parse().ok()?;
        Some((group, limit))
    };
    groups_of(membership, "memory")
        .into_iter()
        .filter_map(with_limit)
        .collect()
}

/// What this group holds and cannot simply drop, in bytes: pages of files that nobody has used lately do not count, or
/// every container that reads much would seem full. `None`: it cannot be read.
pub fn working_set(group: &Path) -> Option<u64> {
    let used = ["memory.current", "memory.usage_in_bytes"]
        .iter()
        .find_map(|name| read_text(&group.join(name), COUNTER_FILE_LIMIT))?;
    let used: u64 = used.trim().parse().ok()?;
    let stat = read_text(&group.join("memory.stat"), STAT_FILE_LIMIT).unwrap_or_default();
    let idle = ["total_inactive_file ", "inactive_file "]
        .iter()
        .find_map(|name| stat.lines().find_map(|line| line.strip_prefix(name)))
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0);
    Some(used.saturating_sub(idle))
}

/// The same, of what /proc said of the process when it lived.
pub fn groups_of(membership: &str, controller: &str) -> Vec<(PathBuf, Version)> {
    let mounts = read_text(Path::new("/proc/self/mountinfo"), MOUNTS_LIMIT);
    directories(membership, &mounts.unwrap_or_default(), controller)
}

/// The counter of one group, asked again: after a death its process has no group any more.
pub fn count_in(group: &Path, version: Version) -> Option<u64> {
    let text = read_text(&group.join(version.counter_file()), COUNTER_FILE_LIMIT);
    text.as_deref().and_then(oom_kill_count)
}

fn directories(membership: &str, mounts: &str, controller: &str) -> Vec<(PathBuf, Version)> {
    let mut found = Vec::new();
    for (version, group) in memberships(membership, controller) {
        if let Some(mount) = mount_of(mounts, version, controller) {
            found.extend(levels(&mount, group).into_iter().map(|level| (level, version)));
        }
    }
    found
}

/// Lines of /proc/PID/cgroup are `number:controllers:path`; version 2 is `0::path`. The path may itself
/// hold colons.
fn memberships<'a>(membership: &'a str, controller: &'a str) -> impl Iterator<Item = (Version, &'a str)> {
    membership.lines().filter_map(move |line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.split(',').any(|name| name == controller) {
            Some((Version::V1, path))
        } else {
            (number == "0" && controllers.is_empty()).then_some((Version::V2, path))
        }
    })
}

struct Mount {
    /// Which part of the hierarchy is mounted: `/`, or in a container often the container's own group.
    root: PathBuf,
    point: PathBuf,
}

/// Lines of mountinfo: `id parent device root point options [optional…] - type source super-options`.
fn mount_of(mounts: &str, version: Version, controller: &str) -> Option<Mount> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (file_system, options) = (kind.next()?, kind.nth(1)?);
        let wanted = match version {
            Version::V1 => file_system == "cgroup" && options.split(',').any(|name| name == controller),
            Version::V2 => file_system == "cgroup2",
        };
        let mut place = place.split(' ').skip(3);
        wanted.then_some(Mount {
            root: unescape(place.next()?),
            point: unescape(place.next()?),
        })
    })
}

/// mountinfo writes blanks and backslashes of a path as three octal digits.
fn unescape(text: &str) -> PathBuf {
    PathBuf::from(
        text.replace(r"\040", " ")
            .replace(r"\011", "\t")
            .replace(r"\012", "\n")
            .replace(r"\134", r"\"),
    )
}

/// The group's directory and those above it, up to the mount point. A group outside of what is mounted
/// (a cgroup namespace shows `/../..`) has none but the mount point itself.
fn levels(mount: &Mount, group: &str) -> Vec<PathBuf> {
    let below = Path::new(group)
        .strip_prefix(&mount.root)
        .ok()
        .filter(|path| path.components().all(|part| part.as_os_str() != ".."))
        .unwrap_or(Path::new(""));
    below
        .ancestors()
        .take(MAX_LEVELS)
        .map(|part| {
            if part.as_os_str().is_empty() {
                mount.point.clone()
            } else {
                mount.point.join(part)
            }
        })
        .collect()
}

fn oom_kill_count(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_nobody_uses_are_not_held() {
        let place = std::env::temp_dir().join(format!("lastwords-working-set-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        assert_eq!(working_set(&place), None);
        std::fs::write(place.join("memory.usage_in_bytes"), "1000\n").unwrap();
        assert_eq!(working_set(&place), Some(1000));
        let stat = "inactive_file 100\ntotal_inactive_file 400\n";
        std::fs::write(place.join("memory.stat"), stat).unwrap();
        assert_eq!(working_set(&place), Some(600));
        std::fs::remove_dir_all(&place).unwrap();
    }
    use std::fs;

    const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn both_versions_are_found_in_one_file() {
        let text = "5:cpu,memory:/job:7\n1:cpuset:/\n0::/user.slice/a\n";
        let groups: Vec<_> = memberships(text, "memory").collect();
        assert_eq!(groups, [(Version::V1, "/job:7"), (Version::V2, "/user.slice/a")]);
    }

    #[test]
    fn broken_lines_are_passed_over() {
        assert_eq!(memberships("\n:\n0:\nmemory\n::::\n", "memory").count(), 0);
        assert!(
            mount_of(
                "\n - \n1 2 - cgroup2\na b c d e - cgroup2 x y\n",
                Version::V1,
                "memory"
            )
            .is_none()
        );
    }

    #[test]
    fn every_level_up_to_the_mount_point() {
        let mount = mount_of(MOUNTS, Version::V1, "memory").unwrap();
        let expected = [
            "/sys/fs/cgroup/memory/a/b",
            "/sys/fs/cgroup/memory/a",
            "/sys/fs/cgroup/memory",
        ];
        assert_eq!(levels(&mount, "/a/b"), expected.map(PathBuf::from));
        assert_eq!(levels(&mount, "/"), ["/sys/fs/cgroup/memory"].map(PathBuf::from));
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root_of_the_mount() {
        let line = r"35 31 0:32 /docker/abc /sys/fs/my\040cgroup ro - cgroup cgroup rw,memory";
        let mount = mount_of(line, Version::V1, "memory").unwrap();
        let inside = levels(&mount, "/docker/abc/worker");
        assert_eq!(
            inside,
            ["/sys/fs/my cgroup/worker", "/sys/fs/my cgroup"].map(PathBuf::from)
        );
        assert_eq!(
            levels(&mount, "/elsewhere"),
            ["/sys/fs/my cgroup"].map(PathBuf::from)
        );
        assert_eq!(
            levels(&mount, "/docker/abc/../../.."),
            ["/sys/fs/my cgroup"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_very_deep_path_is_bounded() {
        let mount = mount_of(MOUNTS, Version::V2, "memory").unwrap();
        assert_eq!(levels(&mount, &"/x".repeat(10_000)).len(), MAX_LEVELS);
    }

    #[test]
    fn counters_of_both_files() {
        assert_eq!(
            oom_kill_count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            Some(3)
        );
        assert_eq!(
            oom_kill_count("low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n"),
            Some(2)
        );
        assert_eq!(oom_kill_count("oom_kill many\n"), None);
        assert_eq!(oom_kill_count("oom_kill_disable 1\n"), None);
    }

    #[test]
    fn counters_are_read_level_by_level() {
        let place = std::env::temp_dir().join(format!("lastwords-cgroup-{}", std::process::id()));
        fs::create_dir_all(place.join("a/b")).unwrap();
        fs::write(place.join("a/b/memory.events"), "oom_kill 1\n").unwrap();
        fs::write(place.join("a/memory.events"), "oom_kill 4\n").unwrap();
        let mounts = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw", place.display());
        let found = directories("0::/a/b\n", &mounts, "memory");
        let counts: Vec<_> = found
            .iter()
            .map(|(group, version)| count_in(group, *version))
            .collect();
        assert_eq!(counts, [Some(1), Some(4), None]);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn this_process_can_be_asked() {
        // What is there depends on the machine; that it answers does not.
        for entry in oom_kills(std::process::id()) {
            assert!(entry.group.is_absolute());
        }
        assert!(oom_kills(u32::MAX).is_empty());
    }
}
