//! The CAR: one unit of communication work (reference: communication agent notes, "CARs").

use crate::queue::linked;
use crate::{NIL, Row, Span, Stretch};
use bevy_ecs::component::Component;

/// What a CAR does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CarKind {
    /// Nothing: the row is free.
    #[default]
    None,
    /// An envelope to send. Its bytes are in its own span, or in the data CARs chained under it.
    Send,
    /// An envelope to receive. Its buffer is its own span, or the data CARs chained under it.
    Receive,
    /// A data CAR under an envelope: one contiguous run of bytes.
    Data,
    /// A data CAR under an envelope: all bytes of the message, at the places that a datatype describes. See [`Car::stretch`].
    Layout,
    /// A data CAR under an envelope of a graph whose message is forwarded while it arrives. [`Blocks`](crate::Blocks) say where its
    /// bytes are.
    Passage,
    /// A computation in a graph. See [`crate::NodeWork::Computation`].
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
    /// In the send queue of its VC.
    Queued,
    /// The RTS has left. The sender waits for the CTS.
    Offered,
    /// In the data queue of its VC: pieces of the message are leaving.
    Sending,
    /// A new receive. Match has yet to look for it among the unexpected messages.
    New,
    /// In a posted queue.
    Posted,
    /// A receive that waits to be given to a transport with its own matching. A receive from any source is [`CarState::Posted`]
    /// instead.
    ToProvider,
    /// A receive that such a transport has. A receive from any source is [`CarState::Posted`] instead and has
    /// [`car_flags::AT_PROVIDER`].
    AtProvider,
    /// A receive that the engine has asked such a transport to give back. It is in no queue until it comes back.
    Recalled,
    /// A receive that is matched with a message whose bytes have all arrived.
    Matched,
    /// A matched receive: pieces of the message are arriving.
    Receiving,
    /// A matched receive: this side is reading the message out of the sender's memory.
    Reading,
    /// A send or a receive whose message the transport moves straight between the memory of the sender and that of the receiver. The
    /// transport reports when it is done.
    Direct,
    /// A receive in a graph whose message is forwarded while it arrives: pieces are arriving, up to the byte that the sender was
    /// allowed.
    Passing,
    /// A send in a graph. It has sent all bytes that were both available and asked for, and waits for more.
    Parked,
    /// A node of a graph that has started: it waits for other nodes. A request that waits for a graph, or for an operation on boards.
    Waiting,
    /// A node of a graph that is done, or whose graph has not started.
    Resting,
    /// In the list of nodes of graphs that Post starts.
    Startable,
    /// In the list of finished operations that Complete empties.
    Finished,
    /// A data CAR under an envelope. The envelope holds the state of both.
    Chained,
    /// An envelope whose request is done and has not been taken yet. `source`, `tag` and `done` are its status.
    Done,
}

/// Bits of [`Car::flags`].
pub mod car_flags {
    /// The message was longer than the receive. Of an operation on boards: another member has called it with a greater length.
    pub const TRUNCATED: u16 = 1;
    /// The operation was cancelled.
    pub const CANCELLED: u16 = 1 << 1;
    /// The peer failed before the operation was done.
    pub const PEER_FAILED: u16 = 1 << 2;
    /// The engine was finalized before the operation was done.
    pub const FINALIZED: u16 = 1 << 3;
    /// A send in ready mode met no posted receive.
    pub const NOT_READY: u16 = 1 << 4;
    /// Of a receive: it takes any source, so it waits in the wildcard queue.
    pub const ANY_SOURCE: u16 = 1 << 5;
    /// Of a receive from any source: a transport with its own matching has it too.
    pub const AT_PROVIDER: u16 = 1 << 6;
    /// Of a send: it is in ready mode (`MPI_Rsend`), so the receive must be posted.
    pub const READY: u16 = 1 << 7;
    /// Of a send: it is in synchronous mode (`MPI_Ssend`), so it is done only when a receive has matched it.
    pub const SYNCHRONOUS: u16 = 1 << 8;
    /// A transport has been given its first frame, so its row state is its own and not that of a CAR before it.
    pub const STARTED: u16 = 1 << 9;
    /// Of a row in a data queue: the transport has refused one of its frames, and may have taken a part of that frame.
    pub const REFUSED: u16 = 1 << 10;
    /// The message has another type than the receive.
    pub const OTHER_TYPE: u16 = 1 << 11;
    /// Of a receive in a graph: the message is shorter than all members must send. Of an operation on boards: another member has called it
    /// with a smaller length.
    pub const SHORT: u16 = 1 << 12;
    /// Of an operation in a graph or on boards: a member of the communicator cannot go on with it.
    pub const ABANDONED: u16 = 1 << 13;
    /// Of a receive whose message is forwarded while it arrives: it has asked the sender for a part of the message.
    pub const ASKED: u16 = 1 << 14;
    /// Of an operation on a window: it has failed at its target. [`Progress::refusals`](crate::Progress::refusals) says how.
    pub const FAILED_AT_TARGET: u16 = 1 << 15;
    /// The flags that say how an operation failed.
    pub const ERRORS: u16 =
        TRUNCATED | CANCELLED | PEER_FAILED | FINALIZED | NOT_READY | OTHER_TYPE | SHORT | ABANDONED | FAILED_AT_TARGET;
    /// The flags with which the sender sends an RTS before the data, however short the message is.
    pub const ASKING: u16 = READY | SYNCHRONOUS;
}

/// A row of CAR work; one cache line.
///
/// Written by posting (all fields), and by Post, Match, SupplyBuffers, Transfer, Deliver, Complete and the end of a VC (`state` and what
/// belongs to it). The row of a request is freed when the request is taken, and its other rows when it ends.
#[derive(Component, Clone, Copy, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
#[repr(C, align(64))]
pub struct Car {
    /// Context word of the communicator.
    pub context: u32,
    /// Of a receive: the source rank or [`crate::limits::ANY`]; after the match, the rank of the sender. Of a send: the own rank. Of an
    /// operation that has failed with [`car_flags::ABANDONED`]: the rank of the member that does not go on with it.
    pub source: u32,
    /// The tag. Of a receive of any tag: [`crate::limits::ANY`] until the match.
    pub tag: u32,
    /// The next row of the list that this row is in.
    pub next: Row,
    /// Of an envelope: its first data CAR. Of a data CAR: the next one of the same envelope.
    pub chain: Row,
    /// Of a receive: the value of the wildcard counter when it was posted. It orders receives of a VC's queue against receives of the
    /// wildcard queue.
    pub counter: u32,
    /// The bytes to send or to receive into. Unused if data CARs are chained.
    pub span: Span,
    /// How many bytes of its message this side is done with. Those of a receive have reached their place or a temporary, or there was no
    /// room for them; those of a send have left, or the receiver does not want them. So it is the length of the message in the end.
    pub done: u64,
    /// The row of the request whose counter this CAR decrements when it is done. It is the envelope's own row, unless the envelope is
    /// part of a larger graph.
    pub request: Row,
    /// The VC: the row of the proc. [`NIL`] for a receive from any source until the match.
    pub vc: Row,
    // With the fields from here on in this order, posting a receive writes them by two stores.
    /// See [`car_flags`].
    pub flags: u16,
    /// See [`CarState`].
    pub state: CarState,
    /// See [`CarKind`].
    pub kind: CarKind,
    /// Of a row in a send queue: the priority with which it leaves. This is the highest of its own priority and those of later rows
    /// with the same context, which must not overtake it.
    pub leaves_with: u16,
    /// Priority of the message. Of a send: as it was posted. Of a receive: as the matched offer (RTS) says.
    pub priority: u8,
    /// Of a send: its graph has failed and has abandoned it. When the receiver asks for the message, this side answers that no more
    /// bytes come.
    pub is_left: bool,
}

const _: () = assert!(size_of::<Car>() == 64);

linked!(Car);

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
    /// The bytes of a data CAR of kind [`CarKind::Layout`], whose span holds the address of their segment. `None` for any other kind,
    /// and if the bytes were taken away.
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
    /// How many bytes of the message, from its beginning, the receiver reads or asks the sender for, as far as this side knows. At first all
    /// of them, until the receiver has less room (written there when the RTS is matched, and at the sender when the CTS arrives). If the
    /// message is passed on while it arrives: as many as were asked for so far. Of a message in parts: 0, since nobody asks.
    pub wanted: u64,
    /// Of a receive that has failed because of its message's length: the size of its buffer, bytes, which a message of a graph must fill.
    /// Written when the receive ends.
    pub room: u64,
    /// The CAR row on the peer's side. In a matched receive: the sender's. In a send after its CTS: the receiver's.
    pub peer: Row,
    /// See [`Body`].
    pub body: Body,
    /// See [`Way`].
    pub way: Way,
}

/// How the envelope of a send leaves. Written once, when the engine has decided and has spent the credit for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Way {
    /// Not decided yet.
    #[default]
    Undecided,
    /// The message leaves with its envelope.
    Eager,
    /// The envelope leaves first, as an RTS; the data follows when it is asked for.
    Offered,
    /// The message leaves in pieces, the first of them with the envelope.
    Parts,
    /// The message leaves with its envelope. The sender then waits for the acknowledgement.
    Synchronous,
}

/// Where the bytes of a message are, and how they reach their receive, if they do not arrive with the envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Body {
    /// The sender has them, and sends them when it is asked.
    #[default]
    AtSender,
    /// The receiver reads them out of the sender's memory.
    Readable {
        /// Where they are in the sender's process.
        address: u64,
    },
    /// They come in parts, the first of them with the envelope. Nobody asks for them.
    InParts,
    /// They are in a temporary buffer of this side, as far as they have come; [`NIL`] if there are no bytes.
    Kept {
        /// The buffer row.
        buffer: Row,
    },
    /// The transport may move them.
    Movable,
    /// The transport moves them. See [`CarState::Direct`].
    Moving {
        /// Its number in the order of the messages that the transport moves over this connection.
        turn: u32,
    },
    /// The message belongs to a graph and is forwarded while it arrives. Its receiver tells the sender several times how far it may go.
    Passing,
}

impl Default for Large {
    fn default() -> Self {
        Large::of(0)
    }
}

impl Large {
    /// Whether a transport may use the memory of a CAR in this state. For a receive, this begins before its answer leaves.
    #[inline]
    pub const fn is_lent(&self, state: CarState) -> bool {
        matches!(state, CarState::Direct) || matches!(state, CarState::Queued) && self.is_moving()
    }

    /// Whether the transport moves the message ([`Body::Moving`]).
    #[inline]
    pub const fn is_moving(&self) -> bool {
        matches!(self.body, Body::Moving { .. })
    }

    /// Whether the bytes move in another way than in pieces out of the sender's buffer.
    #[inline]
    pub const fn is_apart(&self) -> bool {
        !matches!(self.body, Body::AtSender)
    }

    /// For a message of `length` bytes that the receiver wants as a whole.
    #[inline]
    pub const fn of(length: u64) -> Self {
        Large { length, wanted: length, room: 0, peer: NIL, body: Body::AtSender, way: Way::Undecided }
    }
}

/// The hook that refuses to remove or replace components of the engine's rows. Rows are recycled, never removed: removing one would
/// renumber another. Only the engine writes them, since they hold addresses of memory in use.
///
/// bevy runs the hook before it changes anything, also when a component is replaced or borrowed mutably. Components of rows are
/// immutable to bevy, so no other way to write them exists.
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
