//! Long operands: they pass chunk by chunk, through cells or out of memory that others can read.

use super::ending::{abandoned, check_read, fail, finish, stuck, wake};
use super::meeting::{has_finished, meet};
use super::moving;
use super::operation::{Around, Failure, Operation, Step};
use crate::procs::seats::{CellsUsed, Seats};
use std::sync::atomic::{Ordering, fence};
use tickwire_components::limits::{BOARD_SLOTS, BOARD_STEPS_A_POLL};
use tickwire_components::{Collective, CollectiveKind, Vc};
use tickwire_transports::boards::{Count, Stage};

/// Moves chunks.
#[inline(never)]
pub(super) fn advance(operation: &mut Operation, seats: &mut Seats, around: &mut Around<'_>, mut moved: bool) -> Step {
    let two_rounds = operation.two_rounds;
    let (mut left, mut looks, mut has_copied) = (BOARD_STEPS_A_POLL, around.patience, false);
    while left > 0 {
        let before = (operation.meeting.missing, operation.written, operation.reduced, operation.consumed);
        let tried = meet(&operation.numbered, &mut operation.meeting.missing, seats)
            .and_then(|()| meet(&operation.numbered, &mut operation.unmet, seats))
            .and_then(|()| write(operation, seats, around.vcs))
            .and_then(|()| if two_rounds { reduce(operation, seats, around) } else { Ok(()) })
            .and_then(|()| consume(operation, seats, around));
        if let Err(failure) = tried {
            return fail(operation, seats, around, failure);
        }
        if before != (operation.meeting.missing, operation.written, operation.reduced, operation.consumed) {
            (moved, left) = (true, left - 1);
            wake(seats, around.endpoints);
            continue;
        }
        // Nothing can be exchanged now: this member copies its own operand while the others work.
        if operation.own_taken < operation.numbered.shape.chunks() && gives_itself(&operation.numbered.call) {
            moving::take_own_chunk(operation, seats);
            (left, has_copied) = (left - 1, true);
            continue;
        }
        match is_over(operation, seats) {
            Ok(true) => {
                return finish(&operation.numbered, seats, around);
            }
            Ok(false) => {}
            Err(failure) => return fail(operation, seats, around, failure),
        }
        // The others may soon be done with the chunk that is needed next. A member that ticks rarely would find it only a tick later: an
        // iallreduce of 1 MiB beside a computation that ticks every 50 µs would take 120 to 140 µs instead of 94.
        if !moved || looks == 0 {
            break;
        }
        looks -= 1;
        std::hint::spin_loop();
    }
    if moved || has_copied { Step::Moved } else { stuck(operation, seats, around) }
}

/// Whether this member has given and taken all chunks. If others read out of this member's memory, they must have consumed them too.
#[inline(always)]
fn is_over(operation: &Operation, seats: &Seats) -> Result<bool, Failure> {
    let chunks = operation.numbered.shape.chunks();
    let all_given = operation.readers == 0 || operation.written == chunks;
    let all_taken = operation.numbered.sources == 0 || operation.consumed == chunks;
    let is_kept = operation.shown[0] || operation.shown[1];
    Ok(all_given && all_taken && (!is_kept || least(operation, seats, Count::Consumed, operation.readers)? >= chunks))
}

/// Puts the next chunk of the operand on the board, if its cell is free.
#[inline(always)]
fn write(operation: &mut Operation, seats: &mut Seats, vcs: &[Vc]) -> Result<(), Failure> {
    let chunks = operation.numbered.shape.chunks();
    if operation.readers == 0 || operation.written == chunks {
        return Ok(());
    }
    if operation.shown[0] && (operation.shown[1] || !operation.two_rounds) {
        operation.written = chunks;
        seats.own.set(operation.numbered.number, Count::Written, chunks);
        return Ok(());
    }
    if operation.written == 0 && !take_cells(operation, seats, vcs) {
        return Ok(());
    }
    if operation.written >= operation.numbered.shape.cells() {
        let consumed = least(operation, seats, Count::Consumed, operation.readers)?;
        if operation.written >= consumed + operation.numbered.shape.cells() {
            return Ok(());
        }
    }
    if !operation.shown[0] {
        moving::write_chunk(operation, seats);
    }
    operation.written += 1;
    seats.own.set(operation.numbered.number, Count::Written, operation.written);
    // The chunk is in the nearest caches now, so this is the best time to copy it to the own result too.
    if operation.own_taken + 1 == operation.written && gives_itself_the_same(&operation.numbered.call) {
        moving::take_own_chunk(operation, seats);
    }
    Ok(())
}

/// Whether a member's own operand, or a part of it, may go to its own result uncombined.
fn gives_itself(call: &Collective) -> bool {
    match call.kind {
        CollectiveKind::Gather | CollectiveKind::Scatter | CollectiveKind::Alltoall => true,
        _ => gives_itself_the_same(call),
    }
}

/// Whether what goes to the own result is the same as what all other members read.
fn gives_itself_the_same(call: &Collective) -> bool {
    matches!(call.kind, CollectiveKind::Allgather | CollectiveKind::Scan)
}

/// Takes the cells of the operation. Returns whether it has them: not while others may still read an earlier operation there.
fn take_cells(operation: &Operation, seats: &mut Seats, vcs: &[Vc]) -> bool {
    let (first, end) = operation.numbered.shape.range();
    let meets = |used: &&CellsUsed| used.first < end && first < used.end && used.number < operation.numbered.number;
    let before = seats.used.iter().filter(meets).map(|used| used.number).max();
    if !has_finished(before.unwrap_or(0), seats, vcs) {
        return false;
    }
    let number = operation.numbered.number;
    seats.used[number as usize % BOARD_SLOTS] = CellsUsed { number, first, end };
    true
}

/// Reduces the own slice of a chunk, once the operands of all are there.
#[inline(always)]
fn reduce(operation: &mut Operation, seats: &Seats, around: &mut Around<'_>) -> Result<(), Failure> {
    if operation.meeting.missing != 0 || operation.reduced >= operation.written {
        return Ok(());
    }
    if least(operation, seats, Count::Written, operation.numbered.sources)? > operation.reduced {
        moving::reduce_slice(operation, seats, around)?;
        if !is_still_shown(operation, seats, Count::Written, operation.reduced)? {
            return Ok(());
        }
        operation.reduced += 1;
        seats.own.set(operation.numbered.number, Count::Reduced, operation.reduced);
    }
    Ok(())
}

/// Takes a chunk of the others, once it is there.
#[inline(always)]
fn consume(operation: &mut Operation, seats: &Seats, around: &mut Around<'_>) -> Result<(), Failure> {
    if operation.numbered.sources == 0
        || operation.meeting.missing != 0
        || operation.consumed == operation.numbered.shape.chunks()
    {
        return Ok(());
    }
    // The result may stand where the operand stands. So a chunk of the operand is put on the board before the result overwrites it.
    if operation.readers != 0 && operation.consumed >= operation.written {
        return Ok(());
    }
    let two_rounds = operation.two_rounds;
    let count = if two_rounds { Count::Reduced } else { Count::Written };
    let is_there = !two_rounds || operation.consumed < operation.reduced;
    if is_there && least(operation, seats, count, operation.numbered.sources)? > operation.consumed {
        moving::consume_chunk(operation, seats, around)?;
        if !is_still_shown(operation, seats, count, operation.consumed)? {
            return Ok(());
        }
        operation.consumed += 1;
        seats.own.set(operation.numbered.number, Count::Consumed, operation.consumed);
    }
    Ok(())
}

/// Whether the other members still showed a chunk after this one had read it. A member that has given the operation up may change its own
/// memory, and then what was read there is worthless. So is what was read of a member that has left this one behind.
#[inline(always)]
fn is_still_shown(operation: &Operation, seats: &Seats, count: Count, chunk: u64) -> Result<bool, Failure> {
    check_read(operation.numbered.sources, seats)?;
    if !operation.numbered.shape.is_direct() && !seats.terms.mapped {
        return Ok(true);
    }
    // The bytes are read before the counts are read again.
    fence(Ordering::Acquire);
    Ok(least(operation, seats, count, operation.numbered.sources)? > chunk)
}

/// The least count that one of these members shows; `members` has a bit for each.
#[inline(always)]
fn least(operation: &Operation, seats: &Seats, count: Count, members: u32) -> Result<u64, Failure> {
    let (mut least, mut left) = (u64::MAX, members);
    while left != 0 {
        let rank = left.trailing_zeros();
        left &= left - 1;
        let Some(seat) = &seats.peers[rank as usize] else { continue };
        match seat.board.count(operation.numbered.number, count) {
            Stage::Before => least = 0,
            Stage::At(chunks) => least = least.min(chunks),
            Stage::Abandoned => return Err(abandoned(rank)),
        }
    }
    Ok(least)
}
