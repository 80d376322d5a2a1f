//! Instruction-set extensions by their /proc/cpuinfo names, and which of them each instruction needs. Data.

use crate::events::{Set, trait_of};
use iced_x86::{Code, CpuidFeature as F, EncodingKind, Mnemonic as M};
use std::sync::OnceLock;

#[rustfmt::skip]
const EXTENSIONS: &[(&str, F)] = &[
    ("pni", F::SSE3), ("ssse3", F::SSSE3), ("sse4_1", F::SSE4_1), ("sse4_2", F::SSE4_2), ("popcnt", F::POPCNT),
    ("avx", F::AVX), ("f16c", F::F16C), ("fma", F::FMA), ("avx2", F::AVX2), ("bmi1", F::BMI1), ("bmi2", F::BMI2),
    ("abm", F::LZCNT), ("movbe", F::MOVBE),
    ("aes", F::AES), ("pclmulqdq", F::PCLMULQDQ), ("vaes", F::VAES), ("vpclmulqdq", F::VPCLMULQDQ),
    ("gfni", F::GFNI), ("sha_ni", F::SHA), ("adx", F::ADX), ("rdrand", F::RDRAND), ("rdseed", F::RDSEED),
    ("sse4a", F::SSE4A), ("fma4", F::FMA4), ("xop", F::XOP), ("tbm", F::TBM),
    ("avx_vnni", F::AVX_VNNI), ("avx_vnni_int8", F::AVX_VNNI_INT8), ("avx_ifma", F::AVX_IFMA),
    ("avx_ne_convert", F::AVX_NE_CONVERT),
    ("avx512f", F::AVX512F), ("avx512bw", F::AVX512BW), ("avx512cd", F::AVX512CD), ("avx512dq", F::AVX512DQ),
    ("avx512vl", F::AVX512VL), ("avx512er", F::AVX512ER), ("avx512pf", F::AVX512PF),
    ("avx512ifma", F::AVX512_IFMA), ("avx512vbmi", F::AVX512_VBMI), ("avx512_vbmi2", F::AVX512_VBMI2),
    ("avx512_vnni", F::AVX512_VNNI), ("avx512_bitalg", F::AVX512_BITALG),
    ("avx512_vpopcntdq", F::AVX512_VPOPCNTDQ), ("avx512_bf16", F::AVX512_BF16), ("avx512_fp16", F::AVX512_FP16),
    ("avx512_vp2intersect", F::AVX512_VP2INTERSECT),
    ("amx_tile", F::AMX_TILE), ("amx_int8", F::AMX_INT8), ("amx_bf16", F::AMX_BF16), ("amx_fp16", F::AMX_FP16),
];

pub(crate) const fn bit(name: &str) -> Set {
    let mut index = 0;
    while index < EXTENSIONS.len() {
        if crate::events::same(EXTENSIONS[index].0.as_bytes(), name.as_bytes()) {
            return 1 << index;
        }
        index += 1;
    }
    panic!("no such extension");
}

pub(crate) const AVX: Set = bit("avx");
pub(crate) const BMI2: Set = bit("bmi2");
/// On a CPU without it, `lzcnt` runs as `bsr` and gives another number: wrong, but no crash.
pub(crate) const SILENT: Set = bit("abm");

/// x86-64-v2 to v4 as the linker's property note has them: bit 1 is v2.
pub(crate) fn of_level(mask: u32) -> Set {
    const V2: Set = bit("pni") | bit("ssse3") | bit("sse4_1") | bit("sse4_2") | bit("popcnt");
    const V3: Set = V2 | AVX | bit("avx2") | bit("bmi1") | BMI2 | bit("f16c") | bit("fma") | bit("movbe");
    const V4: Set =
        V3 | bit("avx512f") | bit("avx512bw") | bit("avx512cd") | bit("avx512dq") | bit("avx512vl");
    [(2, V2), (4, V3), (8, V4)]
        .iter()
        .filter(|(level, _)| mask & level != 0)
        .fold(0, |set, (_, more)| set | more)
}

/// An extension, and what no CPU lacks that has it.
pub(crate) fn implied(set: Set) -> Set {
    const SSE4: Set = bit("pni") | bit("ssse3") | bit("sse4_1") | bit("sse4_2") | bit("popcnt");
    const WIDE: Set = SSE4 | AVX;
    const WIDEST: Set = WIDE | bit("avx2") | bit("fma") | bit("f16c") | bit("avx512f");
    const RULES: &[(Set, Set)] = &[
        (bit("ssse3"), bit("pni")),
        (bit("sse4_1"), bit("pni") | bit("ssse3")),
        (bit("sse4_2"), SSE4),
        (
            AVX | bit("avx2") | bit("fma") | bit("f16c") | bit("fma4") | bit("xop"),
            WIDE,
        ),
        (
            bit("vaes") | bit("vpclmulqdq") | bit("avx_vnni") | bit("avx_ifma"),
            WIDE | bit("avx2"),
        ),
        (avx512(), WIDEST),
        (
            bit("amx_tile") | bit("amx_int8") | bit("amx_bf16") | bit("amx_fp16"),
            WIDEST,
        ),
    ];
    let more = RULES.iter().filter(|(these, _)| set & these != 0);
    more.fold(set, |all, (_, with)| all | with)
}

const fn avx512() -> Set {
    let (mut index, mut set) = (0, 0);
    while index < EXTENSIONS.len() {
        let name = EXTENSIONS[index].0.as_bytes();
        if name.len() > 5 && name[3] == b'5' && name[4] == b'1' && name[5] == b'2' {
            set |= 1 << index;
        }
        index += 1;
    }
    set
}

/// What people ask for and then run `extension`, which they have not asked for.
pub(crate) fn taken_for(extension: Set) -> Set {
    const AFTER_AVX: Set = bit("avx2") | bit("fma") | bit("f16c") | bit("bmi1") | BMI2 | bit("movbe");
    const AFTER_SSE: Set = bit("sse4_1") | bit("sse4_2") | bit("popcnt");
    if extension & AFTER_AVX != 0 {
        AVX | bit("avx2") | bit("fma")
    } else if extension & avx512() != 0 {
        AVX | bit("avx2") | avx512()
    } else if extension & (bit("vaes") | bit("vpclmulqdq")) != 0 {
        AVX | bit("avx2") | bit("aes") | bit("pclmulqdq")
    } else if extension == AVX {
        bit("sse4_1") | bit("sse4_2")
    } else if extension & AFTER_SSE != 0 {
        bit("pni") | bit("ssse3") | bit("sse4_1") | bit("sse4_2")
    } else {
        0
    }
}

pub(crate) fn name(index: usize) -> &'static str {
    EXTENSIONS[index].0
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Kind {
    pub(crate) needs: Set,
    pub(crate) traits: u16,
}

pub(crate) fn table() -> &'static [Kind] {
    static TABLE: OnceLock<Vec<Kind>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Vec::new();
        for code in Code::values() {
            table.push(kind(code));
        }
        table
    })
}

fn kind(code: Code) -> Kind {
    let needs = needs(code);
    Kind {
        needs,
        traits: traits(code, needs),
    }
}

fn needs(code: Code) -> Set {
    // tzcnt is `rep bsf`: it runs everywhere, and compilers use it as the faster bsf.
    if code.mnemonic() == M::Tzcnt {
        return 0;
    }
    let known = |feature: &F| EXTENSIONS.iter().position(|(_, known)| known == feature);
    code.cpuid_features()
        .iter()
        .filter_map(known)
        .fold(0, |set, index| set | 1 << index)
}

fn traits(code: Code, needs: Set) -> u16 {
    let by_encoding = match code.encoding() {
        EncodingKind::Legacy if is_sse(code) => trait_of::PLAIN,
        EncodingKind::VEX if needs & (AVX | bit("avx2") | bit("fma") | bit("f16c")) != 0 => trait_of::WIDE,
        EncodingKind::EVEX => trait_of::WIDEST,
        _ => 0,
    };
    by_encoding | by_mnemonic(code)
}

fn by_mnemonic(code: Code) -> u16 {
    match code.mnemonic() {
        M::Cpuid | M::Xgetbv => trait_of::ASKS,
        M::Shlx | M::Sarx | M::Shrx => trait_of::MODERN,
        M::Shl | M::Sar | M::Shr if format!("{code:?}").ends_with("_CL") => trait_of::OLD,
        _ => 0,
    }
}

fn is_sse(code: Code) -> bool {
    let of_vectors = [F::SSE, F::SSE2, F::SSE3, F::SSSE3, F::SSE4_1, F::SSE4_2];
    code.cpuid_features()
        .iter()
        .any(|feature| of_vectors.contains(feature))
        && format!("{code:?}").contains("xmm")
}
