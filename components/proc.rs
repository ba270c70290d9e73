//! Procs: the compact table of all that are known, and the virtual connection to each that was contacted.

use crate::limits::CREDIT_INITIAL;
use crate::{NIL, Queue, Routes, Row};
use bevy_ecs::component::Component;

/// State of a virtual connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum VcState {
    /// Known, never used.
    #[default]
    Unconnected,
    /// The first use has started the handshake; sends wait in order.
    Connecting,
    /// Frames may flow.
    Connected,
    /// It has ended; every operation that needs it gets the reason.
    Failed,
}

/// A virtual connection: the state that point-to-point, RMA and collectives share about a contacted proc. 56 B.
///
/// Written by posting and Post (queues, state, credit), Match and Deliver (posted, what is owed), DrainCq (state, link).
/// See [`crate::credit`] for what its credit is.
#[derive(Component, Clone, Copy, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Vc {
    /// Envelopes that wait for the connection, for credit or for room. CAR rows.
    pub sends: Queue,
    /// Large messages whose pieces are leaving. CAR rows.
    pub data: Queue,
    /// Receives posted for this source, oldest first. CAR rows.
    pub posted: Queue,
    /// The proc.
    pub proc: u32,
    /// The transport's number of the connection.
    pub link: u32,
    /// Next VC in the list of those with something to send.
    pub next: Row,
    /// Lines that may be sent to it.
    pub lines: u32,
    /// Lines of its messages that are kept no more, and have not been granted again.
    pub lines_owed: u32,
    /// Its offers that wait for their receives.
    pub offers_kept: u32,
    /// Offers that may be sent to it.
    pub envelopes: u16,
    /// Offers that it may still send.
    pub envelopes_left: u16,
    /// See [`VcState`].
    pub state: VcState,
    /// The endpoint: row of the transport it is routed over.
    pub endpoint: u8,
    /// Whether it is in the list of VCs with something to send.
    pub listed: bool,
    /// Whether its failure has been acknowledged, so that any-source receives go on without it.
    pub acknowledged: bool,
}

// With its 8 B of change ticks and two slots of 8 B + 8 B, a contacted proc stays within 96 B.
const _: () = assert!(size_of::<Vc>() <= 56);

impl Vc {
    /// A VC of a proc over an endpoint, unconnected.
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

/// What is kept of a proc that nobody has talked to: 4 B.
#[derive(Clone, Copy, Debug)]
pub struct KnownProc {
    /// Its row in the proc table once contacted, else [`NIL`].
    pub row: Row,
}

/// All procs of the world, by proc number.
#[derive(Component, Debug, Default)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct ProcTable {
    /// One entry a proc.
    pub known: Vec<KnownProc>,
    /// Their cards, as exchanged at start, `card_bytes` each.
    pub cards: Vec<u8>,
    /// Bytes of a card.
    pub card_bytes: usize,
    /// The own proc.
    pub me: u32,
    /// Why VCs have failed: (row, words). Few.
    pub reasons: Vec<(Row, String)>,
    /// VCs that have ended in order. Few.
    pub departed: Vec<Row>,
    /// Procs whose processes have failed, by the launcher's word, and why, while their last frames are still to be read. Few.
    pub fallen: Vec<(u32, String)>,
    /// What has become of the routes to them.
    pub routes: Routes,
}

impl ProcTable {
    /// The card of a proc; empty if it left none.
    pub fn card(&self, proc: u32) -> &[u8] {
        let first = proc as usize * self.card_bytes;
        self.cards.get(first..first + self.card_bytes).unwrap_or(&[])
    }

    /// Why the VC in a row has failed.
    pub fn reason(&self, row: Row) -> &str {
        self.reasons.iter().rev().find(|(r, _)| *r == row).map_or("the connection has failed", |(_, words)| words)
    }
}
