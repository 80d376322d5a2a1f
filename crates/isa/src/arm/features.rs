//! aarch64's extensions by the names in /proc/cpuinfo's Features line, and what each instruction needs. Data.

use crate::events::{Set, trait_of};
use disarm64_defn::{InsnClass as Class, InsnFeatureSet as F};

#[rustfmt::skip]
pub(crate) const NAMES: &[&str] = &[
    "atomics", "asimddp", "sve", "sve2", "asimdhp", "fphp", "bf16", "i8mm", "aes", "sha2", "sha3", "sm4", "crc32",
    "asimdrdm", "lrcpc", "ilrcpc", "jscvt", "fcma", "paca", "frint", "flagm", "sme", "sme2", "mops", "cssc",
    "svebf16", "svei8mm", "svef32mm", "svef64mm", "sveaes", "svebitperm", "svesha3", "svesm4", "sve2p1",
];

const fn bit(name: &str) -> Set {
    let mut index = 0;
    while index < NAMES.len() {
        if crate::events::same(NAMES[index].as_bytes(), name.as_bytes()) {
            return 1 << index;
        }
        index += 1;
    }
    panic!("no such extension");
}

pub(crate) const ATOMICS: Set = bit("atomics");
pub(crate) const SVE: Set = bit("sve");
pub(crate) const SVE2: Set = bit("sve2");

/// Not listed: what every ARMv8.0 CPU has, and what runs as a hint (no-op) elsewhere.
pub(crate) fn needs(feature: F) -> Set {
    match feature {
        F::LSE => ATOMICS,
        F::DOTPROD => bit("asimddp"),
        F::SVE | F::SVE_SSVE_FEXPA => SVE,
        F::SVE2 => SVE | SVE2,
        F::SVE2AES => SVE | bit("sveaes"),
        F::SVE2BITPERM => SVE | bit("svebitperm"),
        F::SVE2SHA3 => SVE | bit("svesha3"),
        F::SVE2SM4 => SVE | bit("svesm4"),
        F::SVE2P1 | F::SVE2P1_SME | F::SVE2P1_SME2 | F::SVE2P1_SME2P1 => SVE | bit("sve2p1"),
        F::BFLOAT16_SVE => SVE | bit("svebf16"),
        F::I8MM_SVE => SVE | bit("svei8mm"),
        F::F32MM_SVE => SVE | bit("svef32mm"),
        F::F64MM_SVE => SVE | bit("svef64mm"),
        F::SIMD_F16 => bit("asimdhp"),
        F::FP_F16 | F::FP_16_V8_2A => bit("fphp"),
        F::BFLOAT16 => bit("bf16"),
        F::I8MM => bit("i8mm"),
        F::AES => bit("aes"),
        F::SHA2 => bit("sha2"),
        F::SHA3 => bit("sha3"),
        F::SM4 => bit("sm4"),
        F::CRC => bit("crc32"),
        F::RDMA => bit("asimdrdm"),
        F::RCPC => bit("lrcpc"),
        F::RCPC2 => bit("ilrcpc"),
        F::JSCVT => bit("jscvt"),
        F::COMPNUM => bit("fcma"),
        F::PAUTH => bit("paca"),
        F::FRINTTS => bit("frint"),
        F::FLAGM => bit("flagm"),
        F::SME => bit("sme"),
        F::SME2 => bit("sme2"),
        F::MOPS | F::MOPS_GO => bit("mops"),
        F::CSSC => bit("cssc"),
        _ => 0,
    }
}

pub(crate) fn traits(feature: F, class: Class) -> u16 {
    match (feature, class) {
        (F::LSE, _) => trait_of::MODERN,
        (_, Class::LDSTEXCL) => trait_of::OLD,
        (F::SIMD, _) => trait_of::PLAIN,
        (feature, _) if needs(feature) & SVE != 0 => trait_of::WIDE,
        _ => 0,
    }
}
