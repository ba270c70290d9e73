//! The boards of the members of a communicator: what each operation on them needs. Who has which is in `boards.rs`.

use tickwire_components::Row;
use tickwire_components::limits::BOARD_SLOTS;
use tickwire_transports::boards::{OwnBoard, PeerBoard};

/// The boards of all members.
pub struct Seats {
    /// The own rank.
    pub rank: u32,
    /// How many members there are.
    pub size: u32,
    /// The own board.
    pub own: OwnBoard,
    /// Those of the others, by rank. `None` at the own rank.
    pub peers: Box<[Option<Seat>]>,
    /// The number of the next operation. The first one is 1.
    pub next: u64,
    /// The number of the last operation that all others are known to have finished.
    pub finished: u64,
    /// Where in the own cells each of the last operations stands. The index is its number modulo [`BOARD_SLOTS`].
    pub used: [CellsUsed; BOARD_SLOTS],
    /// What all members have agreed on.
    pub terms: Terms,
}

/// Where an operation stands in the cells of a member.
#[derive(Clone, Copy, Default)]
pub struct CellsUsed {
    /// Its number.
    pub number: u64,
    /// Its first byte, and the one behind its last.
    pub first: usize,
    /// See `first`.
    pub end: usize,
}

/// What the members of a communicator have agreed on when their boards were opened.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Whether all members map the shared heaps of all others.
    pub mapped: bool,
    /// Whether all members may read the memory of all others.
    pub reads: bool,
    /// Whether all boards are wide.
    pub wide: bool,
    /// Whether one of them shares its processor with others.
    pub shares: bool,
}

/// The board of another member.
pub struct Seat {
    /// What it shows.
    pub board: PeerBoard,
    /// The endpoint and link over which it is woken.
    pub endpoint: u8,
    /// See `endpoint`.
    pub link: u32,
    /// Its VC.
    pub vc: Row,
}
