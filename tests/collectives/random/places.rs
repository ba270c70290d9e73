//! Where the ranks of a program are, and how they reach each other.

use super::play::{play, play_in_turn};
use super::program::Program;
use crate::kit::on_threads_told;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::internals::transports::sim::ProviderConfig;
use tickwire::testing::{Cluster, SimConfig, SimNet};
use tickwire::transport::Hub;
use tickwire::{Builder, Engine, Limits};

/// Where the ranks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In threads, over shared memory and boards.
    Boards,
}

impl Place {
    /// Those where each rank is in a thread of its own.
    pub(crate) const THREADS: [Place; 1] = [Place::Boards];
    /// Those where engines are ticked in turn.
    pub(crate) const CLUSTERS: [Place; 0] = [];
}

/// Runs a program.
///
/// # Panics
/// If a rank has not what it must have.
pub(crate) fn run(place: Place, program: &Program) {
    match place {
        Place::Boards => in_threads(program, |_| Engine::builder()),
    }
}

fn in_threads(program: &Program, builder: impl Fn(u32) -> Builder + Sync) {
    let steps: Vec<AtomicUsize> = (0..program.ranks).map(|_| AtomicUsize::new(0)).collect();
    let tell = || format!("at steps {steps:?} of {program:#?}");
    on_threads_told(program.ranks, tell, |rank, bootstrap| {
        let mut engine = builder(rank).build(bootstrap).unwrap();
        play(&mut engine, rank, program, &steps[rank as usize]);
        engine.finalize(Duration::from_secs(20)).unwrap();
    });
}
