//! How far a channel has come.

use std::collections::VecDeque;

/// Operations that a channel has taken, and those that are complete.
#[derive(Default)]
pub(super) struct Counts {
    issued: u64,
    completed: u64,
    /// Of each operation behind `completed`, whether it is complete: operations end in any order, and who waits for what was
    /// issued before must not be told of what was issued after.
    over: VecDeque<bool>,
}

impl Counts {
    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// Operations that are complete, from the first one on without a gap.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Counts an operation that was taken; its number, from 1 on.
    pub(super) fn issue(&mut self) -> u64 {
        self.issued += 1;
        self.over.push_back(false);
        self.issued
    }

    /// An operation is complete.
    pub(super) fn complete(&mut self, number: u64) {
        let behind = number.checked_sub(self.completed + 1);
        let place = behind.and_then(|behind| self.over.get_mut(behind as usize));
        debug_assert!(place.as_ref().is_some_and(|over| !**over), "an operation that is under way");
        place.into_iter().for_each(|over| *over = true);
        while self.over.front() == Some(&true) {
            self.over.pop_front();
            self.completed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_issued_later_does_not_stand_for_what_was_issued_before() {
        let mut counts = Counts::default();
        assert_eq!([counts.issue(), counts.issue(), counts.issue()], [1, 2, 3]);
        let flushed = counts.issued();
        assert_eq!(counts.issue(), 4);
        for (number, completed) in [(4, 0), (1, 1), (3, 1), (2, 4)] {
            assert!(counts.completed() < flushed);
            counts.complete(number);
            assert_eq!(counts.completed(), completed);
        }
        assert!(counts.completed() >= flushed);
        assert_eq!((counts.issue(), counts.issued(), counts.completed()), (5, 5, 4));
    }
}
