//! The engine's own row: what is pending, the free lists, the queues that belong to no VC.

use crate::credit::Credit;
use crate::index::PostedIndex;
use crate::limits::{CONTROL_BUFFERS, CREDIT_INITIAL, FORWARD_BUFFERS, Limits, Matching, WALK_MAX};
use crate::{
    Buffer, CallWord, ControlFrames, FreeList, Graphs, NIL, ProviderMatching, Queue, Receipts, Registrations, Row,
    Segment, Signatures, Stamp, Stamps, Stream, Tally, UnexpectedQueue,
};
use bevy_ecs::component::Component;
use std::collections::HashMap;
use std::ops::{BitOr, BitOrAssign};
use std::sync::Arc;

/// Bits of [`Progress::posting`].
pub mod posting {
    /// Posted receives are in the index, and not in the lists.
    pub const INDEXED: u8 = 1;
    /// A transport matches by itself: some receives go there.
    pub const PROVIDER: u8 = 2;
    /// The engine takes no calls any more: nothing is posted.
    pub const CLOSED: u8 = 4;
}

/// Which systems have something to do.
// One byte: bits are set in and cleared from single bytes, and what reads more than was just written waits for the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pending(pub u8);

impl Pending {
    /// Nothing.
    pub const NONE: Pending = Pending(0);
    /// Submissions or sends wait.
    pub const POST: Pending = Pending(1);
    /// New arrivals or new receives wait.
    pub const MATCH: Pending = Pending(2);
    /// Arrivals wait for a destination.
    pub const SUPPLY: Pending = Pending(4);
    /// Bytes wait to be moved, or transport space to be released.
    pub const TRANSFER: Pending = Pending(8);
    /// A transport has something.
    pub const DRAIN: Pending = Pending(16);
    /// CARs are finished.
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

/// Bytes of messages, without headers, by what has moved them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Given to transports with their envelopes: by Post, and by calls that send at once.
    pub post: u64,
    /// Put into segments and temporaries, read out of a sender's memory, and given to transports in pieces, by Transfer.
    pub transfer: u64,
    /// Put into segments by Deliver, which does the work of four systems.
    pub deliver: u64,
}

/// How a VC came to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The peer has finalized.
    Finalized,
    /// The peer says that it ends without having finalized.
    Unfinished,
    /// The peer sent what cannot be; in words.
    Corrupt(String),
    /// The transport says so; in words.
    Link(String),
}

impl Ended {
    /// The reason that is told of [`Ended::Finalized`].
    pub const FINALIZED: &'static str = "the peer has finalized";
    /// The reason that is told of [`Ended::Unfinished`].
    pub const UNFINISHED: &'static str = "the peer has ended without having finalized";
}

/// The engine's one row. Every system reads and writes it.
#[derive(Component, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Progress {
    /// Which systems have something to do. Read by the executor before each system.
    pub pending: Pending,
    /// Arrival rows in use, from row 0.
    pub arrivals: u32,
    /// Finished CARs for Complete.
    pub finished: Queue,
    /// Free rows of CARs and their requests.
    pub free_cars: FreeList,
    /// Receives from any source, oldest first. Unused while posted receives are indexed.
    pub wildcard: Queue,
    /// Incremented on each enqueue into the wildcard queue.
    pub counter: u32,
    /// Where the counter ends: receives are numbered anew then.
    pub counter_max: u32,
    /// How posted receives are found.
    pub matching: Matching,
    /// How receives are posted: bits of [`posting`]. 0 is the frequent case, in lists.
    pub posting: u8,
    /// Posted receives by envelope, once they have been deep.
    pub posted: Box<PostedIndex>,
    /// Receives that have yet to look at the unexpected messages.
    pub new_receives: Queue,
    /// Matching that a transport does by itself: what it was given, and which messages are deferred for it.
    pub provider: Box<ProviderMatching>,
    /// Receives that were paired with an RTS and wait for SupplyBuffers.
    pub offers: Queue,
    /// Receives that read their message out of the sender's memory.
    pub reads: Queue,
    /// Lists of runs of operations that have many, each with the row of the data CAR that has its address.
    pub run_lists: Vec<(Row, Arc<Segment>)>,
    /// Receives that were paired with a message in a temporary and wait for Transfer.
    pub copies: Queue,
    /// Messages that are arriving in parts; few.
    pub streams: Vec<Stream>,
    /// Bytes that were copied out of temporaries so far.
    pub kept_copied: u64,
    /// Bytes of messages that have been moved so far, by what has moved them.
    pub moved: Moved,
    /// Receives that answer an offer, of all VCs: they need no credit, and so wait for nothing that does.
    pub replies: Queue,
    /// Control frames that are owed to peers.
    pub control: ControlFrames,
    /// Graphs of CARs.
    pub graphs: Box<Graphs>,
    /// VCs with something to send, linked through the VC rows.
    pub senders: Queue,
    /// Whether a priority above 0 may wait in a queue: else nobody looks at priorities.
    pub urgent: bool,
    /// Passes in which priorities mattered.
    pub turns: u32,
    /// Priorities above 0 of offers in the unexpected queue, by (VC, message id).
    pub offered: HashMap<(Row, Row), u8, ahash::RandomState>,
    /// Since the tick before: see [`crate::Work`].
    pub work: Tally,
    /// The clock as the caller gave it, ns since the engine was built.
    pub now_ns: u64,
    /// Operations with memory that is registered for them.
    pub registered: u32,
    /// Memory that is registered with transports.
    pub registrations: Box<Registrations>,
    /// Requests that are not done.
    pub active: u32,
    /// Requests of open scopes that are not free.
    pub scoped: u32,
    /// Messages that arrived before their receive.
    pub unexpected: UnexpectedQueue,
    /// Free buffer rows by size class.
    pub free_buffers: [FreeList; Buffer::CLASSES],
    /// Free buffer rows of all classes.
    pub free_buffer_rows: u32,
    /// Buffer rows that unexpected messages may not take: the first number is kept for operations that pass bytes on, and the second
    /// one, a part of the first, for control frames.
    pub held_buffers: [u32; 2],
    /// Bytes of storage in free buffer rows.
    pub pool_bytes: u64,
    /// Supplies that have not got all their space yet, oldest first.
    pub supplies: Queue,
    /// Free supply rows.
    pub free_supplies: FreeList,
    /// Bytes of temporaries in the hands of supplies, and how many they may be.
    pub forward_bytes: [u64; 2],
    /// The most that there have been at a time.
    pub forward_bytes_most: u64,
    /// Callbacks of requests that were done before wait for Complete.
    pub late: bool,
    /// Requests done that other threads await; [`NIL`] for a call of another thread that is next in the inbound queue.
    pub answers: Vec<Row>,
    /// What each peer may have outstanding here.
    pub window: Credit,
    /// VCs whose peer has used up its envelope credit, plus deferred messages. While it is not zero, posting a receive checks whether
    /// to grant credit.
    pub starved_peers: u32,
    /// Whether a probe has found nothing since the last pass: as good as a receive that is posted.
    pub probing: bool,
    /// Procs that submissions want to talk to for the first time.
    pub to_contact: Vec<u32>,
    /// VCs that have ended, and why.
    pub ended: Vec<(Row, Ended)>,
    /// What peers have said of links that they have called over.
    pub calls: Vec<CallWord>,
    /// VCs that have failed, and not in order, and whose failure nobody has acknowledged.
    pub unacknowledged: u32,
    /// Incremented whenever the state of a VC changes, for those who watch.
    pub vc_changes: u32,
    /// The tables are as large as they may become.
    pub rows_exhausted: bool,
    /// Frames that this tick may still read.
    pub budget: u32,
    /// Frames of each tick that Deliver leaves to DrainCq. Fixed when the engine is built.
    pub drained_min: u32,
    /// The endpoint that DrainCq reads first: the one behind that which has had the last of a pass's room.
    pub drained_first: u32,
    /// Poll only this endpoint and link; [`NIL`] for all.
    pub only: (u32, u32),
    /// Ticks so far, the looks of a wait included.
    pub ticks: u64,
    /// Where somebody watches: the [stamp](crate::Clock::stamp) after a look of a wait that has found nothing, and the tick of that
    /// look. What the next look finds has come since.
    pub looked: Option<(u64, u64)>,
    /// When operations were posted, by CAR row. Written by posting.
    pub stamps: Stamps,
    /// Receipts of operations, where they were asked for.
    pub receipts: Receipts,
    /// Types of messages, if they are checked.
    pub signatures: Option<Box<Signatures>>,
    /// Why a fabric could not do the operation of a request, by the request's row. The next request in the row forgets it.
    pub refusals: Vec<(Row, String)>,
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
            held_buffers: [0; 2],
            pool_bytes: 0,
            supplies: Queue::EMPTY,
            free_supplies: FreeList::EMPTY,
            forward_bytes: [0, crate::limits::FORWARD_BYTES as u64],
            forward_bytes_most: 0,
            late: false,
            answers: Vec::new(),
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
    /// The row of an engine with these limits, in a world of so many procs.
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
            forward_bytes: [0, limits.forward_bytes as u64],
            registrations: Box::new(Registrations::new(limits)),
            posted: Box::new(PostedIndex::new(limits.hash_seed)),
            unexpected,
            ..Progress::default()
        }
    }

    /// Whether posted receives are in the index, and not in the lists.
    #[inline(always)]
    pub fn indexed(&self) -> bool {
        self.posting & posting::INDEXED != 0
    }

    /// Whether the engine takes no calls any more.
    #[inline(always)]
    pub fn closed(&self) -> bool {
        self.posting & posting::CLOSED != 0
    }

    /// Whether there is a transport that matches by itself.
    #[inline(always)]
    pub fn has_provider(&self) -> bool {
        self.posting & posting::PROVIDER != 0
    }

    /// What the clocks say.
    #[inline(always)]
    pub fn stamp(&self) -> Stamp {
        Stamp { tick: self.ticks, now_ns: self.now_ns }
    }

    /// Counts the free buffer rows of all classes, for [`Progress::free_buffer_rows`], of `rows` in all.
    pub fn count_free_buffers(&mut self, rows: usize) {
        self.free_buffer_rows = self.free_buffers.iter().map(|list| list.count).sum();
        let control = (rows / 16).min(CONTROL_BUFFERS) as u32;
        self.held_buffers = [control + (rows / 8).min(FORWARD_BUFFERS) as u32, control];
    }
}
