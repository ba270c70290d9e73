//! Collective operations as drafts of [graphs](crate::protocols::graph): who sends what to whom, and what waits for what.
//!
//! One file is one family of operations. A function here looks at no table: it draws the part of one rank, from the rank, the
//! number of ranks, and the runs of bytes. All members draw the same operation from the same arguments, so that each message
//! meets its receive.
//!
//! *Order.* Every reduction over P ranks combines the same operands in the same order, whatever the algorithm. With q the
//! greatest power of two that is not above P, and `rem` the P − q ranks that are left: the first `rem` pairs of neighbours are
//! combined, which leaves q values, and these are the leaves of a balanced binary tree ([`fold`]). Scans combine runs of ranks
//! whose lengths are powers of two.

mod around;
pub mod draft;
pub mod exchange;
pub mod fold;
mod halving;
pub mod hosts;
mod leaders;
pub mod neighbors;
pub mod reduce;
pub mod reduce_scatter;
pub mod scan;
pub mod spread;
mod tree;
mod value;

#[cfg(test)]
mod tests;
