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

use super::agreement::Operation;
use super::edges::{Edge, Key, accuse, children, expect, hear, tell};
use super::message::{Entry, Message};
use crate::api::request::Request;
use crate::run::core::Engine;
use std::sync::Arc;
use tickwire_components::{Comm, CommError, Group, NIL, PostError, Row};
use tickwire_systems::procs::communicators::{UsedIds, make, release, reserve};
use tickwire_transports::TagLimits;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Gather,
    AwaitProposal,
    Vote,
    AwaitDecision,
    Ended,
}

/// One member's part of an agreement.
pub(super) struct Negotiation {
    pub(super) number: u64,
    /// Shared with the token.
    pub(super) token: Arc<()>,
    pub(super) key: Key,
    pub(super) operation: Operation,
    /// The communicator it comes from.
    pub(super) parent: Row,
    /// How it ended.
    pub(super) result: Option<Result<Option<Comm>, CommError>>,
    /// Own rank in the parent.
    rank: u32,
    up: Option<Edge>,
    down: Vec<Edge>,
    phase: Phase,
    /// Messages of this pair of passes that have left.
    up_sent: bool,
    down_sent: bool,
    sends: Vec<Request<Vec<u8>>>,
    /// How many take part.
    size: u32,
    /// Split: what the members of this part of the tree have asked for, then all.
    entries: Vec<Entry>,
    /// Whether `entries` has all: from the first proposal on.
    complete: bool,
    /// The proposal; [`NIL`] if there is none.
    id: u32,
    /// No id below is free on all.
    floor: u32,
    /// Own vote: a no, or the incarnation known here.
    vote: Option<Option<u32>>,
    /// Whether the id is reserved here for this agreement.
    reserved: bool,
}

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
    fn begin(&mut self, engine: &mut Engine) -> Result<(), CommError> {
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

    /// Up: what is used in this part of the tree. At the root: the proposal.
    fn gather(&mut self, engine: &mut Engine) -> Result<bool, CommError> {
        if !self.heard_from_children(engine)? {
            return self.look_at_parent(engine).map(|()| false);
        }
        let (mut union, mut most) = match self.operation.takes_part(engine.rank().0) {
            true => engine.used_ids(self.floor),
            false => (UsedIds::NONE, UsedIds::NONE.end),
        };
        // The first round alone brings entries; in later ones all members know them.
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

    /// Begins a round in which only ids from one on are of interest: no other is free on all.
    fn look_further(&mut self, engine: &mut Engine, floor: u32) -> Result<(), CommError> {
        self.tell_children(engine, &Message::Decide { commit: false, incarnation: floor });
        self.floor = floor;
        if !self.complete {
            // Those of others come once more.
            self.entries.truncate(1);
        }
        self.begin(engine)
    }

    fn propose(&mut self, engine: &mut Engine, id: u32, entries: Vec<Entry>) -> Result<(), CommError> {
        self.tell_children(engine, &Message::Propose { id, entries: entries.clone() });
        (self.id, self.entries, self.complete) = (id, entries, true);
        self.expect(engine, Phase::Vote)
    }

    /// Up: whether all of this part of the tree have reserved the id. At the root: the decision.
    fn count_votes(&mut self, engine: &mut Engine) -> Result<bool, CommError> {
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
                Some(Message::Vote { yes, incarnation }) => {
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
            let incarnation = vote.unwrap_or(0).wrapping_add(1);
            self.decide(engine, vote.is_some(), incarnation)?;
        }
        Ok(true)
    }

    /// The own vote; `None` while it has to wait for the id's holder.
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
                // Rows were spawned: an observer of the application may have lost the world.
                engine.is_lost();
                self.reserved = vote.is_some();
                if self.reserved {
                    engine.comms.reserved.push((self.id, self.key));
                }
                Some(vote)
            }
        }
    }

    fn decide(&mut self, engine: &mut Engine, commit: bool, incarnation: u32) -> Result<(), CommError> {
        self.tell_children(engine, &Message::Decide { commit, incarnation });
        // The first one of an id is 1.
        if commit && self.reserved && incarnation >= engine.tags.incarnations.max(2) {
            return Err(accuse(engine, self.up.as_ref().map_or(NIL, |edge| edge.proc)));
        }
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
            if matches!(self.operation, Operation::Dup) {
                all.communicators[id as usize].no_wildcard = all.communicators[self.parent as usize].no_wildcard;
                all.communicators[id as usize].priority = all.communicators[self.parent as usize].priority;
            }
            made = Some(Comm(handle));
        }
        self.phase = Phase::Ended;
        self.result = Some(Ok(made));
        Ok(())
    }

    /// Posts the receives of a pair of passes and begins it.
    fn expect(&mut self, engine: &mut Engine, phase: Phase) -> Result<(), CommError> {
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

    fn heard_from_children(&mut self, engine: &mut Engine) -> Result<bool, CommError> {
        let mut all = true;
        for edge in &mut self.down {
            all &= hear(engine, edge)?;
        }
        Ok(all)
    }

    /// A parent that is gone, or has failed, is not waited for until the last child has come.
    fn look_at_parent(&mut self, engine: &mut Engine) -> Result<(), CommError> {
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

    fn tell_parent(&mut self, engine: &mut Engine, message: &Message) {
        self.up_sent = true;
        self.sends.extend(self.up.iter().filter_map(|edge| tell(engine, self.rank, edge, message)));
    }

    fn tell_children(&mut self, engine: &mut Engine, message: &Message) {
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

    fn give_up_id(&mut self, engine: &mut Engine, may_be_used: bool) {
        if std::mem::take(&mut self.reserved) {
            let id = self.id;
            engine.comms.reserved.retain(|&(reserved, _)| reserved != id);
            release(&mut engine.store.all(), id, may_be_used);
            engine.comms.lowest = engine.comms.lowest.min(id);
        }
    }
}
