//! Exposed memory: only a proc with a key can read, write and update it.

use crate::kit::{ALL, FABRICS, Over, SHARED, each_rank, refused, values};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tickwire::{
    Bootstrap, Comm, CommError, Engine, LockKind, ProcId, Rank, Region, RegionAccess, RegionKey, Tag, Window,
    WindowReach, op,
};

/// How long a test waits for an event that should come soon.
const BOUND: Duration = Duration::from_secs(20);

/// Exposes a buffer on each rank, and collects the keys of all ranks.
pub(crate) fn exposed(
    engine: &mut Engine,
    count: usize,
    access: RegionAccess,
    world: Comm,
) -> (Region<Vec<u64>>, Vec<RegionKey>) {
    let region = engine.expose(vec![0u64; count], access).unwrap();
    let mut keys = vec![region.key(); engine.size() as usize];
    engine.allgather(&[region.key()], &mut keys, world).unwrap();
    (region, keys)
}

#[test]
fn who_has_a_key_moves_bytes_without_the_owner() {
    for over in ALL.into_iter().chain(FABRICS) {
        each_rank(3, over, |engine, rank, world| {
            let (region, keys) = exposed(engine, 5_000, RegionAccess::ALL, world);
            let next = (rank + 1) % 3;
            let key = keys[next as usize];
            let reach = match over {
                Over::Shm | Over::Copied | Over::SomeCopied | Over::Heap => WindowReach::Kernel,
                Over::Process => WindowReach::Memory,
                Over::Fabric(_) => WindowReach::Fabric,
                Over::Loopback | Over::Short => WindowReach::Engine,
            };
            assert_eq!(engine.region_reach(&key).unwrap(), reach, "{over:?}");
            assert_eq!(engine.region_reach(&region.key()).unwrap(), WindowReach::Memory);
            engine.region_put(values(rank, 4_000), &key, 8_000).unwrap();
            engine.region_flush(ProcId(next)).unwrap();
            let mut got = vec![0; 4_000];
            engine.region_get(&mut got, &key, 8_000).unwrap();
            assert_eq!(got, values(rank, 4_000));
            let put = engine.region_rput(vec![7u64; 10], &key, 0).unwrap();
            engine.wait_take(put).unwrap();
            let got = engine.region_rget(vec![0u64; 10], &key, 0).unwrap();
            assert_eq!(engine.wait_take(got).unwrap().0, [7; 10]);
            engine.region_flush_all().unwrap();
            // Operations on the own regions are counted, too.
            let before = engine.region_counts(ProcId(rank)).issued;
            engine.region_put(&[1u64], &keys[rank as usize], 4_000).unwrap();
            let counts = engine.region_counts(ProcId(rank));
            assert_eq!((counts.issued, counts.completed), (before + 1, before + 1));
            let counts = engine.region_counts(ProcId(next));
            assert_eq!((counts.issued, counts.completed), (4, 4));
            engine.barrier(world).unwrap();
            let buffer = engine.withdraw(region).unwrap();
            assert_eq!(buffer[1_000..], values((rank + 2) % 3, 4_000));
        });
    }
}

#[test]
fn a_counter_in_a_region_counts_what_all_add() {
    for over in ALL.into_iter().chain(FABRICS) {
        each_rank(4, over, |engine, rank, world| {
            let (region, keys) = exposed(engine, 4, RegionAccess::ALL, world);
            for _ in 0..100 {
                engine.region_fetch_and_op(1u64, op::Sum, &keys[0], 8).unwrap();
            }
            if rank == 0 {
                engine.region_fetch_and_op(u64::MAX, op::Replace, &keys[0], 16).unwrap();
            }
            // Updates with requests count like all others, however many are in progress.
            let adding: Vec<_> =
                (0..50).map(|_| engine.region_rfetch_and_op(2u64, op::Sum, &keys[0], 8).unwrap()).collect();
            let before: Vec<u64> = adding.into_iter().map(|adding| engine.wait_take(adding).unwrap().0.1[0]).collect();
            assert!(before.is_sorted_by(|one, next| one + 2 <= *next), "of one origin, in order");
            let swap = engine.region_rcompare_and_swap(77u32, 78, &keys[0], 4).unwrap();
            assert_eq!(engine.wait_take(swap).unwrap().0.1, [0], "it is not 77");
            engine.barrier(world).unwrap();
            if rank == 3 {
                let swap = engine.region_rcompare_and_swap(0u32, 78, &keys[0], 4).unwrap();
                assert_eq!(engine.wait_take(swap).unwrap().0.1, [0]);
                assert_eq!(engine.region_fetch_and_op(0u32, op::Replace, &keys[0], 4), Ok(78));
            }
            // Exactly one rank wins the election.
            let old = engine.region_compare_and_swap(0u32, rank + 1, &keys[0], 0).unwrap();
            let mut won = [0u32];
            engine.allreduce(&[u32::from(old == 0)], &mut won, op::Sum, world).unwrap();
            assert_eq!(won, [1]);
            // Each rank clears a bit that no other rank changes, and sets it elsewhere.
            let before = engine.region_fetch_and_op(!(1u64 << rank), op::BitAnd, &keys[0], 16).unwrap();
            assert_eq!(before | 15, u64::MAX);
            engine.region_fetch_and_op(1u64 << rank, op::BitXor, &keys[0], 24).unwrap();
            engine.barrier(world).unwrap();
            assert_eq!(engine.region_fetch_and_op(0u64, op::Keep, &keys[0], 16), Ok(u64::MAX << 4));
            assert_eq!(engine.region_fetch_and_op(0u64, op::BitXor, &keys[0], 24), Ok(15));
            assert_eq!(engine.region_fetch_and_op(0u64, op::Keep, &keys[0], 8).unwrap(), 800);
            engine.barrier(world).unwrap();
            engine.withdraw(region).unwrap();
        });
    }
}

#[test]
fn an_owner_that_has_gone_in_order_has_failed_nothing_that_was_done() {
    for over in [Over::Shm, Over::Process, Over::Loopback] {
        each_rank(2, over, |engine, rank, world| {
            let (_region, keys) = exposed(engine, 2, RegionAccess::ALL, world);
            if rank == 0 {
                engine.region_put(&[3u64], &keys[1], 8).unwrap();
                engine.region_flush(ProcId(keys[1].proc)).unwrap();
            }
            engine.barrier(world).unwrap();
            if rank == 0 {
                // The other rank leaves with a farewell.
                let start = Instant::now();
                while engine.region_get(&mut [0u64], &keys[1], 8).is_ok() {
                    assert!(start.elapsed() < Duration::from_secs(60), "{over:?}: it stays");
                    // A region on this host is read without a tick. Only a tick reads the farewell.
                    engine.tick();
                    std::thread::yield_now();
                }
                // The last get may have reported the failure already.
                let _ = engine.region_flush_all();
                assert_eq!(engine.region_flush_all(), Ok(()), "{over:?}");
            }
        });
    }
}

#[test]
fn a_key_allows_what_it_says_and_only_within_its_region() {
    for over in [Over::Shm, Over::Loopback] {
        each_rank(2, over, |engine, rank, world| {
            let (region, keys) = exposed(engine, 4, RegionAccess::READ, world);
            for key in keys {
                refused(engine.region_put(&[1u64], &key, 0), "does not allow to write it");
                refused(engine.region_fetch_and_op(1u64, op::Sum, &key, 0).map(drop), "does not allow to update it");
                let update = engine.region_rfetch_and_op(1u64, op::Sum, &key, 0);
                refused(update.map(drop).map_err(|back| back.error), "does not allow to update it");
                refused(engine.region_get(&mut [1u64], &key, 25), "bytes 25 to 33 are not within the 32 bytes");
                refused(engine.region_get(&mut [1u64], &key, usize::MAX), "not within");
                engine.region_get(&mut [1u64], &key, 24).unwrap();
                // A forged key. The target checks it too.
                let forged = RegionKey::new(ProcId(key.proc), key.number, 1 << 30, RegionAccess::ALL);
                for offset in [0, 32, 1 << 20] {
                    let put = engine.region_put(&[1u64], &forged, offset);
                    let flushed = engine.region_flush(ProcId(key.proc));
                    refused(put.and(flushed), "no such bytes");
                }
                let unknown = RegionKey::new(ProcId(key.proc), 1_000, 8, RegionAccess::ALL);
                refused(engine.region_get(&mut [1u64], &unknown, 0), "no such bytes");
                let nobody = RegionKey::new(ProcId(7), 0, 8, RegionAccess::ALL);
                refused(engine.region_get(&mut [1u64], &nobody, 0), "rank 7 is out of range");
            }
            engine.barrier(world).unwrap();
            assert_eq!(engine.withdraw(region).unwrap(), [0; 4]);
            // Everything else still works.
            engine.sendrecv(&[rank], Rank(1 - rank), Tag(1), &mut [0u32], Rank(1 - rank), Tag(1), world).unwrap();
        });
    }
}

#[test]
fn a_stale_key_is_an_error_and_never_a_write() {
    for over in ALL.into_iter().chain(FABRICS) {
        // The words of a fabric about an unknown key differ by provider.
        let words = if FABRICS.contains(&over) { "" } else { "no such bytes" };
        each_rank(2, over, |engine, rank, world| {
            let (region, keys) = exposed(engine, 100, RegionAccess::ALL, world);
            let other = keys[1 - rank as usize];
            engine.region_put(&[1u64; 100], &other, 0).unwrap();
            engine.region_flush(ProcId(other.proc)).unwrap();
            engine.barrier(world).unwrap();
            let mut buffer = engine.withdraw(region).unwrap();
            buffer.fill(3);
            engine.barrier(world).unwrap();
            // The same memory is exposed again, under another key.
            let again = engine.expose(buffer, RegionAccess::ALL).unwrap();
            refused(engine.region_get(&mut [0u64], &other, 0), words);
            let put = engine.region_put(&[5u64; 100], &other, 0);
            refused(put.and(engine.region_flush(ProcId(other.proc))), words);
            let late = engine.region_rput(vec![5u64; 100], &other, 0).unwrap();
            let late_words = if FABRICS.contains(&over) { "the fabric cannot do it" } else { words };
            assert!(engine.wait_take(late).unwrap_err().to_string().contains(late_words), "{over:?}");
            refused(engine.region_fetch_and_op(1u64, op::Sum, &other, 0).map(drop), "no such bytes");
            engine.barrier(world).unwrap();
            assert_eq!(engine.withdraw(again).unwrap(), [3; 100]);
        });
    }
}

/// A provider that does not check keys is not used. So the buffer belongs to the application again once the region is withdrawn.
#[test]
fn a_fabric_that_takes_stale_keys_reaches_no_region() {
    each_rank(2, Over::Fabric("shm"), |engine, rank, world| {
        let (region, keys) = exposed(engine, 100, RegionAccess::ALL, world);
        let other = keys[1 - rank as usize];
        assert_eq!(engine.region_reach(&other).unwrap(), WindowReach::Engine);
        engine.region_put(&[1u64; 100], &other, 0).unwrap();
        engine.region_flush(ProcId(other.proc)).unwrap();
        engine.barrier(world).unwrap();
        let buffer = engine.withdraw(region).unwrap();
        assert_eq!(buffer, [1; 100]);
        engine.barrier(world).unwrap();
        let put = engine.region_put(&[5u64; 100], &other, 0);
        refused(put.and(engine.region_flush(ProcId(other.proc))), "no such bytes");
        engine.barrier(world).unwrap();
        assert_eq!(buffer, [1; 100], "it is the application's");
    });
}

#[test]
fn an_owner_that_computes_is_not_waited_for() {
    SHARED.into_iter().for_each(an_owner_computes);
}

fn an_owner_computes(over: Over) {
    let done = AtomicBool::new(false);
    each_rank(2, over, |engine, rank, world| {
        let long = 1 << 17;
        let (region, keys) = exposed(engine, long, RegionAccess::ALL, world);
        if rank == 1 {
            let start = Instant::now();
            while !done.load(Ordering::Acquire) {
                assert!(start.elapsed() < BOUND, "rank 0 waits for this engine");
                std::hint::spin_loop();
            }
        } else {
            let _done = AtEnd(&done);
            let key = keys[1];
            engine.region_put(values(0, long), &key, 0).unwrap();
            engine.region_flush(ProcId(1)).unwrap();
            let mut got = vec![0; long];
            engine.region_get(&mut got, &key, 0).unwrap();
            assert_eq!(got, values(0, long));
            let old = engine.region_fetch_and_op(5u64, op::Sum, &key, 8).unwrap();
            assert_eq!(old, values(0, 2)[1]);
            assert_eq!(engine.region_compare_and_swap(old + 5, 1, &key, 8).unwrap(), old + 5);
            assert_eq!(engine.region_compare_and_swap(9u32, 8, &key, 8).unwrap(), 1, "another value is there");
            assert_eq!(engine.region_fetch_and_op(7u32, op::Replace, &key, 12).unwrap(), 0);
            let put = engine.region_rput(vec![3u64; 4], &key, 0).unwrap();
            assert!(engine.test(&put).unwrap().is_done(), "it was done when it was posted");
            engine.wait_take(put).unwrap();
            let counts = engine.region_counts(ProcId(1));
            assert_eq!((counts.issued, counts.completed), (7, 7));
        }
        engine.barrier(world).unwrap();
        let buffer = engine.withdraw(region).unwrap();
        if rank == 1 {
            assert_eq!(buffer[..4], [3; 4]);
        }
    });
}

#[test]
fn memory_that_peers_map_is_accessed_where_it_is() {
    each_rank(2, Over::Heap, |engine, rank, world| {
        let mut buffer = engine.alloc(3 << 20).unwrap();
        buffer
            .iter_mut()
            .zip(0u32..)
            .for_each(|(byte, at)| *byte = ((at.wrapping_mul(7) >> 3) as u8).wrapping_add(rank as u8));
        let region = engine.expose(buffer, RegionAccess::ALL).unwrap();
        let mut keys = [region.key(); 2];
        engine.allgather(&[region.key()], &mut keys, world).unwrap();
        let key = keys[1 - rank as usize];
        let mut got = vec![0u8; 3 << 20];
        engine.region_get(&mut got, &key, 0).unwrap();
        assert_eq!(engine.bytes_read().attach, 0, "not by the kernel");
        let theirs = |at: u32| ((at.wrapping_mul(7) >> 3) as u8).wrapping_add(1 - rank as u8);
        assert!(got.iter().zip(0u32..).all(|(byte, at)| *byte == theirs(at)));
        engine.barrier(world).unwrap();
        engine.region_put(&[9u8; 5], &key, 3).unwrap();
        engine.region_flush_all().unwrap();
        engine.region_get(&mut got[..10], &key, 0).unwrap();
        assert_eq!(got[3..8], [9; 5]);
        engine.region_put(&[1u64 << 40], &key, 64).unwrap();
        assert_eq!(engine.region_fetch_and_op(2u64, op::Sum, &key, 64), Ok(1 << 40));
        assert_eq!(engine.region_compare_and_swap(1u16, 5, &key, 64), Ok(2), "another value is there");
        assert_eq!(engine.region_compare_and_swap(2u16, 5, &key, 64), Ok(2));
        refused(engine.region_fetch_and_op(2u64, op::Sum, &key, 60).map(drop), "not aligned");
        assert_eq!(engine.bytes_read().attach, 0, "not by the kernel");
        engine.barrier(world).unwrap();
        let buffer = engine.withdraw(region).unwrap();
        assert_eq!(buffer[3..8], [9; 5]);
        assert_eq!(buffer[64..72], ((1u64 << 40) + 5).to_ne_bytes());
    });
}

/// Exposed regions are kept like the parts of a window. No handle names them as one, and no window loses its
/// communicator.
#[test]
fn no_window_is_made_of_a_number_and_none_loses_its_communicator() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let region = engine.expose(vec![1u64; 4], RegionAccess::ALL).unwrap();
    let regions = Window::<u64>::new(0);
    refused(engine.win_free(regions), "does not exist");
    refused(engine.win_exclusive(regions).map(drop), "does not exist");
    refused(engine.win_lock_all(regions), "does not exist");
    refused(engine.win_fence(regions), "does not exist");
    // Who could write there could make peers write anywhere.
    let me = engine.rank();
    refused(engine.win_cells(me, regions).map(drop), "does not exist");
    refused(engine.win_lock(LockKind::Shared, me, regions), "does not exist");
    refused(engine.put(&[1u64], me, 0, regions), "no epoch is open");
    refused(engine.win_read(&mut [0u64], 0, regions), "does not exist");
    let window = engine.win_create(vec![2u64; 4], engine.comm_world()).unwrap();
    assert_eq!(engine.comm_free(Comm(window.handle)), Err(CommError::Permanent));
    assert_eq!(engine.win_take::<Vec<u64>>(window).unwrap().unwrap(), [2; 4]);
    assert_eq!(engine.withdraw(region).unwrap(), [1; 4]);
}

/// Sets the flag when it is dropped, even if the test fails.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn of_an_owner_and_another_that_put_and_flush_at_once_one_sees_what_the_other_has_put() {
    const ROUNDS: usize = 5_000;
    for over in [Over::Heap, Over::Process] {
        each_rank(2, over, |engine, rank, world| {
            // Each round has a cache line of its own for each rank, in the region of rank 0.
            let (key, _region): (_, Box<dyn std::any::Any>) = match engine.alloc_elements::<u64>(16 * ROUNDS) {
                Ok(buffer) => {
                    let region = engine.expose(buffer, RegionAccess::ALL).unwrap();
                    (region.key(), Box::new(region))
                }
                Err(_) => {
                    let region = engine.expose(vec![0u64; 16 * ROUNDS], RegionAccess::ALL).unwrap();
                    (region.key(), Box::new(region))
                }
            };
            let mut keys = [key; 2];
            engine.allgather(&[key], &mut keys, world).unwrap();
            let (key, owner) = (keys[0], ProcId(0));
            let mut seen = vec![0u64; ROUNDS];
            for (round, seen) in seen.iter_mut().enumerate() {
                let word = |of: u32| 64 * (2 * round + of as usize);
                engine.region_get(std::slice::from_mut(seen), &key, word(1 - rank)).unwrap();
                engine.barrier(world).unwrap();
                engine.region_put(&[1u64], &key, word(rank)).unwrap();
                engine.region_flush(owner).unwrap();
                engine.region_get(std::slice::from_mut(seen), &key, word(1 - rank)).unwrap();
            }
            let mut all = vec![0; 2 * ROUNDS];
            engine.allgather(&seen, &mut all, world).unwrap();
            let blind = (0..ROUNDS).filter(|round| all[*round] + all[ROUNDS + round] == 0).count();
            assert_eq!(blind, 0, "{over:?}: rounds in which neither has seen the other's put");
            engine.barrier(world).unwrap();
        });
    }
}
