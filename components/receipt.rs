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

/// What is noted of an operation with a row, until the row has another one.
#[derive(Clone, Debug, Default)]
pub struct RowReceipt {
    /// The life of the row; `None` before the first that has a receipt.
    pub generation: Option<u64>,
    /// Whether its row is among those that are looked at.
    pub is_open: bool,
    /// Whether the offer of a send has left.
    pub offered: bool,
    /// Of a receive: whether it looked at the unexpected messages when it was seen last.
    pub was_new: bool,
    /// The row of the endpoint, once it is known: its name goes into the receipt when somebody asks for that.
    pub endpoint: Option<u8>,
    /// The receipt.
    pub receipt: Receipt,
}

/// What is noted of a message that left as a whole within the call that posted it, until its request is taken or dropped.
#[derive(Clone, Copy, Debug)]
pub struct SentReceipt {
    /// The number of its request: in the upper half which use of this place it is.
    pub number: u64,
    /// When it had left, ns.
    pub at_ns: u64,
    /// The row of its VC.
    pub vc: Row,
    /// The transport's number of the connection.
    pub link: u32,
    /// The row of the endpoint.
    pub endpoint: u8,
    /// Whether it had bytes.
    pub moved: bool,
}

/// Receipts that were asked for. Empty as a rule.
#[derive(Clone, Debug, Default)]
pub struct Receipts {
    /// Those of operations with rows: as many as the highest row needs that has had one.
    pub rows: Vec<RowReceipt>,
    /// The rows of operations that are not done: they are looked at.
    pub open: Vec<Row>,
    /// Those of messages without rows, at [`ROWLESS`](crate::ROWLESS) and on.
    pub sent: Vec<SentReceipt>,
    /// Places of these that are free.
    pub sent_free: Vec<Row>,
    /// The clock, read whenever a stage is seen.
    pub clock: Clock,
    /// What it said when the engine was built, ns; `None` where the caller of the engine gives the time.
    pub start_ns: Option<u64>,
}
