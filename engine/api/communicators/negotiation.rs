//! How the members of a communicator agree on a new one: one member's part, driven by messages.
//!
//! Members form a binomial tree, so that 64 cost six steps a pass. A round has two pairs of passes:
//!
//! ```text
//!     up    Gather    ids in use, or'ed; what a split has asked for, by rank
//!     down  Propose   the smallest id that is free on all
//!     up    Vote      whether it could be reserved, and the highest incarnation of it known
//!     down  Decide    it is theirs, in the next incarnation; or another round
//! ```
//!
//! Several agreements of one engine may want the same id, since between Gather and Vote another may have taken it. The
//! order of their keys, which all members see alike, decides: a vote for the smaller key waits until the id's holder has
//! decided, a vote for the larger one is a no. So waiting goes one way and never in a circle, and the smallest key is never
//! refused for the sake of another that is undecided: some agreement always gets on. Nothing is held before all members have
//! begun, so two agreements may be begun in a different order by different members.
//!
//! A member that fails says so on each edge in place of its next message, and drops its receives, which the engine
//! finishes: each edge carries exactly one message each way in each pair, whatever happens, so nothing is left over
//! that a later agreement could take for its own. So nobody breaks off between the messages of a pass: who finds one of its
//! neighbours dead tells the others all the same, and misses that one where its answer is due, in the pair that follows, whose
//! messages then say so. What the root has decided stands, whoever has died since.

use super::edges::{accuse, children, expect, hear, tell};
use super::message::Message;
use super::operation::Operation;
use super::state::{Edge, Key, Negotiation, Phase};
use crate::run::engine::Engine;
use std::sync::Arc;
use tickwire_components::{CommError, Group, NIL, PostError, Row};
use tickwire_systems::procs::communicators::release;

impl Negotiation {
    /// A part in an agreement of `everyone`, the participants in the order of the tree.
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

    /// Begins the first round.
    pub(super) fn start(&mut self, engine: &mut Engine) {
        if let Err(error) = self.begin(engine) {
            self.fail(engine, error);
        }
    }

    /// Begins a round.
    pub(super) fn begin(&mut self, engine: &mut Engine) -> Result<(), CommError> {
        self.id = NIL;
        self.vote = None;
        self.expect(engine, Phase::Gather)
    }

    /// Whether all is done, so that the result may be taken.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.result, Some(Err(_))) || (self.result.is_some() && self.sends.is_empty())
    }

    /// Goes on as far as it can; `true` if that was any way.
    pub(super) fn drive(&mut self, engine: &mut Engine) -> bool {
        let mut moved = false;
        // How they ended is of no account: a peer that is gone is missed where its answer is.
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
                Some(Message::Propose { id, entries }) if entries.len() == self.asked() => {
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

    /// Posts the receives of a pair of passes and begins it.
    pub(super) fn expect(&mut self, engine: &mut Engine, phase: Phase) -> Result<(), CommError> {
        (self.up_sent, self.down_sent) = (false, false);
        self.phase = phase;
        // Also of a member that has called another operation, the message fits.
        let bytes = Message::bytes_max(self.size);
        for edge in self.up.iter_mut().chain(&mut self.down) {
            (edge.message, edge.bytes) = (None, bytes);
            expect(engine, edge)?;
        }
        Ok(())
    }

    /// Entries of a proposal: of a split, one a member.
    fn asked(&self) -> usize {
        if matches!(self.operation, Operation::Split { .. }) { self.size as usize } else { 0 }
    }

    pub(super) fn heard_from_children(&mut self, engine: &mut Engine) -> Result<bool, CommError> {
        let mut all = true;
        for edge in &mut self.down {
            all &= hear(engine, edge)?;
        }
        Ok(all)
    }

    /// A parent that is gone, or has failed, is not waited for until the last child has come.
    pub(super) fn look_at_parent(&mut self, engine: &mut Engine) -> Result<(), CommError> {
        let Some(edge) = &mut self.up else { return Ok(()) };
        hear(engine, edge)?;
        match &edge.message {
            Some(Message::Failed(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn heard_from_parent(&mut self, engine: &mut Engine) -> Result<Option<Message>, CommError> {
        let Some(edge) = &mut self.up else { return Ok(None) };
        Ok(if hear(engine, edge)? { edge.message.take() } else { None })
    }

    /// What a message of the parent that is no answer means.
    fn answer_of_parent(&self, engine: &mut Engine, message: Message) -> CommError {
        match message {
            Message::Failed(error) => error,
            _ => accuse(engine, self.up.as_ref().map_or(NIL, |edge| edge.proc)),
        }
    }

    pub(super) fn tell_parent(&mut self, engine: &mut Engine, message: &Message) {
        self.up_sent = true;
        self.sends.extend(self.up.iter().filter_map(|edge| tell(engine, self.rank, edge, message)));
    }

    pub(super) fn tell_children(&mut self, engine: &mut Engine, message: &Message) {
        self.down_sent = true;
        self.sends.extend(self.down.iter().filter_map(|edge| tell(engine, self.rank, edge, message)));
    }

    /// There will be no communicator here: all neighbours hear it in place of the next message.
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
        // The engine finishes what is under way.
        self.sends.clear();
        for edge in self.up.iter_mut().chain(&mut self.down) {
            edge.leave(engine);
        }
        // Another member may have heard of its decision.
        self.give_up_id(engine, true);
        self.phase = Phase::Ended;
        self.result = Some(Err(error));
    }

    pub(super) fn give_up_id(&mut self, engine: &mut Engine, may_be_used: bool) {
        if std::mem::take(&mut self.reserved) {
            let id = self.id;
            engine.comms.reserved.retain(|&(reserved, _)| reserved != id);
            release(&mut engine.store.all(), id, may_be_used);
            engine.comms.lowest = engine.comms.lowest.min(id);
        }
    }
}
