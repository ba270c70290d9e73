//! Operations with datatypes on both sides and with requests.

use crate::kit::{ALL, FABRICS, Over, each_rank, refused, values, windows};
use tickwire::testing::rows;
use tickwire::{Datatype, Engine, Rank, RequestError, Typed, TypedPair, Window, WindowError, op};

/// A datatype of three pairs: two of every five elements.
fn pairs() -> Datatype {
    Datatype::vector(3, 2, 5, &Datatype::of::<u64>()).unwrap()
}

/// A datatype of six elements: every second one.
fn every_second() -> Datatype {
    Datatype::vector(6, 1, 2, &Datatype::of::<u64>()).unwrap()
}

/// Words in a buffer of bytes. The datatype takes three bytes and five bytes in turn, so its runs split the words.
fn divided(values: &[u64]) -> Typed<Vec<u8>> {
    let bytes = Datatype::of::<u8>();
    let pieces: Vec<_> = (0..values.len() as isize).flat_map(|at| [(3, 10 * at), (5, 10 * at + 5)]).collect();
    let fields: Vec<_> = pieces.iter().map(|&(count, at)| (count, at, &bytes)).collect();
    let of = Datatype::structure(&fields).unwrap();
    let mut buffer = vec![0xEE; 10 * values.len()];
    for (at, value) in values.iter().enumerate() {
        buffer[10 * at..10 * at + 3].copy_from_slice(&value.to_ne_bytes()[..3]);
        buffer[10 * at + 5..10 * at + 10].copy_from_slice(&value.to_ne_bytes()[3..]);
    }
    Typed::new(buffer, &of, 1).unwrap()
}

#[test]
fn requests_with_datatypes_say_which_elements_of_both_sides() {
    for over in ALL.into_iter().chain(FABRICS) {
        each_rank(2, over, |engine, rank, world| {
            let (other, of) = (Rank(1 - rank), (&pairs(), 1));
            for window in windows(engine, 40, world) {
                engine.win_lock_all(window).unwrap();
                let from = || Typed::new((0..12u64).collect::<Vec<_>>(), &every_second(), 1).unwrap();
                let into = || Typed::new(vec![99u64; 12], &every_second(), 1).unwrap();
                let put = engine.rput_typed(from(), other, 10, of, window).unwrap();
                assert_eq!(engine.wait_take(put).unwrap().0.into_buffer(), (0..12).collect::<Vec<_>>());
                let added = engine.raccumulate_typed(from(), op::Sum, other, 10, of, window).unwrap();
                engine.wait_take(added).unwrap();
                let got = engine.rget_typed(into(), other, 10, of, window).unwrap();
                let got = engine.wait_take(got).unwrap().0.into_buffer();
                assert_eq!(got, [0, 99, 4, 99, 8, 99, 12, 99, 16, 99, 20, 99], "{over:?}");
                let fetched = engine.rget_accumulate_typed((from(), into()), op::Sum, other, 10, of, window).unwrap();
                let TypedPair { into: old, .. } = engine.wait_take(fetched).unwrap().0;
                assert_eq!(old.into_buffer(), [0, 99, 4, 99, 8, 99, 12, 99, 16, 99, 20, 99]);
                // The origin's datatype splits the elements.
                let added = engine.raccumulate_typed(divided(&[1; 6]), op::Sum, other, 10, of, window).unwrap();
                engine.wait_take(added).unwrap();
                let buffers = (divided(&[2; 6]), divided(&[0; 6]));
                let fetched = engine.rget_accumulate_typed(buffers, op::Sum, other, 10, of, window).unwrap();
                let old = engine.wait_take(fetched).unwrap().0.into;
                let mut bytes = [0; 48];
                old.pack(0, &mut bytes);
                let word = |at: usize| u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap());
                assert_eq!([0, 1, 2, 3, 4, 5].map(word), [1, 7, 13, 19, 25, 31]);
                let put = engine.rput_typed(divided(&[1 << 40, 7]), other, 30, (&Datatype::of::<u64>(), 2), window);
                engine.wait_take(put.unwrap()).unwrap();
                let got = engine.rget_typed(divided(&[0; 2]), other, 30, (&Datatype::of::<u64>(), 2), window);
                let got = engine.wait_take(got.unwrap()).unwrap().0;
                assert_eq!(got.into_buffer(), divided(&[1 << 40, 7]).into_buffer());
                let mut all = [0; 14];
                engine.get(&mut all, other, 10, window).unwrap();
                assert_eq!(all, [3, 9, 0, 0, 0, 15, 21, 0, 0, 0, 27, 33, 0, 0]);
                let empty = Typed::new(vec![0u64; 1], &every_second(), 0).unwrap();
                let none = engine.rput_typed(empty, other, 10, (&pairs(), 0), window).unwrap();
                engine.wait_take(none).unwrap();

                let wrong = engine.rput_typed(from(), other, 30, of, window).expect_err("it is not within the part");
                assert_eq!(wrong.buffer.into_buffer().len(), 12, "the buffer comes back");
                let of = (&pairs(), 2);
                let error =
                    |result: Result<_, tickwire::RejectedUpdate<_>>| result.map(drop).map_err(WindowError::from);
                refused(error(engine.rput_typed(from(), other, 0, of, window)), "48 are needed");
                refused(error(engine.rget_typed(into(), other, 0, of, window)), "48 are needed");
                engine.win_unlock_all(window).unwrap();
                refused(error(engine.rput_typed(from(), other, 10, (&pairs(), 1), window)), "no epoch");
                engine.barrier(world).unwrap();
                engine.win_free(window).unwrap();
            }
        });
    }
}

#[test]
fn a_request_of_thousands_of_runs_ends_once() {
    const RUNS: usize = 1_500;
    for over in ALL.into_iter().chain(FABRICS) {
        each_rank(2, over, |engine, rank, world| {
            let other = Rank(1 - rank);
            let strided = Datatype::vector(RUNS, 1, 2, &Datatype::of::<u64>()).unwrap();
            for window in windows(engine, 2 * RUNS, world) {
                engine.win_lock_all(window).unwrap();
                let values: Vec<u64> = (1..=RUNS as u64).map(|at| at * 3 + u64::from(rank)).collect();
                let typed = |values: &[u64]| Typed::new(values.to_vec(), &Datatype::of::<u64>(), RUNS).unwrap();
                let put = engine.rput_typed(typed(&values), other, 0, (&strided, 1), window).unwrap();
                let (_, status) = engine.wait_take(put).unwrap();
                // An operation that was done when it was posted has a status without a length.
                let all = if matches!(over, Over::Loopback | Over::Short) { [8 * RUNS; 2] } else { [0, 8 * RUNS] };
                assert!(all.contains(&status.length), "{over:?}: {status:?}, of all runs");
                let got = engine.rget_typed(typed(&[0; RUNS]), other, 0, (&strided, 1), window).unwrap();
                let (got, status) = engine.wait_take(got).unwrap();
                assert!(got.into_buffer() == values, "{over:?}");
                assert!(all.contains(&status.length), "{over:?}: {status:?}");
                assert_eq!(rows(engine).progress.active, 0);
                engine.win_unlock_all(window).unwrap();
                engine.win_free(window).unwrap();
            }
        });
    }
}

#[test]
fn a_request_with_one_run_out_of_bounds_fails_once_all_have_ended() {
    for over in [Over::Loopback, Over::Short] {
        each_rank(2, over, |engine: &mut Engine, rank, world| {
            let window = engine.win_create_dynamic(world).unwrap();
            let own = engine.win_attach(vec![0u64; 4], window).unwrap();
            let mut first = [0; 2];
            engine.allgather(&[own], &mut first, world).unwrap();
            engine.win_lock_all(window).unwrap();
            if rank == 0 {
                // The second of these three runs is at a place where nothing is attached.
                let number = Datatype::of::<u64>();
                let words = [0, 1 << 20, 8].map(|at| (1, at, &number));
                let of = Datatype::structure(&words).unwrap();
                let from = Typed::new(vec![5u64; 3], &Datatype::of::<u64>(), 3).unwrap();
                let put = engine.rput_typed(from, Rank(1), first[1], (&of, 1), window).unwrap();
                let failed = engine.wait_take(put).unwrap_err();
                assert!(matches!(failed.error, RequestError::OutOfBounds), "{failed:?}");
                let mut got = [0u64; 4];
                engine.get(&mut got, Rank(1), first[1] / 8, window.cast()).unwrap();
                assert_eq!(got, [5, 5, 0, 0]);
            }
            engine.win_unlock_all(window).unwrap();
            engine.barrier(world).unwrap();
            engine.win_free(window).unwrap();
        });
    }
}

/// Puts and gets with a datatype of 10,000 runs on either side, in 20,000 elements of rank 1's part from `first` on.
pub(crate) fn puts_and_gets_of_many_runs(engine: &mut Engine, window: Window<u64>, first: usize) {
    const RUNS: usize = 10_000;
    let each = Datatype::of::<u64>();
    let blocks: Vec<_> = (0..RUNS as isize).map(|at| (1, at)).collect();
    let apart = (&Datatype::vector(RUNS, 1, 2, &each).unwrap(), 2);
    // The runs of these are adjacent, however they are given.
    let vector = (&Datatype::vector(RUNS, 1, 1, &each).unwrap(), 1);
    let indexed = (&Datatype::indexed(&blocks, &each).unwrap(), 1);
    let sent = values(5, RUNS);
    // No operation changes what is between the runs.
    let spread = |stride: usize, between: u64| {
        let mut all = vec![between; 2 * RUNS];
        sent.iter().enumerate().for_each(|(at, value)| all[stride * at] = *value);
        all
    };
    for [(from, from_stride), (to, to_stride)] in [[vector, apart], [apart, vector], [indexed, apart], [apart, indexed]]
    {
        engine.put(&[8; 2 * RUNS], Rank(1), first, window).unwrap();
        let put = Typed::new(spread(from_stride, 7), from, 1).unwrap();
        engine.put_typed(&put, Rank(1), first, (to, 1), window).unwrap();
        engine.win_flush(Rank(1), window).unwrap();
        let mut got = vec![0; 2 * RUNS];
        engine.get(&mut got, Rank(1), first, window).unwrap();
        assert!(got == spread(to_stride, 8), "a put");
        let mut into = Typed::new(vec![9u64; 2 * RUNS], from, 1).unwrap();
        engine.get_typed(&mut into, Rank(1), first, (to, 1), window).unwrap();
        assert!(into.into_buffer() == spread(from_stride, 9), "a get");
    }
}
