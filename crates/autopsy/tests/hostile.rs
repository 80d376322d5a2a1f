//! Damaged input of every kind: nothing may panic, hang or run away.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use lastwords_autopsy::{
    Architecture, CoreError, Limits, Mapping, MinidumpExtra, Region, Registers, Snapshot, autopsy,
    from_core_bytes, minidump, parse_maps,
};
use support::{Victim, obstacle, skip, stack_of};

/// Small, deterministic, and good enough to choose bytes (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Flips bits, writes extreme numbers, or both.
    fn damage(&mut self, bytes: &mut [u8], count: usize) {
        for _ in 0..count {
            let at = self.below(bytes.len());
            match self.below(3) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 0x7f, 0x80, 0xff][self.below(4)],
                _ => {
                    let end = (at + 8).min(bytes.len());
                    let number = [0, u64::MAX, i64::MAX as u64, 1 << 32][self.below(4)].to_le_bytes();
                    bytes[at..end].copy_from_slice(&number[..end - at]);
                }
            }
        }
    }
}

/// More rounds by hand: `LASTWORDS_HOSTILE_ROUNDS=50` multiplies them.
fn rounds(few: usize) -> std::ops::Range<usize> {
    let factor = std::env::var("LASTWORDS_HOSTILE_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok());
    0..few * factor.unwrap_or(1)
}

fn limits() -> Limits {
    Limits {
        max_duration: Duration::from_secs(2),
        ..Limits::default()
    }
}

fn victim() -> Option<Victim> {
    if let Some(reason) = obstacle() {
        skip(&reason);
        return None;
    }
    Some(Victim::compile("deaths.c", &["-g", "-static"]))
}

#[test]
fn damaged_core_files() {
    let Some(victim) = victim() else { return };
    let core = std::fs::read(victim.die(&["thread"]).unwrap()).unwrap();
    let mut random = Random(1);
    for round in rounds(400) {
        let mut bytes = core.clone();
        // Half of the rounds aim at headers and notes, which decide everything else.
        let reach = if round % 2 == 0 {
            bytes.len()
        } else {
            bytes.len().min(8 << 10)
        };
        let count = 1 + random.below(40);
        random.damage(&mut bytes[..reach], count);
        if round % 3 == 0 {
            bytes.truncate(random.below(core.len()));
        }
        let start = Instant::now();
        if let Ok(result) = from_core_bytes(&bytes, &limits()) {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
            assert!(result.threads.len() <= Limits::default().max_threads);
        }
    }
}

#[test]
fn every_truncation_of_the_headers() {
    let Some(victim) = victim() else { return };
    let core = std::fs::read(victim.die(&["null-read"]).unwrap()).unwrap();
    for length in (0..4096).step_by(7) {
        let _ = from_core_bytes(&core[..length], &limits());
    }
    let half = from_core_bytes(&core[..core.len() / 2], &limits()).unwrap();
    assert!(half.truncated);
}

#[test]
fn damaged_libraries() {
    let Some(victim) = victim() else { return };
    damage_library(&victim, 2);
}

#[test]
fn damaged_compressed_debug_information() {
    if victim().is_some() {
        damage_library(&Victim::compile("deaths.c", &["-g", "-gz=zlib"]), 5);
        let mini = Victim::compile("deaths.c", &[]);
        if support::has("xz") {
            mini.embed_mini_debug_info();
        }
        damage_library(&mini, 6);
    }
}

fn damage_library(victim: &Victim, seed: u64) {
    let core_bytes = std::fs::read(victim.die(&["handler"]).unwrap()).unwrap();
    let core = from_core_bytes(&core_bytes, &limits()).unwrap();
    let stack = stack_of(&core_bytes, core.threads[0].registers.sp());
    let library = std::fs::read(&victim.program).unwrap();
    let path = victim.folder.path().join("damaged");
    let snapshot = Snapshot {
        registers: core.threads[0].registers.clone(),
        memory: vec![stack],
        mappings: renamed(&core.mappings, &victim.program, &path),
        code: None,
        fault_address: core.fault_address,
        signal: core.signal,
        signal_code: core.signal_code,
    };
    let mut random = Random(seed);
    for round in rounds(100) {
        std::fs::write(&path, damaged(&library, round, &mut random)).unwrap();
        let result = autopsy(&snapshot, &limits());
        assert!(result.frames.len() <= 2 * limits().max_frames + 64);
        assert!(!minidump(&snapshot, &MinidumpExtra::default()).is_empty());
    }
}

/// Headers at the front, everything, or section headers at the back; sometimes cut short.
fn damaged(library: &[u8], round: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = library.to_vec();
    let length = bytes.len();
    let (reach, count) = match round % 3 {
        0 => (0..4096, 1 + random.below(30)),
        1 => (0..length, 1 + random.below(length / 50)),
        _ => (length - 8192..length, 1 + random.below(30)),
    };
    random.damage(&mut bytes[reach], count);
    if round.is_multiple_of(10) {
        bytes.truncate(random.below(length));
    }
    bytes
}

/// The victim under its new name. Other libraries are whole, and only cost time.
fn renamed(mappings: &[Mapping], from: &Path, to: &Path) -> Vec<Mapping> {
    let mut mappings = mappings.to_vec();
    for mapping in &mut mappings {
        let is_victim = Path::new(&mapping.path) == from;
        mapping.path = if is_victim {
            to.to_str().unwrap().to_owned()
        } else {
            String::new()
        };
    }
    mappings
}

#[test]
fn damaged_stacks_and_registers() {
    let Some(victim) = victim() else { return };
    let core_bytes = std::fs::read(victim.die(&["handler"]).unwrap()).unwrap();
    let core = from_core_bytes(&core_bytes, &limits()).unwrap();
    let original = stack_of(&core_bytes, core.threads[0].registers.sp());
    let mut random = Random(3);
    for round in rounds(300) {
        let mut stack = original.bytes.to_vec();
        let count = random.below(4000);
        random.damage(&mut stack, count);
        let mut registers = core.threads[0].registers.clone();
        if round % 2 == 0 {
            let which = random.below(17);
            registers.values[which] = random.next();
            registers.values.truncate(random.below(40));
        }
        let snapshot = Snapshot {
            registers,
            memory: vec![Region {
                address: original.address,
                bytes: &stack,
            }],
            mappings: core.mappings.clone(),
            code: Some(Region {
                address: u64::MAX - 3,
                bytes: &[0xff; 8],
            }),
            fault_address: Some(random.next()),
            signal: Some(11),
            signal_code: Some(128),
        };
        let result = autopsy(&snapshot, &limits());
        assert!(!result.stopped_because.is_empty());
    }
}

#[test]
fn files_that_are_no_cores() {
    let error = |path: &str| lastwords_autopsy::from_core(Path::new(path), &limits()).unwrap_err();
    assert!(matches!(error("/bin/true"), CoreError::NotACore(_)));
    assert!(matches!(error("/etc/passwd"), CoreError::NotACore(_)));
    for unreadable in ["/", "/dev/zero", "/no/such/file", "/proc/self/maps"] {
        assert!(
            matches!(error(unreadable), CoreError::Unreadable(_)),
            "{unreadable}"
        );
    }
    assert!(error("/no/such/file").to_string().contains("No such file"));
}

#[test]
fn damaged_maps() {
    let text = std::fs::read("/proc/self/maps").unwrap();
    let whole = parse_maps(&text).len();
    let mut random = Random(4);
    for _ in rounds(2000) {
        let mut bytes = text.clone();
        let count = random.below(200);
        random.damage(&mut bytes, count);
        bytes.truncate(random.below(text.len()));
        let mappings = parse_maps(&bytes);
        assert!(mappings.iter().all(|mapping| mapping.start < mapping.end));
        assert!(mappings.len() <= whole + count);
    }
}

#[test]
fn paths_that_are_no_libraries() {
    let text = b"1000-2000 r-xp 00000000 00:00 1 /dev/zero\n\
                 2000-3000 r-xp 00000000 00:00 1 /proc/self/mem\n\
                 3000-4000 r-xp 00000000 00:00 1 /\n\
                 4000-5000 r-xp 00000000 00:00 1 /etc/passwd\n\
                 5000-6000 r-xp ffffffffffffffff 00:00 1 /bin/true\n\
                 fffffffffffff000-ffffffffffffffff r-xp ffffffffffffffff 00:00 1 /bin/true\n";
    let stack: Vec<u8> = (0..512u64)
        .flat_map(|index| (0x1000 + index * 41).to_le_bytes())
        .collect();
    for pc in [0x1001, 0x2001, 0x3001, 0x4001, 0x5001, u64::MAX - 1, u64::MAX] {
        for sp in [0x9000, 0x9001, u64::MAX - 8, u64::MAX, 0] {
            let mut values = vec![u64::MAX; 17];
            (values[16], values[7]) = (pc, sp);
            let snapshot = Snapshot {
                registers: Registers {
                    architecture: Architecture::X86_64,
                    values,
                },
                memory: vec![
                    Region {
                        address: 0x9000,
                        bytes: &stack,
                    },
                    Region {
                        address: u64::MAX - 100,
                        bytes: &stack,
                    },
                ],
                mappings: parse_maps(text),
                code: None,
                fault_address: Some(u64::MAX),
                signal: None,
                signal_code: None,
            };
            let _ = autopsy(&snapshot, &limits());
            let _ = minidump(&snapshot, &MinidumpExtra::default());
        }
    }
}
