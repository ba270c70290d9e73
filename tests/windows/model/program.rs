//! Random programs of one-sided operations.

use proptest::collection::vec;
use proptest::prelude::*;

/// Elements of a part that operations use. They have more bytes than an update without a lock may have.
pub(crate) const COUNT: usize = 40;
/// The element that counts the sections under a lock.
pub(crate) const TICKET: usize = COUNT;
/// In a phase between fences, elements below this one are put and got. From this one on they are updated.
pub(crate) const UPDATED: usize = COUNT / 2;
/// A rank has fewer operations than this in a phase.
const OPERATIONS: usize = 10;

/// An update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Update {
    Sum,
    Xor,
    Max,
    Replace,
    Keep,
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Put,
    Get,
    /// An update that returns nothing.
    Update(Update),
    /// An update that returns the values from before.
    Fetch(Update),
    /// A compare-and-swap of one element.
    Swap {
        expected: u64,
    },
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) what: What,
    pub(crate) target: u32,
    pub(crate) at: usize,
    pub(crate) count: usize,
    /// The distance from one of its elements to the next. A distance of more than 1 is described by a datatype.
    pub(crate) stride: usize,
    /// The value for its first element.
    pub(crate) value: u64,
    /// Whether it has a request, for which the rank waits at the end of the phase.
    pub(crate) held: bool,
}

impl Op {
    /// The operand for one of its elements.
    pub(crate) fn operand(&self, index: usize) -> u64 {
        self.value.wrapping_add(index as u64 * 7)
    }

    pub(crate) fn operands(&self) -> Vec<u64> {
        (0..self.count).map(|index| self.operand(index)).collect()
    }

    /// The elements of the part that it touches.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> {
        (0..self.count).map(|index| self.at + index * self.stride)
    }

    /// The index of an element of the part among its elements, if it touches that element.
    pub(crate) fn index_of(&self, element: usize) -> Option<usize> {
        self.places().position(|place| place == element)
    }

    /// The operation, limited to its elements below `end`.
    fn below(self, end: usize) -> Self {
        let most = (end - self.at).div_ceil(self.stride);
        Op { count: self.count.min(most), ..self }
    }

    /// The value of an element after the operation.
    pub(crate) fn apply(&self, old: u64, index: usize) -> u64 {
        let operand = self.operand(index);
        match self.what {
            What::Put | What::Update(Update::Replace) | What::Fetch(Update::Replace) => operand,
            What::Get | What::Update(Update::Keep) | What::Fetch(Update::Keep) => old,
            What::Update(Update::Sum) | What::Fetch(Update::Sum) => old.wrapping_add(operand),
            What::Update(Update::Xor) | What::Fetch(Update::Xor) => old ^ operand,
            What::Update(Update::Max) | What::Fetch(Update::Max) => old.max(operand),
            What::Swap { expected } => {
                if old == expected {
                    operand
                } else {
                    old
                }
            }
        }
    }
}

/// Operations under one lock of a rank's part.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) target: u32,
    pub(crate) alone: bool,
    /// Whether its rank, if it is alone in its own part, has it lent as a slice.
    pub(crate) lent: bool,
    pub(crate) ops: Vec<Op>,
}

/// A phase: what each rank does.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Fenced(Vec<Vec<Op>>),
    /// And, by rank: whether it tests for the end of its exposure, instead of waiting.
    Posted(Vec<Vec<Op>>, Vec<bool>),
    Shared(Vec<Vec<Op>>),
    Locked(Vec<Vec<Section>>),
    Exposed(Vec<Vec<Op>>),
}

/// A program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) ranks: u32,
    pub(crate) phases: Vec<Phase>,
}

pub(crate) fn program() -> impl Strategy<Value = Program> {
    (2u32..=3).prop_flat_map(|ranks| vec(phase(ranks), 1..6).prop_map(move |phases| Program { ranks, phases }))
}

fn phase(ranks: u32) -> impl Strategy<Value = Phase> {
    let count = ranks as usize;
    prop_oneof![
        each(ranks).prop_map(|ops| Phase::Fenced(changed(ops, fenced))),
        (each(ranks), vec(any::<bool>(), count)).prop_map(|(ops, tests)| Phase::Posted(changed(ops, fenced), tests)),
        each(ranks).prop_map(|ops| Phase::Shared(changed(ops, shared))),
        vec(vec(section(ranks), 0..5), count).prop_map(Phase::Locked),
        each(ranks).prop_map(|ops| Phase::Exposed(changed(ops, exposed))),
    ]
}

fn each(ranks: u32) -> impl Strategy<Value = Vec<Vec<Op>>> {
    vec(vec(op(ranks), 0..OPERATIONS), ranks as usize)
}

fn section(ranks: u32) -> impl Strategy<Value = Section> {
    (0..ranks, prop::bool::weighted(0.7), any::<bool>(), vec(op(ranks), 0..4)).prop_map(|(target, alone, lent, ops)| {
        let within = |op: Op| {
            let what = if alone { op.what } else { What::Get };
            Op { what, target, held: false, ..op }
        };
        Section { target, alone, lent, ops: ops.into_iter().map(within).collect() }
    })
}

fn op(ranks: u32) -> impl Strategy<Value = Op> {
    let update = || prop_oneof![Just(Update::Sum), Just(Update::Xor), Just(Update::Max), Just(Update::Replace)];
    let what = prop_oneof![
        2 => Just(What::Put),
        1 => Just(What::Get),
        3 => update().prop_map(What::Update),
        3 => update().prop_map(What::Fetch),
        1 => Just(What::Fetch(Update::Keep)),
        1 => (0u64..4).prop_map(|expected| What::Swap { expected }),
    ];
    // Some values repeat, so that swaps succeed. Others identify their writer.
    let value = prop_oneof![0u64..4, any::<u64>()];
    // Either one element, often one of the first two, where ranks meet, or several elements.
    let place = prop_oneof![(0..UPDATED, Just(1)), (0usize..2, Just(1)), (0..COUNT, 1..=COUNT)];
    (what, 0..ranks, place, value, 1usize..3, any::<bool>()).prop_map(
        |(what, target, (at, count), value, stride, held)| {
            let (count, stride) = if let What::Swap { .. } = what { (1, 1) } else { (count, stride) };
            Op { what, target, at, count, stride, value, held }.below(COUNT)
        },
    )
}

fn changed(ops: Vec<Vec<Op>>, change: fn(Op) -> Op) -> Vec<Vec<Op>> {
    ops.into_iter().map(|ops| ops.into_iter().map(change).collect()).collect()
}

/// An operation between fences. Puts and gets have their own elements, because they must not overlap with updates.
fn fenced(op: Op) -> Op {
    let first = if matches!(op.what, What::Put | What::Get) { 0 } else { UPDATED };
    Op { at: first + op.at % UPDATED, ..op }.below(first + UPDATED)
}

/// An operation on exposed memory. Puts and gets have their own elements there, too. Updates are of one element, and
/// return its value from before.
fn exposed(op: Op) -> Op {
    let op = fenced(Op { stride: 1, ..op });
    match op.what {
        What::Put | What::Get => op,
        What::Update(by) => Op { what: What::Fetch(by), count: 1, ..op },
        What::Fetch(_) | What::Swap { .. } => Op { count: 1, ..op },
    }
}

/// An operation that may overlap with those of other ranks, and so must be an update.
fn shared(op: Op) -> Op {
    let what = match op.what {
        What::Put => What::Update(Update::Replace),
        What::Get => What::Fetch(Update::Keep),
        what => what,
    };
    Op { what, ..op }
}
