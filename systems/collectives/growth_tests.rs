//! How operations grow with the number of ranks: messages and bytes of a rank, counted from what it draws.

use super::draft::{Act, Draft};
use super::{exchange, reduce, reduce_scatter, scan, spread};
use tickwire_components::Span;

/// Numbers of ranks.
const RANKS: [u32; 7] = [2, 16, 100, 1024, 10_000, 131_072, 1_000_000];
/// Bytes of a short operand, or of a block.
const SHORT: usize = 8;
/// Bytes of a long operand.
const LONG: usize = 8 << 20;

/// What a rank sends and draws, at most among some ranks.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Counted {
    sends: usize,
    bytes: usize,
    nodes: usize,
}

/// Memory that is drawn, and never touched: addresses of so many bytes.
fn room(bytes: usize) -> Span {
    let mut nothing = 0u128;
    // SAFETY: nobody reads or writes it.
    #[expect(unsafe_code, reason = "addresses that are only counted with")]
    unsafe {
        Span::new((&raw mut nothing).cast(), bytes)
    }
}

/// The most that some ranks draw: the first ones, those around the greatest power of two, those in the middle, and the last.
fn count(ranks: u32, draw: impl Fn(&mut Draft)) -> Counted {
    let power = 1 << ranks.ilog2();
    let some = [0, 1, 2, 3, ranks / 3, ranks / 2, power - 1, power, ranks - 2, ranks - 1];
    let mut most = Counted::default();
    for rank in some.into_iter().filter(|&rank| rank < ranks) {
        let mut draft = Draft::new(rank, ranks);
        draw(&mut draft);
        let sends = draft.acts.iter().filter_map(|act| match act {
            Act::Send { bytes, .. } => Some(bytes.len()),
            _ => None,
        });
        most.sends = most.sends.max(sends.clone().count());
        most.bytes = most.bytes.max(sends.sum());
        most.nodes = most.nodes.max(draft.acts.len());
    }
    most
}

type Draw = fn(&mut Draft);

/// Short operations: each rank's messages grow with the logarithm of the ranks.
const SHORT_ONES: [(&str, Draw); 9] = [
    ("barrier", spread::barrier),
    ("bcast", |draft| spread::broadcast(draft, room(SHORT), 0)),
    ("gather", |draft| spread::gather(draft, Some(room(SHORT)), room(SHORT * draft.size as usize), SHORT, 0)),
    ("scatter", |draft| spread::scatter(draft, room(SHORT * draft.size as usize), Some(room(SHORT)), SHORT, 0, &[])),
    ("allgather", |draft| {
        let all = room(SHORT * draft.size as usize);
        let own = draft.copy(Span::EMPTY, Span::EMPTY, &[]);
        let place = |first: u32, end: u32| all.part(first as usize * SHORT, (end - first) as usize * SHORT);
        exchange::allgather(draft, place, own);
    }),
    ("reduce", |draft| {
        let output = (draft.rank == 0).then(|| room(SHORT));
        reduce::reduce(draft, room(SHORT), output, 0);
    }),
    ("allreduce", |draft| reduce::allreduce(draft, room(SHORT), room(SHORT), SHORT)),
    ("reduce_scatter_block", |draft| {
        reduce_scatter::reduce_scatter_block(draft, room(SHORT * draft.size as usize), room(SHORT));
    }),
    ("scan", |draft| scan::scan(draft, room(SHORT), room(SHORT), false)),
];

#[test]
fn messages_of_short_operations_grow_with_the_logarithm() {
    println!("{:<22}{:>12}{:>10}{:>14}{:>8}", "operation", "ranks", "sends", "bytes sent", "nodes");
    for (name, draw) in SHORT_ONES {
        for ranks in RANKS {
            let found = count(ranks, draw);
            println!("{name:<22}{ranks:>12}{:>10}{:>14}{:>8}", found.sends, found.bytes, found.nodes);
            let rounds = ranks.next_power_of_two().ilog2() as usize;
            // A run of ranks that goes around the end is two messages; a reduction that is dealt out has two parts.
            assert!(found.sends <= 2 * rounds + 2, "{name} of {ranks} ranks: {found:?}");
            assert!(found.nodes <= 6 * rounds + 6, "{name} of {ranks} ranks: {found:?}");
            let everything = SHORT * ranks as usize;
            let bytes = match name {
                "gather" | "scatter" | "allgather" => everything,
                "reduce_scatter_block" => 2 * everything,
                _ => SHORT * (rounds + 1),
            };
            assert!(found.bytes <= bytes, "{name} of {ranks} ranks: {found:?}");
        }
    }
}

#[test]
fn bytes_of_long_operations_do_not_grow() {
    println!("{:<22}{:>12}{:>10}{:>14}{:>8}", "operation", "ranks", "sends", "bytes sent", "nodes");
    for ranks in RANKS {
        // Beside pairs, a rank without a partner has both halves.
        let found = count(ranks, |draft| reduce::allreduce(draft, room(LONG), room(LONG), 8));
        println!("{:<22}{ranks:>12}{:>10}{:>14}{:>8}", "allreduce of 8 MiB", found.sends, found.bytes, found.nodes);
        let rounds = ranks.next_power_of_two().ilog2() as usize;
        assert!(found.bytes <= 2 * LONG && found.sends <= 4 * rounds, "{ranks} ranks: {found:?}");
        let bcast = count(ranks, |draft| spread::broadcast(draft, room(LONG), 0));
        println!("{:<22}{ranks:>12}{:>10}{:>14}{:>8}", "bcast of 8 MiB", bcast.sends, bcast.bytes, bcast.nodes);
        // Where a block would be too short, it goes along a tree.
        let (bytes, sends) = match ranks as usize * 64 <= LONG {
            true => (2 * LONG + LONG / 3, 64.max(5 * rounds)),
            false => (rounds * LONG, 64 * rounds),
        };
        assert!(bcast.bytes <= bytes && bcast.sends <= sends, "{ranks} ranks: {bcast:?}");
    }
}
