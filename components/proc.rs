//! Procs: the compact table of all known procs, and the virtual connection (VC) to each contacted proc.

use crate::limits::CREDIT_INITIAL;
use crate::queue::linked;
use crate::{NIL, Queue, Routes, Row};
use bevy_ecs::component::Component;

/// State of a virtual connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum VcState {
    /// Known, never used.
    #[default]
    Unconnected,
    /// The first use has started the handshake. Sends wait, in order.
    Connecting,
    /// Frames may flow.
    Connected,
    /// The connection has ended. Every operation that needs it fails with the reason.
    Failed,
}

/// A virtual connection: the state of a contacted proc that point-to-point, RMA and collectives share. 56 B.
///
/// Written by posting and by every system but DrainCq (queues, credit), and between passes by calls, links and endings (`state`,
/// `endpoint`, `link`).
/// See [`crate::credit`] for the meaning of credit.
#[derive(Component, Clone, Copy, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Vc {
    /// Envelopes that wait for the connection, for credit, or for room at the transport. CAR rows.
    pub sends: Queue,
    /// Large messages whose pieces are leaving. CAR rows.
    pub data: Queue,
    /// Receives posted for this source, oldest first. CAR rows.
    pub posted: Queue,
    /// The proc.
    pub proc: u32,
    /// The transport's number of the connection.
    pub link: u32,
    /// The next VC in the list of VCs with something to send.
    pub next: Row,
    /// Credit: lines that this side may still send to the peer.
    pub lines: u32,
    /// Credit: lines of the peer's messages that this side no longer keeps, and has not granted again yet.
    pub lines_owed: u32,
    /// The peer's offers (RTS) that wait here for their receives.
    pub offers_kept: u32,
    /// Credit: offers (RTS) that this side may still send to the peer.
    pub envelopes: u16,
    /// Credit: offers (RTS) that the peer may still send to this side.
    pub envelopes_left: u16,
    /// See [`VcState`].
    pub state: VcState,
    /// The endpoint: the row of the transport that the VC uses.
    pub endpoint: u8,
    /// Whether the VC is in the list of VCs with something to send.
    pub listed: bool,
    /// Whether the application has acknowledged the failure, so that receives from any source go on without this proc.
    pub acknowledged: bool,
}

// A contacted proc stays within 96 B: this, 8 B of change ticks, and two endpoint slots of 8 B + 8 B.
const _: () = assert!(size_of::<Vc>() <= 56);

linked!(Vc);

impl Vc {
    /// A new VC of a proc over an endpoint, not connected yet.
    pub const fn new(proc: u32, endpoint: u8) -> Self {
        Vc {
            sends: Queue::EMPTY,
            data: Queue::EMPTY,
            posted: Queue::EMPTY,
            proc,
            link: NIL,
            next: NIL,
            lines: CREDIT_INITIAL.lines,
            lines_owed: 0,
            offers_kept: 0,
            envelopes: CREDIT_INITIAL.envelopes as u16,
            envelopes_left: CREDIT_INITIAL.envelopes as u16,
            state: VcState::Unconnected,
            endpoint,
            listed: false,
            acknowledged: false,
        }
    }
}

/// The entry of a known proc; it takes 4 B even if the proc was never contacted.
#[derive(Clone, Copy, Debug)]
pub struct KnownProc {
    /// The row of its VC once it was contacted, else [`NIL`].
    pub row: Row,
}

/// All procs of the world, by proc number.
#[derive(Component, Debug, Default)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct ProcTable {
    /// One entry for each proc.
    pub known: Vec<KnownProc>,
    /// The address cards of all procs, as exchanged at start; `card_bytes` each.
    pub cards: Vec<u8>,
    /// Bytes of a card.
    pub card_bytes: usize,
    /// The number of this proc.
    pub me: u32,
    /// Why VCs have failed: (row, reason). Few.
    pub reasons: Vec<(Row, String)>,
    /// VCs that have ended in an orderly way. Few.
    pub departed: Vec<Row>,
    /// Procs whose processes have failed according to the launcher, and why, while their last frames have not been read yet. Few.
    pub fallen: Vec<(u32, String)>,
    /// Procs whose processes are known to have ended, by the rows of their VCs. Few: transports are asked only where a lock or an access
    /// epoch of theirs is in the way. A VC that has failed is not enough: its process may live, and still write or give the lock back.
    pub gone: Vec<Row>,
    /// The state of the routes to the procs.
    pub routes: Routes,
}

impl ProcTable {
    /// The address card of a proc; empty if it published none.
    pub fn card(&self, proc: u32) -> &[u8] {
        let first = proc as usize * self.card_bytes;
        self.cards.get(first..first + self.card_bytes).unwrap_or(&[])
    }

    /// Why the VC in a row has failed.
    pub fn reason(&self, row: Row) -> &str {
        self.reasons.iter().rev().find(|(r, _)| *r == row).map_or("the connection has failed", |(_, words)| words)
    }
}
