//! The calls of a rank in all their forms, and the check of their buffers.

use super::block::Block;
use super::buffers::Buffers;
use super::items::{Item, Matrix};
use super::program::{Call, Form, Kind, Of};
use super::serial::{InPlace, Part, View, combine, is_native, part};
use std::ops::Range;
use tickwire::{Comm, Engine, List, Persistent, Rank, Request, Test, in_place};

/// A communicator, as one of its members has it.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    pub(crate) comm: Comm,
    /// The members, as ranks of the world.
    pub(crate) world: Vec<u32>,
    /// The own rank in the communicator.
    pub(crate) own: usize,
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
    fn view(&self, round: u32) -> View<'_> {
        let Members { world, own, .. } = &self.members;
        View { call: &self.call, number: self.number, round, members: world, own: *own }
    }

    fn words(&self, round: u32) -> String {
        let Members { world, own, .. } = &self.members;
        let (number, heap) = (self.number, self.heap);
        format!("step {number}, start {round}, rank {own} of {world:?}, in the heap {heap:?}: {:?}", self.call)
    }
}

/// An operation that a rank has begun.
pub(crate) trait Run {
    /// Whether it has ended.
    fn is_done(&mut self, engine: &mut Engine) -> bool;
    /// Waits for its end, takes its buffers, and compares them with the model.
    fn check(&mut self, engine: &mut Engine);
    /// Starts it again, with other values.
    fn start(&mut self, engine: &mut Engine);
}

/// An operation with a request.
struct Begun<T, B> {
    request: Option<Request<B>>,
    part: Part<T>,
    site: Site,
}

impl<T: Item, B: Buffers<T>> Run for Begun<T, B> {
    fn is_done(&mut self, engine: &mut Engine) -> bool {
        self.request.as_ref().is_none_or(|request| !matches!(engine.test(request), Ok(Test::Pending)))
    }

    fn check(&mut self, engine: &mut Engine) {
        let Some(request) = self.request.take() else { return };
        let words = || self.site.words(0);
        let (buffers, _) = engine.wait_take(request).unwrap_or_else(|failed| panic!("{}\n{}", failed.error, words()));
        buffers.compare(&self.part, &words);
    }

    fn start(&mut self, _: &mut Engine) {}
}

/// A persistent operation.
struct Kept<T, B> {
    persistent: Persistent<B>,
    part: Part<T>,
    site: Site,
    /// How often it was started before.
    round: u32,
}

impl<T: Item, B: Buffers<T>> Run for Kept<T, B> {
    fn is_done(&mut self, engine: &mut Engine) -> bool {
        !matches!(engine.test(&self.persistent), Ok(Test::Pending))
    }

    fn check(&mut self, engine: &mut Engine) {
        let words = || self.site.words(self.round);
        engine.wait(&self.persistent).unwrap_or_else(|error| panic!("{error}\n{}", words()));
        engine.buffer(&mut self.persistent).unwrap().compare(&self.part, &words);
    }

    fn start(&mut self, engine: &mut Engine) {
        self.round += 1;
        self.part = part(&self.site.view(self.round));
        engine.buffer(&mut self.persistent).unwrap().fill(&self.part);
        engine.start(&self.persistent).unwrap_or_else(|error| panic!("{error}\n{}", self.site.words(self.round)));
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
    /// Checks the result of a blocking call.
    fn waited(&self, ended: Result<(), impl std::fmt::Display>, sent: Block<T>, room: Block<T>) -> Posted {
        let words = || self.site.words(0);
        ended.unwrap_or_else(|error| panic!("{error}\n{}", words()));
        match self.part.in_place {
            InPlace::Receive => (sent, in_place::<T>()).compare(&self.part, &words),
            _ => (sent, room).compare(&self.part, &words),
        }
        None
    }

    /// The buffer to send from.
    fn send(&self) -> Block<T> {
        Block::of(&self.part.send, self.site.heap[0].then_some(&*self.engine))
    }

    /// A buffer to receive into.
    fn room(&self) -> Block<T> {
        Block::of(&self.part.receive, self.site.heap[1].then_some(&*self.engine))
    }

    /// One buffer for each place of the send side (0) or the receive side (1).
    fn list(&self, side: usize, places: &[Range<usize>]) -> List<Block<T>> {
        let (values, heap) = ([&self.part.send, &self.part.receive][side], self.site.heap[side]);
        let block = |place: &Range<usize>| Block::of(&values[place.clone()], heap.then_some(&*self.engine));
        List(places.iter().map(block).collect())
    }

    fn begun<B: Buffers<T> + 'static>(self, posted: tickwire::Posted<B>) -> Posted {
        let Caller { site, part, .. } = self;
        let request = posted.unwrap_or_else(|rejected| panic!("{}\n{}", rejected.error, site.words(0)));
        Some(Box::new(Begun { request: Some(request), part, site }))
    }

    fn kept<B: Buffers<T> + 'static>(self, made: Result<Persistent<B>, tickwire::Rejected<B>>) -> Posted {
        let Caller { site, part, engine } = self;
        let persistent = made.unwrap_or_else(|rejected| panic!("{}\n{}", rejected.error, site.words(0)));
        engine.start(&persistent).unwrap_or_else(|error| panic!("{error}\n{}", site.words(0)));
        Some(Box::new(Kept { persistent, part, site, round: 0 }))
    }
}

/// Makes a call in its form. The names are those of the three forms. Then come the buffers of the form that waits, in
/// terms of the send buffer and the receive buffer, the buffers of the two other forms, and other arguments.
macro_rules! call {
    (
        $caller:ident, [$waits:ident $begins:ident $init:ident],
        |$sent:ident, $room:ident| ($($given:expr),*), ($($owned:expr),*) $(, $arg:expr)*
    ) => {{
        let comm = $caller.site.members.comm;
        match $caller.site.call.form {
            Form::Waits => {
                let (sent, mut room) = ($caller.send(), $caller.room());
                let ($sent, $room) = (&sent, &mut room);
                let ended = $caller.engine.$waits($($given,)* $($arg,)* comm);
                $caller.waited(ended, sent, room)
            }
            Form::Begins => {
                let posted = $caller.engine.$begins($($owned,)* $($arg,)* comm);
                $caller.begun(posted)
            }
            Form::Persistent => {
                let made = $caller.engine.$init($($owned,)* $($arg,)* comm);
                $caller.kept(made)
            }
        }
    }};
}

/// As [`call`], for an operation with a pair of buffers. The send side may be in place.
macro_rules! pair {
    ($caller:ident, $names:tt $(, $arg:expr)*) => {
        match $caller.part.in_place {
            InPlace::Send => call!(
                $caller, $names, |_sent, room| (in_place::<T>(), &mut room[..]),
                (in_place::<T>(), $caller.room()) $(, $arg)*
            ),
            _ => call!(
                $caller, $names, |sent, room| (&sent[..], &mut room[..]),
                ($caller.send(), $caller.room()) $(, $arg)*
            ),
        }
    };
}

/// As [`pair`], but the receive side may be in place.
macro_rules! from_root {
    ($caller:ident, $names:tt $(, $arg:expr)*) => {
        match $caller.part.in_place {
            InPlace::Receive => call!(
                $caller, $names, |sent, _room| (&sent[..], in_place::<T>()),
                ($caller.send(), in_place::<T>()) $(, $arg)*
            ),
            _ => call!(
                $caller, $names, |sent, room| (&sent[..], &mut room[..]),
                ($caller.send(), $caller.room()) $(, $arg)*
            ),
        }
    };
}

/// As [`pair`], with a reduction: the operation of the element type, or a function.
macro_rules! reduction {
    ($caller:ident, $names:tt, [$($counts:expr)?] $(, $arg:expr)*) => {
        match is_native::<T>(&$caller.site.call) {
            true => pair!($caller, $names $(, $counts)?, T::NATIVE $(, $arg)*),
            false => pair!($caller, $names $(, $counts)?, combine::<T>(&$caller.site.call).0 $(, $arg)*),
        }
    };
}

/// Calls an operation. Returns the operation that has begun, if any.
pub(crate) fn post(engine: &mut Engine, site: Site) -> Posted {
    match site.call.of {
        Of::U64 => post_of::<u64>(engine, site),
        Of::I32 => post_of::<i32>(engine, site),
        Of::F64 => post_of::<f64>(engine, site),
        Of::Matrix => post_of::<Matrix>(engine, site),
    }
}

fn post_of<T: Item>(engine: &mut Engine, site: Site) -> Posted {
    let (part, root) = (part::<T>(&site.view(0)), Rank(site.view(0).root() as u32));
    let (from, to, counts) = (part.from.clone(), part.to.clone(), part.counts.clone());
    let (kind, caller) = (site.call.kind, Caller { engine, site, part });
    match kind {
        Kind::Barrier => call!(caller, [barrier ibarrier barrier_init], |_sent, _room| (), ()),
        Kind::Bcast => call!(
            caller, [bcast ibcast bcast_init], |_sent, room| (&mut room[..]), (caller.room()), root
        ),
        Kind::Gather => pair!(caller, [gather igather gather_init], root),
        Kind::Gatherv => pair!(caller, [gatherv igatherv gatherv_init], &to, root),
        Kind::Scatter => from_root!(caller, [scatter iscatter scatter_init], root),
        Kind::Scatterv => from_root!(caller, [scatterv iscatterv scatterv_init], &from, root),
        Kind::Allgather => pair!(caller, [allgather iallgather allgather_init]),
        Kind::Allgatherv => pair!(caller, [allgatherv iallgatherv allgatherv_init], &to),
        Kind::Alltoall => pair!(caller, [alltoall ialltoall alltoall_init]),
        Kind::Alltoallv => exchange(caller, [&from, &to]),
        Kind::Alltoallw => exchange_lists(caller, [&from, &to]),
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
    }
}

/// The places in the send buffer and in the receive buffer.
type Sides<'a> = [&'a [Range<usize>]; 2];

fn exchange<T: Item>(caller: Caller<'_, T>, [from, to]: Sides) -> Posted {
    match caller.part.in_place {
        InPlace::Send => call!(
            caller, [alltoallv ialltoallv alltoallv_init],
            |_sent, room| (in_place::<T>(), &[], &mut room[..], to),
            (in_place::<T>(), &[], caller.room(), to)
        ),
        _ => call!(
            caller, [alltoallv ialltoallv alltoallv_init],
            |sent, room| (&sent[..], from, &mut room[..], to),
            (caller.send(), from, caller.room(), to)
        ),
    }
}

fn exchange_lists<T: Item>(caller: Caller<'_, T>, [from, to]: Sides) -> Posted {
    match caller.part.in_place {
        InPlace::Send => call!(
            caller, [alltoallw ialltoallw alltoallw_init],
            |_sent, room| (List(vec![in_place::<T>(); to.len()]), slices(room, to)),
            (List(vec![in_place::<T>(); to.len()]), caller.list(1, to))
        ),
        _ => call!(
            caller, [alltoallw ialltoallw alltoallw_init],
            |sent, room| (
                List(from.iter().map(|place| &sent[place.clone()]).collect()), slices(room, to)
            ),
            (caller.list(0, from), caller.list(1, to))
        ),
    }
}

/// One slice for each place. The places must follow each other without gaps.
fn slices<'a, T>(all: &'a mut [T], places: &[Range<usize>]) -> List<&'a mut [T]> {
    let mut rest = all;
    let mut slices = Vec::new();
    for place in places {
        let (slice, behind) = std::mem::take(&mut rest).split_at_mut(place.len());
        slices.push(slice);
        rest = behind;
    }
    List(slices)
}
