//! The calls of a rank in all their forms.

use super::buffers::{Buffers, Side, compare};
use super::items::{Item, Matrix};
use super::memory::{Lend, LendAll, Memory, Packs, Plain};
use super::neighbours::Net;
use super::program::{Call, Form, Kind, Of};
use super::runs::{Begun, Kept, Run};
use super::serial::{InPlace, Part, View, combine, is_native, part};
use std::ops::Range;
use tickwire::{Comm, Engine, List, Persistent, Pieces, Rank, Rejected, Request, Scope, Test, in_place};

/// A communicator, as one of its members has it.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    pub(crate) comm: Comm,
    /// The members, as ranks of the world.
    pub(crate) world: Vec<u32>,
    /// The own rank in the communicator.
    pub(crate) own: usize,
    pub(crate) net: Net,
}

/// A call of a program on a communicator.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) call: Call,
    /// The number of the call's step in the program.
    pub(crate) number: usize,
    pub(crate) members: Members,
    /// Whether the send buffer and the receive buffer are in the shared heap.
    pub(crate) heap: [bool; 2],
}

impl Site {
    pub(super) fn view(&self, round: u32) -> View<'_> {
        let Members { world, own, net, .. } = &self.members;
        View { call: &self.call, number: self.number, round, members: world, own: *own, net: *net }
    }

    pub(super) fn words(&self, round: u32) -> String {
        let Members { world, own, net, .. } = &self.members;
        let (number, heap) = (self.number, self.heap);
        format!("step {number}, start {round}, rank {own} of {world:?}, {net:?}, in the heap {heap:?}: {:?}", self.call)
    }
}

/// A call that is about to be made.
struct Caller<'a, T> {
    engine: &'a mut Engine,
    site: Site,
    part: Part<T>,
}

/// The operation that has begun. `None` after a call that waits.
type Posted = Option<Box<dyn Run>>;

impl<T: Item> Caller<'_, T> {
    /// Checks the result of a call whose buffers were borrowed.
    fn ended(
        &self,
        ended: Result<(), impl std::fmt::Display>,
        sent: &mut impl Side<T>,
        room: &mut impl Side<T>,
    ) -> Posted {
        let words = || self.site.words(0);
        ended.unwrap_or_else(|error| panic!("{error}\n{}", words()));
        compare(sent, room, &self.part, &words);
        None
    }

    /// A buffer of one side: to send from (0), or to receive into (1).
    fn block<M: Memory<T>>(&self, side: usize) -> M::Block {
        let values = [&self.part.send, &self.part.receive][side];
        M::block(values, self.site.heap[side].then_some(&*self.engine))
    }

    /// One buffer for each place of a side.
    fn list<M: Memory<T>>(&self, side: usize, places: &[Range<usize>]) -> List<M::Block> {
        let (values, heap) = ([&self.part.send, &self.part.receive][side], self.site.heap[side]);
        let block = |place: &Range<usize>| M::block(&values[place.clone()], heap.then_some(&*self.engine));
        List(places.iter().map(block).collect())
    }

    fn begun<B: Buffers<T> + 'static>(self, posted: tickwire::Posted<B>) -> Posted {
        let Caller { site, part, .. } = self;
        let request = posted.unwrap_or_else(|rejected| panic!("{}\n{}", rejected.error, site.words(0)));
        Some(Box::new(Begun { request: Some(request), part, site }))
    }

    fn kept<B: Buffers<T> + 'static>(self, made: Result<Persistent<B>, Rejected<B>>) -> Posted {
        let Caller { site, part, engine } = self;
        let persistent = made.unwrap_or_else(|rejected| panic!("{}\n{}", rejected.error, site.words(0)));
        engine.start(&persistent).unwrap_or_else(|error| panic!("{error}\n{}", site.words(0)));
        Some(Box::new(Kept { persistent, part, site, round: 0 }))
    }
}

/// Waits in a scope for an operation, in one of several ways: other ranks may wait for it in another way.
fn wait_for<B: Pieces>(
    scope: &mut Scope<'_, '_>,
    posted: Result<Request<B>, Rejected<B>>,
    way: usize,
) -> Result<(), String> {
    let request = posted.map_err(|rejected| rejected.error.to_string())?;
    match way {
        0 => {}
        1 => drop(scope.wait(&request).map_err(|error| error.to_string())?),
        _ => {
            while scope.test(&request).map_err(|error| error.to_string())? == Test::Pending {
                scope.tick();
            }
        }
    }
    scope.wait_take(request).map(drop).map_err(|failed| failed.error.to_string())
}

/// Starts a persistent operation in a scope so many times, with the same values each time, and waits for each end.
fn start_and_wait<B: Pieces>(
    scope: &mut Scope<'_, '_>,
    made: Result<Persistent<B>, Rejected<B>>,
    starts: usize,
    fill: &dyn Fn(&mut B),
) -> Result<(), String> {
    let mut persistent = made.map_err(|rejected| rejected.error.to_string())?;
    for _ in 0..starts {
        fill(scope.buffer(&mut persistent).map_err(|error| error.to_string())?);
        scope.start(&persistent).map_err(|error| error.to_string())?;
        scope.wait(&persistent).map_err(|error| error.to_string())?;
    }
    scope.free(persistent).map(drop).map_err(|failed| failed.error.to_string())
}

/// Borrows a buffer, or all buffers of a list.
macro_rules! lent {
    ($lend:ident, $how:ident, $buffer:expr) => {
        <_ as $lend<T, M::Unit>>::$how($buffer)
    };
}

/// Makes a call in its form. The arguments are:
/// - the trait that borrows its buffers, and the names of the three forms;
/// - the buffer to send from, and the buffer to receive into;
/// - the arguments of all forms, in terms of these two;
/// - where the buffer to receive into is among the buffers of a request.
macro_rules! call {
    (
        $caller:ident, $lend:ident, [$waits:ident $begins:ident $init:ident], $from:expr, $into:expr,
        |$sent:pat_param, $room:pat_param| ($($given:expr),*), |$buffers:pat_param| $received:expr
    ) => {{
        let (comm, part) = ($caller.site.members.comm, &$caller.part);
        let (call, own) = (&$caller.site.call, $caller.site.members.own);
        let (mut sent, mut room) = ($from, $into);
        match call.form {
            Form::Waits => {
                let ($sent, $room) = (lent!($lend, given, &sent), lent!($lend, room, &mut room));
                let ended = $caller.engine.$waits($($given,)* comm);
                $caller.ended(ended, &mut sent, &mut room)
            }
            Form::Begins => {
                let ($sent, $room) = (sent, room);
                let posted = $caller.engine.$begins($($given,)* comm);
                $caller.begun(posted)
            }
            Form::Persistent => {
                let ($sent, $room) = (sent, room);
                let made = $caller.engine.$init($($given,)* comm);
                $caller.kept(made)
            }
            Form::Scoped => {
                let ($sent, $room) = (lent!($lend, given, &sent), lent!($lend, room, &mut room));
                let way = call.chance(own, 60, 3);
                let ended = $caller.engine.scope(|scope| {
                    let posted = scope.$begins($($given,)* comm);
                    wait_for(scope, posted, way)
                });
                $caller.ended(ended, &mut sent, &mut room)
            }
            Form::ScopedPersistent => {
                let ($sent, $room) = (lent!($lend, given, &sent), lent!($lend, room, &mut room));
                let starts = 1 + call.chance(0, 61, 3);
                let ended = $caller.engine.scope(|scope| {
                    let made = scope.$init($($given,)* comm);
                    start_and_wait(scope, made, starts, &|$buffers| $received.fill(&part.receive))
                });
                $caller.ended(ended, &mut sent, &mut room)
            }
        }
    }};
}

/// As [`call`], for an operation with a pair of buffers.
macro_rules! both {
    ($caller:ident, $lend:ident, $names:tt, $from:expr, $into:expr $(, $arg:expr)*) => {
        call!($caller, $lend, $names, $from, $into, |sent, room| (sent, room $(, $arg)*), |buffers| buffers.1)
    };
}

/// As [`both`]. The send side may be in place.
macro_rules! pair {
    ($caller:ident, $names:tt $(, $arg:expr)*) => {
        match $caller.part.in_place {
            InPlace::Send => both!($caller, Lend, $names, in_place::<M::Unit>(), $caller.block::<M>(1) $(, $arg)*),
            _ => both!($caller, Lend, $names, $caller.block::<M>(0), $caller.block::<M>(1) $(, $arg)*),
        }
    };
}

/// As [`pair`], but the receive side may be in place.
macro_rules! from_root {
    ($caller:ident, $names:tt $(, $arg:expr)*) => {
        match $caller.part.in_place {
            InPlace::Receive => both!($caller, Lend, $names, $caller.block::<M>(0), in_place::<M::Unit>() $(, $arg)*),
            _ => both!($caller, Lend, $names, $caller.block::<M>(0), $caller.block::<M>(1) $(, $arg)*),
        }
    };
}

/// As [`pair`], with a reduction: the operation of the element type, or a function.
macro_rules! reduction {
    ($caller:ident, $names:tt, [$($counts:expr)?] $(, $arg:expr)*) => {
        match is_native::<T>(&$caller.site.call) {
            true => pair!($caller, $names $(, $counts)?, M::native() $(, $arg)*),
            false => pair!($caller, $names $(, $counts)?, M::by(combine::<T>(&$caller.site.call).0) $(, $arg)*),
        }
    };
}

/// Calls an operation. Returns the operation that has begun, if any.
pub(crate) fn post(engine: &mut Engine, site: Site) -> Posted {
    match site.call.of {
        Of::U64 => post_of::<u64, Plain>(engine, site),
        Of::I32 => post_of::<i32, Plain>(engine, site),
        Of::F64 => post_of::<f64, Plain>(engine, site),
        Of::Matrix => post_of::<Matrix, Plain>(engine, site),
        Of::PackedF64 => post_of::<f64, Packs>(engine, site),
        Of::PackedMatrix => post_of::<Matrix, Packs>(engine, site),
    }
}

fn post_of<T: Item, M: Memory<T>>(engine: &mut Engine, site: Site) -> Posted {
    let (part, root) = (part::<T>(&site.view(0)), Rank(site.view(0).root() as u32));
    let (from, to, counts) = (part.from.clone(), part.to.clone(), part.counts.clone());
    let (kind, caller) = (site.call.kind, Caller { engine, site, part });
    match kind {
        Kind::Barrier => call!(
            caller, Lend, [barrier ibarrier barrier_init], in_place::<M::Unit>(), in_place::<M::Unit>(),
            |_, _| (), |_| in_place::<T>()
        ),
        Kind::Bcast => call!(
            caller, Lend, [bcast ibcast bcast_init], in_place::<M::Unit>(), caller.block::<M>(1),
            |_, room| (room, root), |buffer| buffer
        ),
        Kind::Gather => pair!(caller, [gather igather gather_init], root),
        Kind::Gatherv => pair!(caller, [gatherv igatherv gatherv_init], &to, root),
        Kind::Scatter => from_root!(caller, [scatter iscatter scatter_init], root),
        Kind::Scatterv => from_root!(caller, [scatterv iscatterv scatterv_init], &from, root),
        Kind::Allgather => pair!(caller, [allgather iallgather allgather_init]),
        Kind::Allgatherv => pair!(caller, [allgatherv iallgatherv allgatherv_init], &to),
        Kind::Alltoall => pair!(caller, [alltoall ialltoall alltoall_init]),
        Kind::Alltoallv => exchange::<T, M>(caller, [&from, &to]),
        Kind::Alltoallw => exchange_lists::<T, M>(caller, [&from, &to]),
        Kind::Reduce => reduction!(caller, [reduce ireduce reduce_init], [], root),
        Kind::Allreduce => reduction!(caller, [allreduce iallreduce allreduce_init], []),
        Kind::ReduceScatter => {
            reduction!(caller, [reduce_scatter ireduce_scatter reduce_scatter_init], [&counts])
        }
        Kind::ReduceScatterBlock => reduction!(
            caller, [reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init], []
        ),
        Kind::Scan => reduction!(caller, [scan iscan scan_init], []),
        Kind::Exscan => reduction!(caller, [exscan iexscan exscan_init], []),
        _ => post_among_neighbours::<T, M>(caller, kind, [&from, &to]),
    }
}

/// The places in the send buffer and in the receive buffer.
type Sides<'a> = [&'a [Range<usize>]; 2];

fn post_among_neighbours<T: Item, M: Memory<T>>(caller: Caller<'_, T>, kind: Kind, [from, to]: Sides) -> Posted {
    match kind {
        Kind::NeighborAllgather => both!(
            caller, Lend, [neighbor_allgather ineighbor_allgather neighbor_allgather_init],
            caller.block::<M>(0), caller.block::<M>(1)
        ),
        Kind::NeighborAllgatherv => both!(
            caller, Lend, [neighbor_allgatherv ineighbor_allgatherv neighbor_allgatherv_init],
            caller.block::<M>(0), caller.block::<M>(1), to
        ),
        Kind::NeighborAlltoall => both!(
            caller, Lend, [neighbor_alltoall ineighbor_alltoall neighbor_alltoall_init],
            caller.block::<M>(0), caller.block::<M>(1)
        ),
        Kind::NeighborAlltoallv => call!(
            caller, Lend, [neighbor_alltoallv ineighbor_alltoallv neighbor_alltoallv_init],
            caller.block::<M>(0), caller.block::<M>(1),
            |sent, room| (sent, from, room, to), |buffers| buffers.1
        ),
        _ => both!(
            caller, LendAll, [neighbor_alltoallw ineighbor_alltoallw neighbor_alltoallw_init],
            caller.list::<M>(0, from), caller.list::<M>(1, to)
        ),
    }
}

fn exchange<T: Item, M: Memory<T>>(caller: Caller<'_, T>, [from, to]: Sides) -> Posted {
    match caller.part.in_place {
        InPlace::Send => call!(
            caller, Lend, [alltoallv ialltoallv alltoallv_init], in_place::<M::Unit>(), caller.block::<M>(1),
            |sent, room| (sent, &[], room, to), |buffers| buffers.1
        ),
        _ => call!(
            caller, Lend, [alltoallv ialltoallv alltoallv_init], caller.block::<M>(0), caller.block::<M>(1),
            |sent, room| (sent, from, room, to), |buffers| buffers.1
        ),
    }
}

fn exchange_lists<T: Item, M: Memory<T>>(caller: Caller<'_, T>, [from, to]: Sides) -> Posted {
    match caller.part.in_place {
        InPlace::Send => both!(
            caller, LendAll, [alltoallw ialltoallw alltoallw_init],
            List(vec![in_place::<M::Unit>(); to.len()]), caller.list::<M>(1, to)
        ),
        _ => both!(
            caller, LendAll, [alltoallw ialltoallw alltoallw_init], caller.list::<M>(0, from), caller.list::<M>(1, to)
        ),
    }
}
