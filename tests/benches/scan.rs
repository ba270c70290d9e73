//! The only step of a tick whose time has no bound: bevy's scan of all change ticks, at a million CAR rows.
//!
//! `cargo bench -p tickwire-tests --bench scan`. With `--test` the tables are small and nothing is timed.

use bevy_ecs::prelude::*;
use std::time::Instant;
use tickwire::internals::components::{Car, Held, Large, Node, Request};

/// The number of system runs after which bevy scans: `CHECK_TICK_THRESHOLD` of bevy_ecs 0.20.
const RUNS: u32 = 518_400_000;

fn main() {
    let test = std::env::args().any(|a| a == "--test");
    let rows = if test { 1_000 } else { 1_000_000 };
    let mut world = World::new();
    let cars: Vec<_> = (0..rows)
        .map(|_| (Car::default(), Large::default(), Node::default(), Request::default(), Held::default()))
        .collect();
    world.spawn_batch(cars).for_each(drop);
    for _ in 0..RUNS {
        world.increment_change_tick();
    }
    let start = Instant::now();
    let checked = world.check_change_ticks();
    let time = start.elapsed();
    assert!(checked.is_some(), "the threshold has moved: bevy did not scan after {RUNS} runs");
    if !test {
        println!("scan of {rows} CAR rows, 4 columns: {:.2} ms", time.as_secs_f64() * 1e3);
        println!("once every {RUNS} runs of application systems");
    }
}
