//! All collective operations as graphs, and what they may cost.

use super::count::{Cost, Draw, room};
use tickwire::internals::components::Span;
use tickwire::internals::systems::collectives::draft::Draft;
use tickwire::internals::systems::collectives::{exchange, reduce, reduce_scatter, scan, spread};

/// Bytes of a short operand, or of each rank's block.
const SHORT: usize = 8;
/// Bytes of a longer block, which goes straight to its rank.
const BLOCK: usize = 4 << 10;
/// Bytes of a long operand.
const LONG: usize = 8 << 20;

/// An operation.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// Its operand, or the block of each rank, for the table.
    pub(crate) operand: &'static str,
    pub(crate) draw: Draw,
    /// The most that it may cost among this many ranks.
    pub(crate) most: fn(u64) -> Cost,
    /// The least cost of any algorithm: rounds, messages and bytes of the busiest rank.
    pub(crate) least: [&'static str; 3],
    /// Whether each rank has a message for each other rank. Then the cost must be exactly the allowed one.
    pub(crate) each: bool,
}

/// The logarithm of a number of ranks, rounded up.
fn log(ranks: u64) -> u64 {
    ranks.next_power_of_two().ilog2().into()
}

/// The logarithm of a number of ranks, rounded down.
fn floor(ranks: u64) -> u64 {
    ranks.ilog2().into()
}

/// 1 if some ranks share a leaf of the tree, because their number is no power of two; else 0.
fn odd(ranks: u64) -> u64 {
    (!ranks.is_power_of_two()).into()
}

/// One message for each other rank.
fn to_each(ranks: u64, block: usize) -> Cost {
    Cost { rounds: 1, messages: ranks - 1, bytes: (ranks - 1) * block as u64 }
}

/// The blocks of a root, along a tree.
fn along_tree(ranks: u64) -> Cost {
    Cost { rounds: log(ranks), messages: log(ranks), bytes: (ranks - 1) * SHORT as u64 }
}

/// In each round, one message of the same length.
fn in_rounds(rounds: u64, bytes: usize) -> Cost {
    Cost { rounds, messages: rounds, bytes: rounds * bytes as u64 }
}

/// Recursive halving, and the way back of the whole result.
fn halved(ranks: u64) -> Cost {
    let (levels, odd) = (floor(ranks), odd(ranks));
    Cost { rounds: 2 * levels + 2 * odd, messages: 2 * levels * (1 + odd) + 2 * odd, bytes: 2 * LONG as u64 }
}

/// Up to 8 ranks, each rank reduces its own part. More ranks use halving.
fn scattered(ranks: u64) -> Cost {
    let (levels, odd) = (floor(ranks), odd(ranks));
    match ranks {
        0..=8 => to_each(ranks, SHORT),
        _ => Cost {
            rounds: levels + 1 + odd,
            messages: levels * (1 + odd) + 1 + 4 * odd,
            // If the number of elements is odd, one half is longer.
            bytes: (ranks + 2 + 2 * levels * odd) * SHORT as u64,
        },
    }
}

/// A long broadcast. By number of ranks, it goes in pieces from rank to rank, or is dealt out in blocks, or goes
/// along a tree.
fn long_broadcast(ranks: u64) -> Cost {
    let (log, bytes) = (log(ranks), LONG as u64);
    match ranks {
        0..=64 => Cost { rounds: ranks - 1, messages: 64, bytes },
        // Each block has at least 64 bytes.
        65..=131_072 => Cost { rounds: 2 * log, messages: 4 * log, bytes: 2 * bytes + 8 * log * ranks },
        _ => Cost { rounds: log, messages: 64 * log, bytes: bytes * log },
    }
}

fn gather(draft: &mut Draft, block: usize) {
    spread::gather(draft, Some(room(block)), room(block * draft.size as usize), block, 0);
}

fn scatter(draft: &mut Draft, block: usize) {
    spread::scatter(draft, room(block * draft.size as usize), Some(room(block)), block, 0, &[]);
}

fn allgather(draft: &mut Draft) {
    let all = room(SHORT * draft.size as usize);
    let own = draft.copy(Span::EMPTY, Span::EMPTY, &[]);
    let place = |first: u32, end: u32| all.part(first as usize * SHORT, (end - first) as usize * SHORT);
    exchange::allgather(draft, &place, own);
}

fn reduced(draft: &mut Draft, bytes: usize) {
    let output = (draft.rank == 0).then(|| room(bytes));
    reduce::reduce(draft, room(bytes), output, 0, 8);
}

fn parts(draft: &mut Draft) {
    let input = room(SHORT * draft.size as usize);
    reduce_scatter::reduce_scatter(draft, input, &|rank| rank as usize * SHORT, room(SHORT), 8);
}

const LOG: &str = "log₂ P";

/// All operations.
pub(crate) const OPERATIONS: [Operation; 24] = [
    Operation {
        name: "barrier",
        operand: "",
        draw: spread::barrier,
        most: |ranks| in_rounds(log(ranks), 0),
        least: [LOG, LOG, "0"],
        each: false,
    },
    Operation {
        name: "bcast",
        operand: "8 B",
        draw: |draft| spread::broadcast(draft, room(SHORT), 0),
        most: |ranks| in_rounds(log(ranks), SHORT),
        least: [LOG, "1", "n"],
        each: false,
    },
    Operation {
        name: "bcast",
        operand: "8 MiB",
        draw: |draft| spread::broadcast(draft, room(LONG), 0),
        most: long_broadcast,
        least: [LOG, "1", "n"],
        each: false,
    },
    Operation {
        name: "gather",
        operand: "8 B a rank",
        draw: |draft| gather(draft, SHORT),
        most: along_tree,
        least: [LOG, "1", "n (P − 1)"],
        each: false,
    },
    Operation {
        name: "gather",
        operand: "4 KiB a rank",
        draw: |draft| gather(draft, BLOCK),
        most: |ranks| to_each(ranks, BLOCK),
        least: ["1", "1", "n (P − 1)"],
        each: true,
    },
    Operation {
        name: "gatherv",
        operand: "8 B a rank",
        draw: |draft| spread::gather_directly(draft, Some(room(SHORT)), &|_| room(SHORT), 0),
        most: |ranks| to_each(ranks, SHORT),
        least: ["1", "1", "n (P − 1)"],
        each: true,
    },
    Operation {
        name: "scatter",
        operand: "8 B a rank",
        draw: |draft| scatter(draft, SHORT),
        most: along_tree,
        least: [LOG, "1", "n (P − 1)"],
        each: false,
    },
    Operation {
        name: "scatter",
        operand: "4 KiB a rank",
        draw: |draft| scatter(draft, BLOCK),
        most: |ranks| to_each(ranks, BLOCK),
        least: ["1", "1", "n (P − 1)"],
        each: true,
    },
    Operation {
        name: "scatterv",
        operand: "8 B a rank",
        draw: |draft| spread::scatter_directly(draft, &|_| room(SHORT), Some(room(SHORT)), 0, &[]),
        most: |ranks| to_each(ranks, SHORT),
        least: ["1", "1", "n (P − 1)"],
        each: true,
    },
    Operation {
        name: "allgather",
        operand: "8 B a rank",
        draw: allgather,
        // A run of ranks that wraps around the end takes two messages.
        most: |ranks| Cost { messages: 2 * log(ranks), ..along_tree(ranks) },
        least: [LOG, LOG, "n (P − 1)"],
        each: false,
    },
    Operation {
        name: "allgatherv",
        operand: "8 B a rank",
        draw: allgather,
        most: |ranks| Cost { messages: 2 * log(ranks), ..along_tree(ranks) },
        least: [LOG, LOG, "n (P − 1)"],
        each: false,
    },
    Operation {
        name: "alltoall",
        operand: "8 B a rank",
        draw: |draft| exchange::alltoall(draft, &|_| room(SHORT), &|_| room(SHORT), &[]),
        most: |ranks| to_each(ranks, SHORT),
        least: ["1", LOG, "n (P − 1)"],
        each: true,
    },
    Operation {
        name: "alltoallv",
        operand: "8 B a rank",
        draw: |draft| exchange::alltoall(draft, &|_| room(SHORT), &|_| room(SHORT), &[]),
        most: |ranks| to_each(ranks, SHORT),
        least: ["1", LOG, "n (P − 1)"],
        each: true,
    },
    Operation {
        name: "alltoallw",
        operand: "8 B a rank",
        draw: |draft| exchange::alltoall(draft, &|_| room(SHORT), &|_| room(SHORT), &[]),
        most: |ranks| to_each(ranks, SHORT),
        least: ["1", LOG, "n (P − 1)"],
        each: true,
    },
    Operation {
        name: "reduce",
        operand: "8 B",
        draw: |draft| reduced(draft, SHORT),
        most: |ranks| in_rounds(log(ranks), SHORT),
        least: [LOG, "1", "n"],
        each: false,
    },
    Operation {
        name: "reduce",
        operand: "8 MiB",
        draw: |draft| reduced(draft, LONG),
        most: halved,
        least: [LOG, "1", "n"],
        each: false,
    },
    Operation {
        name: "allreduce",
        operand: "8 B",
        draw: |draft| reduce::allreduce(draft, room(SHORT), room(SHORT), 8),
        most: |ranks| in_rounds(floor(ranks) + 2 * odd(ranks), SHORT),
        least: [LOG, LOG, "2 n (P − 1) / P"],
        each: false,
    },
    Operation {
        name: "allreduce",
        operand: "8 MiB",
        draw: |draft| reduce::allreduce(draft, room(LONG), room(LONG), 8),
        most: halved,
        least: [LOG, LOG, "2 n (P − 1) / P"],
        each: false,
    },
    Operation {
        name: "reduce_scatter_block",
        operand: "8 B a rank",
        draw: parts,
        most: scattered,
        least: [LOG, LOG, "n (P − 1)"],
        each: false,
    },
    Operation {
        name: "reduce_scatter",
        operand: "8 B a rank",
        draw: parts,
        most: scattered,
        least: [LOG, LOG, "n (P − 1)"],
        each: false,
    },
    Operation {
        name: "scan",
        operand: "8 B",
        draw: |draft| scan::scan(draft, room(SHORT), room(SHORT), false),
        most: |ranks| in_rounds(log(ranks), SHORT),
        least: [LOG, LOG, "n"],
        each: false,
    },
    Operation {
        name: "scan",
        operand: "8 MiB",
        draw: |draft| scan::scan(draft, room(LONG), room(LONG), false),
        most: |ranks| in_rounds(log(ranks), LONG),
        least: [LOG, LOG, "n"],
        each: false,
    },
    Operation {
        name: "exscan",
        operand: "8 B",
        draw: |draft| scan::scan(draft, room(SHORT), room(SHORT), true),
        most: |ranks| in_rounds(log(ranks) + 1, SHORT),
        least: [LOG, LOG, "n"],
        each: false,
    },
    Operation {
        name: "exscan",
        operand: "8 MiB",
        draw: |draft| scan::scan(draft, room(LONG), room(LONG), true),
        most: |ranks| in_rounds(log(ranks) + 1, LONG),
        least: [LOG, LOG, "n"],
        each: false,
    },
];
