//! Messages of graphs that are in parts, some of which are passed on as they come. See `systems/protocols/graph/blocks.rs`.

use crate::Reduction;
use crate::graph::Side;
use crate::{Combine, NIL, Row, Span, Supplier};
use std::fmt;

/// The messages in parts of one graph.
#[derive(Default)]
pub struct Blocks {
    /// Messages: [`Node::computation`](crate::Node::computation) of their CARs is the index.
    pub passages: Box<[Passage]>,
    /// Parts of incoming messages.
    pub inlets: Box<[Inlet]>,
    /// How [`Computation::Apply`](crate::Computation::Apply) reduces, by its number.
    pub operations: Box<[Reduction]>,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Blocks { passages, inlets, operations } = self;
        write!(f, "Blocks({passages:?}, {inlets:?}, {} operations)", operations.len())
    }
}

/// A message that is the concatenation of its parts.
///
/// Written when the graph is built; the fields from `at` on when it starts, by Match and by Transfer.
#[derive(Debug)]
pub struct Passage {
    /// Its CAR.
    pub row: Row,
    /// Bytes of all parts.
    pub bytes: u64,
    /// Its parts, in order.
    pub parts: Box<[Part]>,
    /// Of an outgoing message that leaves as a whole: where its bytes are put together. [`Span::EMPTY`] of one that leaves as it
    /// comes.
    pub staging: Span,
    /// Of an outgoing message: whether it leaves as a whole.
    pub is_whole: bool,
    /// Of an outgoing message: bytes that come from parts of others.
    pub passed: u64,
    /// Of an incoming message with operations: room for a few elements.
    pub scratch: Span,
    /// The part that its next byte is in.
    pub at: u32,
    /// Of an outgoing message: bytes that are still to come from others.
    pub missing: u64,
    /// Of an incoming message: how far its sender might go before the answer that is in the queue.
    pub told: u64,
    /// Whether its envelope has come, or of an outgoing message that of one which it passes on.
    pub opened: bool,
    /// Of an outgoing message: bytes of the piece that its transport may have taken in part; 0 if there is none.
    pub begun: u64,
    /// Of an incoming message: bytes in `scratch` of an element that has not come as a whole.
    pub carried: u32,
}

/// A part of a message.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its first byte in the message.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
    /// What it is.
    pub what: PartKind,
}

/// What a part of a message is.
#[derive(Clone, Copy, Debug)]
pub enum PartKind {
    /// Of an incoming message: see [`Inlet`], by index.
    Inlet(u32),
    /// Of an outgoing message: bytes of the application.
    Given(Span),
    /// Of an outgoing message: what comes by an inlet.
    Passed(u32),
}

/// Where the bytes of an incoming part go.
#[derive(Debug)]
pub struct Inlet {
    /// The CAR of its message.
    pub from: Row,
    /// Fewest bytes of space that both methods make progress with.
    pub minimum: u32,
    /// The application's elements: where the bytes go, or the other operand. [`Span::EMPTY`] if there are none.
    pub segment: Span,
    /// On which side they are combined with what comes.
    pub combine: Combine,
    /// How.
    pub operation: Option<Operand>,
    /// What the outgoing message takes them from.
    pub memory: InletMemory,
    /// Who supplies that.
    pub supplier: Supplier,
    /// The outgoing messages that pass them on, by index. Through a window only one does.
    pub outgoing: Box<[u32]>,
    /// Bytes that have come so far, combined if they are to be. Written by Transfer.
    pub come: u64,
}

/// What an outgoing message takes the bytes of a part from.
#[derive(Clone, Copy, Debug)]
pub enum InletMemory {
    /// Nothing: they are not passed on.
    None,
    /// All of them have a place.
    Place(Span),
    /// A window of them has: the row of the [`Supply`](crate::Supply), or [`NIL`] while the graph is not active.
    Window(Row),
}

/// How the elements of a part are combined with the application's.
#[derive(Clone)]
pub struct Operand {
    /// The operation.
    pub reduce: Reduction,
    /// Bytes of an element; more than 0.
    pub size: u32,
    /// The side of what comes.
    pub side: Side,
}

impl fmt::Debug for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operand({} B, {:?})", self.size, self.side)
    }
}

impl Passage {
    /// A message of these parts that has not started.
    pub fn new(row: Row, parts: Box<[Part]>) -> Self {
        Passage {
            row,
            bytes: parts.iter().map(|part| part.bytes).sum(),
            parts,
            staging: Span::EMPTY,
            is_whole: false,
            passed: 0,
            scratch: Span::EMPTY,
            at: 0,
            missing: 0,
            told: 0,
            opened: false,
            begun: 0,
            carried: 0,
        }
    }

    /// Makes it what it is before its first byte.
    pub fn reset(&mut self) {
        (self.at, self.told, self.begun, self.carried) = (0, 0, 0, 0);
        (self.opened, self.missing) = (false, self.passed);
    }

    /// The part that a byte is in; that of the byte before or a later one is where it was looked for last.
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
    /// Whether its bytes go through a window.
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
