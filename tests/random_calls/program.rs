//! Random programs: which communicators there are, and what all ranks call.

use super::items::scramble;
use super::neighbours::Net;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fmt;

/// Most bytes of a buffer of one call. Two ranks may have parts of 256 KiB each: from that length on, operands in a
/// heap are read in place.
const BYTES_MAX: usize = 560 << 10;

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// An operation.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Kind {
            $($kind),*
        }

        const KINDS: &[Kind] = &[$(Kind::$kind),*];
    };
}
kinds! {
    Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv Alltoallw
    Reduce Allreduce ReduceScatter ReduceScatterBlock Scan Exscan
    NeighborAllgather NeighborAllgatherv NeighborAlltoall NeighborAlltoallv NeighborAlltoallw
}

impl Kind {
    /// Whether only neighbours exchange elements.
    pub(crate) fn is_among_neighbours(self) -> bool {
        use Kind::{NeighborAllgather, NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv, NeighborAlltoallw};
        matches!(
            self,
            NeighborAllgather | NeighborAllgatherv | NeighborAlltoall | NeighborAlltoallv | NeighborAlltoallw
        )
    }
}

/// How the operation is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The call waits for the end.
    Waits,
    /// The call returns a request.
    Begins,
    /// The call makes a persistent request, which is started at once.
    Persistent,
    /// The call returns a request in a scope, which borrows the buffers. The scope waits for it.
    Scoped,
    /// The call makes a persistent request in a scope, which borrows the buffers. The scope starts it several times.
    ScopedPersistent,
}

/// The type of the elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    U64,
    I32,
    F64,
    Matrix,
    /// Packed by a datatype with gaps.
    PackedF64,
    PackedMatrix,
}

/// The operation that reduces the elements: see [`super::items::Item`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    Native,
    Chain,
    Mix,
}

/// How many elements a rank has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    Elements(usize),
    /// The elements that fit this many bytes, and a few more or less.
    Bytes(usize, isize),
}

/// A call of all ranks of a communicator.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) form: Form,
    pub(crate) of: Of,
    pub(crate) by: By,
    pub(crate) size: Size,
    /// Index of the communicator, modulo the number of communicators.
    pub(crate) comm: usize,
    /// The root, modulo the number of ranks.
    pub(crate) root: usize,
    /// Whether the call is in place, if it has such a form. A rooted call is in place only at its root.
    pub(crate) in_place: bool,
    /// The seed of the lengths of each rank and of the places of elements.
    pub(crate) shape: u8,
}

impl Call {
    /// How many elements a rank has, or how many each of several parts has.
    pub(crate) fn count(&self, element: usize, parts: usize) -> usize {
        let count = match self.size {
            Size::Elements(count) => count,
            Size::Bytes(bytes, more) => (bytes / element).saturating_add_signed(more),
        };
        let parts = match self.kind {
            Kind::Bcast | Kind::Reduce | Kind::Allreduce | Kind::Scan | Kind::Exscan => 1,
            _ => parts.max(1),
        };
        count.min(BYTES_MAX / element / parts)
    }

    /// A number below `end`. It follows from the shape, and from one rank or a pair of ranks.
    pub(crate) fn chance(&self, one: usize, other: usize, end: usize) -> usize {
        let seed = u64::from(self.shape) << 40 | (one as u64) << 20 | other as u64;
        (scramble(seed) % end.max(1) as u64) as usize
    }
}

/// What all ranks do next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Call(Call),
    /// They start a persistent request of a communicator again, with other values.
    Again(usize),
    /// They wait for all open operations, each rank in its own order.
    Settle,
}

/// A communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Made {
    World,
    Dup,
    /// The world split into this many communicators, in the order of ranks or in the opposite order.
    Split(u32, bool),
    /// All ranks but one.
    Without(u32),
}

impl Made {
    /// The color and the key of a rank in a split. `None` if the communicator is not made by a split.
    pub(crate) fn color(self, rank: u32) -> Option<(Option<u32>, i32)> {
        match self {
            Made::World | Made::Dup => None,
            Made::Split(colors, reversed) => Some((Some(rank % colors), if reversed { -(rank as i32) } else { 0 })),
            Made::Without(without) => Some(((rank != without).then_some(0), 0)),
        }
    }

    /// The members of the communicator that this rank is in, as ranks of the world, in the order of their new ranks.
    /// Empty if it is in none.
    pub(crate) fn members(self, rank: u32, size: u32) -> Vec<u32> {
        let Some((color, _)) = self.color(rank) else { return (0..size).collect() };
        let of = |other: u32| self.color(other).filter(|(of, _)| of.is_some() && *of == color);
        let mut members: Vec<u32> = (0..size).filter(|&other| of(other).is_some()).collect();
        members.sort_by_key(|&other| of(other).map(|(_, key)| key));
        members
    }
}

/// A program.
#[derive(Clone)]
pub struct Program {
    /// How many ranks run it.
    pub ranks: u32,
    /// Communicators and their topologies.
    pub(crate) comms: Vec<(Made, Net)>,
    pub(crate) steps: Vec<Step>,
}

/// Prints a line for each step.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ranks, {:?}", self.ranks, self.comms)?;
        (0..).zip(&self.steps).try_for_each(|(number, step)| write!(f, "\n{number}: {step:?}"))
    }
}

/// Programs of all kinds and forms of calls, of up to nine ranks.
pub fn programs() -> impl Strategy<Value = Program> {
    programs_of(prop_oneof![1 => Just(1u32), 6 => 2u32..=6, 1 => Just(9)])
}

/// Programs of all kinds and forms of calls, of these numbers of ranks. The most is 16.
pub fn programs_of(ranks: impl Strategy<Value = u32>) -> impl Strategy<Value = Program> {
    let made = prop_oneof![
        Just(Made::Dup),
        (1u32..=3, any::<bool>()).prop_map(|(colors, reversed)| Made::Split(colors, reversed)),
        (0u32..6).prop_map(Made::Without),
    ];
    (ranks, net(), vec((made, net()), 0..3), vec(step(), 10..40)).prop_map(|(ranks, net, mut comms, steps)| {
        comms.insert(0, (Made::World, net));
        Program { ranks, comms, steps }
    })
}

fn net() -> impl Strategy<Value = Net> {
    prop_oneof![
        (1usize..=3, any::<u8>()).prop_map(|(dimensions, periodic)| Net::Grid(dimensions, periodic)),
        (1usize..=3, any::<u8>()).prop_map(|(most, seed)| Net::Graph(most, seed)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![8 => call().prop_map(Step::Call), 2 => any::<usize>().prop_map(Step::Again), 1 => Just(Step::Settle)]
}

fn call() -> impl Strategy<Value = Call> {
    let kind = prop::sample::select(KINDS);
    let form = prop_oneof![
        4 => Just(Form::Waits),
        4 => Just(Form::Begins),
        2 => Just(Form::Persistent),
        1 => Just(Form::Scoped),
        1 => Just(Form::ScopedPersistent),
    ];
    let of = vec![Of::U64, Of::I32, Of::F64, Of::Matrix, Of::PackedF64, Of::PackedMatrix];
    let of = prop::sample::select(of);
    let by = prop::sample::select(vec![By::Native, By::Native, By::Chain, By::Mix]);
    let comm = prop_oneof![2 => Just(0usize), 1 => 0usize..3];
    (kind, form, of, by, size(), comm, 0usize..9, any::<bool>(), any::<u8>()).prop_map(
        |(kind, form, of, by, size, comm, root, in_place, shape)| Call {
            kind,
            form,
            of,
            by,
            size,
            comm,
            root,
            in_place,
            shape,
        },
    )
}

/// Sizes of few elements, of up to some thousands, and around the limits at which operations change their way: a cache
/// line, a slot or the cells of boards; a tree or straight to each rank; one frame or a rendezvous; whole or in pieces.
fn size() -> impl Strategy<Value = Size> {
    let edges = vec![32, 64, 480, 1920, 2 << 10, 4 << 10, 8 << 10, 16 << 10];
    let long = vec![32 << 10, 64 << 10, 96 << 10, 128 << 10, 256 << 10];
    prop_oneof![
        3 => (0usize..3).prop_map(Size::Elements),
        3 => (0usize..400).prop_map(Size::Elements),
        1 => (0usize..5_000).prop_map(Size::Elements),
        3 => (prop::sample::select(edges), -1isize..=1).prop_map(|(bytes, more)| Size::Bytes(bytes, more)),
        1 => (prop::sample::select(long), -1isize..=1).prop_map(|(bytes, more)| Size::Bytes(bytes, more)),
    ]
}
