//! Drafts of all ranks, run without tables: against serial models, in random orders, and counted.

mod kit;
mod leaders;

use super::{exchange, reduce, reduce_scatter, scan, spread};
use kit::{Map, behind, draw, model, run, span, values};
use tickwire_components::{Span, op, reduce as reducer};

const SIZES: [u32; 13] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 23, 64];

fn log2(size: u32) -> u32 {
    size.next_power_of_two().ilog2()
}

#[test]
fn a_barrier_has_heard_of_all_when_it_ends() {
    for size in SIZES {
        let drafts = draw(size, |_, draft| spread::barrier(draft));
        let cost = run(&drafts, &reducer(behind), size.into());
        assert_eq!((cost.rounds, cost.messages as u32), (log2(size), log2(size)), "{size} ranks");
        // Reachability along the nodes of each rank: which ranks have heard of `start`.
        for start in 0..size.min(9) {
            let mut heard: Vec<bool> = (0..size).map(|rank| rank == start).collect();
            for round in 0..log2(size) {
                let before = heard.clone();
                for rank in (0..size).filter(|&rank| before[rank as usize]) {
                    heard[((rank + (1 << round)) % size) as usize] = true;
                }
            }
            assert!(heard.iter().all(|&heard| heard));
        }
    }
}

#[test]
fn a_broadcast_reaches_all_from_any_root() {
    for (size, count, seed) in SIZES.into_iter().flat_map(|size| [(size, 3, 1), (size, 300_000, 2), (size, 0, 3)]) {
        for root in [0, size / 2, size - 1] {
            let mut data: Vec<Vec<u8>> = (0..size).map(|_| vec![0; count]).collect();
            let sent: Vec<u8> = (0..count).map(|at| (at * 7 + 1) as u8).collect();
            data[root as usize] = sent.clone();
            let drafts = draw(size, |rank, draft| spread::broadcast(draft, span(&mut data[rank as usize]), root));
            let cost = run(&drafts, &reducer(behind), seed);
            assert!(data.iter().all(|data| *data == sent), "{size} ranks, root {root}, {count} bytes");
            if count < 100 {
                assert!(cost.rounds <= log2(size));
            }
        }
    }
}

#[test]
fn scatter_and_gather_keep_the_order_of_ranks() {
    for (size, block) in SIZES.into_iter().flat_map(|size| [(size, 5), (size, 3000)]) {
        for root in [0, size / 3, size - 1] {
            let mut all: Vec<u8> = (0..size as usize * block).map(|at| (at % 251) as u8).collect();
            let mut own: Vec<Vec<u8>> = (0..size).map(|_| vec![0; block]).collect();
            // Blocks that stay in place are not written.
            let in_place = |rank: u32| rank == root && size % 2 == 1;
            if in_place(root) {
                own[root as usize].copy_from_slice(&all[root as usize * block..][..block]);
            }
            let drafts = draw(size, |rank, draft| {
                let all = if rank == root { span(&mut all) } else { Span::EMPTY };
                let own = (!in_place(rank)).then(|| span(&mut own[rank as usize]));
                spread::scatter(draft, all, own, block, root, &[]);
            });
            let cost = run(&drafts, &reducer(behind), 5);
            for (rank, own) in own.iter().enumerate() {
                assert_eq!(*own, all[rank * block..][..block], "{size} ranks, root {root}: rank {rank}");
            }
            if block == 5 {
                assert!(cost.rounds <= log2(size));
            }
            let mut back = vec![0u8; all.len()];
            if in_place(root) {
                back[root as usize * block..][..block].copy_from_slice(&own[root as usize]);
            }
            let drafts = draw(size, |rank, draft| {
                let all = if rank == root { span(&mut back) } else { Span::EMPTY };
                let own = (!in_place(rank)).then(|| span(&mut own[rank as usize]));
                spread::gather(draft, own, all, block, root);
            });
            run(&drafts, &reducer(behind), 6);
            assert!(back == all, "{size} ranks, root {root}");
        }
    }
}

#[test]
fn all_get_the_blocks_of_all() {
    for (size, block) in SIZES.into_iter().flat_map(|size| [(size, 8), (size, 700)]) {
        let expected: Vec<u8> = (0..size as usize * block).map(|at| (at % 249) as u8).collect();
        let mut all: Vec<Vec<u8>> = (0..size).map(|_| vec![0; expected.len()]).collect();
        let drafts = draw(size, |rank, draft| {
            let at = rank as usize * block;
            let data = &mut all[rank as usize];
            data[at..at + block].copy_from_slice(&expected[at..at + block]);
            let bytes = span(data);
            let place = |first: u32, end: u32| bytes.part(first as usize * block, (end - first) as usize * block);
            let own = draft.copy(Span::EMPTY, Span::EMPTY, &[]);
            exchange::allgather(draft, &place, own);
        });
        let cost = run(&drafts, &reducer(behind), 7);
        assert!(all.iter().all(|all| *all == expected), "{size} ranks");
        assert_eq!((cost.rounds, cost.bytes), (log2(size), (size as usize - 1) * block));
        let mut from: Vec<Vec<u8>> =
            (0..size).map(|rank| (0..size).map(|to| (rank * 3 + to) as u8).collect()).collect();
        let mut to: Vec<Vec<u8>> = (0..size).map(|_| vec![0; size as usize]).collect();
        let drafts = draw(size, |rank, draft| {
            let (from, to) = (span(&mut from[rank as usize]), span(&mut to[rank as usize]));
            exchange::alltoall(draft, &|rank| from.part(rank as usize, 1), &|rank| to.part(rank as usize, 1), &[]);
        });
        run(&drafts, &reducer(behind), 8);
        for (rank, to) in to.iter().enumerate() {
            assert!((0..size).all(|source| to[source as usize] == (source * 3 + rank as u32) as u8));
        }
    }
}

#[test]
fn reductions_keep_the_order_of_ranks_and_cost_what_they_should() {
    for (size, count) in
        SIZES.into_iter().flat_map(|size| [(size, 1), (size, 3), (size, 1031), (size, 1500), (size, 0)])
    {
        let (expected, bytes) = (model(0..size, count), count * size_of::<Map>());
        for root in [0, 1 % size, size / 2, size - 1] {
            for in_place in [false, true] {
                let mut inputs: Vec<_> = (0..size).map(|rank| values(rank, count)).collect();
                let mut output = vec![Map::default(); count];
                let drafts = draw(size, |rank, draft| {
                    let input = span(&mut inputs[rank as usize]);
                    let output = if in_place { input } else { span(&mut output) };
                    reduce::reduce(draft, input, (rank == root).then_some(output), root, size_of::<Map>());
                });
                let cost = run(&drafts, &reducer(behind), 9);
                let result = if in_place { &inputs[root as usize] } else { &output };
                assert!(*result == expected, "{size} ranks, {count} elements, root {root}, in place: {in_place}");
                if bytes < 1 << 14 || size < 4 {
                    assert!(cost.rounds <= log2(size) && cost.messages <= 1);
                } else {
                    let rounds = 2 * size.ilog2() + if size.is_power_of_two() { 0 } else { 2 };
                    assert!(cost.rounds <= rounds, "{size} ranks: {cost:?}");
                    assert!(cost.bytes <= 2 * bytes && cost.received <= 2 * bytes, "{size} ranks: {cost:?}");
                }
            }
        }
        for in_place in [false, true] {
            let mut inputs: Vec<_> = (0..size).map(|rank| values(rank, count)).collect();
            let mut outputs: Vec<_> = (0..size).map(|_| vec![Map::default(); count]).collect();
            let drafts = draw(size, |rank, draft| {
                let input = span(&mut inputs[rank as usize]);
                let output = if in_place { input } else { span(&mut outputs[rank as usize]) };
                reduce::allreduce(draft, input, output, size_of::<Map>());
            });
            let cost = run(&drafts, &reducer(behind), 10);
            let results = if in_place { &inputs } else { &outputs };
            assert!(results.iter().all(|of| *of == expected), "{size} ranks, {count} elements, in place: {in_place}");
            if bytes >= 1 << 14 {
                // The two ranks of a pair exchange halves first, and results last.
                let rounds = 2 * size.ilog2() + if size.is_power_of_two() { 0 } else { 2 };
                assert!(cost.rounds <= rounds && cost.bytes <= 2 * bytes, "{size} ranks: {cost:?}");
                assert!(cost.received <= 2 * bytes, "{size} ranks: {cost:?}");
            } else if bytes < 1 << 14 {
                assert!(cost.rounds <= log2(size) + 1, "{size} ranks: {cost:?}");
            }
        }
    }
}

#[test]
fn parts_of_reductions_and_prefixes_are_those_of_the_model() {
    for (size, count) in SIZES.into_iter().flat_map(|size| [(size, 2), (size, 40)]) {
        // All of the same length, and of very different lengths, some of which are 0.
        for (in_place, uneven) in [(false, false), (true, false), (false, true), (true, true)] {
            let counts: Vec<usize> = (0..size as usize)
                .map(|rank| if uneven { rank * rank % 7 * count / 3 + rank % 2 * 5 * count } else { count })
                .collect();
            let starts: Vec<usize> = (0..=size as usize).map(|rank| counts[..rank].iter().sum()).collect();
            let total = starts[size as usize];
            let mut inputs: Vec<_> = (0..size).map(|rank| values(rank, total)).collect();
            let mut outputs: Vec<_> = counts.iter().map(|&count| vec![Map::default(); count]).collect();
            let length = size_of::<Map>();
            let drafts = draw(size, |rank, draft| {
                let input = span(&mut inputs[rank as usize]);
                let own = counts[rank as usize] * length;
                let output = if in_place { input.part(0, own) } else { span(&mut outputs[rank as usize]) };
                reduce_scatter::reduce_scatter(draft, input, &|rank| starts[rank as usize] * length, output, length);
            });
            let cost = run(&drafts, &reducer(behind), 11);
            let results = if in_place { &inputs } else { &outputs };
            let results = results.iter().zip(&counts).flat_map(|(of, &count)| &of[..count]);
            assert!(results.eq(&model(0..size, total)), "{size} ranks, in place: {in_place}, uneven: {uneven}");
            if size > 8 {
                assert!(cost.rounds <= size.ilog2() + 2, "{size} ranks: {cost:?}");
                let all = total * length;
                assert!(cost.bytes <= all + all / size.ilog2() as usize, "{size} ranks: {cost:?}, {all} bytes");
            }
        }
        for (exclusive, in_place) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut inputs: Vec<_> = (0..size).map(|rank| values(rank, count)).collect();
            let mut outputs: Vec<_> = (0..size).map(|_| vec![Map::default(); count]).collect();
            let drafts = draw(size, |rank, draft| {
                let input = span(&mut inputs[rank as usize]);
                let output = if in_place { input } else { span(&mut outputs[rank as usize]) };
                scan::scan(draft, input, output, exclusive);
            });
            let cost = run(&drafts, &reducer(behind), 12);
            assert!(cost.rounds <= log2(size) + 1);
            let results = if in_place { &inputs } else { &outputs };
            // Rank 0 gets nothing from an exclusive scan.
            for (rank, result) in (0..size).zip(results).skip(usize::from(exclusive)) {
                let end = if exclusive { rank } else { rank + 1 };
                let case = format!("{size} ranks, exclusive: {exclusive}, in place: {in_place}");
                assert!(*result == model(0..end, count), "{case}: rank {rank}");
            }
        }
    }
}

/// The tree is the same whatever the algorithm: floats that do not add associatively give the same bits.
#[test]
fn all_reductions_combine_the_same_operands() {
    let value = |rank: u32, at: usize| (f64::from(rank) * 1e10 + 0.1 * at as f64).sin() * 10f64.powi(rank as i32 % 17);
    for size in SIZES {
        let mut results = Vec::new();
        for count in [1, 3000] {
            let mut inputs: Vec<Vec<f64>> =
                (0..size).map(|rank| (0..count).map(|at| value(rank, at)).collect()).collect();
            let mut outputs = vec![vec![0f64; count]; size as usize];
            let drafts = draw(size, |rank, draft| {
                reduce::allreduce(draft, span(&mut inputs[rank as usize]), span(&mut outputs[rank as usize]), 8);
            });
            run(&drafts, &reducer::<f64>(op::Sum), 13);
            let bits = |of: &[f64]| of.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert!(outputs.iter().all(|of| bits(of) == bits(&outputs[0])), "{size} ranks");
            results.push(outputs[0][0].to_bits());
            for root in [0, size - 1] {
                let mut output = vec![0f64; count];
                let drafts = draw(size, |rank, draft| {
                    let output = (rank == root).then(|| span(&mut output));
                    reduce::reduce(draft, span(&mut inputs[rank as usize]), output, root, 8);
                });
                run(&drafts, &reducer::<f64>(op::Sum), 14);
                assert_eq!(bits(&output), bits(&outputs[0]), "{size} ranks, root {root}");
            }
        }
        assert!(results.iter().all(|bits| *bits == results[0]), "short and long ones");
    }
}
