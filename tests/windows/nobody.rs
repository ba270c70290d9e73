//! Operations on the part of nobody (`MPI_PROC_NULL`): they do nothing, and succeed.

use crate::kit::{ALL, FABRICS, Over, each_rank, own, refused, windows};
use tickwire::{Datatype, Engine, LockKind, Pieces, Rank, Request, Typed, TypedPair, Window, WindowError, op};

const NOBODY: Rank = Rank::NULL;

/// A displacement that no part has.
const FAR: usize = usize::MAX / 4;

/// Takes the buffer of a request that is done already: the engine does not tick.
fn done<B: Pieces>(engine: &mut Engine, request: Request<B>) -> B {
    assert!(engine.test(&request).unwrap().is_done());
    engine.take(request).unwrap().0
}

/// Calls each operation on nobody's part. Says which have failed, and checks that no buffer has changed.
fn all_operations(engine: &mut Engine, window: Window<u64>) -> Vec<Result<(), WindowError>> {
    let (mut got, mut old) = ([7u64; 3], [8u64; 2]);
    let mut ended = vec![
        engine.put(&[1, 2], NOBODY, FAR, window),
        engine.get(&mut got, NOBODY, FAR, window),
        engine.accumulate(&[1, 2], op::Sum, NOBODY, FAR, window),
        engine.get_accumulate(&[1, 2], &mut old, op::Sum, NOBODY, FAR, window),
        engine.fetch_and_op(5, op::Replace, NOBODY, FAR, window).map(|old| assert_eq!(old, 0)),
        engine.compare_and_swap(0, 5, NOBODY, FAR, window).map(|old| assert_eq!(old, 0)),
    ];
    let of = Datatype::vector(2, 1, 2, &Datatype::of::<u64>()).unwrap();
    let from = || Typed::new(vec![1u64, 2, 3], &of, 1).unwrap();
    let mut into = Typed::new(vec![9u64; 3], &of, 1).unwrap();
    ended.push(engine.put_typed(&from(), NOBODY, FAR, (&of, 1), window));
    ended.push(engine.get_typed(&mut into, NOBODY, FAR, (&of, 1), window));
    ended.push(engine.accumulate_typed(&from(), op::Sum, NOBODY, FAR, (&of, 1), window));
    ended.push(engine.get_accumulate_typed((&from(), &mut into), op::Sum, NOBODY, FAR, (&of, 1), window));
    assert_eq!((got, old, into.into_buffer()), ([7; 3], [8; 2], vec![9; 3]), "buffers stay as they are");
    ended
}

/// As [`all_operations`], with requests: each of them is done at once, and gives its buffer back as it was.
fn all_requests(engine: &mut Engine, window: Window<u64>) {
    let request = engine.rput(vec![1, 2], NOBODY, FAR, window).unwrap();
    assert_eq!(done(engine, request), [1, 2]);
    let request = engine.rget(vec![3u64; 2], NOBODY, FAR, window).unwrap();
    assert_eq!(done(engine, request), [3, 3]);
    let request = engine.raccumulate(vec![4, 5], op::Sum, NOBODY, FAR, window).unwrap();
    assert_eq!(done(engine, request), [4, 5]);
    let request = engine.rget_accumulate(vec![4, 5], vec![6; 2], op::Sum, NOBODY, FAR, window).unwrap();
    assert_eq!(done(engine, request), (vec![4, 5], vec![6, 6]));
    let of = Datatype::vector(2, 1, 2, &Datatype::of::<u64>()).unwrap();
    let typed = || Typed::new(vec![1u64, 2, 3], &of, 1).unwrap();
    let request = engine.rput_typed(typed(), NOBODY, FAR, (&of, 1), window).unwrap();
    assert_eq!(done(engine, request).into_buffer(), [1, 2, 3]);
    let request = engine.rget_typed(typed(), NOBODY, FAR, (&of, 1), window).unwrap();
    assert_eq!(done(engine, request).into_buffer(), [1, 2, 3]);
    let request = engine.raccumulate_typed(typed(), op::Sum, NOBODY, FAR, (&of, 1), window).unwrap();
    assert_eq!(done(engine, request).into_buffer(), [1, 2, 3]);
    let both = (typed(), typed());
    let request = engine.rget_accumulate_typed(both, op::Sum, NOBODY, FAR, (&of, 1), window).unwrap();
    let TypedPair { from, into } = done(engine, request);
    assert_eq!((from.into_buffer(), into.into_buffer()), (vec![1, 2, 3], vec![1, 2, 3]));
}

#[test]
fn operations_on_nobodys_part_do_nothing_and_succeed() {
    for over in ALL.into_iter().chain([FABRICS[0]]) {
        each_rank(2, over, |engine, rank, world| {
            for window in windows(engine, 4, world) {
                let value = u64::from(rank) + 10;
                engine.win_write(&[value; 4], 0, window).unwrap();
                // Any epoch will do.
                engine.win_fence(window).unwrap();
                all_operations(engine, window).into_iter().for_each(Result::unwrap);
                engine.win_fence_last(window).unwrap();
                engine.win_lock(LockKind::Shared, Rank(1 - rank), window).unwrap();
                all_operations(engine, window).into_iter().for_each(Result::unwrap);
                all_requests(engine, window);
                engine.win_flush_all(window).unwrap();
                engine.win_unlock(Rank(1 - rank), window).unwrap();
                engine.barrier(world).unwrap();
                assert_eq!(own(engine, 4, window), [value; 4], "{over:?}");
                for member in [0, 1] {
                    assert_eq!(engine.win_counts(Rank(member), window).unwrap().issued, 0, "{over:?}");
                }
                engine.win_free(window).unwrap();
            }
        });
    }
}

#[test]
fn nobodys_part_needs_an_epoch_and_has_none_of_its_own() {
    for over in [Over::Shm, Over::Loopback] {
        each_rank(2, over, |engine, rank, world| {
            for window in windows(engine, 4, world) {
                for ended in all_operations(engine, window) {
                    refused(ended, "no epoch is open");
                }
                refused(engine.rput(vec![1], NOBODY, 0, window).map(drop).map_err(Into::into), "no epoch is open");
                let refuses = |ended: Result<(), WindowError>| assert!(ended.is_err(), "{over:?}");
                refuses(engine.win_lock(LockKind::Shared, NOBODY, window));
                engine.win_lock(LockKind::Shared, Rank(1 - rank), window).unwrap();
                refuses(engine.win_flush(NOBODY, window));
                refuses(engine.win_flush_local(NOBODY, window));
                refuses(engine.win_unlock(NOBODY, window));
                // Another number that is no rank is still an error.
                refuses(engine.put(&[1], Rank(2), 0, window));
                engine.win_unlock(Rank(1 - rank), window).unwrap();
                engine.win_free(window).unwrap();
                refused(engine.put(&[1], NOBODY, 0, window), "has been freed");
            }
        });
    }
}
