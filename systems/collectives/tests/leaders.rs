//! Drafts of ranks on several hosts: their results, and how many messages go between hosts.

use super::kit::{Map, behind, draw, model, run, span, values};
use super::log2;
use crate::collectives::draft::{Act, Draft};
use crate::collectives::hosts::Hosts;
use crate::collectives::{exchange, reduce, spread};
use std::collections::HashMap;
use std::sync::Arc;
use tickwire_components::{Span, op, reduce as reducer};

/// Numbers of ranks on each host.
const PLACES: [&[u32]; 12] = [
    &[2, 2],
    &[1, 2],
    &[2, 1],
    &[3, 3],
    &[4, 4],
    &[1, 5, 1],
    &[3, 2, 4],
    &[2, 2, 2],
    &[4, 4, 4, 4],
    &[1, 1, 1, 1, 7],
    &[5, 3, 6, 1, 8],
    &[8, 8, 8, 8, 8, 8, 8, 8],
];

fn hosts_of(place: &[u32]) -> Arc<Hosts> {
    let hosts = (0..).zip(place).flat_map(|(host, &ranks)| (0..ranks).map(move |_| Some(host)));
    Arc::new(Hosts::of(hosts).expect("several hosts, and one with several ranks"))
}

/// Draws the part of each rank twice: first as on one host, then as on these hosts.
fn draw_both(place: &[u32], mut part: impl FnMut(u32, &mut Draft)) -> [Vec<Draft>; 2] {
    let size = place.iter().sum();
    [None, Some(hosts_of(place))].map(|hosts| {
        draw(size, |rank, draft| {
            draft.hosts = hosts.clone();
            part(rank, draft);
        })
    })
}

/// Messages and bytes that go from one host to another one.
fn between(place: &[u32], drafts: &[Draft]) -> (u32, usize) {
    let hosts = hosts_of(place);
    let (mut messages, mut total) = (0, 0);
    for draft in drafts {
        for act in &draft.acts {
            if let Act::Send { to, bytes, .. } = act
                && hosts.host(*to) != hosts.host(draft.rank)
            {
                messages += 1;
                total += bytes.len();
            }
        }
    }
    (messages, total)
}

/// For each rank, a bit for each rank that it has heard of when all of its nodes are done.
fn heard(drafts: &[Draft]) -> Vec<u64> {
    let mut known: Vec<Vec<u64>> = drafts.iter().map(|draft| vec![1 << draft.rank; draft.acts.len()]).collect();
    loop {
        let mut sent = HashMap::new();
        for (draft, known) in drafts.iter().zip(&known) {
            for (act, &known) in draft.acts.iter().zip(known) {
                if let Act::Send { to, step, .. } = *act {
                    sent.insert((draft.rank, to, step), known);
                }
            }
        }
        let before = known.clone();
        for (draft, known) in drafts.iter().zip(&mut known) {
            for (act, known) in draft.acts.iter().zip(&mut *known) {
                if let Act::Receive { from, step, .. } = *act {
                    *known |= sent[&(from, draft.rank, step)];
                }
            }
            draft.edges.iter().for_each(|&(first, then)| known[then as usize] |= known[first as usize]);
        }
        if known == before {
            return known.iter().map(|known| known.iter().fold(0, |all, one| all | one)).collect();
        }
    }
}

#[test]
fn a_barrier_between_hosts_hears_of_all_by_messages_of_leaders() {
    for place in PLACES {
        let (size, hosts) = (place.iter().sum::<u32>(), place.len() as u32);
        let [flat, drafts] = draw_both(place, |_, draft| spread::barrier(draft));
        for drafts in [&flat, &drafts] {
            let cost = run(drafts, &reducer(behind), 3);
            assert!(heard(drafts).iter().all(|heard| *heard == u64::MAX >> (64 - size)), "{place:?}");
            assert!(cost.rounds <= log2(hosts) + 2 * log2(size), "{place:?}: {cost:?}");
        }
        assert_eq!(between(place, &drafts), (hosts * log2(hosts), 0), "{place:?}");
        assert!(between(place, &flat) >= between(place, &drafts), "{place:?}");
    }
}

#[test]
fn a_broadcast_goes_to_each_host_once() {
    for (place, count) in PLACES.into_iter().flat_map(|place| [(place, 3), (place, 150_000), (place, 700_000)]) {
        let size: u32 = place.iter().sum();
        for root in [0, size / 2, size - 1] {
            let mut data = vec![vec![0; count]; size as usize];
            let sent: Vec<u8> = (0..count).map(|at| (at * 7 + 1) as u8).collect();
            let hosts = hosts_of(place);
            data[root as usize] = sent.clone();
            let drafts = draw(size, |rank, draft| {
                draft.hosts = Some(hosts.clone());
                spread::broadcast(draft, span(&mut data[rank as usize]), root);
            });
            run(&drafts, &reducer(behind), 4);
            assert!(data.iter().all(|data| *data == sent), "{place:?}, root {root}, {count} bytes");
            let (messages, bytes) = between(place, &drafts);
            assert_eq!(bytes, (place.len() - 1) * count, "{place:?}, root {root}");
            assert!(count > 3 || messages as usize == place.len() - 1, "{place:?}, root {root}");
        }
    }
}

#[test]
fn each_host_gets_the_blocks_of_other_hosts_once() {
    for (place, block) in PLACES.into_iter().flat_map(|place| [(place, 8), (place, 700)]) {
        let size: u32 = place.iter().sum();
        let expected: Vec<u8> = (0..size as usize * block).map(|at| (at % 249) as u8).collect();
        let mut mine: Vec<Vec<u8>> = expected.chunks(block).map(<[u8]>::to_vec).collect();
        let mut all = vec![vec![0u8; expected.len()]; size as usize];
        let hosts = hosts_of(place);
        let drafts = draw(size, |rank, draft| {
            draft.hosts = Some(hosts.clone());
            let (at, data) = (rank as usize * block, &mut all[rank as usize]);
            let own = draft.copy(span(&mut mine[rank as usize]), span(&mut data[at..at + block]), &[]);
            let bytes = span(data);
            let place = |first: u32, end: u32| bytes.part(first as usize * block, (end - first) as usize * block);
            let came = exchange::allgather(draft, &place, own);
            // Whoever waits for these nodes sees all blocks.
            let check = draft.temporary(bytes.len());
            draft.copy(bytes, check, &came);
        });
        run(&drafts, &reducer(behind), 7);
        assert!(all.iter().all(|all| *all == expected), "{place:?}");
        let copies = drafts.iter().map(|draft| draft.temporaries.last().expect("memory"));
        for copy in copies {
            // SAFETY: plain bytes.
            #[expect(unsafe_code, reason = "words as bytes")]
            let bytes = unsafe { std::slice::from_raw_parts(copy.as_ptr().cast::<u8>(), expected.len()) };
            assert!(bytes == expected, "{place:?}");
        }
        let foreign: u32 = place.iter().map(|ranks| size - ranks).sum();
        assert_eq!(between(place, &drafts).1, foreign as usize * block, "{place:?}");
    }
}

#[test]
fn an_allreduce_keeps_the_order_of_ranks_and_sends_little_between_hosts() {
    for (place, count) in PLACES.into_iter().flat_map(|place| [(place, 0), (place, 1), (place, 3), (place, 1500)]) {
        let (size, hosts) = (place.iter().sum::<u32>(), place.len() as u32);
        let (expected, length) = (model(0..size, count), size_of::<Map>());
        // In many orders: a rank must not write its result before all others have read its operand.
        let orders = if count == 3 { 60 } else { 1 };
        for (in_place, order) in
            [false, true].into_iter().flat_map(|in_place| (0..orders).map(move |at| (in_place, at)))
        {
            let mut inputs: Vec<_> = (0..size).map(|rank| values(rank, count)).collect();
            let mut outputs = vec![vec![Map::default(); count]; size as usize];
            let [flat, drafts] = draw_both(place, |rank, draft| {
                let input = span(&mut inputs[rank as usize]);
                let output = if in_place { input } else { span(&mut outputs[rank as usize]) };
                reduce::allreduce(draft, input, output, length);
            });
            let cost = run(&drafts, &reducer(behind), 100 * order + u64::from(size));
            let results = if in_place { &inputs } else { &outputs };
            assert!(results.iter().all(|of| *of == expected), "{place:?}, {count} elements, in place: {in_place}");
            if count <= 3 {
                assert!(cost.rounds <= 2 * log2(size) + 1, "{place:?}: {cost:?}");
                let (messages, _) = between(place, &drafts);
                // At each level of the tree, and within leaves, each host gets one message from another host.
                let most = between(place, &flat).0.max(hosts * (log2(size) + 1));
                assert!(messages <= most, "{place:?}: {messages}");
                // Where hosts are subtrees of the tree, each leader sends as few messages as if there were leaders alone.
                let whole = place.iter().all(|ranks| *ranks == place[0] && ranks.is_power_of_two());
                if whole && hosts.is_power_of_two() {
                    assert_eq!(messages, hosts * log2(hosts), "{place:?}");
                    let busiest = drafts.chunks(place[0] as usize).map(|of| between(place, of).0).max();
                    assert_eq!(busiest, Some(log2(hosts)), "{place:?}");
                }
            }
        }
    }
}

/// The same bits as on one host.
#[test]
fn hosts_change_no_bit_of_a_sum() {
    let value = |rank: u32| (f64::from(rank) * 1e10 + 0.1).sin() * 10f64.powi(rank as i32 % 17);
    for place in PLACES {
        let size: u32 = place.iter().sum();
        let sums = [None, Some(hosts_of(place))].map(|hosts| {
            let mut inputs: Vec<[f64; 1]> = (0..size).map(|rank| [value(rank)]).collect();
            let mut outputs = vec![[0f64]; size as usize];
            let drafts = draw(size, |rank, draft| {
                draft.hosts = hosts.clone();
                let (input, output): (Span, Span) =
                    (span(&mut inputs[rank as usize]), span(&mut outputs[rank as usize]));
                reduce::allreduce(draft, input, output, 8);
            });
            run(&drafts, &reducer::<f64>(op::Sum), 13);
            outputs.iter().map(|of| of[0].to_bits()).collect::<Vec<_>>()
        });
        assert_eq!(sums[0], sums[1], "{place:?}");
        assert!(sums[0].iter().all(|bits| *bits == sums[0][0]), "{place:?}");
    }
}
