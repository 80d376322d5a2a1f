//! Mutated libraries: whatever is in a file, the scanner says something about it, soon, and does not panic.

use lastwords_isa::scan;
use proptest::prelude::*;
use std::time::{Duration, Instant};

/// A file of real code: this very test.
fn seed() -> Vec<u8> {
    let path = std::env::current_exe().expect("a test is a file");
    let whole = std::fs::read(path).expect("which can be read");
    // The debug information behind the code is not looked at, and makes every case slower.
    whole[..whole.len().min(2 << 20)].to_vec()
}

/// A case takes milliseconds; this is for a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(20);

fn survives(data: &[u8]) {
    let start = Instant::now();
    let _ = scan(data);
    assert!(start.elapsed() < PATIENCE, "took {:?}", start.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_headers(changes in prop::collection::vec((0_usize..2048, any::<u64>()), 1..8)) {
        let mut data = seed();
        for (at, value) in changes {
            data[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        survives(&data);
    }

    #[test]
    fn cut_and_flipped(length in 0_usize..(2 << 20), flips in prop::collection::vec(any::<prop::sample::Index>(), 0..64)) {
        let mut data = seed();
        data.truncate(length);
        if !data.is_empty() {
            for flip in flips {
                let at = flip.index(data.len());
                data[at] ^= 0x55;
            }
        }
        survives(&data);
    }

    #[test]
    fn noise_with_a_header(noise in prop::collection::vec(any::<u8>(), 64..4096), machine in prop::sample::select(vec![62_u16, 183])) {
        let mut data = noise;
        data[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        data[16..18].copy_from_slice(&3_u16.to_le_bytes());
        data[18..20].copy_from_slice(&machine.to_le_bytes());
        data[52..54].copy_from_slice(&64_u16.to_le_bytes());
        survives(&data);
    }
}

#[test]
fn nothing_at_all() {
    assert!(scan(b"").is_err());
    assert!(scan(b"\x7fELF").is_err());
}
