//! Collective operations among members on one host, over their boards ([`tickwire_transports::boards`]).
//!
//! Each member shows its operand on its own board, and takes what it needs from those of the others. Operations of a communicator run
//! one after another, in the order of their calls, which all members share.
//!
//! - *Short* operands stand in the slot of the operation. A member is done when it has read those of its sources
//!   ([`Collective::sources`]).
//! - *Long* ones pass in chunks through the cells of their owner. A reader says how many chunks it has consumed; the owner writes a
//!   cell again when its last reader has. Operations take places in the cells by their numbers, one behind the other. Long operands in a
//!   shared heap that all members map are read there.
//! - Where boards are narrow, *very long* ones are read straight out of the memory of their owner, if the kernel lets all members do so.
//! - An *allreduce* of more than 32 KiB, and of long operands among three members and more, has two rounds for each chunk: every member
//!   reduces its slice of the chunk from the operands of all, and then all collect the slices.
//!
//! Operands are combined in the order of all reductions (`systems/collectives`), by `combine`. A member that cannot go on says so on
//! its board, and whoever waits for it fails too. Every call of [`advance`] does a bounded part and never waits.

mod combine;
mod long;
mod meeting;
mod moving;
mod shape;

use crate::procs::boards::Seats;
use crate::procs::endpoint::Endpoint;
use meeting::is_free;
pub use meeting::{Meeting, end_met, end_short, look, look_at};
use shape::Shape;
pub use shape::is_possible;
use tickwire_components::{Collective, CollectiveKind, Reduction, Row, Span, Vc, VcState, car_flags};
use tickwire_transports::boards::Called;

/// Bytes of room for operands and for values on the way of a reduction: see `combine`.
pub const SCRATCH_BYTES: usize = combine::SCRATCH_BYTES + combine::OPERANDS_BYTES;

/// A call that has its number among those of its communicator, and what follows from both.
#[derive(Clone, Copy, Debug)]
pub struct NumberedCall {
    /// What was called.
    pub call: Collective,
    /// Its number.
    pub number: u64,
    shape: Shape,
    /// Members whose bytes are needed, a bit each.
    sources: u32,
}

impl NumberedCall {
    /// The next operation on these boards.
    #[inline(always)]
    pub fn new(call: Collective, seats: &mut Seats) -> Self {
        let number = seats.next;
        seats.next += 1;
        let shape = Shape::of(&call, number, seats.size, seats.terms);
        NumberedCall { shape, number, sources: call.sources(seats.rank, seats.size), call }
    }

    /// Whether its operands stand in slots.
    #[inline(always)]
    pub fn is_short(&self) -> bool {
        self.shape.is_short()
    }
}

/// An operation in progress.
pub struct Operation {
    /// What was called, and its number.
    pub numbered: NumberedCall,
    /// How elements are reduced, if they are.
    reduction: Option<Reduction>,
    /// The row of its request; [`NIL`](tickwire_components::NIL) if it has none.
    pub request: Row,
    /// Whether its caller waits for it by its number.
    pub awaited: bool,
    /// How many collective operations its communicator had before it; `None` of a persistent one.
    pub before: Option<u32>,
    /// Whether it is to be given up as soon as its turn comes.
    cancelled: bool,
    /// Whether others read the operand out of the own memory, and the result.
    shown: [bool; 2],
    /// Whether slices are reduced by their owners first, and collected then.
    two_rounds: bool,
    /// Whether what this member gives to itself has been taken.
    own_taken: bool,
    /// The operand, where the result takes its place while others read it.
    copy: Option<Box<[u128]>>,
    meeting: Meeting,
    /// Members that were found to be gone by the last look.
    gone: u32,
    /// Members that need the own bytes.
    readers: u32,
    /// Chunks that were written, reduced and consumed.
    written: u64,
    reduced: u64,
    consumed: u64,
}

/// Why an operation has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// One of [`car_flags::ERRORS`].
    pub flags: u16,
    /// The member that it is about.
    pub rank: u32,
    /// Bytes that it gives, and that were expected.
    pub sent: u64,
    /// See `sent`.
    pub expected: u64,
}

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It waits for other members.
    Waits,
    /// It has come further, and is not done.
    Moved,
    /// It is done.
    Done,
    /// It has failed.
    Failed(Failure),
}

/// What an operation needs besides the boards.
pub struct Around<'a> {
    /// Endpoints, to wake members.
    pub endpoints: &'a mut [Endpoint],
    /// VCs of the members.
    pub vcs: &'a [Vc],
    /// Room for values on the way: [`SCRATCH_BYTES`].
    pub scratch: &'a mut [u128],
    /// See [`Boards::patience`](crate::procs::boards::Boards::patience).
    pub patience: u32,
}

impl Operation {
    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// Whether others can see it.
    pub fn has_begun(&self) -> bool {
        self.meeting.begun
    }

    /// Ranks of the members that it waits for: those that have not begun, or else those that have not finished.
    pub fn waits_for(&self, seats: &Seats) -> impl Iterator<Item = u32> {
        let (missing, needed, number) =
            (self.meeting.missing, self.numbered.sources | self.readers, self.numbered.number);
        seats.peers.iter().zip(0u32..).filter_map(move |(seat, rank)| {
            let is_awaited = match missing {
                0 => needed & 1 << rank != 0 && seat.as_ref()?.board.finished() < number,
                _ => missing & 1 << rank != 0,
            };
            is_awaited.then_some(rank)
        })
    }

    /// One that has come so far with its meeting.
    #[inline(always)]
    pub fn new(
        numbered: NumberedCall,
        reduction: Option<Reduction>,
        meeting: Meeting,
        seats: &Seats,
        request: Row,
    ) -> Self {
        Operation {
            request,
            awaited: false,
            before: None,
            cancelled: false,
            shown: [false; 2],
            two_rounds: numbered.shape.two_rounds(&numbered.call, seats.size, seats.terms),
            own_taken: false,
            copy: None,
            meeting,
            gone: 0,
            readers: 0,
            written: 0,
            reduced: 0,
            consumed: 0,
            numbered,
            reduction,
        }
    }
}

/// An operation ends before its time: its buffers are used no more. Its number is taken all the same, so it stays in its queue until
/// the others can be told ([`Operation::is_cancelled`]); nobody waits for it then.
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

/// Gives an operation up whose turn has come.
#[cold]
fn end_cancelled(operation: &Operation, seats: &mut Seats, around: &mut Around<'_>) -> Step {
    if !operation.has_begun() && !is_free(operation.numbered.number, seats, around.vcs) {
        return Step::Waits;
    }
    give_up(operation.numbered.number, seats, around.endpoints);
    Step::Failed(Failure { flags: car_flags::CANCELLED, rank: seats.rank, sent: 0, expected: 0 })
}

/// Shows a long operation on the own board, if its slot is free. The caller wakes the others.
fn begin_long(operation: &mut Operation, seats: &mut Seats, around: &mut Around<'_>) -> bool {
    let number = operation.numbered.number;
    if !is_free(number, seats, around.vcs) {
        return false;
    }
    let call = &operation.numbered.call;
    let mut called = Called { what: call.what(), length: call.part as u64, ..Called::default() };
    operation.readers = call.readers(seats.rank, seats.size);
    show(operation, seats, around.endpoints, &mut called);
    seats.own.begin(number, called);
    operation.meeting.begun = true;
    true
}

/// Says where others find the operand and the result, if they read them out of the own memory.
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
            let mut copy: Box<[u128]> = vec![0; input.len().div_ceil(size_of::<u128>())].into();
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

/// Whether the result may take the place of what others are still to read of the operand. In two rounds it takes it once they have.
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

fn abandoned(rank: u32) -> Failure {
    Failure { flags: car_flags::ABANDONED, rank, sent: 0, expected: 0 }
}

/// This member is done with an operation.
#[inline(always)]
pub fn finish(numbered: &NumberedCall, seats: &Seats, around: &mut Around<'_>) -> Step {
    seats.own.finish(numbered.number);
    wake(seats, around.endpoints);
    Step::Done
}

/// Gives an operation up, and says so once its slot is the own one: before, others may still read there. See [`cancel`].
#[cold]
#[inline(never)]
fn fail(operation: &Operation, seats: &Seats, around: &mut Around<'_>, failure: Failure) -> Step {
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

/// Nothing goes on: perhaps since a member has failed, or takes part no longer. What such a member has shown before is looked at once
/// more before the operation fails.
#[cold]
#[inline(never)]
fn stuck(operation: &mut Operation, seats: &Seats, around: &mut Around<'_>) -> Step {
    let &Operation { ref numbered, meeting, readers, .. } = &*operation;
    let needed = meeting.missing | if numbered.is_short() { 0 } else { numbered.sources | readers };
    let mut gone = 0;
    for (rank, seat) in (0..).zip(&seats.peers) {
        let Some(seat) = seat.as_ref().filter(|_| needed & 1 << rank != 0) else { continue };
        let failed = around.vcs.get(seat.vc as usize).is_none_or(|vc| vc.state == VcState::Failed);
        if !failed && !seat.board.is_closed() {
            continue;
        }
        // Who has done its part may go: what it gives stays on its board.
        if seat.board.finished() >= numbered.number {
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
fn wake(seats: &Seats, endpoints: &mut [Endpoint]) {
    for seat in seats.peers.iter().flatten() {
        if let Some(endpoint) = endpoints.get_mut(seat.endpoint as usize) {
            endpoint.transport.get().wake(seat.link);
        }
    }
}
