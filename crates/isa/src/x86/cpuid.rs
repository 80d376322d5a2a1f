//! What the bits of an answer mean: of cpuid's registers, of XCR0, and of the words that libgcc keeps. Data.

use super::features::{bit, implied};
use crate::events::Set;

/// Where 32 bits of an answer came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    Leaf1Ecx,
    Leaf7Ebx,
    Leaf7Ecx,
    Leaf7Edx,
    /// Of its sub-leaf 1; sub-leaf 0 has only a count there.
    Leaf7Eax,
    ExtendedEcx,
    /// xgetbv: which registers the kernel saves.
    Xcr0,
    /// libgcc's `__cpu_model.__cpu_features[0]`, then `__cpu_features2[0]` to `[2]`.
    Libgcc(u8),
}

type Bits = &'static [(u8, &'static str)];

#[rustfmt::skip]
const LEAF_1_ECX: Bits = &[
    (0, "pni"), (1, "pclmulqdq"), (9, "ssse3"), (12, "fma"), (19, "sse4_1"), (20, "sse4_2"), (22, "movbe"),
    (23, "popcnt"), (25, "aes"), (28, "avx"), (29, "f16c"), (30, "rdrand"),
];
#[rustfmt::skip]
const LEAF_7_EBX: Bits = &[
    (3, "bmi1"), (5, "avx2"), (8, "bmi2"), (16, "avx512f"), (17, "avx512dq"), (18, "rdseed"), (19, "adx"),
    (21, "avx512ifma"), (26, "avx512pf"), (27, "avx512er"), (28, "avx512cd"), (29, "sha_ni"), (30, "avx512bw"),
    (31, "avx512vl"),
];
#[rustfmt::skip]
const LEAF_7_ECX: Bits = &[
    (1, "avx512vbmi"), (6, "avx512_vbmi2"), (8, "gfni"), (9, "vaes"), (10, "vpclmulqdq"), (11, "avx512_vnni"),
    (12, "avx512_bitalg"), (14, "avx512_vpopcntdq"),
];
#[rustfmt::skip]
const LEAF_7_EDX: Bits = &[
    (8, "avx512_vp2intersect"), (22, "amx_bf16"), (23, "avx512_fp16"), (24, "amx_tile"), (25, "amx_int8"),
    // Of sub-leaf 1.
    (4, "avx_vnni_int8"), (5, "avx_ne_convert"),
];
const LEAF_7_EAX: Bits = &[
    (4, "avx_vnni"),
    (5, "avx512_bf16"),
    (21, "amx_fp16"),
    (23, "avx_ifma"),
];
const EXTENDED_ECX: Bits = &[(5, "abm"), (6, "sse4a"), (11, "xop"), (16, "fma4"), (21, "tbm")];
const XCR0: Bits = &[(2, "avx"), (5, "avx512f"), (6, "avx512f"), (7, "avx512f")];
/// gcc's `enum processor_features`: part of its ABI. clang's compiler-rt has the same.
#[rustfmt::skip]
const LIBGCC: &[Bits] = &[
    &[
        (2, "popcnt"), (5, "pni"), (6, "ssse3"), (7, "sse4_1"), (8, "sse4_2"), (9, "avx"), (10, "avx2"),
        (11, "sse4a"), (12, "fma4"), (13, "xop"), (14, "fma"), (15, "avx512f"), (16, "bmi1"), (17, "bmi2"),
        (18, "aes"), (19, "pclmulqdq"), (20, "avx512vl"), (21, "avx512bw"), (22, "avx512dq"), (23, "avx512cd"),
        (24, "avx512er"), (25, "avx512pf"), (26, "avx512vbmi"), (27, "avx512ifma"), (30, "avx512_vpopcntdq"),
        (31, "avx512_vbmi2"),
    ],
    &[
        (0, "gfni"), (1, "vpclmulqdq"), (2, "avx512_vnni"), (3, "avx512_bitalg"), (4, "avx512_bf16"),
        (5, "avx512_vp2intersect"), (8, "adx"), (9, "abm"), (17, "f16c"), (25, "abm"), (26, "movbe"),
    ],
    &[
        (5, "rdrand"), (6, "rdseed"), (10, "sha_ni"), (14, "vaes"), (21, "amx_tile"), (22, "amx_int8"),
        (23, "amx_bf16"), (29, "avx_vnni"), (30, "avx512_fp16"),
    ],
];
/// `__builtin_cpu_supports("x86-64-v3")` reads the last word: what a level is made of, it has asked for.
const LIBGCC_LEVELS: usize = 3;

impl Word {
    /// What some of the word's bits tell, with what no CPU lacks that has it.
    pub(crate) fn features(self, mask: u32) -> Set {
        let bits = match self {
            Self::Leaf1Ecx => LEAF_1_ECX,
            Self::Leaf7Ebx => LEAF_7_EBX,
            Self::Leaf7Ecx => LEAF_7_ECX,
            Self::Leaf7Edx => LEAF_7_EDX,
            Self::Leaf7Eax => LEAF_7_EAX,
            Self::ExtendedEcx => EXTENDED_ECX,
            Self::Xcr0 => XCR0,
            Self::Libgcc(word) if usize::from(word) >= LIBGCC_LEVELS => return Set::MAX,
            Self::Libgcc(word) => LIBGCC[usize::from(word)],
        };
        bits.iter()
            .filter(|(at, _)| mask >> at & 1 == 1)
            .fold(0, |set, (_, name)| set | implied(bit(name)))
    }
}
