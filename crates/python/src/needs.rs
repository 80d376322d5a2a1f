//! What CPU this very build needs, in a section of its own: Python reads it there before it loads the module
//! (record/native_needs.py), because an instruction that the CPU lacks would end the user's process instead.
//!
//! An ordinary build needs the baseline alone, and the section is empty. One with `-C target-cpu=native` is not
//! ordinary, and ends up in an image that runs elsewhere sooner or later.

use pyo3::prelude::*;

const LENGTH: usize = 512;

/// rustc's name and that of /proc/cpuinfo, for those features that the compiler was allowed to use anywhere.
macro_rules! compiled_with {
    ($($feature:tt => $name:literal),* $(,)?) => {
        &[$(if cfg!(target_feature = $feature) { $name } else { "" }),*]
    };
}

const NEEDS: &[&str] = compiled_with! {
    "sse3" => "pni", "ssse3" => "ssse3", "sse4.1" => "sse4_1", "sse4.2" => "sse4_2", "popcnt" => "popcnt",
    "lzcnt" => "abm", "bmi1" => "bmi1", "bmi2" => "bmi2", "movbe" => "movbe", "adx" => "adx", "aes" => "aes",
    "pclmulqdq" => "pclmulqdq", "sha" => "sha_ni", "gfni" => "gfni", "vaes" => "vaes",
    "vpclmulqdq" => "vpclmulqdq", "avx" => "avx", "f16c" => "f16c", "fma" => "fma", "avx2" => "avx2",
    "avxvnni" => "avx_vnni", "avx512f" => "avx512f", "avx512bw" => "avx512bw", "avx512cd" => "avx512cd",
    "avx512dq" => "avx512dq", "avx512vl" => "avx512vl", "avx512ifma" => "avx512ifma",
    "avx512vbmi" => "avx512vbmi", "avx512vbmi2" => "avx512_vbmi2", "avx512vnni" => "avx512_vnni",
    "avx512bitalg" => "avx512_bitalg", "avx512vpopcntdq" => "avx512_vpopcntdq", "avx512bf16" => "avx512_bf16",
    "avx512fp16" => "avx512_fp16", "lse" => "atomics", "dotprod" => "asimddp", "sve" => "sve", "sve2" => "sve2",
};

/// With a blank after each name, and zeros to the end. Too long a text would not compile.
const fn joined(names: &[&str]) -> [u8; LENGTH] {
    let mut text = [0; LENGTH];
    let (mut at, mut name) = (0, 0);
    while name < names.len() {
        let bytes = names[name].as_bytes();
        let mut byte = 0;
        while byte < bytes.len() {
            text[at] = bytes[byte];
            at += 1;
            byte += 1;
        }
        if !bytes.is_empty() {
            text[at] = b' ';
            at += 1;
        }
        name += 1;
    }
    text
}

#[used]
#[unsafe(link_section = ".lastwords.needs")]
static SECTION: [u8; LENGTH] = joined(NEEDS);

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    // Read from the section itself: a linker that collects garbage keeps it then.
    let text = String::from_utf8_lossy(&SECTION);
    m.add("NEEDS", text.trim_end_matches(['\0', ' ']))
}
