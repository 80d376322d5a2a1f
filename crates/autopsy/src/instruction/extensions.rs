//! CPUID features by the names that /proc/cpuinfo gives them. Data: the code only looks up.

use iced_x86::CpuidFeature as F;

/// Features with the flags that a CPU which has them shows. An extension is listed with the flag of
/// its own, not with those it builds on: `fma` says enough, and every CPU with it has `avx`.
#[rustfmt::skip]
const FLAGS: &[(F, &[&str])] = &[
    (F::SSE3, &["pni"]),
    (F::SSSE3, &["ssse3"]),
    (F::SSE4_1, &["sse4_1"]),
    (F::SSE4_2, &["sse4_2"]),
    (F::SSE4A, &["sse4a"]),
    (F::POPCNT, &["popcnt"]),
    // One CPUID bit with two names: the kernel kept AMD's.
    (F::LZCNT, &["abm"]),
    (F::BMI1, &["bmi1"]),
    (F::BMI2, &["bmi2"]),
    (F::TBM, &["tbm"]),
    (F::MOVBE, &["movbe"]),
    (F::ADX, &["adx"]),
    (F::AES, &["aes"]),
    (F::PCLMULQDQ, &["pclmulqdq"]),
    (F::VAES, &["vaes"]),
    (F::VPCLMULQDQ, &["vpclmulqdq"]),
    (F::GFNI, &["gfni"]),
    (F::SHA, &["sha_ni"]),
    (F::SHA512, &["sha512"]),
    (F::SM3, &["sm3"]),
    (F::SM4, &["sm4"]),
    (F::AVX, &["avx"]),
    (F::AVX2, &["avx2"]),
    (F::F16C, &["f16c"]),
    (F::FMA, &["fma"]),
    (F::FMA4, &["fma4"]),
    (F::XOP, &["xop"]),
    (F::LWP, &["lwp"]),
    (F::AVX_VNNI, &["avx_vnni"]),
    (F::AVX_VNNI_INT8, &["avx_vnni_int8"]),
    (F::AVX_VNNI_INT16, &["avx_vnni_int16"]),
    (F::AVX_IFMA, &["avx_ifma"]),
    (F::AVX_NE_CONVERT, &["avx_ne_convert"]),
    (F::AVX512F, &["avx512f"]),
    (F::AVX512BW, &["avx512bw"]),
    (F::AVX512CD, &["avx512cd"]),
    (F::AVX512DQ, &["avx512dq"]),
    (F::AVX512ER, &["avx512er"]),
    (F::AVX512PF, &["avx512pf"]),
    (F::AVX512VL, &["avx512vl"]),
    (F::AVX512_IFMA, &["avx512ifma"]),
    (F::AVX512_VBMI, &["avx512vbmi"]),
    (F::AVX512_VBMI2, &["avx512_vbmi2"]),
    (F::AVX512_VNNI, &["avx512_vnni"]),
    (F::AVX512_BITALG, &["avx512_bitalg"]),
    (F::AVX512_VPOPCNTDQ, &["avx512_vpopcntdq"]),
    (F::AVX512_4FMAPS, &["avx512_4fmaps"]),
    (F::AVX512_4VNNIW, &["avx512_4vnniw"]),
    (F::AVX512_VP2INTERSECT, &["avx512_vp2intersect"]),
    (F::AVX512_BF16, &["avx512_bf16"]),
    (F::AVX512_FP16, &["avx512_fp16"]),
    (F::AMX_TILE, &["amx_tile"]),
    (F::AMX_INT8, &["amx_int8"]),
    (F::AMX_BF16, &["amx_bf16"]),
    (F::AMX_FP16, &["amx_fp16"]),
    (F::AMX_COMPLEX, &["amx_complex"]),
    (F::RDRAND, &["rdrand"]),
    (F::RDSEED, &["rdseed"]),
    (F::RDPID, &["rdpid"]),
    (F::RDTSCP, &["rdtscp"]),
    (F::RDPRU, &["rdpru"]),
    (F::FSGSBASE, &["fsgsbase"]),
    (F::CMPXCHG16B, &["cx16"]),
    (F::CMPCCXADD, &["cmpccxadd"]),
    (F::RAO_INT, &["rao_int"]),
    (F::XSAVE, &["xsave"]),
    (F::XSAVEC, &["xsavec"]),
    (F::XSAVEOPT, &["xsaveopt"]),
    (F::XSAVES, &["xsaves"]),
    (F::CLFLUSHOPT, &["clflushopt"]),
    (F::CLWB, &["clwb"]),
    (F::CLZERO, &["clzero"]),
    (F::CLDEMOTE, &["cldemote"]),
    (F::WBNOINVD, &["wbnoinvd"]),
    (F::PREFETCHW, &["3dnowprefetch"]),
    (F::MOVDIRI, &["movdiri"]),
    (F::MOVDIR64B, &["movdir64b"]),
    (F::ENQCMD, &["enqcmd"]),
    (F::WAITPKG, &["waitpkg"]),
    (F::SERIALIZE, &["serialize"]),
    (F::MONITOR, &["monitor"]),
    (F::MONITORX, &["mwaitx"]),
    (F::PKU, &["pku"]),
    (F::RTM, &["rtm"]),
    (F::HLE, &["hle"]),
    // Either is enough; one name has to do.
    (F::HLE_or_RTM, &["rtm"]),
    (F::SKINIT_or_SVM, &["svm"]),
    (F::TSXLDTRK, &["tsxldtrk"]),
    (F::MPX, &["mpx"]),
    (F::CET_IBT, &["ibt"]),
    (F::CET_SS, &["shstk"]),
    (F::D3NOW, &["3dnow"]),
    (F::D3NOWEXT, &["3dnowext"]),
    (F::SVM, &["svm"]),
    (F::VMX, &["vmx"]),
    (F::SMX, &["smx"]),
    (F::SMAP, &["smap"]),
    (F::SKINIT, &["skinit"]),
    (F::INVPCID, &["invpcid"]),
    (F::PCONFIG, &["pconfig"]),
    (F::UINTR, &["uintr"]),
    (F::HRESET, &["hreset"]),
    (F::FRED, &["fred"]),
    (F::LKGS, &["lkgs"]),
    (F::WRMSRNS, &["wrmsrns"]),
];

/// What every x86-64 CPU has.
#[rustfmt::skip]
const BASELINE: &[F] = &[
    F::INTEL8086, F::INTEL186, F::INTEL286, F::INTEL386, F::INTEL486, F::X64, F::FPU, F::FPU287,
    F::FPU387, F::CMOV, F::CPUID, F::CX8, F::CLFSH, F::FXSR, F::MMX, F::MSR, F::MULTIBYTENOP,
    F::PAUSE, F::RDPMC, F::SEP, F::SSE, F::SSE2, F::SYSCALL, F::TSC, F::SMM,
];

/// The flags of one feature; empty for baseline x86-64 and for what no Linux host shows.
#[must_use]
pub fn cpuinfo_flags(feature: F) -> &'static [&'static str] {
    debug_assert!(!FLAGS.iter().any(|(known, _)| BASELINE.contains(known)));
    FLAGS
        .iter()
        .find(|(known, _)| *known == feature)
        .map_or(&[], |(_, flags)| flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_listed_once() {
        for (position, (feature, flags)) in FLAGS.iter().enumerate() {
            assert!(!BASELINE.contains(feature), "{feature:?} is both");
            assert!(
                !FLAGS[..position].iter().any(|(known, _)| known == feature),
                "{feature:?}"
            );
            assert!(
                flags.iter().all(|flag| flag.chars().all(|letter| {
                    letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'
                }))
            );
        }
    }

    /// What is in neither list never ran on x86-64 Linux: 386 steppings, Cyrix, VIA PadLock, SGX leaves.
    #[test]
    fn what_is_left_out_is_left_out_on_purpose() {
        let exotic = |name: &str| {
            [
                "CYRIX",
                "CENTAUR",
                "PADLOCK",
                "ONLY",
                "INTEL486_A",
                "SEV",
                "SGX",
                "TDX",
                "KL",
                "KNC",
                "UDBG",
            ]
            .iter()
            .any(|part| name.contains(part))
                || [
                    "UMOV",
                    "IA64",
                    "CL1INVMB",
                    "OSS",
                    "INVEPT",
                    "INVVPID",
                    "MCOMMIT",
                    "PCOMMIT",
                    "PREFETCHWT1",
                    "PTWRITE",
                    "INVLPGB",
                    "MOV_TR",
                    "AESKLE",
                    "RMPQUERY",
                    "PREFETCHITI",
                    "MSRLIST",
                    "TSE",
                ]
                .contains(&name)
        };
        for feature in F::values() {
            let listed = BASELINE.contains(&feature) || FLAGS.iter().any(|(f, _)| *f == feature);
            assert!(
                listed || exotic(&format!("{feature:?}")),
                "{feature:?} has no name"
            );
        }
    }

    #[test]
    fn flags_exist_in_this_hosts_cpuinfo_spelling() {
        let Ok(cpuinfo) = std::fs::read_to_string("/proc/cpuinfo") else {
            return;
        };
        let Some(flags) = cpuinfo.lines().find(|line| line.starts_with("flags")) else {
            return;
        };
        // Any x86-64 host made since 2013 has these: it proves the spelling, not the host.
        for feature in [F::SSE3, F::SSSE3, F::SSE4_1, F::SSE4_2, F::POPCNT, F::CMPXCHG16B] {
            let flag = cpuinfo_flags(feature)[0];
            assert!(flags.split_whitespace().any(|known| known == flag), "{flag}");
        }
    }
}
