//! Puts and gets of exposed memory with datatypes on both sides. See [`tickwire_tests::layouts`].

use crate::kit::{ALL, FABRICS, Over, each_rank, refused, values};
use crate::mutexes::run_with;
use crate::regions::exposed;
use tickwire::{
    Datatype, ENV_TRANSPORTS, Engine, PostedUpdate, ProcId, RegionAccess, RegionKey, Typed, WindowError, WindowReach,
};
use tickwire_tests::layouts::play;
use tickwire_tests::needs::has_libfabric;

/// As many runs as one call of the kernel moves.
const CALL_RUNS: usize = 1024;

/// Every second word.
fn every_second(count: usize) -> Datatype {
    Datatype::vector(count, 1, 2, &Datatype::of::<u64>()).unwrap()
}

/// A message of all these words.
fn message(values: Vec<u64>) -> Typed<Vec<u64>> {
    Typed::all(values).unwrap()
}

/// Waits for a request that may have been refused.
fn ended(engine: &mut Engine, posted: PostedUpdate<Typed<Vec<u64>>>) -> Result<(), WindowError> {
    engine.wait_take(posted?).map(drop).map_err(|failed| failed.error.into())
}

#[test]
fn random_layouts_move_as_a_serial_copy_does() {
    for (seed, over) in (1..).zip(ALL.into_iter().chain(FABRICS)) {
        // Requests to an engine with short rings take long.
        let rounds = if over == Over::Short { 8 } else { 30 };
        for ranks in [2, 3] {
            each_rank(ranks, over, |engine, _, world| {
                play(engine, world, 10 * seed + u64::from(ranks), rounds).unwrap()
            });
        }
    }
}

#[test]
fn random_layouts_move_between_processes() {
    let over = |transports, seed| {
        run_with("3", &[env!("CARGO_BIN_EXE_tests-windows"), "layouts", seed, "30"], &[(ENV_TRANSPORTS, transports)]);
    };
    over("loopback,shm", "1");
    run_with("3", &[env!("CARGO_BIN_EXE_tests-windows"), "layouts", "2", "30", "heap"], &[]);
    if has_libfabric() {
        over("loopback,ofi:tcp;ofi_rxm", "3");
        over("loopback,ofi:sockets", "4");
    }
}

#[test]
fn the_kernel_moves_many_runs_in_one_call() {
    each_rank(2, Over::Shm, |engine, rank, world| {
        const COUNT: usize = 1 << 17;
        let (region, keys) = exposed(engine, 2 * COUNT, RegionAccess::ALL, world);
        if rank == 0 {
            assert_eq!(engine.region_reach(&keys[1]), Ok(WindowReach::Kernel));
            // At most 256 KiB go with one call, since it is made with a lock.
            for (words, runs, calls) in [
                (1, 1, 1),
                (1, 2, 1),
                (1, CALL_RUNS, 1),
                (1, CALL_RUNS + 1, 2),
                (1, 2_500, 3),
                (64, 512, 1),
                (64, 513, 2),
                (2_048, 64, 4),
            ] {
                let of = Datatype::vector(runs, words, 2 * words as isize, &Datatype::of::<u64>()).unwrap();
                let sent = values(runs as u32, words * runs);
                let before = engine.kernel_calls();
                engine.region_put_typed(&message(sent.clone()), &keys[1], 8, (&of, 1)).unwrap();
                assert_eq!(engine.kernel_calls() - before, calls, "a put of {runs} runs of {words}");
                let mut got = message(vec![0; words * runs]);
                engine.region_get_typed(&mut got, &keys[1], 8, (&of, 1)).unwrap();
                assert_eq!(engine.kernel_calls() - before, 2 * calls, "a get of {runs} runs of {words}");
                assert!(got.into_buffer() == sent);
                let put = engine.region_rput_typed(message(sent), &keys[1], 0, (&of, 1)).unwrap();
                let got = engine.region_rget_typed(message(vec![0; words * runs]), &keys[1], 0, (&of, 1)).unwrap();
                assert_eq!(engine.kernel_calls() - before, 4 * calls, "requests of {runs} runs of {words}");
                let sent = engine.take(put).unwrap().0;
                assert!(engine.take(got).unwrap().0.into_buffer() == sent.into_buffer());
            }
        }
        engine.barrier(world).unwrap();
        engine.withdraw(region).unwrap();
    });
}

#[test]
fn runs_in_a_shared_heap_need_no_call_of_the_kernel() {
    each_rank(2, Over::Heap, |engine, rank, world| {
        let region = engine.expose(engine.alloc_elements::<u64>(200).unwrap(), RegionAccess::ALL).unwrap();
        let mut keys = [region.key(); 2];
        engine.allgather(&[region.key()], &mut keys, world).unwrap();
        if rank == 0 {
            engine.region_reach(&keys[1]).unwrap();
            let before = engine.kernel_calls();
            engine.region_put_typed(&message(values(3, 100)), &keys[1], 0, (&every_second(100), 1)).unwrap();
            let mut got = message(vec![0; 100]);
            engine.region_get_typed(&mut got, &keys[1], 0, (&every_second(100), 1)).unwrap();
            assert_eq!(got.into_buffer(), values(3, 100));
            assert_eq!(engine.kernel_calls(), before);
        }
        engine.barrier(world).unwrap();
        engine.withdraw(region).unwrap();
    });
}

/// Makes all four calls with a key. Returns how each of them has ended.
fn all_four(
    engine: &mut Engine,
    key: &RegionKey,
    offset: usize,
    of: (&Datatype, usize),
    count: usize,
) -> [Result<(), WindowError>; 4] {
    let sent = || message(vec![9; count]);
    let put = engine.region_put_typed(&sent(), key, offset, of);
    let put = put.and(engine.region_flush(ProcId(key.proc)));
    let got = engine.region_get_typed(&mut sent(), key, offset, of);
    let later = engine.region_rput_typed(sent(), key, offset, of);
    let later = ended(engine, later);
    let got_later = engine.region_rget_typed(sent(), key, offset, of);
    [put, got, later, ended(engine, got_later)]
}

#[test]
fn what_a_key_does_not_allow_is_refused_before_anything_is_moved() {
    for over in ALL.into_iter().chain(FABRICS) {
        each_rank(2, over, |engine, _, world| {
            let (region, keys) = exposed(engine, 10, RegionAccess::ALL, world);
            let (five, back) = (every_second(5), Datatype::vector(5, 1, -2, &Datatype::of::<u64>()).unwrap());
            for key in &keys {
                // The last run is beyond the end, or before the start. The others are not.
                for (of, offset) in
                    [(&five, 16), (&back, 56), (&five, 80), (&five, 81), (&five, usize::MAX), (&back, 0)]
                {
                    for refusal in all_four(engine, key, offset, (of, 1), 5) {
                        let words = refusal.expect_err("it is not within the region").to_string();
                        assert!(words.contains("of a buffer of 80") || words.contains("not within"), "{words}");
                    }
                }
                for refusal in all_four(engine, key, 0, (&five, 1), 6) {
                    refused(refusal, "has 40 elements, and 48 are needed");
                }
                // The same word again and again: more runs than could be listed.
                let again = Datatype::of::<u64>().resized(0, 0).unwrap();
                for refusal in all_four(engine, key, 0, (&again, 1 << 40), 1) {
                    refused(refusal, "elements, and 8 are needed");
                }
                all_four(engine, key, 80, (&five, 0), 0).into_iter().for_each(Result::unwrap);
            }
            engine.barrier(world).unwrap();
            assert_eq!(engine.withdraw(region).unwrap(), [0; 10]);
        });
    }
}

#[test]
fn a_region_that_may_only_be_read_is_not_written() {
    for over in ALL.into_iter().chain(FABRICS) {
        each_rank(2, over, |engine, _, world| {
            for (access, may, word) in
                [(RegionAccess::READ, [false, true], "write"), (RegionAccess::WRITE, [true, false], "read")]
            {
                let (region, keys) = exposed(engine, 10, access, world);
                for key in &keys {
                    let [put, got, later, got_later] = all_four(engine, key, 0, (&every_second(5), 1), 5);
                    for (done, may) in [(put, may[0]), (later, may[0]), (got, may[1]), (got_later, may[1])] {
                        match may {
                            true => done.unwrap(),
                            false => refused(done, &format!("does not allow to {word} it")),
                        }
                    }
                    // Who forges a key is refused where the memory is.
                    let forged = RegionKey::new(ProcId(key.proc), key.number, 1 << 20, RegionAccess::ALL);
                    let [put, got, later, got_later] = all_four(engine, &forged, 8, (&every_second(5), 1), 5);
                    let none = if may[0] { [got, got_later] } else { [put, later] };
                    none.into_iter().for_each(|done| refused(done, "no such bytes"));
                    for done in all_four(engine, &forged, 48, (&every_second(5), 1), 5) {
                        refused(done, "no such bytes");
                    }
                }
                engine.barrier(world).unwrap();
                let left = engine.withdraw(region).unwrap();
                assert!(may[0] || left == [0; 10], "{left:?}");
            }
        });
    }
}

#[test]
fn a_stale_key_moves_no_run() {
    for over in ALL.into_iter().chain(FABRICS) {
        each_rank(2, over, |engine, rank, world| {
            let (region, keys) = exposed(engine, 100, RegionAccess::ALL, world);
            let (other, of) = (keys[1 - rank as usize], every_second(50));
            all_four(engine, &other, 0, (&of, 1), 50).into_iter().for_each(Result::unwrap);
            engine.barrier(world).unwrap();
            let mut buffer = engine.withdraw(region).unwrap();
            buffer.fill(3);
            engine.barrier(world).unwrap();
            // The same memory is exposed again, under another key.
            let again = engine.expose(buffer, RegionAccess::ALL).unwrap();
            for done in all_four(engine, &other, 0, (&of, 1), 50) {
                refused(done, if FABRICS.contains(&over) { "" } else { "no such bytes" });
            }
            engine.barrier(world).unwrap();
            assert_eq!(engine.withdraw(again).unwrap(), [3; 100]);
        });
    }
}
