//! Receives at a transport that matches by itself, and what waits for them to come back.

use crate::{NIL, Queue, Row};

/// What is at the one transport of an engine that matches by itself. Empty where there is none.
///
/// Written by posting (in), Post (given and asked back), Match (out) and probes.
#[derive(Clone, Debug)]
pub struct Lodgings {
    /// The endpoint; [`NIL`] for none.
    pub endpoint: u32,
    /// Receives that are to be given to it, oldest first: those behind one that it has no room for wait.
    pub queue: Queue,
    /// Receives that are to be asked back.
    pub recalls: Vec<Row>,
    /// Synchronous messages whose receipt is to be told: VC and the sender's CAR.
    pub receipts: Vec<(Row, Row)>,
    /// Receives that it has.
    pub count: u32,
    /// Messages of other transports whose receive is being asked back, and those of the same senders behind them, oldest
    /// first. Few.
    pub held: Vec<HeldMessage>,
    /// Messages that were claimed for a probe and have arrived: their entries among the unexpected.
    pub claimed: Vec<Row>,
}

/// A message that waits until it is known whether the receive that takes it was paired elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldMessage {
    /// Its entry among the unexpected, which is not in their queue.
    pub entry: Row,
    /// Its VC: row of the proc.
    pub vc: Row,
    /// The receive; [`NIL`] while it waits behind another one of its sender, and once its receive was paired elsewhere.
    pub receive: Row,
    /// The receive has come back: it is this message's.
    pub came_back: bool,
}

impl Default for Lodgings {
    fn default() -> Self {
        Lodgings {
            endpoint: NIL,
            queue: Queue::EMPTY,
            recalls: Vec::new(),
            receipts: Vec::new(),
            count: 0,
            held: Vec::new(),
            claimed: Vec::new(),
        }
    }
}

impl Lodgings {
    /// Whether a VC has a message that is held.
    pub fn holds(&self, vc: Row) -> bool {
        self.held.iter().any(|held| held.vc == vc)
    }
}
