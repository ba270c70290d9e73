//! The CAR: one unit of communication work (reference: communication agent notes, "CARs").

use crate::{NIL, Row, Span, Stretch};
use bevy_ecs::component::Component;

/// What a CAR does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CarKind {
    /// Nothing: the row is free.
    #[default]
    None,
    /// An envelope to send. Its data is its own span, or the data CARs chained under it.
    Send,
    /// An envelope to receive, likewise.
    Receive,
    /// One run of bytes under an envelope.
    Data,
    /// All bytes under an envelope, in the places that a datatype says. See [`Car::stretch`].
    Layout,
    /// Under the envelope of a message of a graph that is passed on as it comes: its bytes are where
    /// [`Blocks`](crate::Blocks) say.
    Passage,
    /// A computation in a graph. See [`crate::Node::computation`].
    Computation,
    /// The request of a graph; the graph's nodes are CARs of their own.
    Graph,
}

/// Where a CAR stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CarState {
    /// In the free list.
    #[default]
    Free,
    /// In its VC's send queue.
    Queued,
    /// Its RTS has left; the CTS is awaited.
    Offered,
    /// In its VC's data queue: pieces are leaving.
    Sending,
    /// A new receive that has yet to look at the unexpected messages.
    New,
    /// In a posted queue.
    Posted,
    /// A receive that is to be given to a transport that matches by itself; one from any source is [`CarState::Posted`].
    ToProvider,
    /// A receive at such a transport; one from any source is [`CarState::Posted`] and has [`car_flags::AT_PROVIDER`].
    AtProvider,
    /// A receive that was asked back from it: in no queue, and not back yet.
    Recalled,
    /// Paired with a message whose bytes have arrived.
    Matched,
    /// Paired; pieces are arriving.
    Receiving,
    /// Paired; the message is being read out of the sender's memory.
    Reading,
    /// The transport moves the message between the memory of sender and receiver, on either side, and says when it is done.
    Direct,
    /// Of a receive in a graph: pieces are arriving, as far as its sender was told to go.
    Passing,
    /// Of a send in a graph: all has left that has come and was asked for.
    Parked,
    /// In a graph: it has not started, or is done.
    Waiting,
    /// In the list of nodes of graphs that Post starts.
    Staged,
    /// In the list that Complete empties.
    Finished,
    /// A data CAR under an envelope, which holds the state of both.
    Chained,
    /// An envelope whose request is done and has not been taken: `source`, `tag` and `done` are its status.
    Done,
}

/// Bits of [`Car::flags`].
pub mod car_flags {
    /// The message was longer than the receive.
    pub const TRUNCATED: u16 = 1;
    /// The operation was cancelled.
    pub const CANCELLED: u16 = 1 << 1;
    /// The peer failed before the operation was done.
    pub const PEER_FAILED: u16 = 1 << 2;
    /// The engine was finalized first.
    pub const FINALIZED: u16 = 1 << 3;
    /// A send in ready mode met no posted receive.
    pub const NOT_READY: u16 = 1 << 4;
    /// Of a receive: it takes any source, so it waits in the wildcard queue.
    pub const ANY_SOURCE: u16 = 1 << 5;
    /// Of a receive from any source: it is at a transport that matches by itself, too.
    pub const AT_PROVIDER: u16 = 1 << 6;
    /// Of a send: its sender says that the receive is posted.
    pub const READY: u16 = 1 << 7;
    /// Of a send: it is done only when a receive has been paired with it.
    pub const SYNCHRONOUS: u16 = 1 << 8;
    /// A transport has been given its first frame, so its row state is its own and not that of a CAR before it.
    pub const STARTED: u16 = 1 << 9;
    /// Of a row in a data queue: a transport has refused a frame of it that it may have taken in part.
    pub const REFUSED: u16 = 1 << 10;
    /// The message is of another type than the receive.
    pub const OTHER_TYPE: u16 = 1 << 11;
    /// Of a receive in a graph: the message is shorter than all members must send.
    pub const SHORT: u16 = 1 << 12;
    /// Of an operation in a graph: a member cannot go on with it.
    pub const ABANDONED: u16 = 1 << 13;
    /// Of a receive that goes on as it comes: it has asked for a part of its message.
    pub const ASKED: u16 = 1 << 14;
    /// Of an operation on a window: it is not within the target's part.
    pub const OUT_OF_BOUNDS: u16 = 1 << 15;
    /// Those that say how an operation failed.
    pub const ERRORS: u16 =
        TRUNCATED | CANCELLED | PEER_FAILED | FINALIZED | NOT_READY | OTHER_TYPE | SHORT | ABANDONED | OUT_OF_BOUNDS;
    /// Those that make an envelope ask before its data is sent, however short it is.
    pub const ASKING: u16 = READY | SYNCHRONOUS;
}

/// A row of CAR work; one cache line.
///
/// Written by posting (all fields), by Match (`source`, `tag`, `done`, `state`), by Transfer (`done`,
/// `state`) and by Complete (freed).
#[derive(Component, Clone, Copy, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
#[repr(C, align(64))]
pub struct Car {
    /// Context word of the communicator.
    pub context: u32,
    /// Receive: the rank it takes from or [`crate::limits::ANY`], after the match the sender. Send: own rank.
    pub source: u32,
    /// The tag, or [`crate::limits::ANY`] until the match.
    pub tag: u32,
    /// Next row of the list it is in.
    pub next: Row,
    /// First data CAR under this envelope, next one under a data CAR.
    pub chain: Row,
    /// Value of the wildcard counter when a receive was posted: the order between a VC's queue and the wildcard queue.
    pub counter: u32,
    /// The bytes to send or to fill; unused where data CARs are chained.
    pub span: Span,
    /// Bytes moved. Once complete, the length of the message.
    pub done: u64,
    /// The row of the request whose counter it decrements: an envelope's own, unless it is part of a larger graph.
    pub request: Row,
    /// The VC: row of the proc; [`NIL`] for a receive from any source until the match.
    pub vc: Row,
    // In this order the fields from here on are written by two stores where a receive is posted.
    /// See [`car_flags`].
    pub flags: u16,
    /// See [`CarState`].
    pub state: CarState,
    /// See [`CarKind`].
    pub kind: CarKind,
    /// Of a row in a send queue: the priority that it leaves with, which is its own or that of a later one of its context.
    pub leaves_with: u16,
    /// Priority of the message: of a send as it was posted, of a receive as the offer says that it was paired with.
    pub priority: u8,
    /// Of a send: its graph has failed and has left it. Once its receiver asks for it, it tells that no more will come.
    pub is_left: bool,
}

const _: () = assert!(size_of::<Car>() == 64);

impl Default for Car {
    fn default() -> Self {
        Car {
            context: 0,
            source: 0,
            tag: 0,
            next: NIL,
            chain: NIL,
            counter: 0,
            span: Span::EMPTY,
            done: 0,
            request: NIL,
            vc: NIL,
            state: CarState::Free,
            kind: CarKind::None,
            priority: 0,
            is_left: false,
            flags: 0,
            leaves_with: 0,
        }
    }
}

impl Car {
    /// The bytes of a data CAR of kind [`CarKind::Layout`], whose span is the address of their segment; `None` for any
    /// other, and if they were taken away.
    #[expect(unsafe_code, reason = "an address in a column")]
    #[inline]
    pub fn stretch(&self) -> Option<Stretch> {
        // SAFETY: posting makes the span of a CAR of this kind by `Stretch::as_span`, and what ends a loan empties it.
        if self.kind == CarKind::Layout { unsafe { Stretch::of_span(self.span) } } else { None }
    }
}

/// The cold column of a CAR row: what only large messages and errors need.
#[derive(Component, Clone, Copy, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Large {
    /// Bytes of the message.
    pub length: u64,
    /// Bytes of it that the receiver takes. Written when the RTS is matched, and at the sender when the CTS arrives.
    pub wanted: u64,
    /// Of a receive that has failed because of its message's length: bytes that it has room for. Written when it ends.
    pub room: u64,
    /// The peer's CAR row: of the sender in a matched receive, of the receiver in a send after its CTS.
    pub peer: Row,
    /// See [`Body`].
    pub body: Body,
    /// See [`Way`].
    pub way: Way,
}

/// How the envelope of a send leaves. Written once, when it is decided and paid for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Way {
    /// It is not decided.
    #[default]
    Undecided,
    /// The message leaves with its envelope.
    Eager,
    /// The envelope asks first.
    Offered,
    /// The message leaves in parts, the first of them with its envelope.
    Parts,
    /// The message leaves with its envelope, and its acknowledgement is awaited.
    Synchronous,
}

/// Where the bytes of a message are that does not go straight to its receive, and how they get there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Body {
    /// Their sender has them, and is asked for them.
    #[default]
    AtSender,
    /// The receiver reads them out of the sender's memory.
    Readable {
        /// Where they are in the sender's process.
        address: u64,
    },
    /// They are in a temporary of this side; [`NIL`] if there are none.
    Kept {
        /// The buffer row.
        buffer: Row,
    },
    /// The transport may move them.
    Movable,
    /// The transport moves them. See [`CarState::Direct`].
    Moving {
        /// Its turn among the messages of the connection that are moved so.
        turn: u32,
    },
    /// The message is of a graph, and goes on as it comes: its receiver says several times how far its sender may go.
    Passing,
}

impl Default for Large {
    fn default() -> Self {
        Large::of(0)
    }
}

impl Large {
    /// Whether a transport has the place of a CAR in this state: that of a receive from before its answer leaves.
    #[inline]
    pub const fn is_lent(&self, state: CarState) -> bool {
        matches!(state, CarState::Direct) || matches!(state, CarState::Queued) && self.is_moving()
    }

    /// Whether its transport moves the message.
    #[inline]
    pub const fn is_moving(&self) -> bool {
        matches!(self.body, Body::Moving { .. })
    }

    /// Whether its bytes leave otherwise than in pieces out of its buffer.
    #[inline]
    pub const fn is_apart(&self) -> bool {
        !matches!(self.body, Body::AtSender)
    }

    /// Of a message of so many bytes, which is wanted as a whole.
    #[inline]
    pub const fn of(length: u64) -> Self {
        Large { length, wanted: length, room: 0, peer: NIL, body: Body::AtSender, way: Way::Undecided }
    }
}

/// Rows are recycled, never removed: removing one would renumber another. And nobody but the engine writes them, since they
/// have addresses of memory in use.
///
/// It runs before anything is done, also where a component is replaced or lent to be modified. Components of rows are
/// immutable to bevy, so there is no other way to one for writing.
///
/// # Panics
/// Always.
pub fn refuse_removal(_: bevy_ecs::world::DeferredWorld<'_>, context: bevy_ecs::lifecycle::HookContext) {
    panic!(
        "entity {:?} is a row of the engine's tables: rows are recycled, never despawned nor stripped of a component, and \
         written by the engine alone",
        context.entity
    );
}
