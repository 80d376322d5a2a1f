//! Redirecting one imported function of every loaded object, without LD_PRELOAD.
//!
//! Each object calls functions of others through a table of addresses (its GOT). The slots of that one
//! function are found by its relocations and overwritten. Ours and libc's own are left alone. Slots that the
//! loader made read-only after relocation (RELRO) are opened for the write and closed again.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

#[cfg(target_arch = "x86_64")]
const SLOT_KINDS: [u32; 2] = [6, 7]; // R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
#[cfg(target_arch = "aarch64")]
const SLOT_KINDS: [u32; 2] = [1025, 1026]; // R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const DT_RELACOUNT: i64 = 0x6fff_fff9;
const PAGE: usize = 4096;

/// What to redirect, and where to.
struct Search {
    name: &'static CStr,
    replacement: usize,
    skip_from: u64,
    skip_to: u64,
    only_notes: bool,
}

/// How often the loader had added and removed objects when we last looked at them all.
static SEEN_ADDS: AtomicU64 = AtomicU64::new(0);
static SEEN_SUBS: AtomicU64 = AtomicU64::new(0);
/// Where the objects lie whose slots were looked at: importing torch loads a hundred modules one by one, and
/// its largest library has a hundred thousand relocations. An object that finds no place is looked at again.
static VISITED: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
static REDIRECTED: AtomicUsize = AtomicUsize::new(0);

/// Slots that were found and not written to: see `note`. Addresses are even; the lowest bit says "read-only".
static NOTED: [AtomicUsize; 512] = [const { AtomicUsize::new(0) }; 512];
static NOTED_COUNT: AtomicUsize = AtomicUsize::new(0);
const READ_ONLY: usize = 1;
/// There was no place for a slot: objects that count as looked at were not, and the next walk begins anew.
static IS_NOTED_IN_PART: AtomicBool = AtomicBool::new(false);

/// Has anything been loaded since `redirect` last ran?
pub(crate) fn is_stale() -> bool {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, adds: *mut c_void) -> i32 {
        // SAFETY: the loader's own record, and the counter that `is_stale` passed.
        unsafe { *adds.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut adds = 0_u64;
    // SAFETY: the callback only reads one field, and ends the walk.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut adds).cast()) };
    SEEN_ADDS.swap(adds, Ordering::Relaxed) != adds
}

/// Points every object's slot for `name` at `replacement`; how many were newly pointed there.
pub(crate) fn redirect(name: &'static CStr, replacement: usize) -> usize {
    REDIRECTED.store(0, Ordering::Relaxed);
    walk(name, replacement, false);
    REDIRECTED.load(Ordering::Relaxed)
}

/// Finds the slots and leaves them as they are: `redirect` then writes to them, here or in a child that was forked
/// meanwhile. Its walk would map a megabyte of symbol tables into each child (numpy and OpenSSL; torch has more).
pub(crate) fn note(name: &'static CStr, replacement: usize) {
    walk(name, replacement, true);
    if IS_NOTED_IN_PART.swap(false, Ordering::Relaxed) {
        forget_visits();
    }
}

fn walk(name: &'static CStr, replacement: usize, only_notes: bool) {
    let (skip_from, skip_to) = own_extent(replacement);
    let mut search = Search {
        name,
        replacement,
        skip_from,
        skip_to,
        only_notes,
    };
    // SAFETY: the loader holds its lock during the walk, so no object goes away under us.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
}

/// What was noted lies where it lay: nothing was unloaded since, `visit` has seen to that.
unsafe fn write_noted(replacement: usize) {
    for place in NOTED.iter().take(NOTED_COUNT.swap(0, Ordering::Relaxed)) {
        let noted = place.load(Ordering::Relaxed);
        let slot = (noted & !READ_ONLY) as *mut usize;
        // SAFETY: a slot of an object that is still loaded, under the loader's lock.
        unsafe {
            if *slot != replacement {
                write_slot(slot, replacement, noted & READ_ONLY != 0);
            }
        }
    }
}

fn note_slot(slot: *mut usize, read_only: bool) {
    let count = NOTED_COUNT.load(Ordering::Relaxed);
    match NOTED.get(count) {
        Some(place) => {
            place.store(slot as usize | usize::from(read_only), Ordering::Relaxed);
            NOTED_COUNT.store(count + 1, Ordering::Relaxed);
        }
        None => IS_NOTED_IN_PART.store(true, Ordering::Relaxed),
    }
}

/// The object that the replacement itself lives in must keep calling the real function.
fn own_extent(address: usize) -> (u64, u64) {
    // SAFETY: dladdr fills the local struct.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr(address as *const c_void, &mut info) == 0 {
            return (0, 0);
        }
        (info.dli_fbase as u64, address as u64)
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> i32 {
    // SAFETY: the loader's record of a loaded object; `search` is what `redirect` passed.
    unsafe {
        let (info, search) = (&*info, &*search.cast::<Search>());
        if SEEN_SUBS.swap(info.dlpi_subs, Ordering::Relaxed) != info.dlpi_subs {
            forget_visits(); // something was unloaded, and its place may be another's now
        }
        if !search.only_notes {
            write_noted(search.replacement);
        }
        let is_ours = info.dlpi_addr >= search.skip_from && info.dlpi_addr <= search.skip_to;
        if first_visit(info.dlpi_addr) && !is_ours && !is_the_systems(info.dlpi_name) {
            visit_object(info, search);
        }
    }
    0
}

fn forget_visits() {
    NOTED_COUNT.store(0, Ordering::Relaxed);
    for place in &VISITED {
        place.store(0, Ordering::Relaxed);
    }
}

/// Was the object at this address not looked at before? The main program may lie at zero: it counts as one.
fn first_visit(address: u64) -> bool {
    const PROBES: usize = 16;
    let mark = address | 1;
    let start = (address >> 12) as usize;
    for step in 0..PROBES {
        let Some(place) = VISITED.get((start + step) % VISITED.len()) else {
            return true;
        };
        match place.load(Ordering::Relaxed) {
            0 => {
                place.store(mark, Ordering::Relaxed);
                return true;
            }
            known if known == mark => return false,
            _ => {}
        }
    }
    true
}

/// The C library and the loader call their own functions directly; the vdso has no tables to write to.
unsafe fn is_the_systems(name: *const c_char) -> bool {
    if name.is_null() {
        return false;
    }
    // SAFETY: the loader's names are NUL-terminated.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    [b"linux-vdso".as_slice(), b"libc.so", b"ld-linux", b"libpthread"]
        .iter()
        .any(|prefix| file.starts_with(prefix))
}

#[derive(Default)]
struct Tables {
    strings: u64,
    symbols: u64,
    relocations: u64,
    relocations_size: u64,
    relative_count: u64,
    plt: u64,
    plt_size: u64,
}

unsafe fn visit_object(info: &libc::dl_phdr_info, search: &Search) {
    // SAFETY: addresses of the loader's own tables; glibc stores them relocated in the dynamic section.
    unsafe {
        let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
        let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else {
            return;
        };
        let tables = read_tables((info.dlpi_addr + dynamic.p_vaddr) as *const Dynamic);
        if tables.strings < PAGE as u64 || tables.symbols < PAGE as u64 {
            return;
        }
        let entry = size_of::<Relocation>() as u64;
        // Relative relocations name no symbol, stand first, and in libtorch are a hundred thousand.
        let skipped = tables.relative_count.min(tables.relocations_size / entry) * entry;
        for (start, size) in [
            (tables.plt, tables.plt_size),
            (tables.relocations + skipped, tables.relocations_size - skipped),
        ] {
            if start >= PAGE as u64 {
                let all = core::slice::from_raw_parts(start as *const Relocation, (size / entry) as usize);
                for relocation in all {
                    visit_slot(info, headers, &tables, relocation, search);
                }
            }
        }
    }
}

unsafe fn read_tables(mut dynamic: *const Dynamic) -> Tables {
    let mut tables = Tables::default();
    // SAFETY: a dynamic section ends with a zero tag.
    unsafe {
        while (*dynamic).tag != 0 {
            let value = (*dynamic).value;
            match (*dynamic).tag {
                DT_STRTAB => tables.strings = value,
                DT_SYMTAB => tables.symbols = value,
                DT_RELA => tables.relocations = value,
                DT_RELASZ => tables.relocations_size = value,
                DT_RELACOUNT => tables.relative_count = value,
                DT_JMPREL => tables.plt = value,
                DT_PLTRELSZ => tables.plt_size = value,
                _ => {}
            }
            dynamic = dynamic.add(1);
        }
    }
    tables
}

unsafe fn visit_slot(
    info: &libc::dl_phdr_info,
    headers: &[libc::Elf64_Phdr],
    tables: &Tables,
    relocation: &Relocation,
    search: &Search,
) {
    if !SLOT_KINDS.contains(&(relocation.info as u32)) {
        return;
    }
    // SAFETY: indices of the loader's own tables.
    unsafe {
        let symbol = &*(tables.symbols as *const Symbol).add((relocation.info >> 32) as usize);
        let name = (tables.strings + u64::from(symbol.name)) as *const c_char;
        if *name as u8 != search.name.to_bytes().first().copied().unwrap_or(0)
            || CStr::from_ptr(name) != search.name
        {
            return;
        }
        let slot = (info.dlpi_addr + relocation.offset) as *mut usize;
        if *slot != search.replacement {
            let read_only = is_read_only(headers, relocation.offset);
            if search.only_notes {
                note_slot(slot, read_only);
            } else {
                write_slot(slot, search.replacement, read_only);
            }
        }
    }
}

fn is_read_only(headers: &[libc::Elf64_Phdr], offset: u64) -> bool {
    headers.iter().any(|header| {
        header.p_type == libc::PT_GNU_RELRO
            && offset >= header.p_vaddr
            && offset < header.p_vaddr + header.p_memsz
    })
}

unsafe fn write_slot(slot: *mut usize, value: usize, read_only: bool) {
    let page = (slot as usize & !(PAGE - 1)) as *mut c_void;
    // SAFETY: the slot's own page; an aligned word is written in one store, so a thread that calls through
    // it at this moment finds the old or the new function.
    unsafe {
        if read_only && libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return;
        }
        AtomicUsize::from_ptr(slot).store(value, Ordering::Release);
        if read_only {
            libc::mprotect(page, PAGE, libc::PROT_READ);
        }
    }
    REDIRECTED.fetch_add(1, Ordering::Relaxed);
}
