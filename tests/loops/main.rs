//! Tests that the two loops of the engine do the same. In the first, messages are handled row by row (Deliver, and
//! sends that leave within their call). In the second, they go column by column through the six systems. Both get the
//! same calls and the same frames, with faults, over every transport that a test can repeat.
//!
//! Two clusters are given the same calls in the same order. One of them has [`Limits::deliver`] off. After each call
//! both are ticked until they are quiet. Then they are compared: what every operation got, how it ended, the columns,
//! the credit, and the counts of work. Calls are sends and receives, operations of all ranks that are drawn as graphs
//! of messages, and operations on memory of other ranks. `TICKWIRE_LOOPS=N` or `FIRST..END` selects the seeds.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod again;
mod calls;
mod case;
mod columns;
mod ends;
mod joint;
mod meeting;
mod one_sided;
mod side;
mod threads;

use case::{Network, all};

#[test]
fn both_loops_do_the_same_over_loopback() {
    all(Network::Loopback);
}

#[test]
fn both_loops_do_the_same_over_shared_memory() {
    all(Network::Shm);
}

#[test]
fn both_loops_do_the_same_over_a_network_that_hinders() {
    all(Network::Hindered);
}

#[test]
fn both_loops_do_the_same_where_procs_die_and_frames_are_changed() {
    all(Network::Failing);
}

#[test]
fn both_loops_end_operations_of_all_ranks_where_one_dies() {
    all(Network::Dying);
}

#[test]
fn both_loops_do_the_same_where_a_transport_matches() {
    all(Network::Provider);
}

#[test]
fn both_loops_do_the_same_where_ranks_have_boards_and_windows() {
    all(Network::Met);
}
