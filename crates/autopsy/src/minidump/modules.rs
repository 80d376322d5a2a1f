//! The module list: which file lay where, with its build id, so that a debugger finds the same one.

use super::buffer::Buffer;
use crate::mappings::Mapping;
use crate::scene::Scene;

const MAX_MODULES: usize = 4096;

/// "BpEL": a CodeView record that holds an ELF build id.
const BUILD_ID_RECORD: u32 = 0x4270_454c;

const RECORD_SIZE: usize = 108;

/// A run of mappings of one file.
struct Module<'m> {
    first: &'m Mapping,
    end: u64,
    executable: bool,
}

/// One MINIDUMP_MODULE per library.
pub(super) fn records<'m>(scene: &Scene<'m>, mappings: &'m [Mapping], buffer: &mut Buffer) -> Vec<Vec<u8>> {
    let modules = runs(mappings)
        .into_iter()
        .filter(|module| module.executable)
        .take(MAX_MODULES);
    modules.map(|module| record(scene, &module, buffer)).collect()
}

/// A data file of the same name mapped far away must not stretch the module, so only neighbours
/// count. The anonymous piece between two of them is the library's zeroed data.
fn runs(mappings: &[Mapping]) -> Vec<Module<'_>> {
    let mut sorted: Vec<&Mapping> = mappings.iter().filter(|mapping| mapping.is_file()).collect();
    sorted.sort_by_key(|mapping| mapping.start);
    let mut modules: Vec<Module<'_>> = Vec::new();
    for mapping in sorted {
        match modules
            .last_mut()
            .filter(|module| module.first.path == mapping.path)
        {
            Some(module) => {
                module.end = mapping.end;
                module.executable |= mapping.executable;
            }
            None => modules.push(Module {
                first: mapping,
                end: mapping.end,
                executable: mapping.executable,
            }),
        }
    }
    modules
}

fn record(scene: &Scene<'_>, module: &Module<'_>, buffer: &mut Buffer) -> Vec<u8> {
    let name = buffer.append_string(&module.first.path);
    let image = scene
        .space
        .at(module.first.start)
        .and_then(|mapping| scene.image_of(mapping));
    let build_id = image.and_then(|image| image.build_id.clone());
    let code_view = build_id.map(|id| {
        let mut bytes = BUILD_ID_RECORD.to_le_bytes().to_vec();
        bytes.extend(id);
        buffer.append(&bytes)
    });
    let size = u32::try_from(module.end.saturating_sub(module.first.start)).unwrap_or(u32::MAX);
    let mut record = module.first.start.to_le_bytes().to_vec();
    record.extend(size.to_le_bytes());
    // Checksum and timestamp.
    record.extend([0; 8]);
    record.extend(name.offset.to_le_bytes());
    // VS_FIXEDFILEINFO.
    record.extend([0; 52]);
    record.extend(code_view.unwrap_or_default().bytes());
    record.resize(RECORD_SIZE, 0);
    record
}
