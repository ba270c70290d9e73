//! Collective operations among members on one host, over their boards ([`tickwire_transports::boards`]).
//!
//! Each member puts its operand on its own board, and reads the operands of the others from theirs. Operations of a communicator run one
//! after another, in the order of their calls, which is the same on all members.
//!
//! - *Short* operands stand in the slot of the operation. A member is done when it has read the operands of its sources
//!   ([`Collective::sources`]).
//! - *Long* operands pass in chunks through the cells of their owner's board. A reader says how many chunks it has consumed; the owner
//!   reuses a cell once its last reader has consumed it. Successive operations use successive places in the cells, chosen by their
//!   numbers. A long operand in a shared heap that all members map may be read there instead (`Shape::reads_heap`).
//! - On narrow boards, *very long* operands are read straight out of their owner's memory, if the kernel lets all members do so.
//! - An *allreduce* of long operands may have two rounds for each chunk: every member reduces its slice of the chunk from the operands of
//!   all, and then all collect the slices. It has two rounds among three or more members, where operands are read straight out of memory,
//!   and on wide boards for more than 32 KiB.
//!
//! `combine` combines operands in the same order as all other reductions (`systems/collectives`). A member that cannot go on says so on
//! its board; then every member that waits for it fails too. Each call of [`advance`] does a bounded part of the work and never waits.

mod combine;
mod ending;
mod long;
mod meeting;
mod moving;
mod operation;
mod shape;

use crate::procs::endpoint::Endpoint;
use crate::procs::members::slot_is_lost;
use crate::procs::seats::Seats;
pub use ending::{finish, give_up, leave};
use ending::{stuck, wake};
use meeting::is_free;
pub use meeting::{end_met, end_short, look, look_at};
pub use operation::{Around, Failure, Meeting, NumberedCall, Operation, Step, order_of_call, order_of_start};
use shape::Shape;
pub use shape::is_possible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use tickwire_components::{Collective, CollectiveKind, Reduction, Span, car_flags};
use tickwire_transports::boards::Called;

/// Bytes of room for operands and for values on the way of a reduction: see `combine`.
pub const SCRATCH_BYTES: usize = combine::SCRATCH_BYTES + combine::OPERANDS_BYTES;

/// Gives up an operation before it begins, if its slot is free. Returns whether it was. Otherwise the operation is to be
/// [cancelled](cancel), and waits for its slot.
pub fn refuse(numbered: &NumberedCall, seats: &mut Seats, around: &mut Around<'_>) -> bool {
    let is_free = is_free(numbered.number, seats, around.vcs);
    if is_free {
        give_up(numbered.number, seats, around.endpoints);
    }
    is_free
}

/// Cancels an operation before its end. Its buffers are not used any more. Its number stays taken, so the operation stays in its queue
/// until the other members can be told ([`Operation::is_cancelled`]). Nobody waits for it any more.
pub fn cancel(operation: &mut Operation) {
    operation.cancelled = true;
    let call = &mut operation.numbered.call;
    (call.input, call.output) = (Span::EMPTY, Span::EMPTY);
    (operation.request, operation.awaited) = (tickwire_components::NIL, false);
}

/// Goes on with an operation, as far as that goes now.
#[inline(always)]
pub fn advance(operation: &mut Operation, seats: &mut Seats, around: &mut Around<'_>) -> Step {
    if operation.cancelled {
        return end_cancelled(operation, seats, around);
    }
    if !operation.numbered.is_short() {
        return advance_long(operation, seats, around);
    }
    let before = operation.meeting;
    match look_at(operation, seats, around) {
        Ok(false) if operation.meeting != before => Step::Moved,
        Ok(false) => stuck(operation, seats, around),
        met => match end_met(operation, met, seats, around) {
            Ok(()) => Step::Done,
            Err(failure) => Step::Failed(failure),
        },
    }
}

/// As [`advance`], for an operation that is in no queue. If a function of the application panics, the others are told before the operation
/// is dropped: they may be reading its memory.
pub fn advance_apart(operation: &mut Operation, seats: &mut Seats, around: &mut Around<'_>) -> thread::Result<Step> {
    let advanced = catch_unwind(AssertUnwindSafe(|| advance(operation, seats, around)));
    if advanced.is_err() && operation.has_begun() {
        give_up(operation.numbered.number, seats, around.endpoints);
    }
    advanced
}

#[inline(never)]
fn advance_long(operation: &mut Operation, seats: &mut Seats, around: &mut Around<'_>) -> Step {
    let begins = !operation.meeting.begun;
    if begins && !begin_long(operation, seats, around) {
        return stuck(operation, seats, around);
    }
    if begins {
        wake(seats, around.endpoints);
    }
    long::advance(operation, seats, around, begins)
}

/// Takes the operands of a short operation that has met all of its sources. A function of the application may panic in it.
///
/// # Errors
/// Memory of a member could not be read.
#[inline(always)]
pub fn take_short(
    numbered: &NumberedCall,
    reduction: Option<&Reduction>,
    seats: &Seats,
    around: &mut Around<'_>,
) -> Result<(), Failure> {
    moving::finish_short(numbered, reduction, seats, around)
}

/// Gives up a cancelled operation once its slot is free, and tells the other members. If the slot never becomes free, this member takes part
/// in no further operation.
#[cold]
fn end_cancelled(operation: &Operation, seats: &mut Seats, around: &mut Around<'_>) -> Step {
    let number = operation.numbered.number;
    if operation.has_begun() || is_free(number, seats, around.vcs) {
        give_up(number, seats, around.endpoints);
    } else if slot_is_lost(number, seats, around.vcs).is_some() {
        leave(seats, around.endpoints);
    } else {
        return Step::Waits;
    }
    Step::Failed(Failure { flags: car_flags::CANCELLED, rank: seats.rank, sent: 0, expected: 0 })
}

/// Shows a long operation on the own board, if its slot is free. The caller wakes the others.
fn begin_long(operation: &mut Operation, seats: &mut Seats, around: &mut Around<'_>) -> bool {
    let number = operation.numbered.number;
    if !is_free(number, seats, around.vcs) {
        return false;
    }
    let call = &operation.numbered.call;
    let mut called = Called { what: operation.numbered.what(), length: call.part as u64, ..Called::default() };
    operation.readers = call.readers(seats.rank, seats.size);
    operation.unmet = operation.readers;
    show(operation, seats, around.endpoints, &mut called);
    seats.own.begin_long(number, called);
    operation.meeting.begun = true;
    true
}

/// Decides whether the others read the operand and the result out of this member's memory. If so, puts their addresses into `called`.
fn show(operation: &mut Operation, seats: &Seats, endpoints: &[Endpoint], called: &mut Called) {
    let (call, is_direct) = (&operation.numbered.call, operation.numbered.shape.is_direct());
    let mut input = call.input;
    let reads_heap = Shape::reads_heap(call, seats.terms);
    let is_mapped = |run: Span| reads_heap && endpoints.iter().any(|endpoint| endpoint.mapped.holds(run));
    let is_given = operation.readers != 0;
    operation.shown =
        [is_given && (is_direct || is_mapped(input)), operation.two_rounds && (is_direct || is_mapped(call.output))];
    if operation.shown[0] && overwrites(call, operation.two_rounds) {
        operation.shown[0] = is_direct;
        if is_direct {
            let words = input.len().div_ceil(size_of::<u128>());
            let room = operation.copy.take().filter(|room| room.len() == words);
            let mut copy = room.unwrap_or_else(|| vec![0; words].into());
            // SAFETY: the operation keeps the copy as long as others read it, and its buffers.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            unsafe {
                let own = Span::new(copy.as_mut_ptr().cast(), input.len());
                own.copy_from(&input);
                input = own;
            }
            operation.copy = Some(copy);
        }
    }
    let address = |run: Span, shown| if shown { run.start().expose_provenance() as u64 } else { 0 };
    called.address = address(input, operation.shown[0]);
    called.result = address(call.output, operation.shown[1]);
}

/// Whether the result would overwrite bytes of the operand that other members still have to read. In two rounds, a slice of the operand
/// is overwritten only after the member that reduces that slice has read it.
fn overwrites(call: &Collective, two_rounds: bool) -> bool {
    let Collective { kind, input, output, .. } = call;
    let (input, output) = (input.start().addr()..input.start().addr() + input.len(), output.start().addr());
    let at_once = match kind {
        CollectiveKind::Allreduce => !two_rounds,
        CollectiveKind::Alltoall | CollectiveKind::ReduceScatter => true,
        CollectiveKind::Scan | CollectiveKind::Exscan => true,
        _ => false,
    };
    at_once && input.contains(&output)
}
