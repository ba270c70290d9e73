//! How operations on boards end: done, given up, or failed since a member is gone or has gone on without this one.

use super::operation::{Around, Failure, NumberedCall, Operation, Step};
use crate::procs::endpoint::Endpoint;
use crate::procs::members::{is_failed, slot_is_lost};
use crate::procs::seats::{Seat, Seats};
use tickwire_components::{Vc, car_flags};
use tickwire_transports::boards::Stage;

/// A member has given the operation up.
pub(super) fn abandoned(rank: u32) -> Failure {
    Failure { flags: car_flags::ABANDONED, rank, sent: 0, expected: 0 }
}

/// This member is done with an operation.
#[inline(always)]
pub fn finish(numbered: &NumberedCall, seats: &Seats, around: &mut Around<'_>) -> Step {
    seats.own.finish(numbered.number, numbered.shape.short());
    wake(seats, around.endpoints);
    Step::Done
}

/// Fails an operation. The others are told only if it has begun: until then its slot belongs to an earlier operation, which they may
/// still be reading. See [`cancel`](super::cancel).
#[cold]
#[inline(never)]
pub(super) fn fail(operation: &Operation, seats: &Seats, around: &mut Around<'_>, failure: Failure) -> Step {
    if operation.has_begun() {
        give_up(operation.numbered.number, seats, around.endpoints);
    }
    Step::Failed(failure)
}

/// Tells the other members that this one gives up operation `number`. The operation has begun, or its slot is free.
#[cold]
pub fn give_up(number: u64, seats: &Seats, endpoints: &mut [Endpoint]) {
    seats.own.abandon(number);
    seats.own.finish(number, 0);
    wake(seats, endpoints);
}

/// Tells the other members that this one takes part in no further operation on these boards.
#[cold]
pub fn leave(seats: &Seats, endpoints: &mut [Endpoint]) {
    seats.own.close();
    wake(seats, endpoints);
}

/// Called when an operation cannot go on. Perhaps a member that it needs has failed or has left. Such a member may have written to its
/// board just before, so the operation fails only if a second look finds the member still needed.
#[cold]
#[inline(never)]
pub(super) fn stuck(operation: &mut Operation, seats: &Seats, around: &mut Around<'_>) -> Step {
    let &Operation { ref numbered, meeting, readers, .. } = &*operation;
    let needed = meeting.missing | if numbered.is_short() { 0 } else { numbered.sources | readers };
    if !meeting.begun
        && let Some(rank) = slot_is_lost(numbered.number, seats, around.vcs)
    {
        return fail(operation, seats, around, gone_member(rank, seats, around.vcs));
    }
    let mut gone = 0;
    for (rank, seat) in (0..).zip(&seats.peers) {
        let Some(seat) = seat.as_ref().filter(|_| needed & 1 << rank != 0) else { continue };
        let is_left_behind = seat.board.has_left_behind(seats.rank);
        if !is_left_behind && !is_failed(seat, around.vcs) && !seat.board.is_closed() {
            continue;
        }
        // A member that has finished this operation may leave, since its operand stays on its board. But it may have taken this member
        // for gone, and have used the slot again: then `begun` says `Before`.
        if seat.board.finished() >= numbered.number && seat.board.begun(numbered.number) != Stage::Before {
            continue;
        }
        gone |= 1 << rank;
        if operation.gone & gone == gone {
            return fail(operation, seats, around, gone_member(rank, seats, around.vcs));
        }
    }
    operation.gone = gone;
    if gone != 0 { Step::Moved } else { Step::Waits }
}

/// The failure of an operation because of a member that has failed or left, or has left this one behind.
#[cold]
fn gone_member(rank: u32, seats: &Seats, vcs: &[Vc]) -> Failure {
    let is_lost = |seat: &Seat| is_failed(seat, vcs) || seat.board.has_left_behind(seats.rank);
    let failed = seats.peers[rank as usize].as_ref().is_some_and(is_lost);
    let flags = if failed { car_flags::PEER_FAILED } else { car_flags::ABANDONED };
    Failure { flags, rank, sent: 0, expected: 0 }
}

/// Checks that what was read of these members, a bit each, is what they have shown: a member that waits for this one no more may have used
/// the place again meanwhile.
#[inline(always)]
pub(super) fn check_read(members: u32, seats: &Seats) -> Result<(), Failure> {
    let mut left = members;
    while left != 0 {
        let rank = left.trailing_zeros();
        left &= left - 1;
        let Some(seat) = &seats.peers[rank as usize] else { continue };
        if seat.board.has_left_behind(seats.rank) {
            return Err(Failure { flags: car_flags::PEER_FAILED, rank, sent: 0, expected: 0 });
        }
    }
    Ok(())
}

/// Wakes all other members that sleep.
#[inline(always)]
pub(super) fn wake(seats: &Seats, endpoints: &mut [Endpoint]) {
    for seat in seats.peers.iter().flatten() {
        if let Some(endpoint) = endpoints.get_mut(seat.endpoint as usize) {
            endpoint.transport.get().wake(seat.link);
        }
    }
}
