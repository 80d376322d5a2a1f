//! Names as people write them. Mangled names are input like any other: bounded on both sides.

use std::fmt::Write as _;

use crate::text::BoundedText;

/// What the demanglers are asked to take apart; real names stay below.
const MAX_MANGLED: usize = 16 << 10;

/// Rust or C++ where it is that, else the name itself.
pub(crate) fn demangle(name: &str) -> String {
    if name.len() > MAX_MANGLED {
        return name.to_owned();
    }
    rust(name)
        .or_else(|| cpp(name))
        .unwrap_or_else(|| name.to_owned())
}

/// First, because old Rust names are also valid C++ ones.
fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut text = BoundedText::default();
    write!(text, "{demangled:#}").ok()?;
    Some(text.0)
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") {
        return None;
    }
    let symbol = cpp_demangle::Symbol::new(name.as_bytes()).ok()?;
    let mut text = BoundedText::default();
    symbol
        .structured_demangle(&mut Sink(&mut text), &cpp_demangle::DemangleOptions::new())
        .ok()?;
    Some(text.0)
}

struct Sink<'t>(&'t mut BoundedText);

impl cpp_demangle::DemangleWrite for Sink<'_> {
    fn write_string(&mut self, text: &str) -> std::fmt::Result {
        self.0.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_languages_and_neither() {
        assert_eq!(demangle("_Z3addii"), "add(int, int)");
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(demangle("PyObject_Call"), "PyObject_Call");
        assert_eq!(demangle("_Zgarbage"), "_Zgarbage");
    }

    #[test]
    fn a_name_that_explodes_is_left_as_it_is() {
        // Each substitution doubles the text.
        let bomb = format!("_Z1fSt4pairIS_{}E", "IS0_S0_E".repeat(2000));
        assert!(demangle(&bomb).len() <= bomb.len().max(crate::text::MAX_NAME));
    }
}
