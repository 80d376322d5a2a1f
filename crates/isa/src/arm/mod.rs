//! aarch64, with binutils' tables behind the decoder.

pub(crate) mod features;
pub(crate) mod sweep;
