//! Waking targets. Most providers serve the operations of peers only while the target looks at its queues, and none of them has a
//! descriptor that costs nothing to sleep on: it takes a tenth of the time of an operation to ring it and to silence it.
//! So whoever waits for long says so over the control connection. The target then looks on for a while before it sleeps again.

use super::Rma;
use super::peers::link_of;
use crate::ofi::Ofi;
use crate::ofi::control::Message;
use crate::ofi::rma::Introduction;

/// Looks in vain, 30 us of them or more, after which targets are told; and looks until they are told again.
const VAIN: u32 = 128;
const VAIN_AGAIN: u32 = 4096;

impl Rma {
    /// Counts looks that have found nothing to be complete while operations are under way, or one is to be.
    pub(super) fn note_look(&mut self, found: usize) {
        self.vain = match found {
            0 if (self.is_busy() || self.refused) && self.vain < VAIN_AGAIN => self.vain + 1,
            _ => 0,
        };
        self.tells |= self.vain == VAIN;
    }

    /// Whether peers have said so since this was asked last.
    pub(in crate::ofi) fn was_reached(&mut self) -> bool {
        std::mem::take(&mut self.reached)
    }
}

impl Ofi {
    /// Tells targets that have not served operations for long that this side waits.
    pub(in crate::ofi) fn wake_targets(&mut self) {
        let Some(rma) = self.port.get_mut().rma() else { return };
        if !std::mem::take(&mut rma.tells) {
            return;
        }
        rma.refused = false;
        for (index, peer) in rma.peers.iter_mut().enumerate() {
            if !peer.is_waited_for() {
                continue;
            }
            peer.refused = false;
            if !peer.is_to_be_told() {
                continue;
            }
            if let Some(line) = self.connections.line_mut(link_of(index)) {
                line.tell(&Message::OneSided(Introduction::Waiting));
            }
        }
    }
}
