//! Receipts: what became of an operation, stage by stage, for those that were asked for.

use crate::{Clock, ProcId, Row};

/// How a message's bytes have moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Protocol {
    /// In one frame with its envelope.
    Eager,
    /// In parts, the first of them with its envelope.
    Parts,
    /// Offered, asked for, and then sent in pieces.
    Pieces,
    /// Offered, and read by the receiver out of the sender's memory.
    Read,
    /// Offered, and moved by the transport from the sender's memory into the receiver's.
    Direct,
}

/// What became of an operation. Times are ns of the engine's clock, and those of the system run in which a stage was seen. What
/// Deliver does within a wait has the time at which the look began that found the message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Receipt {
    /// The transport of the message; `None` before a receive from any source is paired.
    pub transport: Option<String>,
    /// The peer, likewise.
    pub peer: Option<ProcId>,
    /// The transport's number of the connection to the peer, once there is one: with the transport, the message's route.
    pub link: Option<u32>,
    /// `None` as long as it is not known, and where no byte has moved.
    pub protocol: Option<Protocol>,
    /// How often this process has copied the bytes: a message that waited for its receive in a temporary counts two.
    pub copies: u32,
    /// Whether the message came before its receive.
    pub unexpected: bool,
    /// When it was posted.
    pub posted_ns: u64,
    /// When a receive was paired with a message, or a send was known to be.
    pub matched_ns: Option<u64>,
    /// When the first bytes had moved.
    pub first_byte_ns: Option<u64>,
    /// When the last bytes had moved.
    pub last_byte_ns: Option<u64>,
    /// When the request was done, well or not.
    pub completed_ns: Option<u64>,
}

/// A receipt that is being written.
#[derive(Clone, Debug)]
pub struct OpenReceipt {
    /// The row of the operation.
    pub row: Row,
    /// The life of the row.
    pub generation: u64,
    /// Whether the offer of a send has left.
    pub offered: bool,
    /// Of a receive: whether it looked at the unexpected messages when it was seen last.
    pub was_new: bool,
    /// The row of the endpoint, once it is known: its name goes into the receipt when somebody asks for that.
    pub endpoint: Option<u8>,
    /// The receipt.
    pub receipt: Receipt,
}

/// Receipts that were asked for and not taken with their requests. Empty as a rule.
#[derive(Clone, Debug, Default)]
pub struct Receipts {
    /// Those of operations that are not done: they are looked at.
    pub open: Vec<OpenReceipt>,
    /// Those of operations that are done.
    pub done: Vec<OpenReceipt>,
    /// How many of these there may be before those of requests that were taken go.
    pub done_most: usize,
    /// The clock, read whenever a stage is seen.
    pub clock: Clock,
    /// What it said when the engine was built, ns; `None` where the caller of the engine gives the time.
    pub start_ns: Option<u64>,
    /// The time after a look of a wait that has found nothing, and the tick of that look: what the next look finds has come since.
    pub looked: Option<(u64, u64)>,
}
