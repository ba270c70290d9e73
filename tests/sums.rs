//! Sums of floats that depend on the order of their operands, computed by each reducing operation in all of its forms.

use tickwire::{Comm, Engine, Rank, in_place, op};

/// The operand of a rank. The operands have several orders of magnitude, so that another order gives another sum.
pub fn value(rank: u32) -> f64 {
    (f64::from(rank) * 12.9898 + 3.32).sin() * 10f64.powi((rank % 4) as i32)
}

/// The sum of the operands of this many ranks, in the order that the book specifies: first the leading ranks are combined
/// in pairs, until a power of two of values is left. Then neighbouring values are combined, again and again.
pub fn sum_in_order(size: u32) -> f64 {
    let operands: Vec<f64> = (0..size).map(value).collect();
    let (paired, single) = operands.split_at(2 * (operands.len() - (1 << size.ilog2())));
    let pair = |two: &[f64]| two.iter().copied().reduce(|left, right| left + right).unwrap_or_default();
    let mut values: Vec<f64> = paired.chunks(2).map(pair).chain(single.iter().copied()).collect();
    while values.len() > 1 {
        values = values.chunks(2).map(pair).collect();
    }
    values[0]
}

/// What an operation has given to this rank.
pub struct Summed {
    /// The operation.
    pub name: &'static str,
    /// Its form: `waits`, `begins`, `starts` or `starts again`.
    pub form: &'static str,
    /// The result.
    pub sums: Vec<f64>,
}

/// Calls an operation in all of its forms, with the same operands. `$count` is the length of the result.
macro_rules! in_all_forms {
    ($all:ident, $engine:ident, [$waits:ident $begins:ident $init:ident], $send:expr, $count:expr, $($arg:expr),*) => {{
        let (send, mut sums, name) = ($send, vec![0f64; $count], stringify!($waits));
        $engine.$waits(&send, &mut sums, $($arg),*).unwrap();
        $all.push(Summed { name, form: "waits", sums });
        let begun = $engine.$begins(send.clone(), vec![0f64; $count], $($arg),*).unwrap();
        $all.push(Summed { name, form: "begins", sums: $engine.wait_take(begun).unwrap().0.1 });
        let mut kept = $engine.$init(send, vec![0f64; $count], $($arg),*).unwrap();
        for form in ["starts", "starts again"] {
            $engine.buffer(&mut kept).unwrap().1.fill(0.0);
            $engine.start(&kept).unwrap();
            $engine.wait(&kept).unwrap();
            $all.push(Summed { name, form, sums: $engine.buffer(&mut kept).unwrap().1.clone() });
        }
        $engine.free(kept).unwrap();
    }};
}

/// Sums `count` operands of each rank by each operation in all of its forms. Waits for each.
///
/// # Panics
/// If an operation fails.
pub fn sum_in_all_forms(engine: &mut Engine, comm: Comm, count: usize) -> Vec<Summed> {
    let (rank, size, root) = (engine.rank().0, engine.size(), engine.size() / 2);
    let own = vec![value(rank); count];
    let mut all = Vec::new();
    in_all_forms!(all, engine, [allreduce iallreduce allreduce_init], own.clone(), count, op::Sum, comm);
    let mut sums = own.clone();
    engine.allreduce(in_place(), &mut sums, op::Sum, comm).unwrap();
    all.push(Summed { name: "allreduce in place", form: "waits", sums });
    let at_root = if rank == root { count } else { 0 };
    in_all_forms!(all, engine, [reduce ireduce reduce_init], own.clone(), at_root, op::Sum, Rank(root), comm);
    // Each rank gets a part, and the first one gets one element less than the others.
    let part = count.div_ceil(size as usize);
    let send = vec![value(rank); part * size as usize];
    in_all_forms!(
        all,
        engine,
        [reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init],
        send.clone(),
        part,
        op::Sum,
        comm
    );
    let counts: Vec<usize> = (0..size).map(|rank| part - usize::from(rank == 0)).collect();
    in_all_forms!(
        all,
        engine,
        [reduce_scatter ireduce_scatter reduce_scatter_init],
        send[1..].to_vec(),
        counts[rank as usize],
        &counts,
        op::Sum,
        comm
    );
    in_all_forms!(all, engine, [scan iscan scan_init], own.clone(), count, op::Sum, comm);
    in_all_forms!(all, engine, [exscan iexscan exscan_init], own, count, op::Sum, comm);
    all
}

/// A number made from the bits of all results of [`sum_in_all_forms`] for operands of several lengths: short ones, some that
/// fit a slot or the cells of boards, and long ones.
///
/// # Panics
/// If an operation fails.
pub fn hash_of_sums(engine: &mut Engine, comm: Comm) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for count in [1, 50, 3_000, 40_000] {
        for of in sum_in_all_forms(engine, comm, count) {
            for sum in of.sums {
                hash = (hash ^ sum.to_bits()).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5);
            }
        }
    }
    hash
}
