//! Messages of a graph that consist of several parts. Some parts are forwarded to other ranks while they arrive. See
//! `systems/protocols/graph/blocks.rs`.

use crate::{Combine, NIL, Reduction, Row, Side, Span, Supplier};
use std::fmt;

/// The messages of one graph that consist of parts.
#[derive(Default)]
pub struct Blocks {
    /// The incoming messages, indexed by [`NodeWork::Incoming`](crate::NodeWork::Incoming).
    pub incoming: Box<[IncomingPassage]>,
    /// The outgoing messages, indexed by [`NodeWork::Outgoing`](crate::NodeWork::Outgoing).
    pub outgoing: Box<[OutgoingPassage]>,
    /// Parts of incoming messages.
    pub inlets: Box<[Inlet]>,
    /// The reductions of [`Computation::Apply`](crate::Computation::Apply), indexed by its number.
    pub operations: Box<[Reduction]>,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Blocks { incoming, outgoing, inlets, operations } = self;
        write!(f, "Blocks({incoming:?}, {outgoing:?}, {inlets:?}, {} operations)", operations.len())
    }
}

/// A message that consists of parts, one after another.
#[derive(Debug)]
pub struct Passage {
    /// The row of the message's CAR. Written when the graph's rows are taken.
    pub row: Row,
    /// Bytes of all parts.
    pub bytes: u64,
    /// The parts, in order.
    pub parts: Box<[Part]>,
    /// Index of the part that contains the next byte. Reset when the graph starts, then written by Transfer.
    pub at: u32,
}

/// A message that comes in.
///
/// `told` and `carried` are reset when the graph starts. Then `told` is written when an answer is queued, and `carried` by Transfer.
#[derive(Debug)]
pub struct IncomingPassage {
    /// The message.
    pub passage: Passage,
    /// If parts of it are reduced: room for a few elements.
    pub scratch: Span,
    /// How many bytes the sender was allowed to send before the answer (CTS) that is still in the send queue. Bytes from the start of
    /// the message.
    pub told: u64,
    /// Bytes in `scratch` of an element that has arrived only in part.
    pub carried: usize,
}

/// A message that leaves.
///
/// `missing`, `opened` and `begun` are reset when the graph starts. Then `missing` and `begun` are written by Transfer, and `opened` when
/// the wait ends.
#[derive(Debug)]
pub struct OutgoingPassage {
    /// The message.
    pub passage: Passage,
    /// If it leaves as a whole: the memory where its parts are packed. [`Span::EMPTY`] if it leaves while its parts arrive.
    pub packed: Span,
    /// Whether it leaves as a whole.
    pub is_whole: bool,
    /// How many of its bytes are forwarded from incoming messages.
    pub passed: u64,
    /// How many bytes to be forwarded have not arrived yet.
    pub missing: u64,
    /// Whether its wait for incoming messages is over. It is over when the first envelope that it forwards has come; for a message that
    /// leaves as a whole, when all bytes have come.
    pub opened: bool,
    /// Length of the piece that the transport may have taken only in part, bytes; 0 if there is no such piece.
    pub begun: u64,
}

/// A part of a message.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Offset of its first byte in the message.
    pub start: u64,
    /// Its length, bytes.
    pub bytes: u64,
    /// What kind of part it is.
    pub what: PartKind,
}

/// The kind of a part.
#[derive(Clone, Copy, Debug)]
pub enum PartKind {
    /// Part of an incoming message: the index of its [`Inlet`].
    Inlet(u32),
    /// Part of an outgoing message: bytes of the application.
    Given(Span),
    /// Part of an outgoing message: bytes that are forwarded from the inlet of this index.
    Passed(u32),
}

/// Where the bytes of an incoming part go.
#[derive(Debug)]
pub struct Inlet {
    /// The incoming message: its index in [`Blocks::incoming`].
    pub from: u32,
    /// The smallest space with which both connections, the incoming and the outgoing one, make progress. Bytes.
    pub minimum: u32,
    /// The application's elements. Without an operation the bytes go there; with an operation they are its other operand.
    /// [`Span::EMPTY`] if there are none.
    pub segment: Span,
    /// When the application's elements are combined with the incoming ones.
    pub combine: Combine,
    /// The operation that combines them; `None` if the bytes are only copied.
    pub operation: Option<Operand>,
    /// The memory from which outgoing messages take the bytes.
    pub memory: InletMemory,
    /// Who supplies that memory.
    pub supplier: Supplier,
    /// The outgoing messages that forward the bytes: their indices in [`Blocks::outgoing`]. With a window there is only one.
    pub outgoing: Box<[u32]>,
    /// Bytes that have arrived so far. If there is an operation, only bytes that are already combined count. Written by Transfer.
    pub come: u64,
}

/// The memory from which an outgoing message takes the bytes of a forwarded part.
#[derive(Clone, Copy, Debug)]
pub enum InletMemory {
    /// None: the bytes are not forwarded.
    None,
    /// Memory for all bytes of the part.
    Place(Span),
    /// Memory for a window of the bytes, used again and again. Holds the row of the [`Supply`](crate::Supply), or [`NIL`] while the
    /// graph is not active.
    Window(Row),
}

/// How incoming elements of a part are combined with the application's elements.
#[derive(Clone)]
pub struct Operand {
    /// The operation.
    pub reduce: Reduction,
    /// Bytes of an element; more than 0.
    pub size: usize,
    /// On which side the incoming elements stand.
    pub side: Side,
}

impl fmt::Debug for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operand({} B, {:?})", self.size, self.side)
    }
}

impl IncomingPassage {
    /// Of these parts. It has not started.
    pub fn new(parts: Box<[Part]>) -> Self {
        IncomingPassage { passage: Passage::new(parts), scratch: Span::EMPTY, told: 0, carried: 0 }
    }

    /// Resets the message to its state before the first byte.
    pub fn reset(&mut self) {
        (self.passage.at, self.told, self.carried) = (0, 0, 0);
    }
}

impl OutgoingPassage {
    /// Of these parts. It has not started.
    pub fn new(parts: Box<[Part]>) -> Self {
        OutgoingPassage {
            passage: Passage::new(parts),
            packed: Span::EMPTY,
            is_whole: false,
            passed: 0,
            missing: 0,
            opened: false,
            begun: 0,
        }
    }

    /// Resets the message to its state before the first byte.
    pub fn reset(&mut self) {
        (self.passage.at, self.begun) = (0, 0);
        (self.opened, self.missing) = (false, self.passed);
    }
}

impl Passage {
    fn new(parts: Box<[Part]>) -> Self {
        Passage { row: NIL, bytes: parts.iter().map(|part| part.bytes).sum(), parts, at: 0 }
    }

    /// The part that contains a byte; `None` past the end. Successive calls must ask for ascending bytes, since the search starts at
    /// the part that the last call found.
    #[inline]
    pub fn part_at(&mut self, byte: u64) -> Option<Part> {
        while let Some(part) = self.parts.get(self.at as usize) {
            if byte < part.start + part.bytes {
                return Some(*part);
            }
            self.at += 1;
        }
        None
    }
}

impl Inlet {
    /// Whether the bytes are forwarded through a window.
    pub fn is_window(&self) -> bool {
        matches!(self.memory, InletMemory::Window(_))
    }

    /// The row of its supply, if it has one now.
    pub fn supply(&self) -> Option<Row> {
        match self.memory {
            InletMemory::Window(row) if row != NIL => Some(row),
            _ => None,
        }
    }
}
