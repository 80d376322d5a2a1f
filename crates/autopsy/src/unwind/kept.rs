//! The frames worth keeping: the innermost, and the outermost of a stack that is too deep.

use std::collections::VecDeque;

use super::{RawFrame, RawStack};
use crate::report::Omitted;

pub(super) struct Kept {
    first: Vec<RawFrame>,
    last: VecDeque<RawFrame>,
    max_first: usize,
    max_last: usize,
    dropped: usize,
    /// Nobody knows how many frames lie in the part of the stack that was not saved.
    torn: bool,
}

impl Kept {
    pub(super) fn new(max_frames: usize) -> Self {
        let max_last = max_frames / 8;
        Self {
            first: Vec::new(),
            last: VecDeque::new(),
            max_first: max_frames - max_last,
            max_last,
            dropped: 0,
            torn: false,
        }
    }

    pub(super) fn push(&mut self, frame: RawFrame) {
        if self.first.len() < self.max_first && !self.torn {
            self.first.push(frame);
            return;
        }
        self.last.push_back(frame);
        if self.last.len() > self.max_last {
            self.last.pop_front();
            self.dropped += 1;
        }
    }

    /// How many outermost frames there is room for.
    pub(super) fn room(&self) -> usize {
        self.max_first + self.max_last - self.first.len()
    }

    /// What follows lies behind a gap of unknown size.
    pub(super) fn continue_with(&mut self, outer: Self) {
        self.max_last = self.room();
        self.last.clear();
        self.torn = true;
        outer
            .first
            .into_iter()
            .chain(outer.last)
            .for_each(|frame| self.push(frame));
    }

    /// The trampoline itself is named by its own address: the byte before it is padding.
    pub(super) fn mark_signal_frame(&mut self) {
        if let Some(frame) = self.last.back_mut().or(self.first.last_mut()) {
            frame.signal_frame = true;
            frame.lookup = frame.pc;
        }
    }

    pub(super) fn into_stack(mut self, stopped_because: String) -> RawStack {
        let count = Some(self.dropped).filter(|_| !self.torn);
        let omitted = Omitted {
            before_frame: self.first.len(),
            count,
        };
        let omitted = (self.torn || self.dropped > 0).then_some(omitted);
        self.first.extend(self.last);
        RawStack {
            frames: self.first,
            omitted,
            stopped_because,
            inner: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Trust;

    fn frame(pc: u64) -> RawFrame {
        RawFrame {
            pc,
            lookup: pc,
            trust: Trust::Cfi,
            signal_frame: false,
        }
    }

    fn addresses(stack: &RawStack) -> Vec<u64> {
        stack.frames.iter().map(|frame| frame.pc).collect()
    }

    #[test]
    fn both_ends_of_a_deep_stack_stay() {
        let mut kept = Kept::new(16);
        (0..100).for_each(|pc| kept.push(frame(pc)));
        let stack = kept.into_stack(String::new());
        assert_eq!(addresses(&stack), (0..14).chain(98..100).collect::<Vec<_>>());
        assert_eq!(
            stack.omitted,
            Some(Omitted {
                before_frame: 14,
                count: Some(84)
            })
        );
    }

    #[test]
    fn a_shallow_stack_has_no_gap() {
        let mut kept = Kept::new(16);
        (0..16).for_each(|pc| kept.push(frame(pc)));
        assert_eq!(kept.into_stack(String::new()).omitted, None);
    }

    #[test]
    fn a_torn_stack_has_a_gap_of_unknown_size() {
        let (mut kept, mut outer) = (Kept::new(16), Kept::new(16));
        (0..3).for_each(|pc| kept.push(frame(pc)));
        (90..92).for_each(|pc| outer.push(frame(pc)));
        kept.continue_with(outer);
        let stack = kept.into_stack(String::new());
        assert_eq!(addresses(&stack), [0, 1, 2, 90, 91]);
        assert_eq!(
            stack.omitted,
            Some(Omitted {
                before_frame: 3,
                count: None
            })
        );
    }
}
