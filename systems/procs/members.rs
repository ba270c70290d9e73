//! What has become of the members of boards: who has failed, who still uses a slot, and which slots never become free.
//!
//! *Reads* the boards of other members, VCs. *Writes* nothing.
//! *Bound* the members of a communicator.
//! *Why* a member may fail or leave while others wait for it. Whoever begins, meets or ends an operation asks here.

use crate::procs::seats::{Seat, Seats};
use tickwire_components::limits::BOARD_SLOTS;
use tickwire_components::{Vc, VcState};
use tickwire_transports::boards::Stage;

/// Ranks of the members for which an operation waits before it begins: they have not finished the operation that used its slot before.
pub(crate) fn slot_waits_for(number: u64, seats: &Seats) -> impl Iterator<Item = u32> {
    let before = number.saturating_sub(BOARD_SLOTS as u64);
    let waits = move |seat: &Seat| !seat.board.is_closed() && seat.board.finished() < before;
    seats.peers.iter().zip(0..).filter_map(move |(seat, rank)| seat.as_ref().is_some_and(waits).then_some(rank))
}

/// Whether an operation waits in vain before it begins: a member has failed or left, and one that is awaited has given its last operation
/// up since. Whether that one ever calls another operation is up to its program. Returns the member that has failed or left.
#[cold]
pub(crate) fn slot_is_lost(number: u64, seats: &Seats, vcs: &[Vc]) -> Option<u32> {
    let is_gone = |seat: &Seat| seat.board.is_closed() || is_failed(seat, vcs);
    let gone = seats.peers.iter().position(|seat| seat.as_ref().is_some_and(is_gone))?;
    let has_given_up = |rank: u32| {
        let seat = seats.peers[rank as usize].as_ref().filter(|seat| !is_failed(seat, vcs));
        seat.is_some_and(|seat| seat.board.begun(seat.board.finished()) == Stage::Abandoned)
    };
    slot_waits_for(number, seats).any(has_given_up).then_some(gone as u32)
}

/// Whether the connection to a member has failed.
pub(crate) fn is_failed(seat: &Seat, vcs: &[Vc]) -> bool {
    vcs.get(seat.vc as usize).is_none_or(|vc| vc.state == VcState::Failed)
}
