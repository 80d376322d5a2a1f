//! One step by DWARF call frame information.

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry,
    LittleEndian, RegisterRule, UnwindContext, UnwindSection, UnwindTableRow,
};

use super::Known;
use super::expression::{Evaluator, FrameMemory};
use super::index::Index;
use crate::image::Image;
use crate::scene::{Located, Scene};

pub(super) type Bytes<'data> = EndianSlice<'data, LittleEndian>;
type Entry<'data> = FrameDescriptionEntry<Bytes<'data>>;

/// What one step gave.
pub(super) struct Caller {
    pub(super) registers: Known,
    /// A signal and no call led away from it.
    pub(super) interrupted: bool,
}

/// Why there is no step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No table covers the address.
    NoTable,
    /// A table does, but what it asks for was not saved.
    NotSaved(u64),
    /// A table does, and it makes no sense.
    Broken(String),
}

/// The caller by the tables of the library that `lookup` lies in; `None` when they say that nobody
/// called this function.
pub(super) fn step(
    scene: &Scene<'_>,
    context: &mut UnwindContext<usize>,
    registers: &Known,
    lookup: u64,
) -> Result<Option<Caller>, Failure> {
    let located = scene.locate(lookup).ok_or(Failure::NoTable)?;
    let frame = Frame {
        scene,
        registers,
        located: &located,
    };
    let image = located.image.as_ref();
    let bases = bases(image);
    if let Some(section) = &image.eh_frame {
        let table = EhFrame::new(image.section_bytes(section), LittleEndian);
        if let Some(entry) = find_in_eh_frame(image, &table, &bases, located.address) {
            return frame.apply(context, &table, &bases, &entry);
        }
    }
    if let Some(section) = &image.debug_frame {
        let mut table = DebugFrame::new(image.section_bytes(section), LittleEndian);
        table.set_address_size(8);
        let found = table.fde_for_address(&bases, located.address, DebugFrame::cie_from_offset);
        if let Ok(entry) = found {
            return frame.apply(context, &table, &bases, &entry);
        }
    }
    Err(Failure::NoTable)
}

/// The piece of code that one table entry is about, as the ELF file numbers it: a function, or the
/// part of one that the compiler moved away because it hardly ever runs.
pub(crate) fn function_range(image: &Image, address: u64) -> Option<std::ops::Range<u64>> {
    let section = image.eh_frame.as_ref()?;
    let table = EhFrame::new(image.section_bytes(section), LittleEndian);
    let entry = find_in_eh_frame(image, &table, &bases(image), address)?;
    let start = entry.initial_address();
    Some(start..start.checked_add(entry.len())?)
}

fn bases(image: &Image) -> BaseAddresses {
    let mut bases = BaseAddresses::default().set_text(image.text_address);
    if let Some(section) = &image.eh_frame {
        bases = bases.set_eh_frame(section.address);
    }
    if let Some(section) = &image.eh_frame_hdr {
        bases = bases.set_eh_frame_hdr(section.address);
    }
    bases
}

/// By the sorted index where there is one. The linear search behind it is for files whose index is
/// missing or points at nonsense: an index that works and has no entry is believed.
fn find_in_eh_frame<'data>(
    image: &'data Image,
    table: &EhFrame<Bytes<'data>>,
    bases: &BaseAddresses,
    address: u64,
) -> Option<Entry<'data>> {
    if let Some(header) = &image.eh_frame_hdr
        && let Some(index) = Index::parse(image.section_bytes(header), header.address)
    {
        let start = image.eh_frame.as_ref()?.address;
        let offset = usize::try_from(index.entry_for(address)?.checked_sub(start)?).ok()?;
        let found = table.fde_from_offset(bases, EhFrameOffset(offset), EhFrame::cie_from_offset);
        if let Ok(entry) = found {
            return entry.contains(address).then_some(entry);
        }
    }
    table
        .fde_for_address(bases, address, EhFrame::cie_from_offset)
        .ok()
}

struct Frame<'f, 'a> {
    scene: &'f Scene<'a>,
    registers: &'f Known,
    located: &'f Located,
}

impl Frame<'_, '_> {
    fn apply<'data, S: UnwindSection<Bytes<'data>>>(
        &self,
        context: &mut UnwindContext<usize>,
        table: &S,
        bases: &BaseAddresses,
        entry: &Entry<'data>,
    ) -> Result<Option<Caller>, Failure> {
        let row = entry
            .unwind_info_for_address(table, bases, context, self.located.address)
            .map_err(|error| Failure::Broken(error.to_string()))?;
        let memory = FrameMemory {
            scene: self.scene,
            registers: self.registers,
            bias: self.located.bias,
        };
        let evaluator = Evaluator {
            table,
            encoding: entry.cie().encoding(),
            memory,
        };
        let cfa = self.cfa(row.cfa(), &evaluator)?;
        let mut caller = self.caller(row, cfa, &evaluator);
        let return_register = entry.cie().return_address_register();
        let rule = row.register(return_register);
        match rule {
            Some(RegisterRule::Undefined) => return Ok(None),
            // Without a rule the return address is still in its register, which x86-64 has not.
            None if usize::from(return_register.0) == caller.architecture.pc_index() => {
                return Err(Failure::Broken("no rule for the return address".to_owned()));
            }
            _ => {}
        }
        let pc = caller.get(return_register.0).ok_or(Failure::NotSaved(cfa))?;
        caller.set_pc(pc);
        Ok(Some(Caller {
            registers: caller,
            interrupted: entry.is_signal_trampoline(),
        }))
    }

    fn cfa<'data, S: UnwindSection<Bytes<'data>>>(
        &self,
        rule: &CfaRule<usize>,
        evaluator: &Evaluator<'_, '_, S>,
    ) -> Result<u64, Failure> {
        let cfa = match rule {
            CfaRule::RegisterAndOffset { register, offset } => self
                .registers
                .get(register.0)
                .map(|value| value.wrapping_add_signed(*offset)),
            CfaRule::Expression(expression) => evaluator.evaluate(expression, None),
        };
        cfa.ok_or_else(|| Failure::NotSaved(self.registers.sp().unwrap_or(0)))
    }

    /// Registers without a rule keep their value: so the ABI says of callee-saved ones, and so gdb
    /// treats the others.
    fn caller<'data, S: UnwindSection<Bytes<'data>>>(
        &self,
        row: &UnwindTableRow<usize>,
        cfa: u64,
        evaluator: &Evaluator<'_, '_, S>,
    ) -> Known {
        let mut caller = *self.registers;
        caller.set_sp(cfa);
        for (register, rule) in row.registers() {
            let value = match rule {
                RegisterRule::SameValue => self.registers.get(register.0),
                RegisterRule::Offset(offset) => self.scene.read_u64(cfa.wrapping_add_signed(*offset)),
                RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
                RegisterRule::Register(other) => self.registers.get(other.0),
                RegisterRule::Expression(expression) => evaluator
                    .evaluate(expression, Some(cfa))
                    .and_then(|address| self.scene.read_u64(address)),
                RegisterRule::ValExpression(expression) => evaluator.evaluate(expression, Some(cfa)),
                RegisterRule::Constant(value) => Some(*value),
                _ => None,
            };
            caller.set(register.0, value);
        }
        caller
    }
}
