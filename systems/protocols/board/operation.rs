//! An operation on boards: its progress, and what it needs.

use super::shape::Shape;
use crate::procs::endpoint::Endpoint;
use crate::procs::members::slot_waits_for;
use crate::procs::seats::Seats;
use tickwire_components::{Collective, Reduction, Row, Vc};

/// Set in the order of a start of a persistent operation.
const PERSISTENT: u32 = 1 << 31;

/// The order of a call that had so many collective operations of its communicator before it.
#[inline(always)]
pub fn order_of_call(before: u32) -> u32 {
    before & !PERSISTENT
}

/// The order of a start of a persistent operation that had so many made before it. All its starts have the same.
#[inline(always)]
pub fn order_of_start(made: u32) -> u32 {
    made | PERSISTENT
}

/// A collective call with its number on these boards, and how its operands are laid out.
#[derive(Clone, Copy, Debug)]
pub struct NumberedCall {
    /// What was called.
    pub call: Collective,
    /// Its number.
    pub number: u64,
    /// Its place among the calls of its communicator. See [`order_of_call`] and [`order_of_start`].
    order: u32,
    pub(super) shape: Shape,
    /// Members whose bytes are needed, a bit each.
    pub(super) sources: u32,
}

impl NumberedCall {
    /// The next operation on these boards.
    #[inline(always)]
    pub fn new(call: Collective, order: u32, seats: &mut Seats) -> Self {
        let number = seats.next;
        seats.next += 1;
        let shape = Shape::of(&call, number, seats.size, seats.terms);
        NumberedCall { shape, number, order, sources: call.sources(seats.rank, seats.size), call }
    }

    /// The word that members compare with each other: what was called, and which of the calls it is. Calls of the same kind and length
    /// that members make in different orders would mix their bytes otherwise.
    #[inline(always)]
    pub(super) fn what(&self) -> u64 {
        u64::from(self.order) << 32 | u64::from(self.call.what())
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
    pub(super) reduction: Option<Reduction>,
    /// The row of its request; [`NIL`](tickwire_components::NIL) if it has none.
    pub request: Row,
    /// Whether its caller waits for it by its number.
    pub awaited: bool,
    /// How many collective operations its communicator had before it; `None` of a persistent one.
    pub before: Option<u32>,
    /// Whether it is to be given up as soon as its turn comes.
    pub(super) cancelled: bool,
    /// Whether the others read the operand, and the result, straight out of this member's memory.
    pub(super) shown: [bool; 2],
    /// Whether each member first reduces its slice of a chunk, and all collect the slices then.
    pub(super) two_rounds: bool,
    /// Chunks of the own operand that were copied into the own result.
    pub(super) own_taken: u64,
    /// A copy of the operand that the others read, if the result would overwrite the operand meanwhile. Before the operation begins: room
    /// for it, of an earlier start.
    pub copy: Option<Box<[u128]>>,
    pub(super) meeting: Meeting,
    /// Members that the last look found to have failed or left, a bit each.
    pub(super) gone: u32,
    /// Members that read this member's bytes, a bit each.
    pub(super) readers: u32,
    /// Readers that are not known to have called the same. Nothing else tells a member without sources that they have not.
    pub(super) unmet: u32,
    /// Chunks that were written, reduced and consumed.
    pub(super) written: u64,
    pub(super) reduced: u64,
    pub(super) consumed: u64,
}

/// Why an operation has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// One of [`car_flags::ERRORS`](tickwire_components::car_flags::ERRORS).
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
    /// Room for values on the way: [`SCRATCH_BYTES`](super::SCRATCH_BYTES).
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

    /// Ranks of the members that it waits for: before it begins, those that still use its slot; then those that have not begun, or else
    /// those that have not finished.
    pub fn waits_for(&self, seats: &Seats) -> Vec<u32> {
        let (missing, needed, number) =
            (self.meeting.missing, self.numbered.sources | self.readers, self.numbered.number);
        let of_slot: Vec<u32> = slot_waits_for(number, seats).filter(|_| !self.meeting.begun).collect();
        if !of_slot.is_empty() {
            return of_slot;
        }
        let awaited = seats.peers.iter().zip(0u32..).filter_map(move |(seat, rank)| {
            let is_awaited = match missing {
                0 => needed & 1 << rank != 0 && seat.as_ref()?.board.finished() < number,
                _ => missing & 1 << rank != 0,
            };
            is_awaited.then_some(rank)
        });
        awaited.collect()
    }

    /// An operation in progress, which has met its sources as far as `meeting` says.
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
            own_taken: 0,
            copy: None,
            meeting,
            gone: 0,
            readers: 0,
            unmet: 0,
            written: 0,
            reduced: 0,
            consumed: 0,
            numbered,
            reduction,
        }
    }
}

/// Whether an operation has begun, and whom it has met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meeting {
    /// Whether it is on the own board.
    pub(super) begun: bool,
    /// Members whose bytes are needed and that have not begun, a bit each.
    pub(super) missing: u32,
}

impl Meeting {
    /// That of a call that has not begun.
    #[inline(always)]
    pub fn of(numbered: &NumberedCall) -> Self {
        Meeting { begun: false, missing: numbered.sources }
    }
}
