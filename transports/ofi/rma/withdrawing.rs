//! Withdrawing memory for good: the owner may use the memory for something else only once no peer's operation is under way on it.
//!
//! A provider refuses the key of withdrawn memory, but only when an operation begins. One that has begun before goes on: a stream of bytes
//! is written where it was meant to go, however long that takes. So the owner asks all peers that know its address over their control
//! connections. A peer answers once all operations that it had issued when it was asked are complete. What it issues later has a key that is
//! refused.

use super::Rma;
use super::operation::{OF_RING, Operation};
use super::peer::{Peer, Standing};
use super::peers::{index_of, link_of};
use super::withdrawal::{OwedAnswer, Withdrawal};
use crate::remote::{Channel, RemoteKey, Settled};
use tickwire_components::NIL;
use tickwire_components::limits::RMA_WITHDRAWALS_MAX;

impl Rma {
    /// Withdraws memory. Returns the number of the withdrawal, and the links whose peers are to be told.
    pub(super) fn withdraw_for_good(&mut self, key: &RemoteKey) -> (u32, Vec<u32>) {
        let has_lost = self.exposed.iter().any(|exposed| exposed.key == *key && exposed.ended_before != self.ended);
        self.withdraw(key);
        let knows = |peer: &Peer| peer.told && !peer.has_left && !matches!(peer.standing, Standing::Gone(_));
        let peers = self.peers.iter().enumerate().filter(|(_, peer)| knows(peer));
        let waiting: Vec<u32> = peers.map(|(index, _)| link_of(index)).filter(|&link| link != NIL).collect();
        let own = self.issued_over(NIL);
        self.withdrawals_made = self.withdrawals_made.wrapping_add(1);
        let number = self.withdrawals_made;
        self.withdrawals.push(Withdrawal { number, waiting: waiting.clone(), own, lost: has_lost });
        (number, waiting)
    }

    /// How many operations were issued over a link, by context.
    fn issued_over(&self, link: u32) -> Vec<u64> {
        let contexts = 0..self.contexts.len() as u32;
        contexts.map(|context| self.counts(Channel { link, context }).map_or(0, |counts| counts.issued())).collect()
    }

    /// Whether so many operations over a link are complete, by context.
    pub(super) fn are_complete(&self, link: u32, issued: &[u64]) -> bool {
        (0..).zip(issued).all(|(context, &issued)| {
            self.counts(Channel { link, context }).is_none_or(|counts| counts.completed() >= issued)
        })
    }

    /// See [`crate::OneSided::settled`].
    pub(super) fn settled(&mut self, number: u64) -> Settled {
        let Some(at) = self.withdrawals.iter().position(|of| u64::from(of.number) == number) else {
            return Settled::Unused;
        };
        let Withdrawal { waiting, own, lost, .. } = &self.withdrawals[at];
        // Closed endpoints touch no memory.
        let is_over = self.broken.is_some() || waiting.is_empty() && self.are_complete(NIL, own);
        if !is_over {
            return Settled::InUse;
        }
        let lost = *lost && self.broken.is_none();
        self.withdrawals.swap_remove(at);
        if lost { Settled::Lost } else { Settled::Unused }
    }

    /// A peer says that its operations up to a withdrawal are complete, or that it cannot know.
    pub(in crate::ofi) fn hear_settled(&mut self, link: u32, number: u32, lost: bool) {
        for withdrawal in self.withdrawals.iter_mut().filter(|of| of.number == number) {
            let before = withdrawal.waiting.len();
            withdrawal.waiting.retain(|&of| of != link);
            withdrawal.lost |= lost && withdrawal.waiting.len() < before;
        }
    }

    /// A peer has withdrawn memory, and waits for an answer.
    ///
    /// # Errors
    /// It has asked too often, in words.
    pub(in crate::ofi) fn owe_answer(&mut self, link: u32, number: u32) -> Result<(), String> {
        if self.owed.iter().filter(|owed| owed.link == link).count() >= RMA_WITHDRAWALS_MAX {
            return Err(format!("over {RMA_WITHDRAWALS_MAX} withdrawals at a time"));
        }
        let issued = self.issued_over(link);
        self.owed.push(OwedAnswer { link, number, issued });
        Ok(())
    }

    /// A peer has left in order: its operations are complete, and it begins no further one. See [`Rma::may_use`].
    pub(in crate::ofi) fn hear_goodbye(&mut self, link: u32) {
        self.peer(link).has_left = true;
        self.withdrawals.iter_mut().for_each(|of| of.waiting.retain(|&of| of != link));
    }

    /// Whether operations of this process may still be under way over a link. Then it does not say goodbye in order.
    ///
    /// Frames that are written into a peer's ring do not count: that memory is the transport's own.
    pub(in crate::ofi) fn may_use(&self, link: u32) -> bool {
        let Some(peer) = self.peers.get(index_of(link)) else { return false };
        let is_open = |of: &Operation| of.is_of(link, peer.epoch) && of.number != OF_RING;
        // Operations of unusable endpoints count as complete, although the provider may still have sent a part of one.
        self.operations.iter().any(is_open) || self.broken.is_some() && peer.has_operated
    }

    /// The link of a peer has ended.
    pub(super) fn forget_answers(&mut self, link: u32) {
        self.owed.retain(|owed| owed.link != link);
        for withdrawal in &mut self.withdrawals {
            let before = withdrawal.waiting.len();
            withdrawal.waiting.retain(|&of| of != link);
            withdrawal.lost |= withdrawal.waiting.len() < before;
        }
    }
}
