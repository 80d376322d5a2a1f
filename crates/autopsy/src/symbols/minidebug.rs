//! MiniDebugInfo: Fedora and its kin keep a small symbol table, xz-compressed, inside each library.

use std::io::Read;

use lzma_rust2::XzReader;
use object::{Object as _, ObjectSection as _};

use crate::image::Image;
use crate::scene::Scene;
use crate::snapshot::Limits;

/// xz presets use dictionaries of up to 64 MiB.
const DECODER_MEMORY_KIB: u32 = 96 << 10;

/// The embedded ELF file, decompressed up to the limit. A bomb gives an error, not an allocation.
pub(super) fn open(image: &Image, scene: &Scene<'_>, limits: &Limits) -> Option<Image> {
    let elf = image.elf()?;
    let compressed = elf.section_by_name(".gnu_debugdata")?.data().ok()?;
    match decompress(compressed, limits.max_decompressed_bytes).and_then(Image::from_bytes) {
        Ok(mini) => Some(mini),
        Err(reason) => {
            scene.note(format!(".gnu_debugdata was left out: {reason}"));
            None
        }
    }
}

fn decompress(compressed: &[u8], limit: u64) -> Result<Vec<u8>, String> {
    let reader = XzReader::new_mem_limit(compressed, false, DECODER_MEMORY_KIB);
    let mut bytes = Vec::new();
    reader
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > limit {
        return Err("larger than the limit".to_owned());
    }
    Ok(bytes)
}
