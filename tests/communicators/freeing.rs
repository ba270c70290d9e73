//! What freeing a communicator looks at: rows of graphs, but not all rows that requests have ever used.

use crate::kit::{WORLD, id};
use tickwire::internals::components::CommState;
use tickwire::testing::{Cluster, rows};
use tickwire::{Rank, Tag, op};
use tickwire_tests::agreements::dup;
use tickwire_tests::cases::BOUND;

/// So many requests are pending at a time: more than an engine has rows in the beginning.
const REQUESTS: usize = 10_000;

/// A sum over a communicator, on all engines. Its graph is kept.
fn sum(cluster: &mut Cluster, made: &[tickwire::Comm]) {
    let post = |(engine, comm): (&mut tickwire::Engine, &tickwire::Comm)| {
        engine.iallreduce(vec![1u32; 500], vec![0; 500], op::Sum, *comm).unwrap()
    };
    let sums: Vec<_> = cluster.engines.iter_mut().zip(made).map(post).collect();
    for (rank, sum) in sums.into_iter().enumerate() {
        assert_eq!(cluster.finish(BOUND, rank, sum).unwrap().0.1, [2; 500]);
    }
}

#[test]
fn rows_of_requests_that_are_over_are_not_looked_at() {
    let mut cluster = Cluster::loopback(2);
    let receives: Vec<_> =
        (0..REQUESTS).map(|_| cluster.engines[0].irecv(vec![0u8], Rank(1), Tag(1), WORLD).unwrap()).collect();
    for receive in receives {
        cluster.engines[1].send(&[1u8], Rank(0), Tag(1), WORLD).unwrap();
        cluster.finish(BOUND, 0, receive).unwrap();
    }
    let [kept, made] = [(); 2].map(|()| dup(&mut cluster, WORLD));
    sum(&mut cluster, &kept);
    sum(&mut cluster, &made);
    let row = id(&mut cluster, 0, made[0]) as usize;
    let graphs = |cluster: &mut Cluster| rows(&mut cluster.engines[0]).progress.graphs.list.iter().flatten().count();
    assert!(graphs(&mut cluster) > 0, "a graph is kept");
    cluster.engines[0].comm_free(made[0]).unwrap();
    cluster.tick_times(10);
    let all = rows(&mut cluster.engines[0]);
    assert!(all.cars.len() > REQUESTS);
    let freed = &all.communicators[row];
    assert_eq!((freed.state, freed.cursor), (CommState::Free, 0), "no row was looked at for itself");
}

#[test]
fn an_operation_in_progress_is_found_among_the_rows_of_graphs() {
    let mut cluster = Cluster::loopback(2);
    let made = dup(&mut cluster, WORLD);
    let row = id(&mut cluster, 0, made[0]) as usize;
    let first = cluster.engines[0].iallreduce(vec![1u32; 500], vec![0; 500], op::Sum, made[0]).unwrap();
    cluster.engines[0].comm_free(made[0]).unwrap();
    cluster.tick_times(10);
    assert_eq!(rows(&mut cluster.engines[0]).communicators[row].state, CommState::Closing);
    let second = cluster.engines[1].iallreduce(vec![1u32; 500], vec![0; 500], op::Sum, made[1]).unwrap();
    assert_eq!(cluster.finish(BOUND, 0, first).unwrap().0.1, [2; 500]);
    cluster.finish(BOUND, 1, second).unwrap();
    cluster.tick_until(BOUND, "it is freed", |cluster| {
        rows(&mut cluster.engines[0]).communicators[row].state == CommState::Free
    });
    assert_eq!(rows(&mut cluster.engines[0]).communicators[row].cursor, 0);
}
