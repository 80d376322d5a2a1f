//! What the CPU says about itself to this very process.
//!
//! /proc/cpuinfo is the kernel's word about the machine. Under an emulator, and where a hypervisor hides features, the
//! process runs on less than that; only the instruction itself tells.

/// How many words are kept, in this order: highest basic leaf, leaf 1 ecx and edx, leaf 7 ebx, ecx and edx,
/// leaf 0x80000001 ecx, and the low half of XCR0 (which registers the system lets programs use).
pub const WORDS: usize = 8;

#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // the instruction is safe to call from Rust 1.94 on, and was not before
pub(crate) fn read() -> [u32; WORDS] {
    use core::arch::x86_64::__cpuid_count;
    const OSXSAVE: u32 = 1 << 27;
    // SAFETY: every x86-64 has CPUID; leaves beyond the highest are not asked for, XGETBV only where it is enabled.
    unsafe {
        let highest = __cpuid_count(0, 0).eax;
        let one = __cpuid_count(1, 0);
        let seven = (highest >= 7).then(|| __cpuid_count(7, 0));
        let extended =
            (__cpuid_count(0x8000_0000, 0).eax > 0x8000_0000).then(|| __cpuid_count(0x8000_0001, 0));
        [
            highest,
            one.ecx,
            one.edx,
            seven.map_or(0, |leaf| leaf.ebx),
            seven.map_or(0, |leaf| leaf.ecx),
            seven.map_or(0, |leaf| leaf.edx),
            extended.map_or(0, |leaf| leaf.ecx),
            if one.ecx & OSXSAVE != 0 { xcr0() } else { 0 },
        ]
    }
}

#[cfg(target_arch = "x86_64")]
fn xcr0() -> u32 {
    let low: u32;
    // SAFETY: OSXSAVE was seen; the instruction reads a register and nothing else.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack));
    }
    low
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn read() -> [u32; WORDS] {
    [0; WORDS]
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    #[test]
    fn it_agrees_with_the_kernel_about_sse2_and_avx() {
        let words = super::read();
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap();
        assert_eq!(words[2] >> 26 & 1 == 1, flags.contains(" sse2 "));
        let enabled = words[1] >> 28 & 1 == 1 && words[7] & 6 == 6;
        assert_eq!(enabled, flags.split_whitespace().any(|flag| flag == "avx"));
    }
}
