//! The passes of an agreement: what a member does once it has all messages of a pass. See [`super::negotiation`].

use super::edges::accuse;
use super::message::{Entry, Message};
use super::operation::Operation;
use super::state::{Negotiation, Phase};
use crate::run::engine::Engine;
use tickwire_components::{Comm, CommError, NIL, context};
use tickwire_systems::procs::communicators::{UsedIds, make, reserve};
use tickwire_transports::TagLimits;

impl Negotiation {
    /// Gather: collects the context ids in use in this part of the tree and sends them up. The root proposes an id instead.
    /// `false` while messages are missing.
    pub(super) fn gather(&mut self, engine: &mut Engine) -> Result<bool, CommError> {
        if !self.heard_from_children(engine)? {
            return self.look_at_parent(engine).map(|()| false);
        }
        let (mut union, mut most) = match self.operation.takes_part(engine.rank().0) {
            true => engine.used_ids(self.floor),
            false => (UsedIds::NONE, UsedIds::NONE.end),
        };
        // Entries go up in the first round only. Once there was a proposal, all members know them.
        let brings = matches!(self.operation, Operation::Split { .. }) && !self.complete;
        for index in 0..self.down.len() {
            let (proc, span) = (self.down[index].proc, self.down[index].span);
            match self.down[index].message.take() {
                Some(Message::Gather { operation, used, most: theirs, entries }) => {
                    if operation != self.operation.number() {
                        return Err(CommError::Mismatch);
                    }
                    if entries.len() != if brings { span as usize } else { 0 } {
                        return Err(accuse(engine, proc));
                    }
                    union.add(used);
                    most = most.min(theirs);
                    self.entries.extend(entries);
                }
                Some(Message::Failed(error)) => return Err(error),
                _ => return Err(accuse(engine, proc)),
            }
        }
        if self.up.is_some() {
            let operation = self.operation.number();
            let entries = if brings { self.entries.clone() } else { Vec::new() };
            self.tell_parent(engine, &Message::Gather { operation, used: union, most, entries });
            self.phase = Phase::AwaitProposal;
        } else {
            let Some(id) = union.smallest_free(most) else {
                if union.end < most && union.end > self.floor {
                    return self.look_further(engine, union.end).map(|()| true);
                }
                let TagLimits { mode, contexts, .. } = engine.tags;
                let trimmed = !mode.is_empty() && most == contexts;
                let error = CommError::TagModeContexts { most, mode };
                return Err(if trimmed { error } else { CommError::Exhausted });
            };
            let entries = self.entries.clone();
            self.propose(engine, id, entries)?;
        }
        Ok(true)
    }

    /// Starts a round that looks only at context ids from `floor` up, because no smaller id is free on all members. Tells
    /// the children.
    pub(super) fn look_further(&mut self, engine: &mut Engine, floor: u32) -> Result<(), CommError> {
        self.tell_children(engine, &Message::Decide { commit: false, incarnation: floor });
        self.floor = floor;
        if !self.complete {
            // The children send their entries again; only the own entry stays.
            self.entries.truncate(1);
        }
        self.begin(engine)
    }

    /// Propose: passes an id on to the children, and starts the vote.
    pub(super) fn propose(&mut self, engine: &mut Engine, id: u32, entries: Vec<Entry>) -> Result<(), CommError> {
        self.tell_children(engine, &Message::Propose { id, entries: entries.clone() });
        (self.id, self.entries, self.complete) = (id, entries, true);
        self.expect(engine, Phase::Vote)
    }

    /// Vote: sends up whether all members in this part of the tree have reserved the id. The root decides instead. `false`
    /// while messages, or the own vote, are missing.
    pub(super) fn count_votes(&mut self, engine: &mut Engine) -> Result<bool, CommError> {
        if self.vote.is_none() {
            self.vote = self.try_vote(engine);
        }
        let (heard, Some(mut vote)) = (self.heard_from_children(engine)?, self.vote) else { return Ok(false) };
        if !heard {
            return self.look_at_parent(engine).map(|()| false);
        }
        for index in 0..self.down.len() {
            let proc = self.down[index].proc;
            match self.down[index].message.take() {
                Some(Message::Vote { yes, incarnation }) if !yes || incarnation < context::INCARNATIONS - 1 => {
                    vote = vote.filter(|_| yes).map(|known| known.max(incarnation));
                }
                Some(Message::Failed(error)) => return Err(error),
                _ => return Err(accuse(engine, proc)),
            }
        }
        if self.up.is_some() {
            let (yes, incarnation) = (vote.is_some(), vote.unwrap_or(0));
            self.tell_parent(engine, &Message::Vote { yes, incarnation });
            self.phase = Phase::AwaitDecision;
        } else {
            let incarnation = vote.unwrap_or(0) + 1;
            self.decide(engine, vote.is_some(), incarnation)?;
        }
        Ok(true)
    }

    /// The own vote: `Some(Some(incarnation))` for yes, with the highest incarnation of the id that this proc knows, and
    /// `Some(None)` for no. `None` while the vote has to wait for the agreement that has reserved the id.
    fn try_vote(&mut self, engine: &mut Engine) -> Option<Option<u32>> {
        if !self.operation.takes_part(engine.rank().0) {
            return Some(Some(0));
        }
        let holder = engine.comms.reserved.iter().find(|(id, _)| *id == self.id);
        match holder {
            Some((_, key)) if self.key < *key => None,
            Some(_) => Some(None),
            None => {
                let vote = reserve(&mut engine.store.as_mut(), self.id, engine.tags.incarnations);
                // Reserving may spawn rows, which runs observers of the application. They may have damaged the world.
                engine.is_lost();
                self.reserved = vote.is_some();
                if self.reserved {
                    engine.comms.reserved.push((self.id, self.key));
                }
                Some(vote)
            }
        }
    }

    /// Decide: passes the decision on to the children. Makes the communicator, or starts another round.
    pub(super) fn decide(&mut self, engine: &mut Engine, commit: bool, incarnation: u32) -> Result<(), CommError> {
        if commit && self.reserved {
            let was_used = self.vote.flatten().is_some_and(|known| incarnation <= known);
            if was_used || incarnation >= context::INCARNATIONS {
                return Err(accuse(engine, self.up.as_ref().map_or(NIL, |edge| edge.proc)));
            }
            // Other members may have more incarnations than this one. The first one, 1, is valid under any limit.
            if incarnation >= engine.tags.incarnations.max(2) {
                return Err(CommError::Exhausted);
            }
        }
        self.tell_children(engine, &Message::Decide { commit, incarnation });
        if !commit {
            self.give_up_id(engine, false);
            return self.begin(engine);
        }
        let mut made = None;
        if self.reserved {
            let parent = &engine.store.all().communicators[self.parent as usize];
            let group = self.operation.members(&parent.group(), &self.entries);
            let id = self.id;
            engine.comms.reserved.retain(|&(reserved, _)| reserved != id);
            self.reserved = false;
            let mut all = engine.store.all();
            let handle = make(&mut all, id, incarnation, &group, self.parent);
            if let Operation::Dup(topology) = &mut self.operation {
                all.communicators[id as usize].no_wildcard = all.communicators[self.parent as usize].no_wildcard;
                all.communicators[id as usize].priority = all.communicators[self.parent as usize].priority;
                engine.comms.topologies.extend(topology.take().map(|topology| (Comm(handle), topology)));
            }
            made = Some(Comm(handle));
        }
        self.phase = Phase::Ended;
        self.result = Some(Ok(made));
        Ok(())
    }
}
