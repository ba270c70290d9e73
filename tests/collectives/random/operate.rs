//! One operation of a random program, as each rank calls it, and its serial model.

use super::Number;
use std::ops::Range;
use tickwire::{Comm, Engine, List, Rank, consecutive, in_place};

/// An operation, as all ranks of the world have planned it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) kind: usize,
    /// Which type of elements.
    pub(crate) element: usize,
    /// It waits, it does not, or it is persistent.
    pub(crate) form: usize,
    /// On which communicator.
    pub(crate) comm: usize,
    pub(crate) count: usize,
    pub(crate) root: u32,
    pub(crate) in_place: bool,
    /// Which one of its program.
    pub(crate) number: u64,
}

/// A communicator, its members by rank, which are ranks of the world, and the own rank in it.
#[derive(Clone)]
pub(crate) struct Members {
    pub(crate) comm: Comm,
    pub(crate) world: Vec<u32>,
    pub(crate) own: u32,
}

/// What a member has for an operation, and a serial program's results.
struct Model<'a> {
    planned: Planned,
    members: &'a Members,
}

impl Model<'_> {
    fn ranks(&self) -> usize {
        self.members.world.len()
    }

    /// Elements of a member.
    fn of<T: Number>(&self, rank: usize, count: usize) -> Vec<T> {
        let seed =
            (self.planned.number << 20 | u64::from(self.members.world[rank])).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = |at: u64| {
            (seed ^ at.wrapping_mul(0xbf58_476d_1ce4_e5b9)).rotate_left(29).wrapping_mul(0x94d0_49bb_1331_11eb)
        };
        (0..count as u64).map(|at| T::of(mixed(at) >> 11)).collect()
    }

    /// Those of all members, one behind the other.
    fn all<T: Number>(&self, count: impl Fn(usize) -> usize) -> Vec<T> {
        (0..self.ranks()).flat_map(|rank| self.of(rank, count(rank))).collect()
    }

    /// A length for each member, some of which are 0.
    fn uneven(&self, rank: usize) -> usize {
        let turn = rank + self.planned.number as usize;
        if turn.is_multiple_of(4) { 0 } else { (self.planned.count * (turn % 3 + 1)).div_ceil(5) }
    }

    /// A length for each pair of members: the same one way and the other if it is in place.
    fn between(&self, from: usize, to: usize) -> usize {
        let turn = if self.planned.in_place { from * to + from + to } else { from * 5 + to * 3 };
        turn % 4 * (self.planned.count / 30 + 1)
    }

    /// What a member has for another one.
    fn part<T: Number>(&self, from: usize, to: usize) -> Vec<T> {
        let first = (0..to).map(|to| self.between(from, to)).sum();
        self.of(from, first + self.between(from, to)).split_off(first)
    }

    /// Elements of some members combined in the order of ranks: the first pairs, so that a power of two is left, and a balanced
    /// tree of these.
    fn combined<T: Number>(&self, ranks: Range<usize>, count: usize) -> Vec<T> {
        let mut values: Vec<Vec<T>> = ranks.map(|rank| self.of(rank, count)).collect();
        let pairs = values.len() - (1 << values.len().ilog2());
        let combine = |pair: &[Vec<T>]| match pair {
            [one, other] => one.iter().zip(other).map(|(one, other)| T::combine(*one, *other)).collect(),
            rest => rest.concat(),
        };
        let rest = values.split_off(2 * pairs);
        values = values.chunks(2).map(combine).chain(rest).collect();
        while values.len() > 1 {
            values = values.chunks(2).map(combine).collect();
        }
        values.concat()
    }
}

/// Runs an operation of two buffers in one of its forms, and gives what is in the second one.
macro_rules! run {
    ($engine:ident, $model:ident, $name:ident, $iname:ident, $init:ident, ($send:expr $(=> $from:expr)?, $receive:expr $(, $more:expr)*)) => {{
        let comm = $model.members.comm;
        match $model.planned.form {
            0 => {
                let mut receive = $receive;
                $engine.$name($send, $($from,)? &mut receive $(, $more)*, comm).unwrap();
                receive
            }
            1 => {
                let request = $engine.$iname($send, $($from,)? $receive $(, $more)*, comm).unwrap();
                $engine.wait_take(request).unwrap().0.1
            }
            _ => {
                let first = $receive;
                let mut persistent = $engine.$init($send, $($from,)? first.clone() $(, $more)*, comm).unwrap();
                for _ in 0..2 {
                    $engine.buffer(&mut persistent).unwrap().1.clone_from_slice(&first);
                    $engine.start(&persistent).unwrap();
                    $engine.wait(&persistent).unwrap();
                }
                $engine.buffer(&mut persistent).unwrap().1.clone()
            }
        }
    }};
    // The buffers in place, or apart.
    ($engine:ident, $model:ident, if $in_place:expr => $both:expr; $name:ident, $iname:ident, $init:ident,
        ($send:expr, $receive:expr $(, $more:expr)*)) => {
        match $in_place {
            true => run!($engine, $model, $name, $iname, $init, (in_place(), $both $(, $more)*)),
            false => run!($engine, $model, $name, $iname, $init, ($send, $receive $(, $more)*)),
        }
    };
}

/// Calls it, and compares what comes of it.
pub(crate) fn operate<T: Number>(engine: &mut Engine, members: &Members, planned: Planned) {
    // The root alone gives another type of buffer then: all forms of that would be another program.
    let form = if matches!(planned.kind, 4 | 5) && planned.in_place { 0 } else { planned.form };
    let model = Model { planned: Planned { form, ..planned }, members };
    let (found, expected) = match planned.kind {
        0..=5 => from_or_to_root::<T>(engine, &model),
        6..=10 => for_each::<T>(engine, &model),
        _ => reduced::<T>(engine, &model),
    };
    let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    let lengths = (found.len(), expected.len());
    assert!(lengths.0 == lengths.1 && differs.is_none(), "{planned:?}, rank {}: {lengths:?}, {differs:?}", members.own);
}

fn from_or_to_root<T: Number>(engine: &mut Engine, model: &Model<'_>) -> (Vec<T>, Vec<T>) {
    let Planned { kind, count, form, .. } = model.planned;
    let (ranks, own, comm) = (model.ranks(), model.members.own as usize, model.members.comm);
    let root = model.planned.root as usize % ranks;
    let (is_root, to) = (own == root, Rank(root as u32));
    let in_place_here = is_root && model.planned.in_place;
    let zero = |count: usize| vec![T::zeroed(); count];
    // What the root has of all, with the own part alone.
    let own_alone = |all: &[T], place: Range<usize>| {
        let mut alone = zero(all.len());
        alone[place.clone()].copy_from_slice(&all[place]);
        alone
    };
    let length = |rank: usize| if kind == 3 || kind == 5 { model.uneven(rank) } else { count };
    let places = consecutive(&(0..ranks).map(length).collect::<Vec<_>>());
    match kind {
        0 => {
            match form {
                0 => engine.barrier(comm).unwrap(),
                1 => drop(engine.ibarrier(comm).map(|request| engine.wait_take(request).unwrap()).unwrap()),
                _ => {
                    let persistent = engine.barrier_init(comm).unwrap();
                    engine.start(&persistent).unwrap();
                    engine.wait(&persistent).unwrap();
                }
            }
            (vec![], vec![])
        }
        1 => {
            let expected: Vec<T> = model.of(root, count);
            let mut buffer = if is_root { expected.clone() } else { zero(count) };
            match form {
                0 => engine.bcast(&mut buffer, to, comm).unwrap(),
                1 => {
                    let request = engine.ibcast(buffer, to, comm).unwrap();
                    buffer = engine.wait_take(request).unwrap().0;
                }
                _ => {
                    let mut persistent = engine.bcast_init(buffer, to, comm).unwrap();
                    engine.start(&persistent).unwrap();
                    engine.wait(&persistent).unwrap();
                    buffer = engine.buffer(&mut persistent).unwrap().clone();
                }
            }
            (buffer, expected)
        }
        2 | 3 => {
            let all: Vec<T> = if is_root { model.all(length) } else { vec![] };
            let send: Vec<T> = model.of(own, length(own));
            let both = || own_alone(&all, places[own].clone());
            let found = match kind {
                2 => {
                    run!(engine, model, if in_place_here => both(); gather, igather, gather_init, (send, zero(all.len()), to))
                }
                _ => {
                    run!(engine, model, if in_place_here => both(); gatherv, igatherv, gatherv_init, (send, zero(all.len()), &places, to))
                }
            };
            (found, all)
        }
        _ => {
            let all: Vec<T> = model.of(root, places[ranks - 1].end);
            let expected = all[places[own].clone()].to_vec();
            let send = if is_root { all } else { vec![] };
            let room = zero(expected.len());
            let found = match (kind, in_place_here) {
                (4, false) => run!(engine, model, scatter, iscatter, scatter_init, (send, room, to)),
                (_, false) => run!(engine, model, scatterv, iscatterv, scatterv_init, (send, room, &places, to)),
                (4, true) => {
                    engine.scatter(send, in_place(), to, comm).unwrap();
                    expected.clone()
                }
                (_, true) => {
                    engine.scatterv(send, in_place(), &places, to, comm).unwrap();
                    expected.clone()
                }
            };
            (found, expected)
        }
    }
}

fn for_each<T: Number>(engine: &mut Engine, model: &Model<'_>) -> (Vec<T>, Vec<T>) {
    let Planned { kind, count, in_place: both, .. } = model.planned;
    let (ranks, own) = (model.ranks(), model.members.own as usize);
    let zero = |count: usize| vec![T::zeroed(); count];
    match kind {
        6 | 7 => {
            let length = |rank: usize| if kind == 7 { model.uneven(rank) } else { count };
            let places = consecutive(&(0..ranks).map(length).collect::<Vec<_>>());
            let (all, send): (Vec<T>, Vec<T>) = (model.all(length), model.of(own, length(own)));
            let mut alone = zero(all.len());
            alone[places[own].clone()].copy_from_slice(&send);
            let found = match kind {
                6 => {
                    run!(engine, model, if both => alone; allgather, iallgather, allgather_init, (send, zero(all.len())))
                }
                _ => {
                    run!(engine, model, if both => alone; allgatherv, iallgatherv, allgatherv_init, (send, zero(all.len()), &places))
                }
            };
            (found, all)
        }
        8 => {
            let count = count / ranks;
            let of = |rank: usize| model.of::<T>(rank, count * ranks);
            let expected = (0..ranks).flat_map(|from| of(from)[own * count..(own + 1) * count].to_vec()).collect();
            let room = zero(count * ranks);
            (run!(engine, model, if both => of(own); alltoall, ialltoall, alltoall_init, (of(own), room)), expected)
        }
        9 => {
            let expected: Vec<T> = (0..ranks).flat_map(|from| model.part(from, own)).collect();
            let send: Vec<T> = (0..ranks).flat_map(|to| model.part(own, to)).collect();
            let from = consecutive(&(0..ranks).map(|to| model.between(own, to)).collect::<Vec<_>>());
            let to = consecutive(&(0..ranks).map(|from| model.between(from, own)).collect::<Vec<_>>());
            // Between each two as much one way as the other.
            let found = match both {
                true => run!(engine, model, alltoallv, ialltoallv, alltoallv_init, (in_place() => &[], send, &to)),
                false => {
                    run!(engine, model, alltoallv, ialltoallv, alltoallv_init, (send => &from, zero(expected.len()), &to))
                }
            };
            (found, expected)
        }
        _ => {
            let send = List((0..ranks).map(|to| model.part::<T>(own, to)).collect());
            let room = List((0..ranks).map(|from| zero(model.between(from, own))).collect());
            let request = match both {
                true => {
                    let request =
                        engine.ialltoallw(List(vec![in_place::<T>(); ranks]), send, model.members.comm).unwrap();
                    engine.wait_take(request).unwrap().0.1
                }
                false => {
                    let request = engine.ialltoallw(send, room, model.members.comm).unwrap();
                    engine.wait_take(request).unwrap().0.1
                }
            };
            (request.0.concat(), (0..ranks).flat_map(|from| model.part(from, own)).collect())
        }
    }
}

fn reduced<T: Number>(engine: &mut Engine, model: &Model<'_>) -> (Vec<T>, Vec<T>) {
    let Planned { kind, count, in_place: both, .. } = model.planned;
    let (ranks, own) = (model.ranks(), model.members.own as usize);
    let root = model.planned.root as usize % ranks;
    let zero = |count: usize| vec![T::zeroed(); count];
    let of = |count: usize| model.of::<T>(own, count);
    match kind {
        11 => {
            let expected = if own == root { model.combined(0..ranks, count) } else { vec![] };
            let (room, to, here) = (zero(expected.len()), Rank(root as u32), both && own == root);
            (
                run!(engine, model, if here => of(count); reduce, ireduce, reduce_init, (of(count), room, T::combine, to)),
                expected,
            )
        }
        12 => {
            let found = run!(engine, model, if both => of(count); allreduce, iallreduce, allreduce_init, (of(count), zero(count), T::combine));
            (found, model.combined(0..ranks, count))
        }
        13 | 14 => {
            let length = |rank: usize| if kind == 14 { model.uneven(rank) } else { count / ranks };
            let counts: Vec<usize> = (0..ranks).map(length).collect();
            let (all, places) = (counts.iter().sum(), consecutive(&counts));
            let room = zero(counts[own]);
            let mut found = match kind {
                13 => {
                    run!(engine, model, if both => of(all); reduce_scatter_block, ireduce_scatter_block, reduce_scatter_block_init,
                    (of(all), room, T::combine))
                }
                _ => run!(engine, model, if both => of(all); reduce_scatter, ireduce_scatter, reduce_scatter_init,
                    (of(all), room, &counts, T::combine)),
            };
            found.truncate(counts[own]);
            (found, model.combined::<T>(0..ranks, all)[places[own].clone()].to_vec())
        }
        // Prefixes have other trees.
        _ if !T::ASSOCIATIVE => (vec![], vec![]),
        15 => {
            let found =
                run!(engine, model, if both => of(count); scan, iscan, scan_init, (of(count), zero(count), T::combine));
            (found, model.combined(0..own + 1, count))
        }
        _ => {
            let before = if both { of(count) } else { zero(count) };
            let found = run!(engine, model, if both => of(count); exscan, iexscan, exscan_init, (of(count), zero(count), T::combine));
            (found, if own == 0 { before } else { model.combined(0..own, count) })
        }
    }
}
