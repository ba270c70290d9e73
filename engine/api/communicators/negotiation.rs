//! How the members of a communicator agree on the context id of a new one. This is one member's part, driven by messages.
//!
//! The members form a binomial tree: for 64 members a pass takes six steps. A round has two pairs of passes, one pass up the
//! tree and one down:
//!
//! ```text
//!     up    Gather    the context ids in use, or'ed; for a split also each member's color and key
//!     down  Propose   the smallest id that is free on all members
//!     up    Vote      whether all could reserve the id, and its highest incarnation so far
//!     down  Decide    the new communicator has the id, in the next incarnation; or another round follows
//! ```
//!
//! **Conflicts.** An engine can take part in several agreements at once. Two of them may propose the same id, because one can
//! reserve it between the other's Gather and Vote. Their keys decide, which all members order alike:
//!
//! - If an agreement with a larger key has reserved the id, the one with the smaller key waits with its vote.
//! - If an agreement with a smaller key has reserved the id, the one with the larger key votes no.
//!
//! So agreements never wait in a circle, and the smallest key never gets a no because of an undecided agreement: some
//! agreement always proceeds. No id is reserved before all members have started the agreement, so members may start two
//! agreements in different orders.
//!
//! **Failures.** Each edge of the tree carries exactly one message each way in each pair of passes, whatever happens.
//! Otherwise a message could be left over, and a later agreement could take it for its own. A member that fails sends
//! `Failed` over each edge in place of its next message, and then drops its receives; the engine completes them. A member
//! that finds a neighbour dead therefore does not stop in the middle of a pass. It sends its other messages first. It
//! reports the failure in the next pair, where that neighbour's answer is missing. A decision of the root stands, even if
//! members have died since.

use super::edges::{accuse, children, expect, hear, tell};
use super::message::{Entry, Message};
use super::operation::Operation;
use super::state::{Edge, Key, Negotiation, Phase};
use crate::run::engine::Engine;
use std::sync::Arc;
use tickwire_components::{CommError, Group, NIL, PostError, Row};
use tickwire_systems::procs::communicators::release;

impl Negotiation {
    /// This member's part in an agreement. `everyone` are the participants, in the order of the tree.
    pub(super) fn new(engine: &mut Engine, parent: Row, everyone: &Group, key: Key, operation: Operation) -> Self {
        let all = engine.store.all();
        let (comm, me) = (&all.communicators[parent as usize], all.procs.me);
        let index = everyone.rank_of(me).unwrap_or(0);
        let edge = |index: u32, span: u32| {
            let proc = everyone.proc(index).unwrap_or(NIL);
            let rank = comm.rank_of(proc).unwrap_or(NIL);
            Edge { key, rank, proc, span, bytes: 0, receive: None, message: None }
        };
        let up = (index > 0).then(|| edge(index & (index - 1), 0));
        let down = children(index, everyone.size()).map(|(child, span)| edge(child, span)).collect();
        let entries = match operation {
            Operation::Split { color, key } => vec![(color, key)],
            _ => Vec::new(),
        };
        Negotiation {
            number: 0,
            token: Arc::new(()),
            key,
            operation,
            caller: None,
            parent,
            result: None,
            rank: comm.rank,
            up,
            down,
            phase: Phase::Ended,
            up_sent: false,
            down_sent: false,
            sends: Vec::new(),
            size: everyone.size(),
            entries,
            complete: false,
            id: NIL,
            floor: 0,
            vote: None,
            reserved: false,
        }
    }

    /// Starts the first round.
    pub(super) fn start(&mut self, engine: &mut Engine) {
        if let Err(error) = self.begin(engine) {
            self.fail(engine, error);
        }
    }

    /// Starts a round.
    pub(super) fn begin(&mut self, engine: &mut Engine) -> Result<(), CommError> {
        self.id = NIL;
        self.vote = None;
        self.expect(engine, Phase::Gather)
    }

    /// Whether the result can be taken: the agreement has failed, or has its result and all its sends are done.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.result, Some(Err(_))) || (self.result.is_some() && self.sends.is_empty())
    }

    /// Does every step that is possible now. `true` if there was one.
    pub(super) fn drive(&mut self, engine: &mut Engine) -> bool {
        let mut moved = false;
        // The result of a send does not matter: a dead peer is noticed when its answer is missing.
        for index in (0..self.sends.len()).rev() {
            if !matches!(engine.state(self.sends[index].id()), Ok(false)) {
                let _ = engine.take(self.sends.swap_remove(index));
            }
        }
        while self.phase != Phase::Ended {
            match self.step(engine) {
                Ok(false) => break,
                Ok(true) => moved = true,
                Err(error) => {
                    self.fail(engine, error);
                    moved = true;
                }
            }
        }
        moved
    }

    fn step(&mut self, engine: &mut Engine) -> Result<bool, CommError> {
        match self.phase {
            Phase::Gather => self.gather(engine),
            Phase::AwaitProposal => match self.heard_from_parent(engine)? {
                None => Ok(false),
                // This member has told the bound of its ids on the way up.
                Some(Message::Propose { id, entries })
                    if id < engine.context_ids() && entries.len() == self.asked() && self.is_own(&entries) =>
                {
                    self.propose(engine, id, entries).map(|()| true)
                }
                Some(Message::Decide { commit: false, incarnation }) => {
                    self.look_further(engine, incarnation).map(|()| true)
                }
                Some(other) => Err(self.answer_of_parent(engine, other)),
            },
            Phase::Vote => self.count_votes(engine),
            Phase::AwaitDecision => match self.heard_from_parent(engine)? {
                None => Ok(false),
                Some(Message::Decide { commit, incarnation }) => {
                    self.decide(engine, commit, incarnation).map(|()| true)
                }
                Some(other) => Err(self.answer_of_parent(engine, other)),
            },
            Phase::Ended => Ok(false),
        }
    }

    /// Starts a pair of passes: posts the receives for it.
    pub(super) fn expect(&mut self, engine: &mut Engine, phase: Phase) -> Result<(), CommError> {
        (self.up_sent, self.down_sent) = (false, false);
        self.phase = phase;
        // The buffer also fits the message of a member that has called another operation.
        let bytes = Message::bytes_max(self.size);
        for edge in self.up.iter_mut().chain(&mut self.down) {
            (edge.message, edge.bytes) = (None, bytes);
            expect(engine, edge)?;
        }
        Ok(())
    }

    /// Whether the entries of a split say of this proc what it has said.
    fn is_own(&self, entries: &[Entry]) -> bool {
        match self.operation {
            Operation::Split { color, key } => entries.get(self.rank as usize) == Some(&(color, key)),
            _ => true,
        }
    }

    /// Entries that a proposal must have: one for each member if this is a split, else none.
    fn asked(&self) -> usize {
        if matches!(self.operation, Operation::Split { .. }) { self.size as usize } else { 0 }
    }

    /// Whether the messages of all children have come.
    pub(super) fn heard_from_children(&mut self, engine: &mut Engine) -> Result<bool, CommError> {
        let mut all = true;
        for edge in &mut self.down {
            all &= hear(engine, edge)?;
        }
        Ok(all)
    }

    /// Looks whether the parent has failed, while messages of children are still missing. So a failure of the parent ends
    /// the agreement at once.
    pub(super) fn look_at_parent(&mut self, engine: &mut Engine) -> Result<(), CommError> {
        let Some(edge) = &mut self.up else { return Ok(()) };
        hear(engine, edge)?;
        match &edge.message {
            Some(Message::Failed(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// The parent's message, once it has come.
    fn heard_from_parent(&mut self, engine: &mut Engine) -> Result<Option<Message>, CommError> {
        let Some(edge) = &mut self.up else { return Ok(None) };
        Ok(if hear(engine, edge)? { edge.message.take() } else { None })
    }

    /// The error behind a message of the parent that does not belong to this phase.
    fn answer_of_parent(&self, engine: &mut Engine, message: Message) -> CommError {
        match message {
            Message::Failed(error) => error,
            _ => accuse(engine, self.up.as_ref().map_or(NIL, |edge| edge.proc)),
        }
    }

    /// Sends this member's message of the pass up.
    pub(super) fn tell_parent(&mut self, engine: &mut Engine, message: &Message) {
        self.up_sent = true;
        self.sends.extend(self.up.iter().filter_map(|edge| tell(engine, self.rank, edge, message)));
    }

    /// Sends this member's message of the pass down.
    pub(super) fn tell_children(&mut self, engine: &mut Engine, message: &Message) {
        self.down_sent = true;
        self.sends.extend(self.down.iter().filter_map(|edge| tell(engine, self.rank, edge, message)));
    }

    /// Ends the agreement with an error. Each neighbour gets the error in place of the next message.
    fn fail(&mut self, engine: &mut Engine, error: CommError) {
        let error = match error {
            CommError::Post(PostError::PeerFailed { proc, reason } | PostError::Unreachable { proc, reason }) => {
                CommError::MemberFailed { proc, reason }
            }
            other => other,
        };
        let message = Message::Failed(error.clone());
        if !self.up_sent {
            self.tell_parent(engine, &message);
        }
        if !self.down_sent {
            self.tell_children(engine, &message);
        }
        // The engine completes the sends in flight.
        self.sends.clear();
        for edge in self.up.iter_mut().chain(&mut self.down) {
            edge.leave(engine);
        }
        // Other members may have the decision already, and may use the id.
        self.give_up_id(engine, true);
        self.phase = Phase::Ended;
        self.result = Some(Err(error));
    }

    /// Releases the reserved id, if there is one. `may_be_used` says whether other members may use the id in a communicator.
    pub(super) fn give_up_id(&mut self, engine: &mut Engine, may_be_used: bool) {
        if std::mem::take(&mut self.reserved) {
            let id = self.id;
            engine.comms.reserved.retain(|&(reserved, _)| reserved != id);
            release(&mut engine.store.all(), id, may_be_used);
            engine.comms.lowest = engine.comms.lowest.min(id);
        }
    }
}
