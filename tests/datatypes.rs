//! Messages with datatypes on either side: over loopback, shared memory and a simulated network.

use std::cell::Cell;
use tickwire::testing::SplitMix;
use tickwire::{Bootstrap, Datatype, Engine, Order, Rank, RequestError, Source, Tag, Test, Typed};
use tickwire_tests::cases::{BOUND, content, everywhere};

/// Counts of doubles whose messages are empty, eager, at a boundary, and of several pieces.
const COUNTS: [usize; 6] = [0, 1, 100, 1024, 1025, 20_000];

fn every_second() -> Datatype {
    Datatype::of::<f64>().resized(0, 16).expect("a small extent")
}

/// Twice so many numbers, and a last one without a gap behind it.
fn numbers(count: usize) -> Vec<f64> {
    (0..2 * count).map(|n| n as f64 + 0.5).collect()
}

/// What a receiver of every second number has, in a buffer of -1.
fn received(from: &[f64], count: usize) -> Vec<f64> {
    from.iter().enumerate().map(|(n, &number)| if n % 2 == 0 && n / 2 < count { number } else { -1.0 }).collect()
}

fn bytes_of(numbers: impl IntoIterator<Item = f64>) -> Vec<u8> {
    numbers.into_iter().flat_map(f64::to_ne_bytes).collect()
}

#[test]
fn a_strided_message_arrives_in_strides_whoever_is_first_and_whoever_it_is_for() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        let of = every_second();
        for (from, to) in [(0usize, 1usize), (1, 0), (0, 0)] {
            for expected in [true, false] {
                for count in COUNTS {
                    let (source, all) = (Rank(from as u32), numbers(count));
                    let into = Typed::new(vec![-1.0; 2 * count], &of, count).unwrap();
                    let mut receive = None;
                    let mut into = Some(into);
                    if expected {
                        receive = Some(cluster.engines[to].irecv(into.take().unwrap(), source, Tag(2), world).unwrap());
                    }
                    let typed = Typed::new(all.clone(), &of, count).unwrap();
                    let send = cluster.engines[from].isend(typed, Rank(to as u32), Tag(2), world).unwrap();
                    if let Some(into) = into {
                        cluster.tick_times(5);
                        receive = Some(cluster.engines[to].irecv(into, Source::Any, Tag(2), world).unwrap());
                    }
                    let (typed, status) = cluster.finish(BOUND, to, receive.unwrap()).unwrap();
                    assert_eq!((status.source, status.tag, status.length), (source, Tag(2), 8 * count));
                    assert!(typed.into_buffer() == received(&all, count), "{count} numbers are where they belong");
                    assert!(cluster.finish(BOUND, from, send).unwrap().0.into_buffer() == all);
                }
            }
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn the_two_sides_may_have_different_types() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        let (rows, columns) = (70, 90);
        let matrix: Vec<f64> = (0..rows * columns).map(|n| n as f64).collect();
        let double = Datatype::of::<f64>();
        let column = Datatype::vector(rows, 1, columns as isize, &double).unwrap().resized(0, 8).unwrap();
        // Sent column by column, received row by row: transposed.
        let send = Typed::new(matrix.clone(), &column, columns).unwrap();
        let send = cluster.engines[1].isend(send, Rank(0), Tag(0), world).unwrap();
        let into = Typed::new(vec![0.0; rows * columns], &double, rows * columns).unwrap();
        let receive = cluster.engines[0].irecv(into, Rank(1), Tag(0), world).unwrap();
        let transposed = cluster.finish(BOUND, 0, receive).unwrap().0.into_buffer();
        assert!((0..rows * columns).all(|n| transposed[n] == matrix[n % rows * columns + n / rows]));
        cluster.finish(BOUND, 1, send).unwrap();
        // A block of the matrix as plain bytes, and plain bytes into a block.
        let block = Datatype::subarray(&[rows, columns], &[50, 60], &[7, 11], Order::C, &double).unwrap();
        let send = cluster.engines[1].isend(Typed::new(matrix.clone(), &block, 1).unwrap(), Rank(0), Tag(0), world);
        let receive = cluster.engines[0].irecv(vec![0u8; block.size()], Rank(1), Tag(0), world).unwrap();
        let inside = |n: usize| (7..57).contains(&(n / columns)) && (11..71).contains(&(n % columns));
        let expected = bytes_of(matrix.iter().copied().enumerate().filter(|&(n, _)| inside(n)).map(|pair| pair.1));
        assert!(cluster.finish(BOUND, 0, receive).unwrap().0 == expected);
        cluster.finish(BOUND, 1, send.unwrap()).unwrap();
        let send = cluster.engines[1].isend(expected, Rank(0), Tag(0), world).unwrap();
        let into = Typed::new(vec![-1.0; rows * columns], &block, 1).unwrap();
        let receive = cluster.engines[0].irecv(into, Rank(1), Tag(0), world).unwrap();
        let back = cluster.finish(BOUND, 0, receive).unwrap().0.into_buffer();
        assert!((0..back.len()).all(|n| back[n] == if inside(n) { matrix[n] } else { -1.0 }));
        cluster.finish(BOUND, 1, send).unwrap();
        cluster.assert_at_rest();
    });
}

#[test]
fn what_is_too_long_is_cut_at_any_byte_and_told() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        for (count, length) in [(10, 100), (10, 81), (3000, 40_001), (3000, 24_001)] {
            for expected in [true, false] {
                let message = content(length as u64, length);
                let into = || Typed::new(vec![-1.0; 2 * count], &every_second(), count).unwrap();
                let receive = expected.then(|| cluster.engines[0].irecv(into(), Rank(1), Tag(1), world).unwrap());
                let send = cluster.engines[1].isend(message.clone(), Rank(0), Tag(1), world).unwrap();
                cluster.tick_times(5);
                let receive =
                    receive.unwrap_or_else(|| cluster.engines[0].irecv(into(), Rank(1), Tag(1), world).unwrap());
                let failed = cluster.finish(BOUND, 0, receive).unwrap_err();
                let RequestError::Truncated { status, capacity } = failed.error else { panic!("{:?}", failed.error) };
                assert_eq!((status.length, capacity), (length, 8 * count));
                let back = failed.buffer.unwrap().into_buffer();
                assert!(bytes_of(back.iter().copied().step_by(2)) == message[..8 * count]);
                assert!(back.iter().skip(1).step_by(2).all(|&gap| gap == -1.0));
                cluster.finish(BOUND, 1, send).unwrap();
            }
            // And one that is shorter than the receive, and ends within a number.
            let message = content(5, 8 * count - 3);
            let send = cluster.engines[1].isend(message.clone(), Rank(0), Tag(1), world).unwrap();
            let into = Typed::new(vec![-1.0; 2 * count], &every_second(), count).unwrap();
            let receive = cluster.engines[0].irecv(into, Rank(1), Tag(1), world).unwrap();
            let (typed, status) = cluster.finish(BOUND, 0, receive).unwrap();
            assert_eq!(status.length, message.len());
            let mut bytes = vec![0; message.len()];
            assert_eq!(typed.pack(0, &mut bytes), message.len());
            assert!(bytes == message);
            cluster.finish(BOUND, 1, send).unwrap();
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn types_without_bytes_and_counts_of_zero_are_empty_messages() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        let nothing = Datatype::contiguous(0, &Datatype::of::<f64>()).unwrap();
        for (of, count) in [(&nothing, 0), (&nothing, 7), (&every_second(), 0)] {
            let send = cluster.engines[1].isend(Typed::new(vec![1.0], of, count).unwrap(), Rank(0), Tag(1), world);
            let receive = cluster.engines[0].irecv(Typed::new(vec![2.0], of, count).unwrap(), Rank(1), Tag(1), world);
            let (typed, status) = cluster.finish(BOUND, 0, receive.unwrap()).unwrap();
            assert_eq!((typed.into_buffer(), status.length), (vec![2.0], 0));
            cluster.finish(BOUND, 1, send.unwrap()).unwrap();
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn all_modes_and_persistent_requests_take_datatypes() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        cluster.engines[1].attach_buffer(1 << 20);
        let of = every_second();
        for count in [100, 5000] {
            let all = numbers(count);
            let typed = || Typed::new(all.clone(), &of, count).unwrap();
            let into = Typed::new(vec![-1.0; 2 * count], &of, count).unwrap();
            let mut receive = cluster.engines[0].recv_init(into, Rank(1), Tag(3), world).unwrap();
            let persistent = cluster.engines[1].send_init(typed(), Rank(0), Tag(3), world).unwrap();
            for mode in 0..5 {
                cluster.engines[0].start(&receive).unwrap();
                let engine = &mut cluster.engines[1];
                let send = match mode {
                    0 => Some(engine.issend(typed(), Rank(0), Tag(3), world).unwrap()),
                    1 => Some(engine.ibsend(typed(), Rank(0), Tag(3), world).unwrap()),
                    2 => Some(engine.irsend(typed(), Rank(0), Tag(3), world).unwrap()),
                    _ => None,
                };
                if send.is_none() {
                    engine.start(&persistent).unwrap();
                }
                let done = |engine: &mut Engine| engine.test(&receive).unwrap().is_done();
                assert!((0..BOUND).any(|_| {
                    cluster.tick_times(1);
                    done(&mut cluster.engines[0])
                }));
                match send {
                    Some(send) => drop(cluster.finish(BOUND, 1, send).unwrap()),
                    None => assert!((0..BOUND).any(|_| {
                        cluster.tick_times(1);
                        cluster.engines[1].test(&persistent).unwrap() != Test::Pending
                    })),
                }
                let buffer = cluster.engines[0].buffer(&mut receive).unwrap();
                assert!(*buffer.buffer() == received(&all, count), "mode {mode}");
                buffer.numbers_mut().fill(-1.0);
            }
            cluster.engines[1].free(persistent).unwrap();
            cluster.engines[0].free(receive).unwrap();
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn random_types_carry_what_packing_by_hand_carries() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        let mut random = SplitMix::new(11);
        for round in 0..30u64 {
            let mut at = 0;
            let blocks: Vec<(usize, isize)> = (0..1 + random.below(40))
                .map(|_| {
                    let (length, gap) = (random.below(9) as usize, random.below(30) as isize);
                    at += length as isize + gap;
                    (length, at - length as isize)
                })
                .collect();
            let of = Datatype::hindexed(&blocks, &Datatype::of::<u8>()).unwrap().resized(0, at + 1).unwrap();
            let count = [1, 5, 300][round as usize % 3];
            let bytes = content(round, (at as usize + 1) * count);
            let typed = Typed::new(bytes.clone(), &of, count).unwrap();
            let mut packed = vec![0; typed.size()];
            typed.pack(0, &mut packed);
            let send = cluster.engines[1].isend(typed, Rank(0), Tag(0), world).unwrap();
            let receive = cluster.engines[0].irecv(vec![0u8; packed.len()], Rank(1), Tag(0), world).unwrap();
            assert!(cluster.finish(BOUND, 0, receive).unwrap().0 == packed);
            cluster.finish(BOUND, 1, send).unwrap();
            let send = cluster.engines[1].isend(packed.clone(), Rank(0), Tag(0), world).unwrap();
            let into = Typed::new(vec![0u8; bytes.len()], &of, count).unwrap();
            let receive = cluster.engines[0].irecv(into, Rank(1), Tag(0), world).unwrap();
            let into = cluster.finish(BOUND, 0, receive).unwrap().0;
            let mut again = vec![0; packed.len()];
            into.pack(0, &mut again);
            assert!(again == packed);
            cluster.finish(BOUND, 1, send).unwrap();
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn borrowed_buffers_and_other_threads_send_datatypes_too() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let (me, world, of) = (engine.rank(), engine.comm_world(), every_second());
    for count in [3, 9000] {
        let all = numbers(count);
        let (mut into, mut cells) = (vec![-1.0; 2 * count], vec![-1.0; 2 * count]);
        engine.scope(|scope| {
            let cells = Cell::from_mut(&mut cells[..]).as_slice_of_cells();
            let first = scope.irecv(Typed::new(&mut into[..], &of, count).unwrap(), me, Tag(1), world).unwrap();
            let second = scope.irecv(Typed::new(cells, &of, count).unwrap(), me, Tag(1), world).unwrap();
            for _ in 0..2 {
                let send = scope.isend(Typed::new(&all[..], &of, count).unwrap(), me, Tag(1), world).unwrap();
                scope.wait(&send).unwrap();
            }
            scope.wait(&first).unwrap();
            scope.wait(&second).unwrap();
        });
        assert!(into == received(&all, count) && cells == into);
        // A receive that nothing matches is given up with the scope.
        engine.scope(|scope| {
            let _receive = scope.irecv(Typed::new(&mut into[..], &of, count).unwrap(), me, Tag(9), world).unwrap();
        });
        let submitter = engine.submitter();
        let receive =
            submitter.irecv(Typed::new(vec![-1.0; 2 * count], &of, count).unwrap(), me, Tag(1), world).unwrap();
        let send = submitter.isend(Typed::new(all.clone(), &of, count).unwrap(), me, Tag(1), world).unwrap();
        let ended = std::thread::spawn(move || (receive.wait().unwrap(), send.wait().unwrap()));
        while !ended.is_finished() {
            engine.tick();
        }
        let ((typed, status), _) = ended.join().unwrap();
        assert_eq!(status.length, 8 * count);
        assert!(typed.into_buffer() == received(&all, count));
    }
}
