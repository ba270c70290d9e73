//! All operations on boards in all their forms: the results are those of operations by messages, bit by bit.

use super::{each_rank, mix, same, values, with_boards};
use tickwire::{Comm, Engine, Rank, in_place, op};

/// Elements of an operand: it fits a cache line, a slot, one chunk or many chunks, or is longer than all cells.
const COUNTS: [usize; 10] = [0, 1, 4, 5, 200, 241, 2_000, 9_001, 33_000, 300_001];

/// Runs all operations with one number of elements, in their blocking, nonblocking and persistent forms. Returns their
/// results one after another.
fn run_all(engine: &mut Engine, rank: u32, world: Comm, count: usize) -> Vec<i64> {
    let size = engine.size();
    let ranks = size as usize;
    let (own, all) = (values(rank, count), values(rank, count * ranks));
    let mut results = Vec::new();
    engine.barrier(world).unwrap();
    for root in [0, size - 1].map(Rank) {
        let is_root = Rank(rank) == root;
        let mut shared = if is_root { own.clone() } else { vec![0; count] };
        engine.bcast(&mut shared, root, world).unwrap();
        same(&shared, &values(root.0, count), "bcast");
        let mut gathered = vec![0; if is_root { count * ranks } else { 0 }];
        engine.gather(&own, &mut gathered, root, world).unwrap();
        let expected: Vec<i64> = (0..size).flat_map(|rank| values(rank, count)).collect();
        assert!(!is_root || gathered == expected);
        let mut part = vec![0; count];
        let sent = if is_root { &all[..] } else { &[] };
        engine.scatter(sent, &mut part, root, world).unwrap();
        same(&part, &values(root.0, count * ranks)[count * rank as usize..][..count], "scatter");
        let mut reduced = vec![0; if is_root { count } else { 0 }];
        engine.reduce(&own, &mut reduced, mix, root, world).unwrap();
        results.extend(reduced);
    }
    let mut gathered = vec![0; count * ranks];
    gathered[rank as usize * count..][..count].copy_from_slice(&own);
    engine.allgather(in_place(), &mut gathered, world).unwrap();
    same(&gathered, &(0..size).flat_map(|rank| values(rank, count)).collect::<Vec<_>>(), "allgather");
    let parts = |from: u32| values(from, count * ranks)[count * rank as usize..][..count].to_vec();
    let exchanged: Vec<i64> = (0..size).flat_map(parts).collect();
    let mut swapped = all.clone();
    engine.alltoall(in_place(), &mut swapped, world).unwrap();
    same(&swapped, &exchanged, "alltoall in place");
    let request = engine.ialltoall(all.clone(), vec![0; count * ranks], world).unwrap();
    same(&engine.wait_take(request).unwrap().0.1, &exchanged, "alltoall");
    let mut reduced = own.clone();
    engine.allreduce(in_place(), &mut reduced, mix, world).unwrap();
    let request = engine.iallreduce(own.clone(), vec![0; count], mix, world).unwrap();
    same(&engine.wait_take(request).unwrap().0.1, &reduced, "allreduce in place or not");
    results.extend(reduced);
    for inclusive in [true, false] {
        let mut prefix = own.clone();
        match inclusive {
            true => engine.scan(in_place(), &mut prefix, mix, world).unwrap(),
            false => engine.exscan(in_place(), &mut prefix, mix, world).unwrap(),
        }
        results.extend(prefix);
    }
    let mut scattered = all.clone();
    engine.reduce_scatter_block(in_place(), &mut scattered, mix, world).unwrap();
    let request = engine.ireduce_scatter_block(all, vec![0; count], mix, world).unwrap();
    same(&engine.wait_take(request).unwrap().0.1, &scattered[..count], "reduce_scatter in place or not");
    results.extend(&scattered[..count]);
    let mut sum = engine.allreduce_init(vec![0; count], vec![0; count], op::Sum, world).unwrap();
    for start in 0..3 {
        engine.buffer(&mut sum).unwrap().0.fill(i64::from(rank) + start);
        engine.start(&sum).unwrap();
        engine.wait(&sum).unwrap();
        let expected = i64::from(size * (size - 1) / 2) + start * i64::from(size);
        same(&engine.buffer(&mut sum).unwrap().1, &vec![expected; count], "sum");
    }
    results
}

#[test]
fn operations_give_the_same_bits_over_boards_and_by_messages() {
    for size in [2, 3, 5, 8] {
        let mut found = [const { Vec::new() }; 2].map(std::sync::Mutex::new);
        for (place, boards) in [true, false].into_iter().enumerate() {
            each_rank(size, boards, |engine, rank, world| {
                for count in COUNTS.into_iter().filter(|count| match size {
                    2 => true,
                    3 => *count < 100_000,
                    _ => *count < 10_000,
                }) {
                    let results = run_all(engine, rank, world, count);
                    assert_eq!(with_boards(engine), usize::from(boards));
                    found[place].lock().unwrap().push((rank, count, results));
                }
            });
        }
        let [over, by] = found.each_mut().map(|found| {
            let found = found.get_mut().unwrap();
            found.sort();
            std::mem::take(found)
        });
        assert!(over.len() >= size as usize * 7 && over == by, "{size} ranks");
    }
}
