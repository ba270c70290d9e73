//! How the members of an operation on boards meet: each shows that it has begun, and looks who else has. A short operation ends when its
//! member has met all of its sources.

use super::ending::{abandoned, finish, give_up, wake};
use super::moving;
use super::operation::{Around, Failure, Meeting, NumberedCall, Operation};
use crate::procs::seats::{Seat, Seats};
use tickwire_components::limits::BOARD_SLOTS;
use tickwire_components::{Reduction, Vc, VcState, car_flags};
use tickwire_transports::boards::{Called, Stage};

/// Puts a short operation on the own board, if its slot is free, and looks which of its sources have begun. Returns whether all of them
/// have.
///
/// # Errors
/// Another member has called something else, or has given the operation up.
#[inline(always)]
pub fn look(
    numbered: &NumberedCall,
    meeting: &mut Meeting,
    seats: &mut Seats,
    around: &mut Around<'_>,
) -> Result<bool, Failure> {
    let begins = !meeting.begun;
    if begins {
        if !is_free(numbered.number, seats, around.vcs) {
            return Ok(false);
        }
        begin_short(numbered, seats);
        meeting.begun = true;
    }
    if meeting.missing != 0 {
        meet(numbered, &mut meeting.missing, seats)?;
        // If all sources have begun already, this member ends the operation at once. Its end wakes the others, so this need not.
        if begins && meeting.missing != 0 {
            wake(seats, around.endpoints);
        }
    }
    Ok(meeting.missing == 0)
}

/// As [`look`], for an operation in progress. `false`, without a look, if it is long or was cancelled.
///
/// # Errors
/// As [`look`].
#[inline(always)]
pub fn look_at(operation: &mut Operation, seats: &mut Seats, around: &mut Around<'_>) -> Result<bool, Failure> {
    let Operation { numbered, meeting, cancelled, .. } = operation;
    if *cancelled || !numbered.is_short() { Ok(false) } else { look(numbered, meeting, seats, around) }
}

/// Ends a short operation as [`look_at`] has said: takes the operands if it has met all of its sources, or gives it up if it has failed.
///
/// # Errors
/// What it has failed by, or memory of a member that could not be read.
#[inline(always)]
pub fn end_met(
    operation: &Operation,
    met: Result<bool, Failure>,
    seats: &Seats,
    around: &mut Around<'_>,
) -> Result<(), Failure> {
    end_short(&operation.numbered, operation.reduction.as_ref(), met, seats, around)
}

/// As [`end_met`], for a call that has not become an operation in progress.
///
/// # Errors
/// As [`end_met`].
#[inline(always)]
pub fn end_short(
    numbered: &NumberedCall,
    reduction: Option<&Reduction>,
    met: Result<bool, Failure>,
    seats: &Seats,
    around: &mut Around<'_>,
) -> Result<(), Failure> {
    let taken = met.and_then(|_| moving::finish_short(numbered, reduction, seats, around));
    match taken {
        Ok(()) => drop(finish(numbered, seats, around)),
        Err(_) => give_up(numbered.number, seats, around.endpoints),
    }
    taken
}

/// Whether the slot of an operation is free: all others have finished the operation that used the slot before.
#[inline(always)]
pub(super) fn is_free(number: u64, seats: &mut Seats, vcs: &[Vc]) -> bool {
    has_finished(number.saturating_sub(BOARD_SLOTS as u64), seats, vcs)
}

/// Ranks of the members for which an operation waits before it begins: they have not finished the operation that used its slot before.
pub(super) fn slot_waits_for(number: u64, seats: &Seats) -> impl Iterator<Item = u32> {
    let before = number.saturating_sub(BOARD_SLOTS as u64);
    let waits = move |seat: &Seat| !seat.board.is_closed() && seat.board.finished() < before;
    seats.peers.iter().zip(0..).filter_map(move |(seat, rank)| seat.as_ref().is_some_and(waits).then_some(rank))
}

/// Whether an operation waits in vain before it begins: a member has failed or left, and one that is awaited has given its last operation
/// up since. Whether that one ever calls another operation is up to its program. Returns the member that has failed or left.
#[cold]
pub(super) fn slot_is_lost(number: u64, seats: &Seats, vcs: &[Vc]) -> Option<u32> {
    let is_gone = |seat: &Seat| seat.board.is_closed() || is_failed(seat, vcs);
    let gone = seats.peers.iter().position(|seat| seat.as_ref().is_some_and(is_gone))?;
    let has_given_up = |rank: u32| {
        let seat = seats.peers[rank as usize].as_ref().filter(|seat| !is_failed(seat, vcs));
        seat.is_some_and(|seat| seat.board.begun(seat.board.finished()) == Stage::Abandoned)
    };
    slot_waits_for(number, seats).any(has_given_up).then_some(gone as u32)
}

/// Whether the connection to a member has failed.
pub(super) fn is_failed(seat: &Seat, vcs: &[Vc]) -> bool {
    vcs.get(seat.vc as usize).is_none_or(|vc| vc.state == VcState::Failed)
}

/// Shows a short operation on the own board, whose slot is free.
#[inline(always)]
fn begin_short(numbered: &NumberedCall, seats: &Seats) {
    let &NumberedCall { ref call, number, .. } = numbered;
    if call.gives(seats.rank, seats.size) {
        moving::write_short(numbered, seats);
    }
    seats.own.begin(number, Called { what: numbered.what(), length: call.part as u64, ..Called::default() });
}

/// Whether all other members have finished an operation. Members that have failed or left do not count: they read nothing any more.
#[inline(always)]
pub(super) fn has_finished(number: u64, seats: &mut Seats, vcs: &[Vc]) -> bool {
    number <= seats.finished || number <= look_who_has_finished(seats, vcs)
}

#[inline(never)]
fn look_who_has_finished(seats: &mut Seats, vcs: &[Vc]) -> u64 {
    let others = seats.peers.iter().flatten();
    let running = others.filter(|seat| !is_failed(seat, vcs) && !seat.board.is_closed());
    seats.finished = running.map(|seat| seat.board.finished()).min().unwrap_or(u64::MAX);
    seats.finished
}

/// Looks which of the missing members have begun, and checks what they were called with.
#[inline(always)]
pub(super) fn meet(numbered: &NumberedCall, missing: &mut u32, seats: &Seats) -> Result<(), Failure> {
    let NumberedCall { call, number, .. } = numbered;
    let mut left = *missing;
    while left != 0 {
        let rank = left.trailing_zeros();
        left &= left - 1;
        let Some(seat) = &seats.peers[rank as usize] else { continue };
        match seat.board.begun(*number) {
            Stage::Before => continue,
            Stage::Abandoned => return Err(abandoned(rank)),
            Stage::At(_) => {}
        }
        let (called, expected) = (seat.board.called(*number), call.part as u64);
        if called.length != expected {
            let flags = if called.length < expected { car_flags::SHORT } else { car_flags::TRUNCATED };
            return Err(Failure { flags, rank, sent: called.length, expected });
        }
        if called.what != numbered.what() {
            return Err(abandoned(rank));
        }
        *missing &= !(1 << rank);
    }
    Ok(())
}
