//! Sets and maps of addresses. A scan looks up millions of them, and the standard library's hash is made for text.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

pub(crate) type AddressSet = HashSet<u64, Build>;
pub(crate) type AddressMap<V> = HashMap<u64, V, Build>;

/// Begins with a number that no file can know, so that none can be made of addresses that collide.
#[derive(Clone, Copy)]
pub(crate) struct Build(u64);

impl Default for Build {
    fn default() -> Self {
        static SEED: OnceLock<u64> = OnceLock::new();
        Self(*SEED.get_or_init(|| RandomState::new().hash_one(0_u64)))
    }
}

impl BuildHasher for Build {
    type Hasher = AddressHasher;

    fn build_hasher(&self) -> AddressHasher {
        AddressHasher(self.0)
    }
}

pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    /// The halves of a wide product together depend on every bit of the address and of the seed.
    #[inline(always)]
    fn write_u64(&mut self, address: u64) {
        let wide = u128::from(address ^ self.0) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}
