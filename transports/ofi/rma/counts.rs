//! Counts the operations of a channel.

use std::collections::VecDeque;

/// The operations that a channel has accepted, and those that are complete.
#[derive(Default)]
pub(super) struct Counts {
    issued: u64,
    completed: u64,
    /// Whether each operation after the first `completed` ones is complete. Operations complete in any order, but a caller that waits for
    /// all operations issued so far must not count a later one instead.
    over: VecDeque<bool>,
}

impl Counts {
    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// How many operations are complete, counted from the first one up to the first incomplete one.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Counts an operation that was accepted. Returns its number, from 1 on.
    pub(super) fn issue(&mut self) -> u64 {
        self.issued += 1;
        self.over.push_back(false);
        self.issued
    }

    /// Notes that the operation with this number is complete.
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
