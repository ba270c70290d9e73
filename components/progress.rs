//! The engine's own row: pending work, the free lists, and the queues that belong to no VC.

use crate::credit::Credit;
use crate::index::PostedIndex;
use crate::limits::{CONTROL_BUFFERS, CREDIT_INITIAL, FORWARD_BUFFERS, Limits, Matching, WALK_MAX};
use crate::submission::OwedToThread;
use crate::{
    Buffer, CallWord, ControlFrames, ForwardBytes, FreeList, Graphs, NIL, ProviderMatching, Queue, Receipts,
    Registrations, ReservedBuffers, Row, Segment, Signatures, Stamp, Stamps, Stream, Tally, UnexpectedQueue,
};
use bevy_ecs::component::Component;
use std::collections::HashMap;
use std::ops::{BitOr, BitOrAssign};
use std::sync::Arc;

/// Bits of [`Progress::posting`].
pub mod posting {
    /// Posted receives are in the index rather than in the lists.
    pub const INDEXED: u8 = 1;
    /// A transport matches messages itself, and some receives go there.
    pub const PROVIDER: u8 = 2;
    /// The engine is closed: no operation can be posted.
    pub const CLOSED: u8 = 4;
}

/// The systems that have something to do, as bits.
// One byte: bits are set and cleared by single-byte stores, and a wider load just after them would stall on store-forwarding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pending(pub u8);

impl Pending {
    /// No system.
    pub const NONE: Pending = Pending(0);
    /// Submissions or sends wait.
    pub const POST: Pending = Pending(1);
    /// New arrivals or new receives wait.
    pub const MATCH: Pending = Pending(2);
    /// Arrivals wait for a destination.
    pub const SUPPLY: Pending = Pending(4);
    /// Bytes wait to be moved, or transport space to be released.
    pub const TRANSFER: Pending = Pending(8);
    /// A transport has frames or completions to read.
    pub const DRAIN: Pending = Pending(16);
    /// Finished CARs wait.
    pub const COMPLETE: Pending = Pending(32);
    /// The world must change: rows to spawn, procs to contact, VCs that have ended.
    pub const WORLD: Pending = Pending(64);

    /// Whether any of `other`'s bits is set.
    #[inline]
    pub const fn has(self, other: Pending) -> bool {
        self.0 & other.0 != 0
    }

    /// Clears bits.
    #[inline]
    pub fn clear(&mut self, other: Pending) {
        self.0 &= !other.0;
    }
}

impl BitOr for Pending {
    type Output = Pending;
    #[inline]
    fn bitor(self, other: Pending) -> Pending {
        Pending(self.0 | other.0)
    }
}

impl BitOrAssign for Pending {
    #[inline]
    fn bitor_assign(&mut self, other: Pending) {
        self.0 |= other.0;
    }
}

/// Counts of message bytes, without headers, by the system that moved them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Bytes that were given to transports with their envelopes, by Post and by calls that send at once.
    pub post: u64,
    /// Bytes that Transfer has copied into receive buffers and temporary buffers, has read out of a sender's memory, or has given to
    /// transports in pieces.
    pub transfer: u64,
    /// Bytes of whole messages that Deliver, and sends to the own rank, have copied. What Deliver reads counts under `transfer`.
    pub deliver: u64,
}

/// Why a VC has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The peer has finalized.
    Finalized,
    /// The peer has announced that it ends without having finalized.
    Unfinished,
    /// The peer has sent something invalid. Holds a description.
    Corrupt(String),
    /// The transport has reported a failure. Holds its description.
    Link(String),
}

impl Ended {
    /// The reason that errors give for [`Ended::Finalized`].
    pub const FINALIZED: &'static str = "the peer has finalized";
    /// The reason that errors give for [`Ended::Unfinished`].
    pub const UNFINISHED: &'static str = "the peer has ended without having finalized";
}

/// The engine's one row. Every system reads and writes it.
#[derive(Component, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Progress {
    /// The systems that have something to do. The executor reads it before each system.
    pub pending: Pending,
    /// Arrival rows in use, from row 0.
    pub arrivals: u32,
    /// Finished CARs that wait for Complete.
    pub finished: Queue,
    /// Free rows of CARs and their requests.
    pub free_cars: FreeList,
    /// Receives from any source, oldest first. Unused while posted receives are indexed.
    pub wildcard: Queue,
    /// Incremented on each enqueue into the wildcard queue.
    pub counter: u32,
    /// The highest value of `counter`. When it is reached, the receives are renumbered.
    pub counter_max: u32,
    /// Whether matching uses lists or an index.
    pub matching: Matching,
    /// How receives are posted: bits of [`posting`]. 0 is the frequent case: receives are in lists.
    pub posting: u8,
    /// The index of posted receives, which is used once a list was long.
    pub posted: Box<PostedIndex>,
    /// New receives, which Match has yet to compare with the unexpected messages.
    pub new_receives: Queue,
    /// State of the transport that matches messages itself: which receives it has, and which messages are deferred for it.
    pub provider: Box<ProviderMatching>,
    /// Receives that are matched with an RTS and wait for SupplyBuffers.
    pub offers: Queue,
    /// Receives whose message this side reads out of the sender's memory.
    pub reads: Queue,
    /// Segments of operations with many runs, each with the row of the data CAR that holds the segment's address.
    pub run_lists: Vec<(Row, Arc<Segment>)>,
    /// Receives that are matched with a message in a temporary buffer and wait for Transfer.
    pub copies: Queue,
    /// Eager messages in several frames that are still arriving. Few.
    pub streams: Vec<Stream>,
    /// Bytes that were copied out of temporary buffers so far.
    pub kept_copied: u64,
    /// Bytes of messages that have been moved so far, by the system that moved them.
    pub moved: Moved,
    /// Receives of all VCs that answer an offer (RTS). They need no credit, so they do not wait behind sends that need it.
    pub replies: Queue,
    /// Control frames that wait to leave.
    pub control: ControlFrames,
    /// Graphs of CARs.
    pub graphs: Box<Graphs>,
    /// VCs with something to send, linked through the VC rows.
    pub senders: Queue,
    /// Whether a row with a priority above 0 may be in a queue. If not, priorities are not looked at.
    pub urgent: bool,
    /// Number of passes in which priorities were used.
    pub turns: u32,
    /// Priorities above 0 of offers among the unexpected messages, by (VC, message id).
    pub offered: HashMap<(Row, Row), u8, ahash::RandomState>,
    /// Work since the previous tick. See [`crate::Work`].
    pub work: Tally,
    /// The time that the caller gave, ns since the engine was built.
    pub now_ns: u64,
    /// Number of operations that hold registered memory.
    pub registered: u32,
    /// Memory that is registered with transports.
    pub registrations: Box<Registrations>,
    /// Number of requests that are not done.
    pub active: u32,
    /// Number of requests of open scopes whose rows are not free yet.
    pub scoped: u32,
    /// Messages that arrived before their receive.
    pub unexpected: UnexpectedQueue,
    /// Free buffer rows by size class.
    pub free_buffers: [FreeList; Buffer::CLASSES],
    /// Free buffer rows of all classes.
    pub free_buffer_rows: u32,
    /// Buffer rows that are reserved.
    pub reserved_buffers: ReservedBuffers,
    /// Bytes of storage in free buffer rows.
    pub pool_bytes: u64,
    /// Supplies that have not got all of their space yet, oldest first.
    pub supplies: Queue,
    /// Free supply rows.
    pub free_supplies: FreeList,
    /// Temporary buffers that supplies hold.
    pub forward_bytes: ForwardBytes,
    /// Whether callbacks that were added after the end of their request wait for Complete.
    pub late: bool,
    /// Whether requests may end without Complete, where it has nothing else to do for them. They may not if the application has systems:
    /// those see requests end in Complete. The engine writes it together with the choice whether Deliver may run.
    pub ends_at_once: bool,
    /// What is to be done for other threads when the systems have run, in this order.
    pub owed_to_threads: Vec<OwedToThread>,
    /// The credit that each peer may have for messages and offers that this side keeps.
    pub window: Credit,
    /// VCs whose peer has used up its envelope credit, plus deferred messages. While it is not zero, posting a receive checks whether
    /// to grant credit.
    pub starved_peers: u32,
    /// Whether a probe has found no message since the last pass. For grants of credit this counts as a posted receive.
    pub probing: bool,
    /// Procs that operations need and that were never contacted.
    pub to_contact: Vec<u32>,
    /// VCs that have ended, and why.
    pub ended: Vec<(Row, Ended)>,
    /// Calls, and answers to calls, that peers have sent over links.
    pub calls: Vec<CallWord>,
    /// Number of VCs that have failed (rather than ended in an orderly way), and whose failure the application has not acknowledged.
    pub unacknowledged: u32,
    /// Incremented whenever the state of a VC changes, so that a change can be noticed.
    pub vc_changes: u32,
    /// Whether the tables have reached their largest size.
    pub rows_exhausted: bool,
    /// Frames that this tick may still read.
    pub budget: u32,
    /// Frames of each tick that Deliver leaves to DrainCq. Fixed when the engine is built.
    pub drained_min: u32,
    /// The endpoint that DrainCq reads first: the one after the endpoint with which the last pass ran out of arrival rows.
    pub drained_first: u32,
    /// Endpoint and link, if only these are polled; [`NIL`] for all.
    pub only: (u32, u32),
    /// Ticks so far, including the polls of a wait.
    pub ticks: u64,
    /// If receipts or events are recorded: the [stamp](crate::Clock::stamp) after a poll of a wait that found nothing, and the tick of
    /// that poll. Whatever the next poll finds has arrived since.
    pub looked: Option<(u64, u64)>,
    /// The time at which operations were posted, by CAR row. Written by posting.
    pub stamps: Stamps,
    /// Receipts of the operations for which a receipt was requested.
    pub receipts: Receipts,
    /// The type signatures of messages, if types are checked.
    pub signatures: Option<Box<Signatures>>,
    /// How operations on windows have failed at their targets: (row of the request, the first failure). Written with
    /// [`car_flags::FAILED_AT_TARGET`](crate::car_flags::FAILED_AT_TARGET). The next request in the row removes the entry.
    pub refusals: Vec<(Row, Refusal)>,
}

/// How an operation on a window has failed at its target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its bytes are not within the target's part, or its elements are misaligned there.
    OutOfBounds,
    /// A member that holds a lock of the part has failed. The row of the member's VC.
    HolderFailed(Row),
    /// The target has no epoch open in which this proc may access its part.
    NotExposed,
    /// The fabric could not do it. Its message.
    Fabric(String),
}

impl Progress {
    /// Ends a VC at the next look at the world, where what its requests and its peer are told is decided.
    #[cold]
    pub fn end_vc(&mut self, vc: Row, why: Ended) {
        self.ended.push((vc, why));
        self.pending |= Pending::WORLD;
    }

    /// Notes how an operation of the request in a row has failed. The first failure counts.
    pub fn refuse(&mut self, row: Row, refusal: Refusal) {
        if self.refusals.iter().all(|(of, _)| *of != row) {
            self.refusals.push((row, refusal));
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Progress {
            pending: Pending::NONE,
            arrivals: 0,
            finished: Queue::EMPTY,
            free_cars: FreeList::EMPTY,
            wildcard: Queue::EMPTY,
            counter: 0,
            counter_max: u32::MAX,
            matching: Matching::Auto,
            posting: 0,
            posted: Box::new(PostedIndex::new(0)),
            new_receives: Queue::EMPTY,
            provider: Box::default(),
            offers: Queue::EMPTY,
            reads: Queue::EMPTY,
            run_lists: Vec::new(),
            copies: Queue::EMPTY,
            streams: Vec::new(),
            kept_copied: 0,
            moved: Moved::default(),
            replies: Queue::EMPTY,
            control: ControlFrames::default(),
            graphs: Box::default(),
            senders: Queue::EMPTY,
            urgent: false,
            turns: 0,
            offered: HashMap::with_hasher(ahash::RandomState::with_seed(0)),
            work: Tally::default(),
            now_ns: 0,
            registered: 0,
            registrations: Box::new(Registrations::new(&Limits::default())),
            active: 0,
            scoped: 0,
            unexpected: UnexpectedQueue::default(),
            free_buffers: [FreeList::EMPTY; Buffer::CLASSES],
            free_buffer_rows: 0,
            reserved_buffers: ReservedBuffers::default(),
            pool_bytes: 0,
            supplies: Queue::EMPTY,
            free_supplies: FreeList::EMPTY,
            forward_bytes: ForwardBytes { used: 0, bound: crate::limits::FORWARD_BYTES as u64, most: 0 },
            late: false,
            ends_at_once: true,
            owed_to_threads: Vec::new(),
            window: CREDIT_INITIAL,
            starved_peers: 0,
            probing: false,
            to_contact: Vec::new(),
            ended: Vec::new(),
            calls: Vec::new(),
            unacknowledged: 0,
            vc_changes: 0,
            rows_exhausted: false,
            budget: crate::limits::TICK_BUDGET as u32,
            drained_min: 0,
            drained_first: 0,
            only: (NIL, NIL),
            ticks: 0,
            looked: None,
            stamps: Stamps::default(),
            receipts: Receipts::default(),
            signatures: None,
            refusals: Vec::new(),
        }
    }
}

impl Progress {
    /// The row of an engine with these limits, in a world of `procs` procs.
    pub fn new(limits: &Limits, procs: u32) -> Self {
        let matching = limits.matching;
        let mut unexpected = UnexpectedQueue::default();
        unexpected.seed = limits.hash_seed;
        unexpected.walk_max = match matching {
            Matching::Auto => WALK_MAX,
            Matching::Lists => u32::MAX,
            Matching::Index => 0,
        };
        Progress {
            window: Credit::window(limits, procs.saturating_sub(1)),
            counter_max: u32::MAX >> (32 - limits.wildcard_bits),
            matching,
            posting: if matching == Matching::Index { posting::INDEXED } else { 0 },
            offered: HashMap::with_hasher(ahash::RandomState::with_seed(limits.hash_seed as usize)),
            forward_bytes: ForwardBytes { used: 0, bound: limits.forward_bytes as u64, most: 0 },
            registrations: Box::new(Registrations::new(limits)),
            posted: Box::new(PostedIndex::new(limits.hash_seed)),
            unexpected,
            ..Progress::default()
        }
    }

    /// Whether posted receives are in the index rather than in the lists.
    #[inline(always)]
    pub fn indexed(&self) -> bool {
        self.posting & posting::INDEXED != 0
    }

    /// Whether the engine is closed.
    #[inline(always)]
    pub fn closed(&self) -> bool {
        self.posting & posting::CLOSED != 0
    }

    /// Whether there is a transport that matches messages itself.
    #[inline(always)]
    pub fn has_provider(&self) -> bool {
        self.posting & posting::PROVIDER != 0
    }

    /// The tick and the time.
    #[inline(always)]
    pub fn stamp(&self) -> Stamp {
        Stamp { tick: self.ticks, now_ns: self.now_ns }
    }

    /// Updates [`Progress::free_buffer_rows`] from the free lists, and the reserved rows from `rows`, the number of buffer rows in all.
    pub fn count_free_buffers(&mut self, rows: usize) {
        self.free_buffer_rows = self.free_buffers.iter().map(|list| list.count).sum();
        let control = (rows / 16).min(CONTROL_BUFFERS) as u32;
        self.reserved_buffers = ReservedBuffers { all: control + (rows / 8).min(FORWARD_BUFFERS) as u32, control };
    }
}
