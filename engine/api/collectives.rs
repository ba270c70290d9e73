//! Collective operations (MPI 4.1 chapter 6): all members of a communicator call them, in the same order.
//!
//! An operation is a graph: the engine draws this rank's part of it when it is called, and ticks run it. Any number may be in
//! progress, on one communicator and on several. Each has two forms: the one whose name begins with `i` returns a request at
//! once, the other one waits.

mod exchange;
mod graph;
mod reduce;
mod scan;
mod spread;

use tickwire_components::PostError;

/// Says that a buffer has another number of elements than it must have.
fn check_count(what: &'static str, given: usize, needed: usize) -> Result<(), PostError> {
    if given == needed { Ok(()) } else { Err(PostError::Elements { what, given, needed }) }
}
