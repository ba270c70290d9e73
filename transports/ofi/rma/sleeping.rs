//! Waking targets. Most providers serve the operations of peers only while the target polls its queues. No provider has a cheap file
//! descriptor to sleep on: signalling and clearing it takes a tenth of the time of an operation. So a process that has waited for long says
//! so over the control connection. The target then polls for a while before it sleeps again.

use super::Rma;
use super::peers::link_of;
use crate::ofi::Ofi;
use crate::ofi::control::Message;
use crate::ofi::rma::Introduction;
use tickwire_components::limits::{RMA_IDLE_POLLS, RMA_IDLE_POLLS_AGAIN};

impl Rma {
    /// Counts successive polls without a completion while operations are in flight, or one was refused.
    pub(super) fn note_look(&mut self, found: usize) {
        self.vain = match found {
            0 if (self.is_busy() || self.refused) && self.vain < RMA_IDLE_POLLS_AGAIN => self.vain + 1,
            _ => 0,
        };
        self.tells |= self.vain == RMA_IDLE_POLLS;
    }

    /// Whether a peer has said that it waits since the last call.
    pub(in crate::ofi) fn was_reached(&mut self) -> bool {
        std::mem::take(&mut self.reached)
    }
}

impl Ofi {
    /// Tells the targets of incomplete operations that this process waits, if it has waited for long.
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
            let Some(line) = self.connections.line_mut(link_of(index)) else { continue };
            let Some(asks) = peer.count_notice() else { continue };
            line.tell(&Message::OneSided(Introduction::Waiting));
            if asks {
                line.tell(&Message::AskSent);
            }
        }
    }
}
