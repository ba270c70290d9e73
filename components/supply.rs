//! Buffer supply: whose memory holds the bytes of a forwarding operation, and how much of it has been handed out (reference:
//! communication agent notes, "buffer dependencies" and "grabbing or providing buffers").
//!
//! A [`Supply`] links a receive CAR, which fills the memory, with a send CAR of the same graph, which empties it. A [`Question`] has
//! all that the choice of the supplier depends on; a [`Decision`] is the answer.

use crate::limits::REGISTER_MIN;
use crate::queue::linked;
use crate::{NIL, Row, Span};
use bevy_ecs::component::Component;
use smallvec::SmallVec;

/// What the transport on one side of an operation can do with memory. Derived from the transport's capabilities when it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// It has memory of its own that it can lend to the transport of the other side.
    pub lends: bool,
    /// Memory must be registered with it before use.
    pub registers: bool,
    /// It can send from and receive into several runs at once. Otherwise each part must be one run.
    pub gathers: bool,
    /// Bytes that it copies out of a buffer before a send returns.
    pub copies: u64,
    /// The smallest space with which it makes progress, bytes.
    pub minimum: u64,
}

impl Abilities {
    /// Whether it can use the memory of others for `bytes` bytes. If it must register memory, that is worthwhile from [`REGISTER_MIN`]
    /// on.
    pub const fn fits(&self, scattered: bool, bytes: u64) -> bool {
        (self.gathers || !scattered) && (!self.registers || bytes >= REGISTER_MIN as u64)
    }
}

/// Where the application has the bytes of an operation, or wants them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Nowhere: the bytes are only forwarded, or no receive is posted for them.
    Nowhere,
    /// In one contiguous run, or in several.
    Runs,
    /// At the places that a datatype describes.
    Scattered,
}

/// When forwarded bytes are combined with the elements of the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    /// Never.
    Never,
    /// When they arrive. The result is in the application's segment, and is forwarded.
    Receive,
    /// When they leave. The application's segment is the other operand and is not changed.
    Send,
}

/// All that the choice of the supplier depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The transport over which the bytes arrive; `None` for a send alone.
    pub receive: Option<Abilities>,
    /// The transport over which the bytes leave; `None` for a receive alone.
    pub send: Option<Abilities>,
    /// See [`Target`].
    pub target: Target,
    /// See [`Combine`].
    pub combine: Combine,
    /// Bytes of the operation.
    pub bytes: u64,
    /// The most bytes that arrive in one frame.
    pub frame: u64,
    /// Whether the receiving transport can read the bytes in the sender's memory.
    pub readable: bool,
}

/// Who supplies the memory: the four cases of the notes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Supplier {
    /// The transport over which the bytes leave.
    Sender,
    /// The transport over which the bytes arrive.
    Receiver,
    /// The application: its own buffer.
    Segment,
    /// The engine's pool of temporary buffers.
    Temporary,
}

/// How the bytes arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Means {
    /// In one frame.
    Whole,
    /// In pieces that this side asks for.
    Pieces,
    /// Read out of the sender's memory.
    Read,
}

/// The answer to a [`Question`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// See [`Supplier`].
    pub supplier: Supplier,
    /// See [`Means`].
    pub means: Means,
}

/// The state of a supply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SupplyState {
    /// In the free list.
    #[default]
    Free,
    /// In the queue. Its receive has not been matched, so it gets no space yet.
    Waiting,
    /// In the queue. Its receive is ready for space.
    Ready,
    /// In the queue. All of its space has been handed out.
    Satisfied,
    /// In the queue. Its operation no longer uses it, and SupplyBuffers takes its space back.
    Over,
}

/// A run of memory that was handed out and from which some bytes have not left yet.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// The memory.
    pub span: Span,
    /// The row of the temporary buffer; [`NIL`] for memory that a transport has lent.
    pub buffer: Row,
}

/// The memory between a receive CAR and a send CAR of a graph. A row of the supply table.
///
/// Written when the operation starts (all fields), by SupplyBuffers (`granted`, `returned`, `group`, `state`) and by Transfer
/// (`filled`, `emptied`).
#[derive(Component, Clone, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Supply {
    /// The receive CAR, which fills the memory.
    pub from: Row,
    /// Its VC.
    pub from_vc: Row,
    /// The send CAR, which empties it.
    pub to: Row,
    /// Its VC.
    pub to_vc: Row,
    /// The next row of the list that this row is in.
    pub next: Row,
    /// See [`SupplyState`].
    pub state: SupplyState,
    /// See [`Supplier`]; never [`Supplier::Segment`].
    pub supplier: Supplier,
    /// Bytes of the operation.
    pub bytes: u64,
    /// The smallest space with which both transports make progress, bytes. No grant is smaller, except the last.
    pub minimum: u64,
    /// Bytes of space that were handed out since the start.
    pub granted: u64,
    /// Bytes that have arrived in this space.
    pub filled: u64,
    /// Bytes that have left from this space.
    pub emptied: u64,
    /// Bytes of this space that were taken back.
    pub returned: u64,
    /// The runs that are handed out and in use, in the order of their bytes.
    pub group: SmallVec<[Granted; 4]>,
}

linked!(Supply);

impl Default for Supply {
    fn default() -> Self {
        Supply {
            from: NIL,
            from_vc: NIL,
            to: NIL,
            to_vc: NIL,
            next: NIL,
            state: SupplyState::Free,
            supplier: Supplier::Temporary,
            bytes: 0,
            minimum: 1,
            granted: 0,
            filled: 0,
            emptied: 0,
            returned: 0,
            group: SmallVec::new(),
        }
    }
}

/// What a temporary buffer is needed for. The pool reserves some buffers for the more urgent needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A message for which no receive is posted.
    Unexpected,
    /// An operation that forwards bytes.
    Forward,
    /// A message of the engine's own protocols.
    Control,
}
