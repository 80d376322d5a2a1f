//! Where the fault address and the program counter point.

use crate::instruction::is_canonical;
use crate::mappings::Mapping;
use crate::registers::Registers;
use crate::report::{AddressUse, Instruction, MappingUse};
use crate::scene::Scene;
use crate::snapshot::{Region, Snapshot};

/// `SI_KERNEL`: the kernel knows that it faulted, and not where.
const SI_KERNEL: i32 = 128;

/// What the signal and the processor said at the moment of death.
pub(crate) struct Fault<'f> {
    pub(crate) registers: &'f Registers,
    pub(crate) code: Option<Region<'f>>,
    pub(crate) address: Option<u64>,
    pub(crate) signal_code: Option<i32>,
}

impl<'f> Fault<'f> {
    pub(crate) fn of(snapshot: &'f Snapshot<'_>) -> Self {
        Self {
            registers: &snapshot.registers,
            code: snapshot.code,
            address: snapshot.fault_address,
            signal_code: snapshot.signal_code,
        }
    }
}

pub(crate) fn address_use(
    scene: &Scene<'_>,
    fault: &Fault<'_>,
    instruction: Option<&Instruction>,
) -> AddressUse {
    let registers = fault.registers;
    let (fault_address, recomputed) = fault_address(fault, instruction);
    let mapping = fault_address.and_then(|address| scene.space.at(address));
    let nearest = match (fault_address, mapping) {
        (Some(address), None) => scene.space.nearest(address),
        _ => None,
    };
    let seen_from = |address: u64| scene.space.at(address).map(|mapping| seen(mapping, address));
    AddressUse {
        fault_address,
        recomputed,
        canonical: fault_address.map(is_canonical),
        flipped_bit: fault_address.and_then(|address| flipped_bit(scene, address)),
        fault_mapping: fault_address.and_then(seen_from),
        nearest_mapping: nearest.map(|(mapping, _)| seen(mapping, mapping.start)),
        distance_to_nearest: nearest.map(|(_, distance)| distance),
        distance_to_sp: fault_address
            .filter(|_| registers.sp() != 0)
            .map(|address| address.wrapping_sub(registers.sp()) as i64),
        pc_mapping: seen_from(registers.pc()),
        sp_mapping: seen_from(registers.sp()),
    }
}

/// A non-canonical address never reaches the page tables: the signal then says 0 with SI_KERNEL, and
/// only the registers still know it.
fn fault_address(fault: &Fault<'_>, instruction: Option<&Instruction>) -> (Option<u64>, bool) {
    let unknown_to_the_kernel = fault.signal_code == Some(SI_KERNEL) && fault.address.unwrap_or(0) == 0;
    if unknown_to_the_kernel {
        let computed = instruction.and_then(|instruction| {
            let mut accesses = instruction.memory.iter();
            accesses.find(|access| access.canonical == Some(false))?.address
        });
        if computed.is_some() {
            return (computed, true);
        }
    }
    (fault.address, false)
}

/// The one bit that separates the address from memory that the process can read; `None`: none does, or several do.
///
/// Only high bits: a wrong index or a stale pointer is off by less than a terabyte, and looks the same there.
fn flipped_bit(scene: &Scene<'_>, address: u64) -> Option<u32> {
    const LOWEST: u32 = 40;
    if scene.space.at(address).is_some() {
        return None;
    }
    let readable = |bit: &u32| {
        let mapping = scene.space.at(address ^ (1_u64 << bit));
        mapping.is_some_and(|mapping| mapping.permissions().starts_with('r'))
    };
    let mut fitting = (LOWEST..u64::BITS).filter(readable);
    fitting.next().filter(|_| fitting.next().is_none())
}

fn seen(mapping: &Mapping, address: u64) -> MappingUse {
    MappingUse {
        path: mapping.path.clone(),
        permissions: mapping.permissions(),
        start: mapping.start,
        end: mapping.end,
        offset: mapping.offset.wrapping_add(address - mapping.start),
        deleted: mapping.deleted,
    }
}
