//! The peer of each link, and the operation counts of its channels.

use super::Rma;
use super::counts::Counts;
use super::operation::Operation;
use super::peer::{Introduction, Peer, Standing};
use crate::ofi::scalable::context_address;
use crate::remote::Channel;
use libfabric_sys as sys;
use std::time::Instant;
use tickwire_components::NIL;

impl Rma {
    /// Fails with the reason if the endpoints are unusable.
    pub(in crate::ofi) fn check(&self) -> Result<(), String> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// The peer of a link.
    pub(super) fn peer(&mut self, link: u32) -> &mut Peer {
        let index = index_of(link);
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, Peer::default);
        }
        &mut self.peers[index]
    }

    /// Enters this process as its own peer, without a link or an introduction from outside. If its address cannot be used, operations on
    /// itself fail.
    pub(super) fn meet_oneself(&mut self) {
        if !matches!(self.peer(NIL).standing, Standing::Unknown) {
            return;
        }
        if let Err(words) = self.meet(NIL, self.introduction()) {
            self.peer(NIL).standing = Standing::Gone(words);
        }
    }

    /// What this process tells peers about its endpoints.
    fn introduction(&self) -> Introduction {
        let contexts = self.endpoints.as_ref().map_or(1, |endpoints| endpoints.named(self.contexts.len()));
        Introduction::At { contexts: contexts as u8, address: self.name.clone() }
    }

    /// The address that operations of a channel go to. `None` if the peer has not introduced itself yet.
    ///
    /// # Errors
    /// Why operations cannot go there, in words.
    pub(super) fn way(&self, channel: Channel) -> Result<Option<sys::fi_addr_t>, String> {
        self.check()?;
        let (contexts, bits) = (self.contexts.len(), self.context_bits);
        if channel.context as usize >= contexts {
            return Err(format!("there is no context {}: there are {contexts}", channel.context));
        }
        match self.peers.get(index_of(channel.link)).map(|peer| &peer.standing) {
            None | Some(Standing::Unknown) => Ok(None),
            Some(Standing::Gone(why)) => Err(why.clone()),
            Some(Standing::Met(number, theirs)) => {
                Ok(Some(context_address(*number, channel.context as usize % theirs, bits)))
            }
        }
    }

    /// What to tell the peer of a link about this process. `None` if the peer was already told.
    pub(in crate::ofi) fn introduce(&mut self, link: u32) -> Option<Introduction> {
        if self.broken.is_some() || std::mem::replace(&mut self.peer(link).told, true) {
            return None;
        }
        Some(self.introduction())
    }

    /// What to tell the peers that know of these endpoints, and their links, if the endpoints have become unusable since the last call.
    pub(in crate::ofi) fn take_parting(&mut self) -> Option<(Introduction, Vec<u32>)> {
        let why = self.broken.clone().filter(|_| std::mem::take(&mut self.untold))?;
        let told = self.peers.iter().enumerate().filter(|(_, peer)| peer.told);
        Some((Introduction::Nowhere(why), told.map(|(index, _)| link_of(index)).collect()))
    }

    /// The peer of a link has introduced itself.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(in crate::ofi) fn meet(&mut self, link: u32, introduction: Introduction) -> Result<(), String> {
        let is_met = matches!(self.peer(link).standing, Standing::Met(..));
        let is_gone = matches!(self.peer(link).standing, Standing::Gone(_));
        // A peer whose endpoints are gone may have waited just before.
        if (is_met || is_gone) && introduction == Introduction::Waiting {
            self.reached |= is_met;
            return Ok(());
        }
        if let (true, Introduction::Nowhere(why)) = (is_met, &introduction) {
            self.part(link, format!("the peer has no one-sided operations any more: {why}"));
            return Ok(());
        }
        if is_met {
            return Err("its address for one-sided operations again".into());
        }
        self.peer(link).standing = match introduction {
            Introduction::Waiting
            | Introduction::Ring { .. }
            | Introduction::Withdrawn(_)
            | Introduction::Settled { .. } => {
                return Err("it waits for operations, but has not said where it has its endpoints".into());
            }
            Introduction::Nowhere(why) => {
                // The peer has not kept the address of this process. It is told again if it opens endpoints later.
                self.peer(link).told = false;
                Standing::Gone(format!("the peer has no one-sided operations: {why}"))
            }
            Introduction::At { contexts, address } => {
                let known = self.known.iter().find(|(known, _)| *known == address).map(|(_, number)| *number);
                let number = match known {
                    Some(number) => number,
                    None => {
                        let number = self.addresses.insert(&address).map_err(|error| error.to_string())?;
                        self.known.push((address, number));
                        number
                    }
                };
                Standing::Met(number, usize::from(contexts.max(1)))
            }
        };
        Ok(())
    }

    /// A link has ended. Its operations fail, and no further ones are accepted.
    pub(in crate::ofi) fn end_link(&mut self, link: u32) {
        if self.peers.len() <= index_of(link) {
            return;
        }
        self.forget_answers(link);
        self.part(link, "the connection has ended".to_owned());
    }

    /// Nothing can be done at a peer any more. Its operations fail, and no further ones are accepted. What the peer has issued itself may still
    /// arrive.
    fn part(&mut self, link: u32, why: String) {
        let peer = self.peer(link);
        let epoch = peer.epoch;
        let was_gone = matches!(std::mem::replace(&mut peer.standing, Standing::Gone(why.clone())), Standing::Gone(_));
        let may_write = !was_gone && peer.told && !peer.has_left;
        self.ended += u64::from(may_write);
        for index in 0..self.operations.len() as u32 {
            let operation = &mut self.operations[index as usize];
            if !operation.is_of(link, epoch) || operation.ending {
                continue;
            }
            operation.failed.get_or_insert_with(|| why.clone());
            if self.lends {
                operation.ending = true;
                self.ending += 1;
                self.ending_since.get_or_insert_with(Instant::now);
            } else {
                // The provider was lent no memory of the caller's, so the operation ends at once.
                operation.under_way = 0;
                self.contexts.iter_mut().for_each(|context| context.orphan(index));
            }
            if self.operations[index as usize].is_over() {
                self.finish(index);
            }
        }
    }

    /// The engine of a link's peer ticks.
    pub(in crate::ofi) fn hear_answer(&mut self, link: u32) {
        self.peers.get_mut(index_of(link)).into_iter().for_each(Peer::answer);
    }

    /// A new link begins to use this link number.
    pub(in crate::ofi) fn begin_link(&mut self, link: u32) {
        // A failure in the ring of an earlier link with this number does not concern the new one.
        self.rings_failed.retain(|(other, _)| *other != link);
        if let Some(peer) = self.peers.get_mut(index_of(link)) {
            *peer = Peer { epoch: peer.epoch.wrapping_add(1), ..Peer::default() };
        }
    }

    /// Whether link numbers may be reused: the provider keeps no operations of links that have ended.
    pub(in crate::ofi) fn may_reuse_links(&self) -> bool {
        self.ending == 0
    }

    /// The counts of a channel, if it has ever accepted an operation.
    pub(super) fn counts(&self, channel: Channel) -> Option<&Counts> {
        self.peers.get(index_of(channel.link))?.counts.get(channel.context as usize)
    }

    /// The counts of a channel, made if there are none, to count an operation.
    pub(super) fn counts_mut(&mut self, channel: Channel) -> &mut Counts {
        let counts = &mut self.peer(channel.link).counts;
        if counts.len() <= channel.context as usize {
            counts.resize_with(channel.context as usize + 1, Counts::default);
        }
        &mut counts[channel.context as usize]
    }
}

/// The index of a link's peer in the list. This process itself, which has [`NIL`] for a link, comes first.
pub(super) const fn index_of(link: u32) -> usize {
    link.wrapping_add(1) as usize
}

/// The link of a peer in the list.
pub(super) const fn link_of(index: usize) -> u32 {
    (index as u32).wrapping_sub(1)
}

impl Operation {
    /// Whether the operation goes over this link, in the link's present epoch.
    pub(super) fn is_of(&self, link: u32, epoch: u32) -> bool {
        self.is_used && self.channel.link == link && self.epoch == epoch
    }
}
