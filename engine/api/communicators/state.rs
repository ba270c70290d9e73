//! What an engine keeps about communicators that are being made or freed.

use super::message::{Entry, Message};
use super::operation::Operation;
use crate::api::request::Request;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tickwire_components::{Comm, CommError, Communicator, RequestError, Row, Topology};
use tickwire_systems::collectives::hosts::Hosts;

/// What an engine keeps about communicators that are being made or freed.
#[derive(Default)]
pub(crate) struct Comms {
    /// Agreements that are in progress, or whose results were not taken yet.
    pub(super) negotiations: Vec<Negotiation>,
    /// Context ids that are reserved here, and the key of the agreement that has reserved each.
    pub(super) reserved: Vec<(u32, Key)>,
    /// Messages and receives of agreements for which there were no rows.
    pub(super) owed: VecDeque<Owed>,
    /// Rows of communicators that were freed while operations on them were pending, and whether what nobody will receive was dropped.
    pub(super) closing: Vec<(Row, bool)>,
    /// The topologies of communicators that have one.
    pub(in crate::api) topologies: Vec<(Comm, Topology)>,
    /// The hosts of the members of communicators, where these are known: found at the first operation that asks, by row.
    pub(in crate::api) hosts: Vec<KnownHosts>,
    /// No context id below this one is free here.
    pub(super) lowest: u32,
    /// The number of the last agreement that was started.
    pub(super) next: u64,
}

/// What is known of the hosts of a communicator's members.
#[derive(Clone, Default)]
pub(in crate::api) struct KnownHosts {
    /// The communicator in this row that it is about. `None` if it is not known of any.
    pub(in crate::api) comm: Option<Comm>,
    /// The hosts. `None` if operations need not tell them apart.
    pub(in crate::api) hosts: Option<Arc<Hosts>>,
}

impl Comms {
    /// The hosts of a communicator's members, if they are known and operations should tell them apart.
    pub(in crate::api) fn hosts_of(&self, comm: Comm) -> Option<Arc<Hosts>> {
        let known = self.hosts.get(Communicator::row(comm.0)).filter(|known| known.comm == Some(comm));
        known.and_then(|known| known.hosts.clone())
    }
}

/// How an agreement ends: the new communicator, or `None` if this member is not in it.
pub(super) type Made = Result<Option<Comm>, CommError>;

/// A function to call when an agreement has ended. If this is dropped before, the function is told that the engine is closed.
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
            // The function is the application's. If it panics, the drop must still go on.
            let _ = catch_unwind(AssertUnwindSafe(|| call(Err(CommError::Wait(RequestError::Finalized)))));
        }
    }
}

/// One member's part of an agreement.
pub(super) struct Negotiation {
    pub(super) number: u64,
    /// Shared with the [`Agreement`](super::agreement::Agreement), so that the engine sees when that is dropped.
    pub(super) token: Arc<()>,
    pub(super) key: Key,
    pub(super) operation: Operation,
    /// The function to call at the end, if there is one.
    pub(super) caller: Option<Caller>,
    /// The communicator on which the operation was called.
    pub(super) parent: Row,
    /// How the agreement ended, once it has.
    pub(super) result: Option<Result<Option<Comm>, CommError>>,
    /// This proc's rank in the parent communicator.
    pub(super) rank: u32,
    pub(super) up: Option<Edge>,
    pub(super) down: Vec<Edge>,
    pub(super) phase: Phase,
    /// Whether this member's messages of this pair of passes, up and down, have left.
    pub(super) up_sent: bool,
    pub(super) down_sent: bool,
    pub(super) sends: Vec<Request<Vec<u8>>>,
    /// How many members take part.
    pub(super) size: u32,
    /// For a split: the entries of the members in this part of the tree. From the first proposal on: those of all members.
    pub(super) entries: Vec<Entry>,
    /// Whether `entries` has those of all members: from the first proposal on.
    pub(super) complete: bool,
    /// The proposed context id. `NIL` if there is none.
    pub(super) id: u32,
    /// No context id below this one is free on all members.
    pub(super) floor: u32,
    /// This member's vote, once there is one: `None` for no, or the highest incarnation of the id known here.
    pub(super) vote: Option<Option<u32>>,
    /// Whether the id is reserved here for this agreement.
    pub(super) reserved: bool,
}

/// What a member does or waits for in an agreement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Gather,
    AwaitProposal,
    Vote,
    AwaitDecision,
    Ended,
}

/// The order of agreements: the parent's context word, and the plane and tag of the agreement's messages. It is the same on all members.
pub(super) type Key = (u32, u32, u32);

/// An edge of the tree.
pub(super) struct Edge {
    /// The key of the agreement whose messages the edge carries.
    pub(super) key: Key,
    /// The peer's rank in the parent communicator.
    pub(super) rank: u32,
    /// The peer's proc.
    pub(super) proc: u32,
    /// The number of members in the peer's part of the tree.
    pub(super) span: u32,
    /// The size of the edge's next message, bytes, while there is no receive for it yet; else 0.
    pub(super) bytes: usize,
    /// The receive of the edge's next message.
    pub(super) receive: Option<Request<Vec<u8>>>,
    /// The edge's next message, once it has come.
    pub(super) message: Option<Message>,
}

/// What an engine owes the members of an agreement, because it lacked rows when it was due. The engine sends and posts these as soon as
/// there are rows, in this order, even if the agreement has failed meanwhile.
pub(super) enum Owed {
    /// A message: key of the agreement, own rank, proc of the peer, bytes.
    Message(Key, u32, u32, Vec<u8>),
    /// A receive whose message nobody reads: key of the agreement, rank and proc of the peer, bytes.
    Receive(Key, u32, u32, usize),
}
