//! How operations on boards end: done, given up, or failed since a member is gone.

use super::operation::{Around, Failure, NumberedCall, Operation, Step};
use crate::procs::endpoint::Endpoint;
use crate::procs::seats::Seats;
use tickwire_components::{VcState, car_flags};
use tickwire_transports::boards::Stage;

/// A member has given the operation up.
pub(super) fn abandoned(rank: u32) -> Failure {
    Failure { flags: car_flags::ABANDONED, rank, sent: 0, expected: 0 }
}

/// This member is done with an operation.
#[inline(always)]
pub fn finish(numbered: &NumberedCall, seats: &Seats, around: &mut Around<'_>) -> Step {
    seats.own.finish(numbered.number);
    wake(seats, around.endpoints);
    Step::Done
}

/// Gives an operation up, and says so once its slot is the own one: before, others may still read there. See [`cancel`](super::cancel).
#[cold]
#[inline(never)]
pub(super) fn fail(operation: &Operation, seats: &Seats, around: &mut Around<'_>, failure: Failure) -> Step {
    if operation.has_begun() {
        give_up(operation.numbered.number, seats, around.endpoints);
    }
    Step::Failed(failure)
}

/// Says that this member gives an operation of this number up, which has begun.
#[cold]
pub fn give_up(number: u64, seats: &Seats, endpoints: &mut [Endpoint]) {
    seats.own.abandon(number);
    seats.own.finish(number);
    wake(seats, endpoints);
}

/// This member takes part in no further operation on these boards: whoever waits for it is told.
#[cold]
pub fn leave(seats: &Seats, endpoints: &mut [Endpoint]) {
    seats.own.close();
    wake(seats, endpoints);
}

/// Nothing goes on: perhaps since a member has failed, or takes part no longer. What such a member has shown before is looked at once
/// more before the operation fails.
#[cold]
#[inline(never)]
pub(super) fn stuck(operation: &mut Operation, seats: &Seats, around: &mut Around<'_>) -> Step {
    let &Operation { ref numbered, meeting, readers, .. } = &*operation;
    let needed = meeting.missing | if numbered.is_short() { 0 } else { numbered.sources | readers };
    let mut gone = 0;
    for (rank, seat) in (0..).zip(&seats.peers) {
        let Some(seat) = seat.as_ref().filter(|_| needed & 1 << rank != 0) else { continue };
        let failed = around.vcs.get(seat.vc as usize).is_none_or(|vc| vc.state == VcState::Failed);
        if !failed && !seat.board.is_closed() {
            continue;
        }
        // Who has done its part may go: what it gives stays on its board, unless it takes this member for gone and has used the slot again.
        if seat.board.finished() >= numbered.number && seat.board.begun(numbered.number) != Stage::Before {
            continue;
        }
        gone |= 1 << rank;
        if operation.gone & gone == gone {
            let flags = if failed { car_flags::PEER_FAILED } else { car_flags::ABANDONED };
            return fail(operation, seats, around, Failure { flags, rank, sent: 0, expected: 0 });
        }
    }
    operation.gone = gone;
    if gone != 0 { Step::Moved } else { Step::Waits }
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
