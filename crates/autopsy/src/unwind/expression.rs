//! DWARF expressions: small stack programs inside unwind tables. Torch's AVX-512 kernels and every
//! signal trampoline have them.

use gimli::{Encoding, EvaluationResult, Location, UnwindExpression, UnwindSection, Value};

use super::Known;
use super::cfi::Bytes;
use crate::scene::Scene;

/// Real ones take fewer than 20 steps; a hostile one can branch back for ever.
const MAX_ITERATIONS: u32 = 1000;

/// What an expression can ask for.
pub(super) struct FrameMemory<'f, 'a> {
    pub(super) scene: &'f Scene<'a>,
    pub(super) registers: &'f Known,
    pub(super) bias: u64,
}

pub(super) struct Evaluator<'f, 'a, S> {
    pub(super) table: &'f S,
    pub(super) encoding: Encoding,
    pub(super) memory: FrameMemory<'f, 'a>,
}

impl<'data, S: UnwindSection<Bytes<'data>>> Evaluator<'_, '_, S> {
    /// The value on top of the stack when the program ends. Register rules start with the CFA on it.
    pub(super) fn evaluate(&self, expression: &UnwindExpression<usize>, initial: Option<u64>) -> Option<u64> {
        let mut evaluation = expression.get(self.table).ok()?.evaluation(self.encoding);
        evaluation.set_max_iterations(MAX_ITERATIONS);
        if let Some(value) = initial {
            evaluation.set_initial_value(value);
        }
        let mut state = evaluation.evaluate().ok()?;
        // Each answer runs at least one more operation, so the iteration limit ends this loop too.
        loop {
            state = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.memory.registers.get(register.0)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size, .. } => {
                    let value = self.memory.scene.read_sized(address, usize::from(size))?;
                    evaluation.resume_with_memory(Value::Generic(value))
                }
                EvaluationResult::RequiresRelocatedAddress(address) => {
                    evaluation.resume_with_relocated_address(address.wrapping_add(self.memory.bias))
                }
                EvaluationResult::RequiresCallFrameCfa => evaluation.resume_with_call_frame_cfa(initial?),
                _ => return None,
            }
            .ok()?;
        }
        match evaluation.as_result().first()?.location {
            Location::Address { address } => Some(address),
            Location::Value { value } => value.to_u64(u64::MAX).ok(),
            _ => None,
        }
    }
}
