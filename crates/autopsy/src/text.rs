//! Text that comes from hostile places, made short and safe to keep.

use std::fmt::Write;

/// Demangled torch kernels reach a few thousand characters; more helps nobody.
pub(crate) const MAX_NAME: usize = 4096;

/// Lower-case, no prefix.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// A symbol's name as text, cut at a bound, with what is no UTF-8 replaced.
pub(crate) fn bounded(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAME)]).into_owned()
}

/// A C string in a fixed field.
pub(crate) fn until_nul(bytes: &[u8]) -> String {
    bounded(bytes.split(|byte| *byte == 0).next().unwrap_or(&[]))
}

/// Takes formatted text up to a bound, then fails, so that whoever formats stops working.
#[derive(Default)]
pub(crate) struct BoundedText(pub(crate) String);

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > MAX_NAME {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_text_refuses_what_is_too_long() {
        let mut text = BoundedText::default();
        assert!(text.write_str(&"x".repeat(MAX_NAME)).is_ok());
        assert!(text.write_str("y").is_err());
        assert_eq!(text.0.len(), MAX_NAME);
    }

    #[test]
    fn names_are_cut_and_cleaned() {
        assert_eq!(bounded(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(bounded(&[b'x'; 9000]).len(), MAX_NAME);
        assert_eq!(until_nul(b"python\0rest"), "python");
        assert_eq!(hexadecimal(&[0, 0xab]), "00ab");
    }
}
