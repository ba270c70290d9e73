//! Buffer supply: whose memory the bytes of an operation go through, and how much of it has been handed out (reference:
//! communication agent notes, "buffer dependencies" and "grabbing or providing buffers").
//!
//! A [`Supply`] links the side that fills the memory, a receive CAR, with the side that empties it, a send CAR of the same graph.
//! [`Question`] is what the choice of the supplier depends on, [`Decision`] the answer.

use crate::limits::REGISTER_MIN;
use crate::{NIL, Row, Span};
use bevy_ecs::component::Component;
use smallvec::SmallVec;

/// What the method on one side of an operation can do with memory. Made of a transport's capabilities when it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// It has memory of its own that it can lend to the other side.
    pub lends: bool,
    /// Memory must be registered with it before use.
    pub registers: bool,
    /// It takes and fills several runs as one; else each part is one run.
    pub gathers: bool,
    /// Bytes that it copies out of a buffer before a send returns.
    pub copies: u64,
    /// Fewest bytes of space that it makes progress with.
    pub minimum: u64,
}

impl Abilities {
    /// Whether it can use memory that is not its own for `bytes`: registering pays from [`REGISTER_MIN`] on.
    pub const fn fits(&self, scattered: bool, bytes: u64) -> bool {
        (self.gathers || !scattered) && (!self.registers || bytes >= REGISTER_MIN as u64)
    }
}

/// Where the application wants the bytes of an operation, or has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Nowhere: bytes that are only passed on, or that no receive is posted for.
    Nowhere,
    /// In one run, or in several that are contiguous each.
    Runs,
    /// In the places that a datatype says.
    Scattered,
}

/// On which side of a forward bytes are combined with those of the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    /// Not at all.
    Never,
    /// When they arrive: what is passed on is the result, which is in the segment.
    Receive,
    /// When they leave: the segment is the other operand and must stay as it is.
    Send,
}

/// What the choice depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The method that the bytes come over; `None` for a send alone.
    pub receive: Option<Abilities>,
    /// The method that they leave over; `None` for a receive alone.
    pub send: Option<Abilities>,
    /// See [`Target`].
    pub target: Target,
    /// See [`Combine`].
    pub combine: Combine,
    /// Bytes of the operation.
    pub bytes: u64,
    /// Bytes that arrive in one frame at most.
    pub frame: u64,
    /// The bytes are in memory of their sender that the receiving method can read.
    pub readable: bool,
}

/// Who supplies the memory: the four ways of the notes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Supplier {
    /// The method that the bytes leave over.
    Sender,
    /// The method that they come over.
    Receiver,
    /// The application: its own segment.
    Segment,
    /// The engine's pool.
    Temporary,
}

/// How the bytes get there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Means {
    /// In one frame.
    Whole,
    /// In pieces that are asked for.
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

/// Where a supply stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SupplyState {
    /// In the free list.
    #[default]
    Free,
    /// In the queue; its receive has not been matched, so it gets nothing yet.
    Waiting,
    /// In the queue; its receive is ready for space.
    Ready,
    /// In the queue; all its space has been handed out.
    Satisfied,
    /// In the queue; nobody uses it any more, and SupplyBuffers takes everything back.
    Over,
}

/// A run of memory that was handed out, until all of its bytes have left.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// The memory.
    pub span: Span,
    /// The row of the temporary that it is; [`NIL`] for memory that a method has lent.
    pub buffer: Row,
}

/// Memory between a receive CAR and a send CAR of a graph. A row of the supply table.
///
/// Written by whoever starts the operation (all fields), by SupplyBuffers (`granted`, `returned`, `group`, `state`), by Transfer
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
    /// Next row of the list it is in.
    pub next: Row,
    /// See [`SupplyState`].
    pub state: SupplyState,
    /// See [`Supplier`]: not the application.
    pub supplier: Supplier,
    /// Bytes of the operation.
    pub bytes: u64,
    /// Fewest bytes of space that both methods make progress with, as they agreed: no grant is smaller but the last.
    pub minimum: u64,
    /// Bytes of space that have been handed out since it began.
    pub granted: u64,
    /// Bytes that have arrived in them.
    pub filled: u64,
    /// Bytes that have left.
    pub emptied: u64,
    /// Bytes of space that are free again.
    pub returned: u64,
    /// What was handed out and is in use, in the order of the bytes.
    pub group: SmallVec<[Granted; 4]>,
}

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

/// Who asks for a temporary: the pool keeps some back from the less urgent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A message that nobody has posted a receive for.
    Unexpected,
    /// An operation that passes bytes on.
    Forward,
    /// A message of the engine's own protocols.
    Control,
}
