//! What an engine keeps about communicators that change.

use super::message::{Entry, Message};
use super::operation::Operation;
use crate::api::request::Request;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tickwire_components::{Comm, CommError, RequestError, Row, Topology};

/// What an engine keeps about communicators that change.
#[derive(Default)]
pub(crate) struct Comms {
    /// Agreements in progress or not taken yet.
    pub(super) negotiations: Vec<Negotiation>,
    /// Ids that are reserved here, and for whom.
    pub(super) reserved: Vec<(u32, Key)>,
    /// Messages and receives of agreements that there were no rows for.
    pub(super) owed: VecDeque<Owed>,
    /// Rows that were freed while operations on them were pending.
    pub(super) closing: Vec<Row>,
    /// Who is whose neighbour, where that was said.
    pub(in crate::api) topologies: Vec<(Comm, Topology)>,
    /// No id below is free here.
    pub(super) lowest: u32,
    /// The number of the next agreement.
    pub(super) next: u64,
}

/// How an agreement ends: the new communicator, or `None` if this member is not in it.
pub(super) type Made = Result<Option<Comm>, CommError>;

/// Whom to call when an agreement has ended. Dropped before, it tells that the engine is closed.
pub(super) struct Caller(Option<Box<dyn FnOnce(Made) + Send>>);

impl Caller {
    pub(super) fn new(call: impl FnOnce(Made) + Send + 'static) -> Self {
        Caller(Some(Box::new(call)))
    }

    pub(super) fn call(mut self, made: Made) {
        if let Some(call) = self.0.take() {
            call(made);
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            // It is the application's: its panic must not end what drops this.
            let _ = catch_unwind(AssertUnwindSafe(|| call(Err(CommError::Wait(RequestError::Finalized)))));
        }
    }
}

/// One member's part of an agreement.
pub(super) struct Negotiation {
    pub(super) number: u64,
    /// Shared with the token.
    pub(super) token: Arc<()>,
    pub(super) key: Key,
    pub(super) operation: Operation,
    /// Whom to call when it has ended, in place of a token.
    pub(super) caller: Option<Caller>,
    /// The communicator it comes from.
    pub(super) parent: Row,
    /// How it ended.
    pub(super) result: Option<Result<Option<Comm>, CommError>>,
    /// Own rank in the parent.
    pub(super) rank: u32,
    pub(super) up: Option<Edge>,
    pub(super) down: Vec<Edge>,
    pub(super) phase: Phase,
    /// Messages of this pair of passes that have left.
    pub(super) up_sent: bool,
    pub(super) down_sent: bool,
    pub(super) sends: Vec<Request<Vec<u8>>>,
    /// How many take part.
    pub(super) size: u32,
    /// Split: what the members of this part of the tree have asked for, then all.
    pub(super) entries: Vec<Entry>,
    /// Whether `entries` has all: from the first proposal on.
    pub(super) complete: bool,
    /// The proposal; `NIL` if there is none.
    pub(super) id: u32,
    /// No id below is free on all.
    pub(super) floor: u32,
    /// Own vote: a no, or the incarnation known here.
    pub(super) vote: Option<Option<u32>>,
    /// Whether the id is reserved here for this agreement.
    pub(super) reserved: bool,
}

/// What a member waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Gather,
    AwaitProposal,
    Vote,
    AwaitDecision,
    Ended,
}

/// What orders agreements: the parent's context word, the plane and the tag of its messages. The same on all members.
pub(super) type Key = (u32, u32, u32);

/// An edge of the tree.
pub(super) struct Edge {
    /// Whose messages it carries.
    pub(super) key: Key,
    /// The peer's rank in the parent communicator.
    pub(super) rank: u32,
    /// The peer.
    pub(super) proc: u32,
    /// Members in its part of the tree.
    pub(super) span: u32,
    /// Room for its next message, while no receive is posted for that; else 0.
    pub(super) bytes: usize,
    /// The receive of its next message.
    pub(super) receive: Option<Request<Vec<u8>>>,
    /// That message, once there.
    pub(super) message: Option<Message>,
}

/// What an engine owes the members of an agreement, for want of rows when it was due. Sent and posted as soon as there are some,
/// in this order, also if the agreement has failed meanwhile.
pub(super) enum Owed {
    /// A message: key of the agreement, own rank, proc of the member, bytes.
    Message(Key, u32, u32, Vec<u8>),
    /// A receive whose message nobody looks at: key, rank and proc of the member, bytes.
    Receive(Key, u32, u32, usize),
}
