//! What to do where the tables end: bad jumps, code without tables, libraries that are gone.

use super::Known;
use crate::instruction::{LONGEST_CALL, ends_in_call};
use crate::registers::Architecture;
use crate::report::Trust;
use crate::scene::Scene;
use crate::snapshot::Limits;

/// A frame larger than this is more likely a wrong frame pointer.
const MAX_FRAME_BYTES: u64 = 1 << 20;

/// A caller found without tables.
pub(super) struct Recovered {
    pub(super) registers: Known,
    pub(super) trust: Trust,
}

/// After a call through a bad pointer the return address is the last thing pushed, and no other
/// register has changed. aarch64 keeps it in x30.
pub(super) fn after_bad_jump(scene: &Scene<'_>, registers: &Known) -> Option<Recovered> {
    let sp = registers.sp()?;
    let (pc, caller_sp) = match registers.architecture {
        Architecture::X86_64 => (scene.read_u64(sp)?, sp.checked_add(8)?),
        Architecture::Aarch64 => (registers.get(30)?, sp),
    };
    let trust = return_address_trust(scene, registers.architecture, pc)?;
    let mut caller = *registers;
    caller.set_pc(pc);
    caller.set_sp(caller_sp);
    Some(Recovered {
        registers: caller,
        trust,
    })
}

/// Saved frame pointer and return address lie side by side on both machines.
pub(super) fn by_frame_pointer(scene: &Scene<'_>, registers: &Known) -> Option<Recovered> {
    let (sp, frame) = (registers.sp()?, registers.frame_pointer()?);
    let plausible = frame % 8 == 0 && frame.checked_sub(sp)? < MAX_FRAME_BYTES;
    if !plausible {
        return None;
    }
    let pc = scene.read_u64(frame.checked_add(8)?)?;
    let trust = return_address_trust(scene, registers.architecture, pc)?;
    let mut caller = Known::bare(registers.architecture, pc, frame.checked_add(16)?);
    caller.set_frame_pointer(scene.read_u64(frame));
    Some(Recovered {
        registers: caller,
        trust,
    })
}

/// The first word on the stack that looks like a return address.
pub(super) fn by_scan(scene: &Scene<'_>, registers: &Known, limits: &Limits) -> Option<Recovered> {
    let sp = registers.sp()?;
    let start = readable_from(scene, sp)?;
    for index in 0..limits.max_scan_words as u64 {
        let slot = start.checked_add(index * 8)?;
        let value = scene.read_u64(slot)?;
        if let Some(trust) = return_address_trust(scene, registers.architecture, value) {
            let mut caller = Known::bare(registers.architecture, value, slot.checked_add(8)?);
            // A frame pointer into the part of the stack above may still be the caller's.
            caller.set_frame_pointer(registers.frame_pointer().filter(|frame| *frame > slot));
            return Some(Recovered {
                registers: caller,
                trust,
            });
        }
    }
    None
}

/// Return addresses in the saved piece of the same stack that lies above the one in use.
pub(super) fn base_candidates<'s, 'a>(
    scene: &'s Scene<'a>,
    registers: &Known,
    limits: &Limits,
) -> Option<impl Iterator<Item = Recovered> + use<'s, 'a>> {
    let (sp, architecture) = (registers.sp()?, registers.architecture);
    let base = scene.region_after(sp)?;
    let (stack, base_stack) = (scene.space.at(sp)?, scene.space.at(base.address)?);
    if stack.start != base_stack.start {
        return None;
    }
    let start = base.address.checked_add(7)? & !7;
    let slots = (0..limits.max_scan_words as u64).filter_map(move |index| start.checked_add(index * 8));
    Some(slots.filter_map(move |slot| {
        let value = scene.read_u64(slot)?;
        let trust = return_address_trust(scene, architecture, value)?;
        let registers = Known::bare(architecture, value, slot.checked_add(8)?);
        Some(Recovered { registers, trust })
    }))
}

/// The kernel's signal frame, recognised by the code that ends it: `mov $15, %rax; syscall`. glibc
/// has tables for it, musl has not.
pub(super) fn signal_return(scene: &Scene<'_>, registers: &Known) -> Option<Known> {
    const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    /// From the stack pointer to `uc_mcontext`: `uc_flags`, `uc_link` and `uc_stack` come first.
    const REGISTERS: u64 = 40;
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip in DWARF numbers.
    const ORDER: [u16; 17] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16];
    let mut code = [0; SIGRETURN.len()];
    let (length, _) = scene.read(registers.pc()?, &mut code)?;
    let is_here = registers.architecture == Architecture::X86_64 && length == code.len() && code == SIGRETURN;
    if !is_here {
        return None;
    }
    let start = registers.sp()?.checked_add(REGISTERS)?;
    let mut interrupted = *registers;
    for (index, number) in ORDER.iter().enumerate() {
        interrupted.set(
            *number,
            Some(scene.read_u64(start.checked_add(index as u64 * 8)?)?),
        );
    }
    Some(interrupted)
}

/// On a stack overflow the stack pointer is in the guard page: skip to the first saved byte.
fn readable_from(scene: &Scene<'_>, sp: u64) -> Option<u64> {
    let aligned = sp.checked_add(7)? & !7;
    if scene.region_at(aligned).is_some() {
        return Some(aligned);
    }
    let above = scene.region_after(aligned)?.address;
    (above - aligned < MAX_FRAME_BYTES).then_some(above.checked_add(7)? & !7)
}

/// `None`: it points at no code. Where the code cannot be read (a deleted library) pointing at it is
/// all there is, and that is a guess.
pub(super) fn return_address_trust(scene: &Scene<'_>, architecture: Architecture, pc: u64) -> Option<Trust> {
    if !scene.is_executable(pc.checked_sub(1)?) {
        return None;
    }
    match follows_call(scene, architecture, pc) {
        Some(true) => Some(Trust::Scan),
        Some(false) => None,
        None => Some(Trust::Guess),
    }
}

fn follows_call(scene: &Scene<'_>, architecture: Architecture, pc: u64) -> Option<bool> {
    match architecture {
        Architecture::X86_64 => {
            // Not beyond the start of the mapping: a call can be the first thing in it.
            let first = scene.space.at(pc.checked_sub(1)?)?.start;
            let start = pc.checked_sub(LONGEST_CALL as u64)?.max(first);
            let mut bytes = [0; LONGEST_CALL];
            let wanted = &mut bytes[..usize::try_from(pc - start).ok()?];
            let (length, _) = scene.read(start, wanted)?;
            (length == wanted.len()).then(|| ends_in_call(wanted))
        }
        Architecture::Aarch64 => {
            let word = scene.read_sized(pc.checked_sub(4)?, 4)?;
            let direct = word & 0xfc00_0000 == 0x9400_0000;
            let through_register = word & 0xffff_fc1f == 0xd63f_0000;
            let authenticated = word & 0xfeff_f800 == 0xd63f_0800;
            Some(direct || through_register || authenticated)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings::parse_maps;
    use crate::snapshot::Region;

    const MAPS: &[u8] = b"1000-2000 r-xp 00000000 00:00 0 \n8000-9000 rw-p 00000000 00:00 0 [stack]";
    const CODE: [u8; 16] = [
        0xe8, 0, 0, 0, 0, 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05, 0x90, 0x90,
    ];

    /// A call ends at 0x1005, where the code that leaves a signal handler starts.
    fn with_scene(stack: &[u64], check: impl FnOnce(&Scene<'_>)) {
        let stack: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mappings = parse_maps(MAPS);
        let memory = [
            Region {
                address: 0x1000,
                bytes: &CODE,
            },
            Region {
                address: 0x8000,
                bytes: &stack,
            },
        ];
        check(&Scene::new(&mappings, &memory, &Limits::default()));
    }

    fn at(pc: u64, sp: u64) -> Known {
        Known::bare(Architecture::X86_64, pc, sp)
    }

    #[test]
    fn musls_signal_frame_is_recognised() {
        let mut stack = [0; 40];
        // uc_mcontext starts at the sixth word; rsp and rip are its 16th and 17th register.
        (stack[5 + 15], stack[5 + 16], stack[5 + 10]) = (0x8100, 0x1234, 0x77);
        with_scene(&stack, |scene| {
            let interrupted = signal_return(scene, &at(0x1005, 0x8000)).unwrap();
            assert_eq!((interrupted.pc(), interrupted.sp()), (Some(0x1234), Some(0x8100)));
            assert_eq!(interrupted.frame_pointer(), Some(0x77));
            assert!(signal_return(scene, &at(0x1006, 0x8000)).is_none());
        });
    }

    #[test]
    fn a_scan_takes_words_behind_calls_only() {
        with_scene(&[0, 0x1003, 0x8000, 0x1005, 0], |scene| {
            let found = by_scan(scene, &at(0x1008, 0x8000), &Limits::default()).unwrap();
            assert_eq!(
                (found.registers.pc(), found.registers.sp()),
                (Some(0x1005), Some(0x8020))
            );
            assert_eq!(found.trust, Trust::Scan);
        });
    }

    #[test]
    fn a_scan_starts_above_the_guard_page() {
        with_scene(&[0x1005], |scene| {
            let found = by_scan(scene, &at(0x1008, 0x7ff1), &Limits::default()).unwrap();
            assert_eq!(found.registers.sp(), Some(0x8008));
        });
    }

    #[test]
    fn a_frame_pointer_must_point_up_the_stack() {
        with_scene(&[0x8030, 0x1005, 0, 0], |scene| {
            let mut registers = at(0x1008, 0x8000);
            registers.set_frame_pointer(Some(0x8000));
            let caller = by_frame_pointer(scene, &registers).unwrap().registers;
            assert_eq!(
                (caller.pc(), caller.frame_pointer()),
                (Some(0x1005), Some(0x8030))
            );
            registers.set_frame_pointer(Some(0x7ff0));
            assert!(by_frame_pointer(scene, &registers).is_none());
        });
    }

    #[test]
    fn code_that_cannot_be_read_gives_guesses() {
        with_scene(&[0], |scene| {
            let trust = |pc| return_address_trust(scene, Architecture::X86_64, pc);
            assert_eq!(trust(0x1005), Some(Trust::Scan));
            assert_eq!(trust(0x100e), None);
            assert_eq!(trust(0x1800), Some(Trust::Guess));
            assert_eq!(trust(0x8000), None);
            assert_eq!(trust(0), None);
        });
    }
}
