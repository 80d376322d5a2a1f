//! Debug files that distributions ship apart, found by build id.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use object::Object as _;

use crate::image::{Elf, Image};
use crate::text::hexadecimal;

/// Where gdb looks first.
const DEBUG_ROOT: &str = "/usr/lib/debug/.build-id";

/// The debug file of the same build, where it is installed.
pub(super) fn debug_file(image: &Image) -> Option<Image> {
    let id = image.build_id.as_deref()?;
    let separate = Image::open(&path_of(id)?).ok()?;
    // A file that claims another id would name every function wrongly.
    (separate.build_id.as_deref() == Some(id)).then_some(separate)
}

/// What several debug files of one package share (dwz moves it out). The path comes from the file,
/// so only the build id makes it the right one.
pub(super) fn shared_part(elf: &Elf<'_>) -> Option<Image> {
    let (path, id) = elf.gnu_debugaltlink().ok()??;
    let named = Path::new(OsStr::from_bytes(path));
    let candidates = [named.is_absolute().then(|| named.to_owned()), path_of(id)];
    let mut found = candidates
        .into_iter()
        .flatten()
        .filter_map(|path| Image::open(&path).ok());
    found.find(|image| image.build_id.as_deref() == Some(id))
}

fn path_of(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    Some(PathBuf::from(format!(
        "{DEBUG_ROOT}/{first:02x}/{}.debug",
        hexadecimal(rest)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_is_the_folder() {
        let path = path_of(&[0xab, 0x01, 0xff]).unwrap();
        assert!(path.ends_with(".build-id/ab/01ff.debug"));
        assert!(path_of(&[0xab]).is_none());
    }
}
