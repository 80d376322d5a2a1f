//! What this CPU can do and the kernel has switched on, in /proc/cpuinfo's words, from the CPU itself: under an
//! emulator /proc/cpuinfo shows the machine below.

/// None where the CPU is of a kind that cannot be asked from user space; /proc/cpuinfo has to do then.
#[cfg(not(target_arch = "x86_64"))]
pub fn host_features() -> Option<Vec<&'static str>> {
    None
}

#[cfg(target_arch = "x86_64")]
pub fn host_features() -> Option<Vec<&'static str>> {
    Some(x86::features())
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__cpuid_count, __get_cpuid_max, _xgetbv, CpuidResult};

    #[derive(Clone, Copy)]
    enum Register {
        Eax,
        Ebx,
        Ecx,
        Edx,
    }
    use Register::{Eax, Ebx, Ecx, Edx};

    /// State that the kernel must save on a switch, as bits of XCR0, before the extension may be used.
    const NONE: u64 = 0;
    const YMM: u64 = 0b110;
    const ZMM: u64 = 0b1110_0110;
    const TILES: u64 = 0b11 << 17;

    #[rustfmt::skip]
    const BITS: &[(u32, u32, Register, u32, u64, &str)] = &[
        (1, 0, Edx, 25, NONE, "sse"), (1, 0, Edx, 26, NONE, "sse2"),
        (1, 0, Ecx, 0, NONE, "pni"), (1, 0, Ecx, 1, NONE, "pclmulqdq"), (1, 0, Ecx, 9, NONE, "ssse3"),
        (1, 0, Ecx, 12, YMM, "fma"), (1, 0, Ecx, 13, NONE, "cx16"), (1, 0, Ecx, 19, NONE, "sse4_1"),
        (1, 0, Ecx, 20, NONE, "sse4_2"), (1, 0, Ecx, 22, NONE, "movbe"), (1, 0, Ecx, 23, NONE, "popcnt"),
        (1, 0, Ecx, 25, NONE, "aes"), (1, 0, Ecx, 26, NONE, "xsave"), (1, 0, Ecx, 28, YMM, "avx"),
        (1, 0, Ecx, 29, YMM, "f16c"), (1, 0, Ecx, 30, NONE, "rdrand"), (1, 0, Ecx, 31, NONE, "hypervisor"),
        (7, 0, Ebx, 3, NONE, "bmi1"), (7, 0, Ebx, 5, YMM, "avx2"), (7, 0, Ebx, 8, NONE, "bmi2"),
        (7, 0, Ebx, 16, ZMM, "avx512f"), (7, 0, Ebx, 17, ZMM, "avx512dq"), (7, 0, Ebx, 18, NONE, "rdseed"),
        (7, 0, Ebx, 19, NONE, "adx"), (7, 0, Ebx, 21, ZMM, "avx512ifma"), (7, 0, Ebx, 26, ZMM, "avx512pf"),
        (7, 0, Ebx, 27, ZMM, "avx512er"), (7, 0, Ebx, 28, ZMM, "avx512cd"), (7, 0, Ebx, 29, NONE, "sha_ni"),
        (7, 0, Ebx, 30, ZMM, "avx512bw"), (7, 0, Ebx, 31, ZMM, "avx512vl"),
        (7, 0, Ecx, 1, ZMM, "avx512vbmi"), (7, 0, Ecx, 6, ZMM, "avx512_vbmi2"), (7, 0, Ecx, 8, NONE, "gfni"),
        (7, 0, Ecx, 9, YMM, "vaes"), (7, 0, Ecx, 10, YMM, "vpclmulqdq"), (7, 0, Ecx, 11, ZMM, "avx512_vnni"),
        (7, 0, Ecx, 12, ZMM, "avx512_bitalg"), (7, 0, Ecx, 14, ZMM, "avx512_vpopcntdq"),
        (7, 0, Edx, 2, ZMM, "avx512_4vnniw"), (7, 0, Edx, 3, ZMM, "avx512_4fmaps"),
        (7, 0, Edx, 8, ZMM, "avx512_vp2intersect"), (7, 0, Edx, 22, TILES, "amx_bf16"),
        (7, 0, Edx, 23, ZMM, "avx512_fp16"), (7, 0, Edx, 24, TILES, "amx_tile"), (7, 0, Edx, 25, TILES, "amx_int8"),
        (7, 1, Eax, 4, YMM, "avx_vnni"), (7, 1, Eax, 5, ZMM, "avx512_bf16"), (7, 1, Eax, 21, TILES, "amx_fp16"),
        (7, 1, Eax, 23, YMM, "avx_ifma"), (7, 1, Edx, 4, YMM, "avx_vnni_int8"), (7, 1, Edx, 5, YMM, "avx_ne_convert"),
        (0x8000_0001, 0, Ecx, 0, NONE, "lahf_lm"), (0x8000_0001, 0, Ecx, 5, NONE, "abm"),
        (0x8000_0001, 0, Ecx, 6, NONE, "sse4a"), (0x8000_0001, 0, Ecx, 11, YMM, "xop"),
        (0x8000_0001, 0, Ecx, 16, YMM, "fma4"), (0x8000_0001, 0, Ecx, 21, NONE, "tbm"),
    ];

    pub(super) fn features() -> Vec<&'static str> {
        let state = enabled_state();
        let is_on = |(leaf, part, register, bit, needs, _): &&(u32, u32, Register, u32, u64, &str)| {
            state & needs == *needs && value(*leaf, *part, *register) >> bit & 1 == 1
        };
        BITS.iter().filter(is_on).map(|(.., name)| *name).collect()
    }

    fn value(leaf: u32, part: u32, register: Register) -> u32 {
        let (largest, _) = __get_cpuid_max(leaf & 0x8000_0000);
        if leaf > largest || part > 0 && part > __cpuid_count(leaf, 0).eax {
            return 0;
        }
        let CpuidResult { eax, ebx, ecx, edx } = __cpuid_count(leaf, part);
        match register {
            Eax => eax,
            Ebx => ebx,
            Ecx => ecx,
            Edx => edx,
        }
    }

    fn enabled_state() -> u64 {
        let has_xgetbv = value(1, 0, Ecx) >> 27 & 1 == 1;
        // SAFETY: OSXSAVE says that the kernel has enabled the instruction.
        if has_xgetbv { unsafe { xcr0() } } else { 0 }
    }

    #[target_feature(enable = "xsave")]
    unsafe fn xcr0() -> u64 {
        // SAFETY: the caller has checked OSXSAVE.
        unsafe { _xgetbv(0) }
    }
}
