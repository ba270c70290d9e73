//! Operations that a fabric could not do.

use super::{Failure, Reach, Windows};
use tickwire_transports::FailedOperation;

impl Windows {
    /// Notes the failure of an operation by a fabric. Its request ends with that error, or the next flush of its target reports it.
    #[cold]
    pub fn note_failure(&mut self, endpoint: u8, failed: FailedOperation, now_ns: u64) {
        let FailedOperation { channel, number, reason } = failed;
        if let Some(operation) = self.by_fabric.iter_mut().find(|operation| operation.number == number) {
            (operation.failed_ns, operation.reason) = (Some(now_ns), reason);
            return;
        }
        self.fabric_reason = reason;
        if let Some(update) = self.update.as_mut().filter(|update| update.number == number) {
            update.has_failed = true;
            return;
        }
        let targets = self.list.iter_mut().flatten().flat_map(|window| &mut window.targets);
        // The operation may belong to any target that has operations which are not known to be complete.
        for target in targets.filter(|target| target.by_fabric > 0) {
            if let Reach::Fabric { endpoint: of, channel: its, .. } = target.reach
                && (of, its) == (endpoint, channel)
            {
                target.failure = target.failure.or(Some(Failure::Fabric));
            }
        }
    }
}
