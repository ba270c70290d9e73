//! Receipts: the stages of an operation and their times, for operations for which a receipt was requested.

use crate::{Clock, ProcId, Row};

/// The protocol by which a message's bytes have moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Protocol {
    /// In one frame with its envelope.
    Eager,
    /// Eagerly in several frames, the first of them with the envelope.
    Parts,
    /// Rendezvous: offered (RTS), asked for (CTS), and then sent in pieces.
    Pieces,
    /// Rendezvous: offered (RTS), and read by the receiver out of the sender's memory.
    Read,
    /// Rendezvous: offered (RTS), and moved by the transport from the sender's memory into the receiver's.
    Direct,
}

/// The stages of an operation. Times are ns of the engine's clock: a stage has the time of the system run that has seen it. The stages
/// of a message that Deliver handles within a wait have the time at which the poll began that found the message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Receipt {
    /// The transport of the message; `None` while a receive from any source is not matched.
    pub transport: Option<String>,
    /// The peer; `None` while a receive from any source is not matched.
    pub peer: Option<ProcId>,
    /// The transport's number of the connection to the peer; `None` until there is a connection. Transport and link are the message's
    /// route.
    pub link: Option<u32>,
    /// The protocol; `None` as long as it is not known, and if no byte has moved.
    pub protocol: Option<Protocol>,
    /// How many times this process has copied the bytes. A message that waited for its receive in a temporary buffer counts two.
    pub copies: u32,
    /// Whether the message came before its receive.
    pub unexpected: bool,
    /// When the operation was posted.
    pub posted_ns: u64,
    /// When a receive was matched with a message, or when the sender learnt that its message was matched.
    pub matched_ns: Option<u64>,
    /// When the first bytes had moved.
    pub first_byte_ns: Option<u64>,
    /// When the last bytes had moved.
    pub last_byte_ns: Option<u64>,
    /// When the request was done, with or without an error.
    pub completed_ns: Option<u64>,
}

/// The receipt of an operation with a CAR row. It is kept until the row gets another operation.
#[derive(Clone, Debug, Default)]
pub struct RowReceipt {
    /// The generation of the row; `None` before the first operation with a receipt.
    pub generation: Option<u64>,
    /// Whether its row is in [`Receipts::open`].
    pub is_open: bool,
    /// Whether the offer of a send has left.
    pub offered: bool,
    /// Of a receive: whether it was a new receive ([`CarState::New`](crate::CarState::New)) when its state was last read.
    pub was_new: bool,
    /// The row of the endpoint, once it is known. Its name is put into the receipt when the application asks for the receipt.
    pub endpoint: Option<u8>,
    /// The receipt.
    pub receipt: Receipt,
}

/// The receipt of a message that left completely within the call that posted it. It is kept until the request is taken or dropped.
#[derive(Clone, Copy, Debug)]
pub struct SentReceipt {
    /// The number of its request. The upper half counts the uses of this entry, from [`Receipts::first_use`] on.
    pub number: u64,
    /// When it had left, ns.
    pub at_ns: u64,
    /// The row of its VC.
    pub vc: Row,
    /// The transport's number of the connection.
    pub link: u32,
    /// The row of the endpoint.
    pub endpoint: u8,
    /// Whether the message had bytes.
    pub moved: bool,
}

/// All receipts. Usually there are none.
#[derive(Clone, Debug, Default)]
pub struct Receipts {
    /// Receipts of operations with rows, by CAR row. As long as the highest row that has had a receipt needs.
    pub rows: Vec<RowReceipt>,
    /// The rows of operations that are not done. Their state is read after each system.
    pub open: Vec<Row>,
    /// Receipts of messages without rows. Entry i has the number [`ROWLESS`](crate::ROWLESS) + i.
    pub sent: Vec<SentReceipt>,
    /// What the uses of entries of `sent` are counted from. Engines of a process that follow each other count on, so a token that is kept
    /// past its engine names no receipt of a later one. Set when the engine is built.
    pub first_use: u32,
    /// Free entries of `sent`.
    pub sent_free: Vec<Row>,
    /// The clock that gives the times of stages.
    pub clock: Clock,
    /// The time of the clock when the engine was built, ns; `None` if the caller of the engine gives the time.
    pub start_ns: Option<u64>,
}
