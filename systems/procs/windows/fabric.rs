//! Operations that a fabric could not do.

use super::{Failure, Notice, Windows};
use tickwire_components::Communicator;
use tickwire_transports::FailedOperation;

impl Windows {
    /// Notes the failure of an operation by a fabric. Its request ends with that error, or the next flush of its target reports it.
    #[cold]
    pub fn note_failure(&mut self, failed: FailedOperation, now_ns: u64) {
        let FailedOperation { number, reason, .. } = failed;
        if let Some(operation) = self.by_fabric.iter_mut().find(|operation| operation.number == number) {
            (operation.failed, operation.reason) = (Some(Notice::new(now_ns)), reason);
            return;
        }
        self.fabric_reason = reason;
        if let Some(update) = self.update.as_mut().filter(|update| update.number == number) {
            update.has_failed = true;
            return;
        }
        let Some((row, target)) = target_of_number(number) else { return };
        let window = self.list.get_mut(row).and_then(Option::as_mut);
        if let Some(target) = window.and_then(|window| window.targets.get_mut(target))
            && target.by_fabric > 0
        {
            target.failure = target.failure.or(Some(Failure::Fabric));
            target.has_lost_put = true;
        }
    }
}

/// Set in the number of an operation that has no row of its own, and clear in all others. The next bit is clear: it is set in the numbers
/// that transports give their own operations.
const OF_TARGET: u64 = 1 << 63;

/// The number for operations on a target that have no row of their own: it names the target.
pub fn number_of_target(handle: u32, target: u32) -> u64 {
    OF_TARGET | (Communicator::row(handle) as u64) << 32 | u64::from(target)
}

/// The row of a window and the index of its target that a number names.
fn target_of_number(number: u64) -> Option<(usize, usize)> {
    let names = number & OF_TARGET != 0;
    names.then_some(((number & !OF_TARGET) as usize >> 32, number as u32 as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire_components::limits::CONTEXTS_MAX;

    #[test]
    fn a_number_names_a_target() {
        for (handle, target) in [(0, 0), (7, 3), (CONTEXTS_MAX as u32 - 1, u32::MAX)] {
            let number = number_of_target(handle, target);
            assert_eq!(target_of_number(number), Some((Communicator::row(handle), target as usize)));
            assert!(number >> 62 == 0b10, "transports have the others");
        }
        assert_eq!(target_of_number(1 << 40), None);
    }
}
