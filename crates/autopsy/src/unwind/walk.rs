//! The walk from the innermost frame outwards.

use gimli::UnwindContext;

use super::cfi::{self, Caller, Failure};
use super::kept::Kept;
use super::recover::{self, Recovered};
use super::{Known, RawFrame, RawStack};
use crate::registers::{Architecture, Registers};
use crate::report::Trust;
use crate::scene::Scene;
use crate::snapshot::Limits;

/// The good end.
const OUTERMOST: &str = "outermost frame";

/// Frames found without tables before we stop believing in them.
const MAX_RECOVERED: usize = 256;

/// Frames whose registers are kept: arguments are looked for close to the end only.
const MAX_INNER: usize = 32;

/// Candidates tried at the base of a stack whose middle was not saved.
const MAX_BASE_CANDIDATES: usize = 256;

/// Walks until there is no caller, no way on, or no patience left.
pub(crate) fn walk(scene: &Scene<'_>, registers: &Registers, limits: &Limits, max_frames: usize) -> RawStack {
    let mut walker = Walker::new(scene, limits, Known::of(registers), max_frames);
    let stopped_because = walker.run();
    RawStack {
        inner: walker.inner,
        ..walker.kept.into_stack(stopped_because)
    }
}

struct Walker<'w, 'a> {
    scene: &'w Scene<'a>,
    limits: &'w Limits,
    context: UnwindContext<usize>,
    current: Known,
    /// The current program counter is the next instruction to run, not a return address.
    exact: bool,
    recovered: usize,
    kept: Kept,
    inner: Vec<Known>,
}

impl<'w, 'a> Walker<'w, 'a> {
    fn new(scene: &'w Scene<'a>, limits: &'w Limits, start: Known, max_frames: usize) -> Self {
        Self {
            scene,
            limits,
            context: UnwindContext::new(),
            current: start,
            exact: true,
            recovered: 0,
            kept: Kept::new(max_frames),
            inner: Vec::new(),
        }
    }

    fn run(&mut self) -> String {
        let Some(pc) = self.current.pc() else {
            return "no registers".to_owned();
        };
        self.inner.push(self.current);
        self.kept.push(RawFrame {
            pc,
            lookup: pc,
            trust: Trust::Context,
            signal_frame: false,
        });
        for walked in 0..self.limits.max_walk {
            if walked % 16 == 15 && self.scene.is_overdue() {
                return "time limit".to_owned();
            }
            if let Err(reason) = self.advance() {
                return reason;
            }
        }
        "frame limit".to_owned()
    }

    fn advance(&mut self) -> Result<(), String> {
        let pc = self.current.pc().unwrap_or(0);
        if !self.scene.is_executable(self.lookup(pc)) {
            return self.leave_bad_jump(pc);
        }
        match self.step() {
            Ok(None) => Err(OUTERMOST.to_owned()),
            Ok(Some(caller)) => self.follow(caller),
            Err(failure) => self.without_tables(&failure),
        }
    }

    fn step(&mut self) -> Result<Option<Caller>, Failure> {
        let lookup = self.lookup(self.current.pc().unwrap_or(0));
        match cfi::step(self.scene, &mut self.context, &self.current, lookup) {
            Err(Failure::NoTable) => recover::signal_return(self.scene, &self.current)
                .map(|registers| {
                    Some(Caller {
                        registers,
                        interrupted: true,
                    })
                })
                .ok_or(Failure::NoTable),
            outcome => outcome,
        }
    }

    fn lookup(&self, pc: u64) -> u64 {
        if self.exact { pc } else { pc.saturating_sub(1) }
    }

    fn follow(&mut self, caller: Caller) -> Result<(), String> {
        let Caller {
            registers,
            interrupted,
        } = caller;
        let (pc, sp) = (registers.pc().unwrap_or(0), registers.sp().unwrap_or(0));
        if interrupted {
            self.kept.mark_signal_frame();
        } else if pc == 0 {
            return Err(OUTERMOST.to_owned());
        }
        let current = self.current.sp().unwrap_or(0);
        // A signal handler on its own stack returns to any address; a leaf on aarch64 has no frame.
        let grows = sp > current || interrupted || (sp == current && self.exact);
        if !grows {
            return Err("the stack does not grow: corrupt".to_owned());
        }
        self.enter(registers, interrupted, Trust::Cfi);
        Ok(())
    }

    fn enter(&mut self, caller: Known, exact: bool, trust: Trust) {
        let pc = caller.pc().unwrap_or(0);
        self.current = caller;
        self.exact = exact;
        if self.inner.len() < MAX_INNER {
            self.inner.push(caller);
        }
        self.kept.push(RawFrame {
            pc,
            lookup: self.lookup(pc),
            trust,
            signal_frame: false,
        });
    }

    /// The innermost frame is not in code: somebody called through a bad pointer.
    fn leave_bad_jump(&mut self, pc: u64) -> Result<(), String> {
        if !self.exact {
            return Err(format!("return address {pc:#x} is not in executable memory"));
        }
        let recovered = recover::after_bad_jump(self.scene, &self.current)
            .or_else(|| recover::by_scan(self.scene, &self.current, self.limits));
        self.take(recovered, format!("{pc:#x} is not in executable memory"))
    }

    fn without_tables(&mut self, failure: &Failure) -> Result<(), String> {
        let reason = match failure {
            Failure::NotSaved(address) => format!("stack at {address:#x} was not saved"),
            Failure::Broken(why) => format!("broken unwind table: {why}"),
            Failure::NoTable => "no unwind table".to_owned(),
        };
        if matches!(failure, Failure::NotSaved(_)) && self.resume_at_base() {
            return Err(OUTERMOST.to_owned());
        }
        let recovered = self
            .leaf_caller()
            .or_else(|| recover::by_frame_pointer(self.scene, &self.current))
            .or_else(|| recover::by_scan(self.scene, &self.current, self.limits));
        self.take(recovered, reason)
    }

    /// Code without tables is mostly small: a stub or a leaf with no frame of its own, whose return
    /// address is still on top. On aarch64 the link register says nothing of the kind.
    fn leaf_caller(&self) -> Option<Recovered> {
        let may_be_leaf = self.exact && self.current.architecture == Architecture::X86_64;
        let caller = may_be_leaf.then(|| recover::after_bad_jump(self.scene, &self.current))??;
        (caller.trust == Trust::Scan).then_some(caller)
    }

    fn take(&mut self, recovered: Option<Recovered>, reason: String) -> Result<(), String> {
        let Some(recovered) = recovered else {
            return Err(reason);
        };
        self.recovered += 1;
        if self.recovered > MAX_RECOVERED {
            return Err(format!("too many frames without tables: {reason}"));
        }
        let (before, after) = (self.current.sp(), recovered.registers.sp());
        if after < before || (after == before && !self.exact) {
            return Err("the stack does not grow: corrupt".to_owned());
        }
        self.enter(recovered.registers, false, recovered.trust);
        Ok(())
    }

    /// Of a stack overflow a box keeps the top of the stack and its base. The base starts in the
    /// middle of some frame: the first return address from which the tables lead to the very end
    /// is taken, because no stale word does that.
    fn resume_at_base(&mut self) -> bool {
        let Some(candidates) = recover::base_candidates(self.scene, &self.current, self.limits) else {
            return false;
        };
        for candidate in candidates.into_iter().take(MAX_BASE_CANDIDATES) {
            if self.scene.is_overdue() {
                return false;
            }
            let mut walker = Walker::new(self.scene, self.limits, candidate.registers, self.kept.room());
            if walker.run_by_tables(candidate.trust) {
                self.kept.continue_with(walker.kept);
                return true;
            }
        }
        false
    }

    /// Whether tables alone lead from here to the outermost frame.
    fn run_by_tables(&mut self, trust: Trust) -> bool {
        self.enter(self.current, false, trust);
        for walked in 0..self.limits.max_walk {
            if walked % 16 == 15 && self.scene.is_overdue() {
                return false;
            }
            let caller = match self.step() {
                Ok(None) => return true,
                Ok(Some(caller)) => caller,
                Err(_) => return false,
            };
            match self.follow(caller) {
                Ok(()) => {}
                Err(reason) => return reason == OUTERMOST,
            }
        }
        false
    }
}
