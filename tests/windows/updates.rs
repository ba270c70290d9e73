//! Updates are atomic for each element, whichever rank updates it and however it reaches the memory.

use crate::kit::{ALL, Over, each_rank, refused, windows};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
use tickwire::{Datatype, LockKind, Rank, Typed, Window, WindowReach, op};

#[test]
fn no_update_is_lost_whoever_makes_it() {
    for over in ALL {
        let rounds = if over == Over::Short { 20 } else { 300 };
        for size in [2, 4] {
            each_rank(size, over, |engine, rank, world| {
                for window in windows(engine, 64, world) {
                    engine.win_lock_all(window).unwrap();
                    let mut seen = 0;
                    for round in 0..rounds {
                        // Rank 0 also updates its own part. Long updates come in between short ones.
                        let old = engine.fetch_and_op(1u64, op::Sum, Rank(0), 0, window).unwrap();
                        assert!(round == 0 || old > seen, "a counter only grows");
                        seen = old;
                        if round % 4 == u64::from(rank) % 4 {
                            engine.accumulate(&[1; 63], op::Sum, Rank(0), 1, window).unwrap();
                        }
                    }
                    engine.win_unlock_all(window).unwrap();
                    engine.barrier(world).unwrap();
                    engine.win_lock(LockKind::Shared, Rank(0), window).unwrap();
                    let mut all = [0; 64];
                    engine.get_accumulate(&[0; 64], &mut all, op::Keep, Rank(0), 0, window).unwrap();
                    engine.win_unlock(Rank(0), window).unwrap();
                    let long =
                        (0..u64::from(size)).map(|rank| (0..rounds).filter(|round| round % 4 == rank % 4).count());
                    let long: usize = long.sum();
                    assert_eq!(all[0], u64::from(size) * rounds, "{over:?}");
                    assert_eq!(all[1..], [long as u64; 63]);
                    engine.barrier(world).unwrap();
                    engine.win_free(window).unwrap();
                }
            });
        }
    }
}

#[test]
fn a_displacement_beyond_all_memory_is_an_error_and_no_update() {
    for over in ALL {
        each_rank(2, over, |engine, rank, world| {
            for window in windows(engine, 2, world) {
                engine.win_lock_all(window).unwrap();
                // If the byte address wraps around, these displacements lead to the first bytes of the part.
                for displacement in [1 << 61, 1 << 63, usize::MAX - 6] {
                    let target = Rank(1 - rank);
                    let updated = engine.fetch_and_op(1u64, op::Sum, target, displacement, window);
                    refused(updated.map(drop), "not within");
                    refused(engine.accumulate(&[1u64], op::Sum, target, displacement, window), "not within");
                    assert!(engine.compare_and_swap(0u64, 1, target, displacement, window).is_err());
                }
                engine.win_unlock_all(window).unwrap();
                engine.barrier(world).unwrap();
                assert_eq!(crate::kit::own(engine, 2, window), [0; 2]);
                engine.win_free(window).unwrap();
            }
        });
    }
}

#[test]
fn a_swap_elects_one() {
    for over in ALL {
        each_rank(4, over, |engine, rank, world| {
            for window in windows(engine, 2, world) {
                engine.win_lock_all(window).unwrap();
                for round in 0..20u64 {
                    let mine = (round << 8) | (u64::from(rank) + 1);
                    let last = if round == 0 { 0 } else { u64::MAX - round };
                    let old = engine.compare_and_swap(last, mine, Rank(1), 0, window).unwrap();
                    if old == last {
                        engine.fetch_and_op(1, op::Sum, Rank(1), 1, window).unwrap();
                    }
                    engine.barrier(world).unwrap();
                    let mut now = [0; 2];
                    engine.get_accumulate(&[0; 2], &mut now, op::Keep, Rank(1), 0, window).unwrap();
                    assert_eq!((now[0] >> 8, now[1]), (round, round + 1), "one has been elected");
                    engine.barrier(world).unwrap();
                    if rank == 0 {
                        engine.fetch_and_op(u64::MAX - round - 1, op::Replace, Rank(1), 0, window).unwrap();
                    }
                    engine.barrier(world).unwrap();
                }
                engine.win_unlock_all(window).unwrap();
                engine.win_free(window).unwrap();
            }
        });
    }
}

#[test]
fn all_types_and_operations_do_what_they_do_elsewhere() {
    for over in ALL {
        each_rank(2, over, |engine, rank, world| {
            let window = engine.win_allocate::<u8>(64, world).unwrap();
            let other = Rank(1 - rank);
            engine.win_lock(LockKind::Exclusive, other, window).unwrap();
            let bytes: Window<i8> = window.cast();
            engine.put(&[5, -7], other, 0, bytes).unwrap();
            assert_eq!(engine.fetch_and_op(-3, op::Product, other, 0, bytes), Ok(5));
            assert_eq!(engine.fetch_and_op(-9, op::Min, other, 1, bytes), Ok(-7));
            let words: Window<u16> = window.cast();
            assert_eq!(engine.fetch_and_op(0xFF00, op::BitOr, other, 2, words), Ok(0));
            assert_eq!(engine.fetch_and_op(0x0FF0, op::BitAnd, other, 2, words), Ok(0xFF00));
            assert_eq!(engine.compare_and_swap(0x0F00, 3, other, 2, words), Ok(0x0F00));
            let floats: Window<f32> = window.cast();
            engine.accumulate(&[1.5, 2.5], op::Replace, other, 2, floats).unwrap();
            engine.accumulate(&[1.0, 9.0], op::Max, other, 2, floats).unwrap();
            engine.accumulate(&[0.25, 0.5], op::Sum, other, 2, floats).unwrap();
            let doubles: Window<f64> = window.cast();
            engine.accumulate(&[1.25; 4], op::Sum, other, 2, doubles).unwrap();
            assert_eq!(engine.fetch_and_op(0.0, op::Keep, other, 5, doubles), Ok(1.25));
            let mut found = ([0; 2], 0, [0.0; 2]);
            engine.get(&mut found.0, other, 0, bytes).unwrap();
            engine.get(std::slice::from_mut(&mut found.1), other, 2, words).unwrap();
            engine.get(&mut found.2, other, 2, floats).unwrap();
            assert_eq!(found, ([-15, -9], 3, [1.75, 9.5]));
            engine.win_unlock(other, window).unwrap();
            engine.win_free(window).unwrap();
        });
    }
}

#[test]
fn elements_that_are_not_aligned_are_refused() {
    for over in [Over::Shm, Over::Loopback] {
        each_rank(2, over, |engine, rank, world| {
            // A buffer of bytes may begin at any address. So this one can begin at an address that is not aligned for
            // words.
            let window = engine.win_allocate::<u8>(64, world).unwrap();
            let other = Rank(1 - rank);
            engine.win_lock_all(window).unwrap();
            let of_bytes = Datatype::of::<u8>();
            let typed = Typed::new(vec![1u8; 8], &of_bytes, 8).unwrap();
            let words: Window<u32> = window.cast();
            engine.put_typed(&typed, other, 3, (&of_bytes, 8), window).unwrap();
            let wrong = engine.accumulate_typed(
                &typed,
                op::Sum,
                other,
                0,
                (&Datatype::vector(8, 1, 2, &of_bytes).unwrap(), 1),
                words,
            );
            refused(wrong, "not aligned");
            engine.win_unlock_all(window).unwrap();
            engine.win_free(window).unwrap();
        });
    }
}

#[test]
fn a_datatype_of_thousands_of_runs_moves_them_all() {
    // The kernel takes fewer runs in one call.
    const RUNS: usize = 2_500;
    for over in ALL {
        each_rank(2, over, |engine, rank, world| {
            let other = Rank(1 - rank);
            for window in windows(engine, 3 * RUNS, world) {
                engine.win_lock_all(window).unwrap();
                let strided = Datatype::vector(RUNS, 2, 3, &Datatype::of::<u64>()).unwrap();
                let values: Vec<u64> = (1..=2 * RUNS as u64).map(|at| at + u64::from(rank)).collect();
                let from = Typed::new(values.clone(), &Datatype::of::<u64>(), 2 * RUNS).unwrap();
                engine.put_typed(&from, other, 0, (&strided, 1), window).unwrap();
                engine.win_flush(other, window).unwrap();
                let mut back = Typed::new(vec![0u64; 2 * RUNS], &Datatype::of::<u64>(), 2 * RUNS).unwrap();
                engine.get_typed(&mut back, other, 0, (&strided, 1), window).unwrap();
                assert!(back.into_buffer() == values, "{over:?}");
                let mut all = vec![7; 3 * RUNS - 1];
                engine.get(&mut all, other, 0, window).unwrap();
                let expected = |at: usize| if at % 3 == 2 { 0 } else { values[at / 3 * 2 + at % 3] };
                assert!((0..all.len()).all(|at| all[at] == expected(at)), "{over:?}: nothing between them");
                engine.win_unlock_all(window).unwrap();
                engine.win_free(window).unwrap();
            }
        });
    }
}

#[test]
fn a_datatype_of_thousands_of_runs_moves_them_all_in_memory_that_is_attached() {
    // More than are moved while the list of attached memory is locked once.
    const RUNS: usize = 2_500;
    for over in ALL {
        each_rank(2, over, |engine, rank, world| {
            let window = engine.win_create_dynamic(world).unwrap();
            let own = engine.win_attach(vec![0u64; 3 * RUNS], window).unwrap();
            let mut places = [0; 2];
            engine.allgather(&[own], &mut places, world).unwrap();
            let (other, at) = (Rank(1 - rank), places[1 - rank as usize]);
            engine.win_lock_all(window).unwrap();
            let strided = Datatype::vector(RUNS, 2, 3, &Datatype::of::<u64>()).unwrap();
            let values: Vec<u64> = (1..=2 * RUNS as u64).map(|at| at + u64::from(rank)).collect();
            let from = Typed::new(values.clone(), &Datatype::of::<u64>(), 2 * RUNS).unwrap();
            let before = engine.win_counts(other, window).unwrap().issued;
            engine.put_typed(&from, other, at, (&strided, 1), window).unwrap();
            engine.win_flush(other, window).unwrap();
            let mut back = Typed::new(vec![0u64; 2 * RUNS], &Datatype::of::<u64>(), 2 * RUNS).unwrap();
            engine.get_typed(&mut back, other, at, (&strided, 1), window).unwrap();
            assert!(back.into_buffer() == values, "{over:?}");
            let from = Typed::new(values.clone(), &Datatype::of::<u64>(), 2 * RUNS).unwrap();
            let put = engine.rput_typed(from, other, at, (&strided, 1), window).unwrap();
            let from = engine.wait_take(put).unwrap().0;
            if engine.win_reach(other, window).unwrap() == WindowReach::Kernel {
                let issued = engine.win_counts(other, window).unwrap().issued - before;
                assert_eq!(issued, 3, "{over:?}: two puts and one get, each of all runs together");
            }
            // A run that is not there: the bytes behind the last element of the buffer.
            let beyond = engine.put_typed(&from, other, at + 2 * size_of::<u64>(), (&strided, 1), window);
            assert!(beyond.and(engine.win_flush(other, window)).is_err(), "{over:?}");
            engine.win_unlock_all(window).unwrap();
            engine.barrier(world).unwrap();
            let back = engine.win_detach::<Vec<u64>>(own, window).unwrap().unwrap();
            assert_eq!(back[0], 2 - u64::from(rank), "{over:?}");
            engine.win_free(window).unwrap();
        });
    }
}

/// Peers map the shared heap, and reach each run there by stores.
#[test]
fn a_datatype_of_several_runs_goes_to_attached_memory_of_the_shared_heap_by_stores() {
    each_rank(2, Over::Heap, |engine, rank, world| {
        let window = engine.win_create_dynamic(world).unwrap();
        let buffer = engine.alloc_elements::<u64>(9).unwrap();
        let own = engine.win_attach(buffer, window).unwrap();
        let mut places = [0; 2];
        engine.allgather(&[own], &mut places, world).unwrap();
        let (other, at) = (Rank(1 - rank), places[1 - rank as usize]);
        engine.win_lock_all(window).unwrap();
        let before = engine.kernel_calls();
        let number = Datatype::of::<u64>();
        let strided = Datatype::vector(3, 2, 3, &number).unwrap();
        let from = Typed::new(vec![u64::from(rank) + 5; 6], &number, 6).unwrap();
        engine.put_typed(&from, other, at, (&strided, 1), window).unwrap();
        engine.win_flush(other, window).unwrap();
        assert_eq!(engine.win_counts(other, window).unwrap().issued, 1, "all runs together");
        assert_eq!(engine.kernel_calls(), before);
        engine.win_unlock_all(window).unwrap();
        engine.barrier(world).unwrap();
        let mut got = [0u64; 9];
        engine.win_read(&mut got, own / size_of::<u64>(), window.cast()).unwrap();
        let put = u64::from(other.0) + 5;
        assert_eq!([0, 1, 3, 4, 6, 7].map(|index: usize| got[index]), [put; 6]);
        engine.win_lock_all(window).unwrap();
        engine.put_typed(&from, Rank(rank), own, (&strided, 1), window).unwrap();
        assert_eq!(engine.win_counts(Rank(rank), window).unwrap().issued, 1, "to the own part too");
        engine.win_unlock_all(window).unwrap();
        engine.win_free(window).unwrap();
    });
}

#[test]
fn datatypes_say_which_elements_of_both_sides() {
    for over in ALL {
        each_rank(2, over, |engine, rank, world| {
            let other = Rank(1 - rank);
            for window in windows(engine, 40, world) {
                engine.win_lock_all(window).unwrap();
                let number = Datatype::of::<u64>();
                let (every_second, pairs) =
                    (Datatype::vector(6, 1, 2, &number).unwrap(), Datatype::vector(3, 2, 5, &number).unwrap());
                let from = Typed::new((0..12u64).collect::<Vec<_>>(), &every_second, 1).unwrap();
                engine.put_typed(&from, other, 10, (&pairs, 1), window).unwrap();
                engine.accumulate_typed(&from, op::Sum, other, 10, (&pairs, 1), window).unwrap();
                engine.win_flush(other, window).unwrap();
                let mut all = [0; 14];
                engine.get(&mut all, other, 10, window).unwrap();
                assert_eq!(all, [0, 4, 0, 0, 0, 8, 12, 0, 0, 0, 16, 20, 0, 0]);
                let mut back = Typed::new(vec![99u64; 12], &every_second, 1).unwrap();
                engine.get_typed(&mut back, other, 10, (&pairs, 1), window).unwrap();
                assert_eq!(back.into_buffer(), [0, 99, 4, 99, 8, 99, 12, 99, 16, 99, 20, 99]);
                let mut old = Typed::new(vec![99u64; 12], &every_second, 1).unwrap();
                engine.get_accumulate_typed((&from, &mut old), op::Sum, other, 10, (&pairs, 1), window).unwrap();
                assert_eq!(old.into_buffer(), [0, 99, 4, 99, 8, 99, 12, 99, 16, 99, 20, 99]);
                let mut all = [0; 14];
                engine.get(&mut all, other, 10, window).unwrap();
                assert_eq!(all, [0, 6, 0, 0, 0, 12, 18, 0, 0, 0, 24, 30, 0, 0]);
                let mut short = Typed::new(vec![0u64; 12], &every_second, 2);
                assert!(short.is_err(), "12 elements have no 12 of every second one");
                short = Typed::new(vec![0u64; 6], &number, 5);
                let wrong =
                    engine.get_accumulate_typed((&from, &mut short.unwrap()), op::Sum, other, 10, (&pairs, 1), window);
                refused(wrong, "has 40 elements, and 48 are needed");
                let wrong = engine.put_typed(&from, other, 30, (&pairs, 1), window);
                assert!(wrong.is_err(), "it is not within the part");
                refused(engine.put_typed(&from, other, 0, (&pairs, 2), window), "48 are needed");
                engine.win_unlock_all(window).unwrap();
                engine.win_free(window).unwrap();
            }
        });
    }
}

/// A page of 64 zeros that can be made read-only. It stays until the process ends.
fn page() -> &'static mut [u64] {
    let (read, write) = (ProtFlags::READ, ProtFlags::WRITE);
    // SAFETY: new memory, which nobody else knows, and which stays.
    #[expect(unsafe_code, reason = "memory that cannot be written")]
    unsafe {
        let start = mmap_anonymous(std::ptr::null_mut(), 4096, read | write, MapFlags::PRIVATE).unwrap();
        std::slice::from_raw_parts_mut(start.cast(), 64)
    }
}

#[test]
fn what_only_reads_elements_writes_nothing_back() {
    for attached in [false, true] {
        each_rank(2, Over::Shm, |engine, rank, world| {
            let memory = page();
            memory[3] = 5;
            let address = memory.as_mut_ptr();
            let (window, first): (Window<u64>, usize) = match attached {
                false => (engine.win_create(memory, world).unwrap(), 0),
                true => {
                    let window = engine.win_create_dynamic(world).unwrap();
                    let at = engine.win_attach(memory, window).unwrap();
                    (window.cast(), at / 8)
                }
            };
            let mut first = [first; 2].map(|first| first as u64);
            engine.allgather(&[first[0]], &mut first, world).unwrap();
            // SAFETY: nothing in this test writes it any more. If the engine does, the kernel says so.
            #[expect(unsafe_code, reason = "memory that cannot be written")]
            unsafe { mprotect(address.cast(), 4096, MprotectFlags::READ) }.unwrap();
            engine.barrier(world).unwrap();
            let (other, at) = (Rank(1 - rank), first[1 - rank as usize] as usize + 3);
            engine.win_lock(LockKind::Shared, other, window).unwrap();
            assert_eq!(engine.fetch_and_op(9u64, op::Keep, other, at, window).unwrap(), 5);
            let mut four = [0u64; 4];
            engine.get_accumulate(&[9u64; 4], &mut four, op::Keep, other, at, window).unwrap();
            assert_eq!(four, [5, 0, 0, 0]);
            assert_eq!(engine.compare_and_swap(4u64, 9, other, at, window).unwrap(), 5);
            engine.win_unlock(other, window).unwrap();
            engine.barrier(world).unwrap();
            engine.win_free(window).unwrap();
        });
    }
}
