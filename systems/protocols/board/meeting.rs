//! How the members of an operation on boards meet: each shows that it has begun, and looks who else has. A short operation ends when its
//! member has met all of its sources.

use super::ending::{abandoned, check_read, finish, give_up, wake};
use super::moving;
use super::operation::{Around, Failure, Meeting, NumberedCall, Operation};
use crate::procs::members::is_failed;
use crate::procs::seats::Seats;
use tickwire_components::limits::BOARD_SLOTS;
use tickwire_components::{Reduction, Vc, car_flags};
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

/// Shows a short operation on the own board, whose slot is free.
#[inline(always)]
fn begin_short(numbered: &NumberedCall, seats: &Seats) {
    let &NumberedCall { ref call, number, .. } = numbered;
    if call.gives(seats.rank, seats.size) {
        moving::write_short(numbered, seats);
    }
    seats.own.begin(number, Called { what: numbered.what(), length: call.part as u64, ..Called::default() });
}

/// Whether all other members have finished an operation. Members that have left do not count, since they read
/// nothing any more. Nor do members that have failed, which are left behind.
#[inline(always)]
pub(super) fn has_finished(number: u64, seats: &mut Seats, vcs: &[Vc]) -> bool {
    number <= seats.finished || number <= look_who_has_finished(seats, vcs)
}

#[inline(never)]
fn look_who_has_finished(seats: &mut Seats, vcs: &[Vc]) -> u64 {
    let (mut finished, mut left_behind) = (u64::MAX, 0);
    for (rank, seat) in (0..).zip(&seats.peers) {
        let Some(seat) = seat.as_ref().filter(|seat| !seat.board.is_closed()) else { continue };
        match is_failed(seat, vcs) {
            // Only the connection may have failed, and the member still read.
            true => left_behind |= 1 << rank,
            false => finished = finished.min(seat.board.finished()),
        }
    }
    if left_behind != 0 {
        seats.own.leave_behind(left_behind);
    }
    seats.finished = finished;
    finished
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
        if called.length != expected || called.what != numbered.what() {
            // What stands there may be of a later operation.
            check_read(1 << rank, seats)?;
        }
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
