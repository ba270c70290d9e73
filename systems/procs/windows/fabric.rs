//! Operations that a fabric could not do.

use super::{FabricKind, Failure, Notice, Target, Windows};
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
        let Some((row, target, is_put)) = target_of_number(number) else { return };
        let window = self.list.get_mut(row).and_then(Option::as_mut);
        if let Some(target) = window.and_then(|window| window.targets.get_mut(target))
            && target.by_fabric > 0
        {
            target.failure = target.failure.or(Some(Failure::Fabric));
            target.has_lost_put |= is_put;
        }
    }
}

impl Target {
    /// Counts an operation that a fabric has taken and that has no row of its own. `turn` is its number on the channel.
    pub fn taken_by_fabric(&mut self, kind: FabricKind, turn: u64) {
        (self.issued, self.by_fabric, self.fabric_turn) = (self.issued + 1, self.by_fabric + 1, turn);
        self.puts_by_fabric += u64::from(kind.writes());
    }

    /// Counts the operations by a fabric as ended. Returns how many there were, and how many of them were puts.
    pub fn end_by_fabric(&mut self) -> [u64; 2] {
        let ended = [&mut self.by_fabric, &mut self.puts_by_fabric].map(std::mem::take);
        self.completed = self.issued.min(self.completed + ended[0]);
        ended
    }
}

/// Set in the number of an operation that has no row of its own, and clear in all others. The next bit is clear: it is set in the numbers
/// that transports give their own operations.
const OF_TARGET: u64 = 1 << 63;
/// Set in such a number if the operation is a put.
const OF_PUT: u64 = 1 << 61;

/// The number for operations of a kind on a target that have no row of their own: it names the target, and says whether they are puts.
pub fn number_of_target(handle: u32, target: u32, kind: FabricKind) -> u64 {
    let of_put = if kind.writes() { OF_PUT } else { 0 };
    OF_TARGET | of_put | (Communicator::row(handle) as u64) << 32 | u64::from(target)
}

/// The row of a window and the index of its target that a number names, and whether it is that of a put.
fn target_of_number(number: u64) -> Option<(usize, usize, bool)> {
    let names = number & OF_TARGET != 0;
    let row = (number & !(OF_TARGET | OF_PUT)) as usize >> 32;
    names.then_some((row, number as u32 as usize, number & OF_PUT != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire_components::limits::CONTEXTS_MAX;

    #[test]
    fn a_number_names_a_target() {
        for (handle, target) in [(0, 0), (7, 3), (CONTEXTS_MAX as u32 - 1, u32::MAX)] {
            for (kind, is_put) in [(FabricKind::Put, true), (FabricKind::Get, false)] {
                let number = number_of_target(handle, target, kind);
                assert_eq!(target_of_number(number), Some((Communicator::row(handle), target as usize, is_put)));
                assert!(number >> 62 == 0b10, "transports have the others");
            }
        }
        assert_eq!(target_of_number(1 << 40), None);
    }
}
