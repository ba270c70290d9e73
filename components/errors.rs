//! The errors of the application's interface, one enum for each kind of operation.

mod communicators;

pub use communicators::CommError;

use crate::{ProcId, Rank, Status, Tag};
use thiserror::Error;

/// Why an operation could not be posted. Nothing has been queued.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PostError {
    /// No such rank.
    #[error("rank {} is out of range: the communicator has ranks 0 to {last}", Rank(*rank))]
    Rank {
        /// What was given.
        rank: u32,
        /// The highest rank there is.
        last: u32,
    },
    /// No such tag.
    #[error("tag {} is above the bound: applications use tags from 0 to {}", Tag(*tag), Tag::MAX)]
    Tag {
        /// What was given.
        tag: u32,
    },
    /// The tag mode in use has too few bits for this tag.
    #[error(
        "tag {tag} is above {most}, the bound of tag mode ofi_tag_2, which is in use: use ofi_tag_1 or ofi_tag_full"
    )]
    TagMode {
        /// What was given.
        tag: u32,
        /// The highest possible.
        most: u32,
    },
    /// No such communicator.
    #[error("communicator {0} does not exist in this engine: use one that this engine gave out")]
    Communicator(u32),
    /// The communicator was freed.
    #[error("communicator {0} has been freed: use one that is alive")]
    Freed(u32),
    /// A wildcard on a communicator for which the application has promised to use none.
    #[error("communicator {0} takes no wildcards: name the source and the tag, or take back comm_set_no_wildcard")]
    Wildcard(u32),
    /// The message is too long.
    #[error("{length} bytes are more than a message may have ({most}): send it in parts")]
    Length {
        /// What was given, bytes.
        length: u64,
        /// What is possible, bytes.
        most: u64,
    },
    /// There is no memory for bytes that a graph passes on, or combines on the way.
    #[error("there is no memory for {bytes} bytes that are passed on: pass them on in parts, or keep them in a buffer")]
    NoMemory {
        /// What is needed, bytes.
        bytes: u64,
    },
    /// A byte would be received twice, or received and sent: a datatype, a list or places contain it twice, or two lists have it in common.
    #[error("a byte is in the buffers twice: a receive could not tell what to write there; set their blocks apart")]
    Overlap,
    /// A buffer of a collective operation whose length does not fit the other buffer or the number of ranks.
    #[error("the {what} has {given} elements, and {needed} are needed")]
    Elements {
        /// Which buffer.
        what: &'static str,
        /// Its elements.
        given: usize,
        /// How many it must have.
        needed: usize,
    },
    /// All rows are in use.
    #[error("all {rows} {table} rows are in use: complete some requests first, or raise the limit `{limit}`")]
    Full {
        /// Which table.
        table: &'static str,
        /// Its bound.
        rows: usize,
        /// The configuration's name of the bound.
        limit: &'static str,
    },
    /// The peer's connection has failed.
    #[error("proc {proc} has failed: {reason}")]
    PeerFailed {
        /// Which proc.
        proc: ProcId,
        /// What is known.
        reason: String,
    },
    /// The engine was finalized.
    #[error("the engine has been finalized: build a new one")]
    Finalized,
    /// A callback or system panicked.
    #[error("the engine is poisoned: {0}; finalize it and build a new one")]
    Poisoned(String),
    /// A message in buffered mode found no room in the attached buffer.
    #[error(
        "{needed} bytes do not fit the attached buffer, of which {free} of {attached} bytes are free: attach a larger one, or wait"
    )]
    BufferFull {
        /// What the message takes, bytes.
        needed: usize,
        /// What is free, bytes.
        free: usize,
        /// What was attached, bytes.
        attached: usize,
    },
    /// A persistent request is active.
    #[error("the request is active: wait for it before it is started or freed")]
    Active,
    /// The persistent collective operation has failed before.
    #[error("the operation has failed before: free it, and make it anew where all members are alive")]
    HasFailed,
    /// The buffer of a persistent collective operation is not the one that it was made with.
    #[error("the buffer of the operation has moved: change what is in it, not where it is or how long it is")]
    Moved,
    /// In place was given for a buffer where this member may not use it, or there is nothing in place.
    #[error("in place is for {who}: give a buffer")]
    InPlace {
        /// Who may.
        who: &'static str,
    },
    /// A neighbourhood collective on a communicator without a topology, or with a topology in which two ranks do not agree about an
    /// edge.
    #[error(
        "the communicator has no topology that fits: make it by cart_create or graph_create, with both ends of each edge"
    )]
    NoTopology,
    /// A handle of another builder.
    #[error("a handle belongs to another graph: use those that this builder gave out")]
    OtherGraph,
    /// Nodes that wait for each other.
    #[error("nodes of the graph wait for each other in a circle: leave one of the edges out")]
    Circle,
    /// The handle belongs to no live request.
    #[error("the request is stale: it was freed or belongs to another engine")]
    Stale,
    /// No transport reaches the peer.
    #[error("no transport reaches proc {proc}: {reason}")]
    Unreachable {
        /// Which proc.
        proc: ProcId,
        /// What is missing.
        reason: String,
    },
}

/// A receive whose message is of another type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "a message of `{sent}` from rank {} with tag {} into a receive of `{expected}`: send and receive the same type",
    status.source, status.tag
)]
#[non_exhaustive]
pub struct OtherType {
    /// The message as it was sent.
    pub status: Status,
    /// The type of its elements, as its sender calls it.
    pub sent: String,
    /// The type of the receive's elements.
    pub expected: &'static str,
}

impl OtherType {
    /// The error of a receive with this status.
    pub fn new(status: Status, sent: String, expected: &'static str) -> Box<Self> {
        Box::new(OtherType { status, sent, expected })
    }
}

/// Why an operation failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The message was longer than the receive; its first bytes are in the buffer.
    #[error("message truncated: {} bytes from rank {} with tag {} into a receive of {capacity} bytes", status.length, status.source, status.tag)]
    Truncated {
        /// The message as it was sent.
        status: Status,
        /// Bytes of the receive.
        capacity: usize,
    },
    /// The message is of another type than the receive, and the engine checks types. Its bytes are in the buffer.
    #[error(transparent)]
    OtherType(Box<OtherType>),
    /// Of a collective operation: a member has sent less than this one expects.
    #[error(
        "{sent} bytes from rank {source} where {expected} were expected: give all members of a collective operation the same lengths",
        source = .from
    )]
    Short {
        /// The member.
        from: Rank,
        /// Bytes that it has sent.
        sent: usize,
        /// Bytes that it should have sent.
        expected: usize,
    },
    /// Of an operation on a window or a region: the bytes are outside the target's part, or elements to update are not aligned there.
    #[error("the target has no such bytes, or its elements are not aligned there")]
    OutOfBounds,
    /// Of an operation on a window: its target has no epoch open in which the origin may access its part.
    #[error(
        "the target has no epoch open for this rank: both ranks must call fences alike, or the target must post one"
    )]
    NotExposed,
    /// Of an operation on a window or a region: a member that holds a lock has failed.
    #[error("proc {proc}, which holds the lock, has failed: {reason}")]
    HolderFailed {
        /// Which proc.
        proc: ProcId,
        /// What is known.
        reason: String,
    },
    /// Of an operation on a window or a region: the fabric failed to do it, or refused it.
    #[error("the fabric cannot do it: {reason}")]
    Fabric {
        /// The fabric's message.
        reason: String,
    },
    /// Of a collective operation or a block: a member has failed during it, has called it with other lengths, has freed the
    /// communicator, or had to give it up because it gave up another one.
    #[error(
        "rank {0} cannot go on with the collective operation: a member that it needs has failed, has called it with other \
         lengths, or has freed the communicator"
    )]
    Abandoned(Rank),
    /// An operation that another thread submitted could not be posted.
    #[error(transparent)]
    NotPosted(#[from] PostError),
    /// A send in ready mode met no posted receive.
    #[error("the send was in ready mode and no receive was posted for it: post receives first, or use another mode")]
    NotReady,
    /// The operation was cancelled.
    #[error("the request was cancelled")]
    Cancelled,
    /// The peer failed before the operation was done.
    #[error("proc {proc} has failed: {reason}")]
    PeerFailed {
        /// Which proc.
        proc: ProcId,
        /// What is known.
        reason: String,
    },
    /// A proc failed whose message this receive from any source might match. The receive stays posted.
    #[error(
        "proc {proc} has failed while a receive from any source is pending ({reason}): acknowledge it to go on without it"
    )]
    PeerFailedPending {
        /// Which proc.
        proc: ProcId,
        /// What is known.
        reason: String,
    },
    /// The handle belongs to no live request.
    #[error("the request is stale: it was taken or belongs to another engine")]
    Stale,
    /// The request is not done yet.
    #[error("the request is not done: wait for it, or test it and tick")]
    Pending,
    /// The engine was finalized before the operation was done.
    #[error("the engine has been finalized before the request was done")]
    Finalized,
    /// A callback or system panicked.
    #[error("the engine is poisoned: {0}; finalize it and build a new one")]
    Poisoned(String),
    /// One of several requests has failed, or cannot succeed (`MPI_ERR_IN_STATUS`). The request itself still returns the error until it
    /// is taken. The other requests are not affected.
    #[error("request {index} of those that were given: {error}")]
    InStatus {
        /// Index of the first request with an error.
        index: usize,
        /// How it ended.
        error: Box<RequestError>,
    },
    /// The timeout of the wait has passed.
    #[error("not done within the given time")]
    Timeout,
    /// The operating system reported an error while waiting.
    #[error("cannot wait: {0}")]
    System(String),
}

/// Why a tick of only one transport, or for only one proc, was not done.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ProgressError {
    /// No transport with this name is open.
    #[error("no transport named {name} is open: there are {open}")]
    Transport {
        /// What was given.
        name: String,
        /// The names of the open transports.
        open: String,
    },
    /// No such proc.
    #[error("proc {proc} is out of range: the world has procs 0 to {last}")]
    Proc {
        /// What was given.
        proc: ProcId,
        /// The highest proc there is.
        last: u32,
    },
}

/// Why an engine could not be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A limit is wrong, or two limits contradict each other.
    #[error("limits: {0}")]
    Limits(String),
    /// An environment variable has an invalid value.
    #[error("{variable} is '{value}': {expected}")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// What was found.
        value: String,
        /// What to give.
        expected: String,
    },
    /// A file descriptor on which the engine sleeps could not be created.
    #[error("descriptors: {0}")]
    Descriptors(String),
    /// The exchange with the other ranks failed: the error of the bootstrap.
    #[error("bootstrap: {0}")]
    Bootstrap(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A transport could not be opened.
    #[error("transport {transport}: {reason}")]
    Transport {
        /// Its name.
        transport: String,
        /// What went wrong and what to do.
        reason: String,
    },
    /// The trace file cannot be written.
    #[error("trace file {path}: {reason}; name a file in a directory where this process may write")]
    Trace {
        /// Its path.
        path: String,
        /// The system's answer.
        reason: String,
    },
    /// The application has changed the world in a way that does not fit the engine's rows.
    #[error("world: {0}")]
    World(String),
    /// The systems cannot be ordered, or two access the same data without an order.
    #[error("schedule: {0}")]
    Schedule(String),
}

/// Why `finalize` did not end cleanly. The engine is closed all the same.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FinalizeError {
    /// Some operations were still pending.
    #[error("finalized with {pending} requests pending after {ms} ms")]
    Pending {
        /// How many.
        pending: usize,
        /// How long it took, ms.
        ms: u64,
    },
    /// The engine was poisoned before.
    #[error("the engine was poisoned: {0}")]
    Poisoned(String),
}
