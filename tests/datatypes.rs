//! Messages with datatypes on either side: over loopback, shared memory and a simulated network.

use std::cell::Cell;
use std::time::{Duration, Instant};
use tickwire::testing::{Cluster, SplitMix};
use tickwire::{
    Bootstrap, Datatype, Engine, Limits, List, Order, PostError, Rank, RequestError, Source, Tag, Test, Typed,
};
use tickwire_tests::cases::{BOUND, content, everywhere};

/// Counts of doubles: the message is empty, eager, at a limit, or in several pieces.
const COUNTS: [usize; 6] = [0, 1, 100, 1024, 1025, 20_000];

fn every_second() -> Datatype {
    Datatype::of::<f64>().resized(0, 16).expect("a small extent")
}

/// Two numbers for each element: every second one is in a gap.
fn numbers(count: usize) -> Vec<f64> {
    (0..2 * count).map(|n| n as f64 + 0.5).collect()
}

/// The content of a buffer of -1 after a receive of every second number.
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
        // The matrix is sent column by column and received row by row, so it is transposed.
        let send = Typed::new(matrix.clone(), &column, columns).unwrap();
        let send = cluster.engines[1].isend(send, Rank(0), Tag(0), world).unwrap();
        let into = Typed::new(vec![0.0; rows * columns], &double, rows * columns).unwrap();
        let receive = cluster.engines[0].irecv(into, Rank(1), Tag(0), world).unwrap();
        let transposed = cluster.finish(BOUND, 0, receive).unwrap().0.into_buffer();
        assert!((0..rows * columns).all(|n| transposed[n] == matrix[n % rows * columns + n / rows]));
        cluster.finish(BOUND, 1, send).unwrap();
        // A block of the matrix is received as plain bytes, and plain bytes are received into a block.
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
            // A message that is shorter than the receive and ends within a number.
            let message = content(5, 8 * count - 3);
            let send = cluster.engines[1].isend(message.clone(), Rank(0), Tag(1), world).unwrap();
            let into = Typed::new(vec![-1.0; 2 * count], &every_second(), count).unwrap();
            let receive = cluster.engines[0].irecv(into, Rank(1), Tag(1), world).unwrap();
            let (typed, status) = cluster.finish(BOUND, 0, receive).unwrap();
            assert_eq!(status.length, message.len());
            let mut bytes = vec![0u8; message.len()];
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
                buffer.elements_mut().fill(-1.0);
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
            let mut packed = vec![0u8; typed.size()];
            typed.pack(0, &mut packed);
            let send = cluster.engines[1].isend(typed, Rank(0), Tag(0), world).unwrap();
            let receive = cluster.engines[0].irecv(vec![0u8; packed.len()], Rank(1), Tag(0), world).unwrap();
            assert!(cluster.finish(BOUND, 0, receive).unwrap().0 == packed);
            cluster.finish(BOUND, 1, send).unwrap();
            let send = cluster.engines[1].isend(packed.clone(), Rank(0), Tag(0), world).unwrap();
            let into = Typed::new(vec![0u8; bytes.len()], &of, count).unwrap();
            let receive = cluster.engines[0].irecv(into, Rank(1), Tag(0), world).unwrap();
            let into = cluster.finish(BOUND, 0, receive).unwrap().0;
            let mut again = vec![0u8; packed.len()];
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
        // The scope ends a receive that nothing matches.
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

#[test]
fn what_has_a_byte_twice_is_sent_and_not_received_into() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let (me, world, number) = (engine.rank(), engine.comm_world(), Datatype::of::<f64>());
    let types = [
        Datatype::vector(3, 2, 1, &number).unwrap(),
        Datatype::indexed_block(1, &[3, 0, 3], &number).unwrap(),
        Datatype::contiguous(4, &number.resized(0, 0).unwrap()).unwrap(),
    ];
    let expected = [vec![0.0, 1.0, 1.0, 2.0, 2.0, 3.0], vec![3.0, 0.0, 3.0], vec![0.0; 4]];
    let source: Vec<f64> = (0..4).map(f64::from).collect();
    for (of, expected) in types.iter().zip(expected) {
        let incoming = engine.irecv(vec![0u8; 8 * expected.len()], me, Tag(1), world).unwrap();
        let outgoing = engine.isend(Typed::new(source.clone(), of, 1).unwrap(), me, Tag(1), world).unwrap();
        engine.wait(&outgoing).unwrap();
        engine.wait(&incoming).unwrap();
        assert_eq!(engine.take(incoming).unwrap().0, bytes_of(expected));
        engine.take(outgoing).unwrap();
        // All calls that post a receive must refuse.
        let into = || Typed::new(vec![7.0; 4], of, 1).unwrap();
        let refused = engine.irecv(into(), me, Tag(1), world).unwrap_err();
        assert_eq!((refused.error, refused.buffer.into_buffer()), (PostError::Overlap, vec![7.0; 4]));
        assert_eq!(engine.recv_init(into(), me, Tag(1), world).map(drop).unwrap_err().error, PostError::Overlap);
        assert_eq!(
            engine.submitter().irecv(into(), me, Tag(1), world).map(drop).unwrap_err().error,
            PostError::Overlap
        );
        engine.scope(|scope| {
            let refused = scope.irecv(into(), Source::Any, Tag(1), world).map(drop).unwrap_err();
            assert_eq!(refused.error, PostError::Overlap);
        });
        let outgoing = engine.isend(vec![1u8; 8], me, Tag(1), world).unwrap();
        let message = engine.improbe(me, Tag(1), world).unwrap().unwrap();
        let refused = engine.imrecv(message, into()).map(drop).unwrap_err();
        assert_eq!(refused.error, PostError::Overlap);
        engine.mrecv(refused.message, &mut [0u8; 8]).unwrap();
        engine.take(outgoing).unwrap();
        // A buffer that has replaced a valid one is refused too.
        let good = Typed::new(vec![7.0; 4], &number, 4).unwrap();
        let mut again = engine.recv_init(good, me, Tag(1), world).unwrap();
        *engine.buffer(&mut again).unwrap() = into();
        assert_eq!(engine.start(&again).unwrap_err(), PostError::Overlap);
    }
}

#[test]
fn combs_of_a_million_teeth_that_fit_into_each_other_are_received_into() {
    let number = Datatype::of::<f64>();
    let one = Datatype::hvector(1_000_000, 1, 24, &number).unwrap();
    let other = Datatype::hvector(3_000_000, 1, 48, &number).unwrap();
    let both = Datatype::structure(&[(1, 0, &one), (1, 8, &other)]).unwrap();
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let (me, world) = (engine.rank(), engine.comm_world());
    let into = Typed::new(vec![0.0; 18_000_000], &both, 1).unwrap();
    let incoming = engine.irecv(into, me, Tag(1), world).unwrap();
    engine.send(bytes_of([1.0, 2.0]), me, Tag(1), world).unwrap();
    engine.wait(&incoming).unwrap();
    let numbers = engine.take(incoming).unwrap().0.into_buffer();
    assert_eq!(numbers[..5], [1.0, 0.0, 0.0, 2.0, 0.0]);
}

#[test]
fn a_message_in_a_million_pieces_takes_as_long_as_its_bytes() {
    const PIECES: usize = 1_000_000;
    // There are far fewer rows than pieces. If each piece was found by walking from the first one, the test would
    // exceed its time limit by far.
    let limits = Limits { cars_max: 256, ..Limits::default() };
    let mut cluster = Cluster::loopback_with(2, |builder| builder.limits(limits.clone()));
    cluster.checked = false;
    let world = cluster.engines[0].comm_world();
    let all = List((0..PIECES).map(|n| vec![n as u8, (n >> 8) as u8, (n >> 16) as u8]).collect());
    let since = Instant::now();
    for (from, to) in [(0, 1), (1, 0)] {
        let into = List(vec![vec![0u8; 3]; PIECES]);
        let incoming = cluster.engines[to].irecv(into, Rank(from as u32), Tag(1), world).unwrap();
        let outgoing = cluster.engines[from].isend(all.clone(), Rank(to as u32), Tag(1), world).unwrap();
        let (into, status) = cluster.finish(100 * BOUND, to, incoming).unwrap();
        assert!(into == all && status.length == 3 * PIECES);
        cluster.finish(BOUND, from, outgoing).unwrap();
    }
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    cluster.assert_at_rest();
}

#[test]
fn lists_of_any_number_of_pieces_are_received_whole() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        // Around the number of pieces from which on they get no rows. Some pieces are empty, or all of them are.
        for (pieces, most) in [(15, 9), (16, 9), (17, 9), (18, 0), (40, 3000), (2000, 7)] {
            let all = content(pieces as u64, pieces * most);
            let mut rest = &all[..];
            let list: List<Vec<u8>> = List::from(
                (0..pieces)
                    .map(|n| rest.split_off(..(n * 7919 % (most + 1)).min(rest.len())).unwrap().to_vec())
                    .collect::<Vec<_>>(),
            );
            let length = list.iter().map(Vec::len).sum::<usize>();
            for room in [length, length / 2] {
                let into = List(vec![vec![0u8; room.div_ceil(20)]; 20]);
                let incoming = cluster.engines[1].irecv(into, Rank(0), Tag(1), world).unwrap();
                let outgoing = cluster.engines[0].isend(list.clone(), Rank(1), Tag(1), world).unwrap();
                let into = match cluster.finish(BOUND, 1, incoming) {
                    Ok((into, status)) => {
                        assert_eq!(status.length, length);
                        into
                    }
                    Err(failed) => {
                        assert!(matches!(failed.error, RequestError::Truncated { .. }), "{failed:?}");
                        failed.buffer.unwrap()
                    }
                };
                let got: Vec<u8> = into.concat();
                let there = length.min(got.len());
                assert!(got[..there] == list.concat()[..there], "{pieces} pieces into {} B", got.len());
                cluster.finish(BOUND, 0, outgoing).unwrap();
            }
        }
        cluster.assert_at_rest();
    });
}
