//! How often long operations look for the chunks of others: once in a post and in a tick, several times in a wait.

use super::{each_rank, same, values};
use std::sync::atomic::{AtomicU32, Ordering};
use tickwire::internals::systems::procs::boards::Boards;
use tickwire::{Comm, Engine, Request, op};

/// Elements of an operand of many chunks.
const COUNT: usize = 100_000;

/// How often the long operations of an engine have looked again, and how often one of them may do so in one look of a wait.
fn looks(engine: &mut Engine) -> (u64, u64) {
    let mut query = engine.world().try_query::<&Boards>().unwrap();
    let boards = query.single(engine.world()).unwrap();
    (boards.looked, boards.patience.into())
}

/// Starts a sum that only ends once the other rank starts it too.
fn start(engine: &mut Engine, rank: u32, world: Comm) -> Request<(Vec<i64>, Vec<i64>)> {
    engine.iallreduce(values(rank, COUNT), vec![0; COUNT], op::Sum, world).unwrap()
}

fn check(engine: &mut Engine, request: Request<(Vec<i64>, Vec<i64>)>) {
    let (_, sums) = engine.wait_take(request).unwrap().0;
    let expected: Vec<i64> = values(0, COUNT).iter().zip(values(1, COUNT)).map(|(left, right)| left + right).collect();
    same(&sums, &expected, "sum");
}

/// Rank 0 starts two operations, and rank 1 starts the second one only after rank 0 has ended the first one. So the second one moves its
/// first chunk while rank 0 drives the first one, and finds no chunk of rank 1.
#[test]
fn posts_and_ticks_look_once_and_waits_look_again() {
    for waits in [false, true] {
        // How many operations rank 1 may start.
        let allowed = AtomicU32::new(0);
        let until = |count: u32| {
            while allowed.load(Ordering::Acquire) < count {
                std::thread::yield_now();
            }
        };
        each_rank(2, true, |engine, rank, world| {
            engine.barrier(world).unwrap();
            if rank == 1 {
                for count in 1..=2 {
                    until(count);
                    let request = start(engine, rank, world);
                    check(engine, request);
                }
                return;
            }
            let (before, patience) = looks(engine);
            let requests = [(); 2].map(|()| start(engine, rank, world));
            let posted = looks(engine).0 - before;
            allowed.fetch_add(1, Ordering::Release);
            match waits {
                true => drop(engine.wait(&requests[0]).unwrap()),
                false => {
                    while !engine.test(&requests[0]).unwrap().is_done() {
                        engine.tick();
                    }
                }
            }
            let driven = looks(engine).0 - before;
            allowed.fetch_add(1, Ordering::Release);
            requests.into_iter().for_each(|request| check(engine, request));
            assert_eq!(posted, 0, "looks of the posts");
            assert!(if waits { driven >= patience } else { driven == 0 }, "{driven} looks, waits: {waits}");
        });
    }
}
