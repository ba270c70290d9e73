//! Operations among the neighbours of a ring, in all of their forms.

use crate::kit::{BOUND, clusters, in_threads, values};
use std::ops::Range;
use tickwire::testing::Cluster;
use tickwire::{Cartesian, Comm, Engine, List, Persistent, Pieces, Rejected, Test, Topology};

/// Numbers of elements for a neighbour: few, and more than a frame has.
const COUNTS: [usize; 3] = [0, 3, 4000];

/// A rank of a ring in one of several rounds. In each round it sends other values.
#[derive(Clone, Copy)]
struct Place {
    rank: u32,
    size: u32,
    round: u32,
    count: usize,
}

impl Place {
    /// What a rank sends to the rank before it (0) or behind it (1).
    fn part(self, rank: u32, way: u32) -> Vec<i64> {
        values(self.round * 1000 + rank * 10 + way, self.count)
    }

    /// The ranks before and behind this one.
    fn neighbours(self) -> [u32; 2] {
        [self.size - 1, 1].map(|steps| (self.rank + steps) % self.size)
    }

    /// The elements that this rank sends to all of its neighbours.
    fn own(self) -> Vec<i64> {
        self.part(self.rank, 0)
    }

    /// The elements that this rank sends to each of its neighbours.
    fn parts(self) -> Vec<Vec<i64>> {
        vec![self.part(self.rank, 0), self.part(self.rank, 1)]
    }

    /// What the neighbours send to all of theirs.
    fn gathered(self) -> Vec<Vec<i64>> {
        self.neighbours().map(|rank| self.part(rank, 0)).to_vec()
    }

    /// What the neighbours send to this rank: it is behind the one, and before the other.
    fn exchanged(self) -> Vec<Vec<i64>> {
        let [before, behind] = self.neighbours();
        vec![self.part(before, 1), self.part(behind, 0)]
    }

    /// The places of two parts, one behind the other.
    fn places(self) -> [Range<usize>; 2] {
        [0..self.count, self.count..2 * self.count]
    }

    /// The places of two parts in reverse order, with a gap of one element between them.
    fn reversed(self) -> [Range<usize>; 2] {
        [self.count + 1..2 * self.count + 1, 0..self.count]
    }

    /// A buffer whose parts are at the reversed places.
    fn in_reverse(self, parts: &[Vec<i64>]) -> Vec<i64> {
        [&parts[1][..], &[-1], &parts[0][..]].concat()
    }

    fn room(self, more: usize) -> Vec<i64> {
        vec![-1; 2 * self.count + more]
    }

    #[track_caller]
    fn check(self, found: &[i64], expected: &[i64], name: &str) {
        let Place { rank, size, round, count } = self;
        assert!(found == expected, "{name}: {count} elements, rank {rank} of {size}, round {round}");
    }
}

/// Each rank is in its own thread. If there are two ranks, both neighbours are the same one. A single rank is its own
/// neighbour.
#[test]
fn calls_that_wait_and_calls_that_begin_give_the_same() {
    for size in [1, 2, 3, 5] {
        in_threads(size, |engine, rank, world| {
            let ring = engine.cart_create(world, &Cartesian::new(&[(size, true)])).unwrap().unwrap();
            for (round, count) in (0..).zip(COUNTS) {
                let place = Place { rank, size, round, count };
                waits(engine, ring, place);
                begins(engine, ring, place);
            }
        });
    }
}

fn waits(engine: &mut Engine, ring: Comm, place: Place) {
    let (both, places, reversed) = (place.parts().concat(), place.places(), place.reversed());
    let mut room = place.room(0);
    engine.neighbor_allgather(&place.own(), &mut room, ring).unwrap();
    place.check(&room, &place.gathered().concat(), "neighbor_allgather");
    let mut room = place.room(1);
    engine.neighbor_allgatherv(&place.own(), &mut room, &reversed, ring).unwrap();
    place.check(&room, &place.in_reverse(&place.gathered()), "neighbor_allgatherv");
    let mut room = place.room(0);
    engine.neighbor_alltoall(&both, &mut room, ring).unwrap();
    place.check(&room, &place.exchanged().concat(), "neighbor_alltoall");
    let mut room = place.room(1);
    engine.neighbor_alltoallv(&both, &places, &mut room, &reversed, ring).unwrap();
    place.check(&room, &place.in_reverse(&place.exchanged()), "neighbor_alltoallv");
    let (sent, mut rooms) = (place.parts(), [vec![-1; place.count], vec![-1; place.count]]);
    let [first, second] = &mut rooms;
    let send = List(sent.iter().map(|part| &part[..]).collect());
    engine.neighbor_alltoallw(send, List(vec![&mut first[..], &mut second[..]]), ring).unwrap();
    place.check(&rooms.concat(), &place.exchanged().concat(), "neighbor_alltoallw");
}

fn begins(engine: &mut Engine, ring: Comm, place: Place) {
    let (both, places, reversed) = (place.parts().concat(), place.places(), place.reversed());
    let request = engine.ineighbor_allgather(place.own(), place.room(0), ring).unwrap();
    place.check(&engine.wait_take(request).unwrap().0.1, &place.gathered().concat(), "neighbor_allgather");
    let request = engine.ineighbor_allgatherv(place.own(), place.room(1), &reversed, ring).unwrap();
    let found = engine.wait_take(request).unwrap().0.1;
    place.check(&found, &place.in_reverse(&place.gathered()), "neighbor_allgatherv");
    let request = engine.ineighbor_alltoall(both.clone(), place.room(0), ring).unwrap();
    place.check(&engine.wait_take(request).unwrap().0.1, &place.exchanged().concat(), "neighbor_alltoall");
    let request = engine.ineighbor_alltoallv(both, &places, place.room(1), &reversed, ring).unwrap();
    let found = engine.wait_take(request).unwrap().0.1;
    place.check(&found, &place.in_reverse(&place.exchanged()), "neighbor_alltoallv");
    let rooms = List(vec![vec![-1; place.count]; 2]);
    let request = engine.ineighbor_alltoallw(List(place.parts()), rooms, ring).unwrap();
    let found = engine.wait_take(request).unwrap().0.1;
    place.check(&found.0.concat(), &place.exchanged().concat(), "neighbor_alltoallw");
}

/// Persistent operations send what is in their buffers at each start, over all transports.
#[test]
fn persistent_operations_give_what_is_in_their_buffers_at_each_start() {
    for size in [1, 2, 3, 5] {
        for mut cluster in clusters(size) {
            for engine in &mut cluster.engines {
                let world = engine.comm_world();
                let ring = Topology::Cartesian(Cartesian::new(&[(size, true)]));
                engine.comm_set_topology(world, ring).unwrap();
            }
            COUNTS.into_iter().for_each(|count| persistent(&mut cluster, size, count));
            cluster.tick_times(300);
            cluster.assert_at_rest();
        }
    }
}

fn persistent(cluster: &mut Cluster, size: u32, count: usize) {
    let of = |rank: u32, round: u32| Place { rank, size, round, count };
    let any = of(0, 0);
    let (places, reversed) = (any.places(), any.reversed());
    starts(
        cluster,
        |engine, world| engine.neighbor_allgather_init(vec![0i64; count], any.room(0), world),
        |rank, round, (send, _)| send.copy_from_slice(&of(rank, round).own()),
        |rank, round, (_, found)| {
            of(rank, round).check(found, &of(rank, round).gathered().concat(), "neighbor_allgather");
        },
    );
    starts(
        cluster,
        |engine, world| engine.neighbor_allgatherv_init(vec![0i64; count], any.room(1), &reversed, world),
        |rank, round, (send, _)| send.copy_from_slice(&of(rank, round).own()),
        |rank, round, (_, found)| {
            let place = of(rank, round);
            place.check(found, &place.in_reverse(&place.gathered()), "neighbor_allgatherv");
        },
    );
    starts(
        cluster,
        |engine, world| engine.neighbor_alltoall_init(vec![0i64; 2 * count], any.room(0), world),
        |rank, round, (send, _)| send.copy_from_slice(&of(rank, round).parts().concat()),
        |rank, round, (_, found)| {
            of(rank, round).check(found, &of(rank, round).exchanged().concat(), "neighbor_alltoall");
        },
    );
    starts(
        cluster,
        |engine, world| engine.neighbor_alltoallv_init(vec![0i64; 2 * count], &places, any.room(1), &reversed, world),
        |rank, round, (send, _)| send.copy_from_slice(&of(rank, round).parts().concat()),
        |rank, round, (_, found)| {
            let place = of(rank, round);
            place.check(found, &place.in_reverse(&place.exchanged()), "neighbor_alltoallv");
        },
    );
    starts(
        cluster,
        |engine, world| {
            let lists = || List(vec![vec![0i64; count]; 2]);
            engine.neighbor_alltoallw_init(lists(), lists(), world)
        },
        |rank, round, (send, _)| {
            send.0.iter_mut().zip(of(rank, round).parts()).for_each(|(to, part)| to.copy_from_slice(&part));
        },
        |rank, round, (_, found)| {
            of(rank, round).check(&found.0.concat(), &of(rank, round).exchanged().concat(), "neighbor_alltoallw");
        },
    );
}

/// Makes a persistent operation on all engines and starts it three times. Before each start `fill` changes its buffers, and
/// `check` sees them when it is done.
fn starts<B: Pieces>(
    cluster: &mut Cluster,
    make: impl Fn(&mut Engine, Comm) -> Result<Persistent<B>, Rejected<B>>,
    fill: impl Fn(u32, u32, &mut B),
    check: impl Fn(u32, u32, &B),
) {
    let make = |engine: &mut Engine| {
        let world = engine.comm_world();
        make(engine, world).unwrap()
    };
    let mut made: Vec<Persistent<B>> = cluster.engines.iter_mut().map(make).collect();
    for round in 1..4 {
        for (rank, (engine, kept)) in (0..).zip(cluster.engines.iter_mut().zip(&mut made)) {
            fill(rank, round, engine.buffer(kept).unwrap());
            engine.start(kept).unwrap();
        }
        cluster.tick_until(BOUND, "all are done", |cluster| {
            let mut each = cluster.engines.iter_mut().zip(&made);
            each.all(|(engine, kept)| engine.test(kept).unwrap() != Test::Pending)
        });
        for (rank, (engine, kept)) in (0..).zip(cluster.engines.iter_mut().zip(&mut made)) {
            check(rank, round, engine.buffer(kept).unwrap());
        }
    }
    for (engine, kept) in cluster.engines.iter_mut().zip(made) {
        engine.free(kept).unwrap();
    }
}
