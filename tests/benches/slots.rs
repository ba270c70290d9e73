//! The cost of a look-up in a proc's endpoint data, compared with a plain array: in a static slot from within a system,
//! and in both kinds of slot by calls of the engine.
//!
//! `cargo bench -p tickwire-tests --bench slots`. With `--test` the work is small and nothing is timed. Each figure is
//! the best of many rounds. All measurements take turns.

use bevy_ecs::prelude::*;
use std::alloc::Layout;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tickwire::internals::components::slots::EndpointSlot;
use tickwire::internals::systems::views::Column;
use tickwire::testing::Cluster;
use tickwire::{Engine, ProcId, ProgressSystems, Rank, Tag};

/// Number of procs that are looked up in turn.
const PROCS: usize = 16;

/// Data of a user for each proc.
#[derive(Component, Default)]
struct Credits(u64);

impl EndpointSlot for Credits {
    const NAME: &'static str = "credits";
}

/// The number of look-ups in one run of the system, and the time that they took, ns.
#[derive(Resource, Default, Clone)]
struct Work(Arc<[AtomicU64; 2]>);

fn main() {
    let test = std::env::args().any(|word| word == "--test");
    let (lookups, rounds) = if test { (100, 1) } else { (100_000, 200) };
    let work = Work::default();
    let mut cluster = Cluster::loopback_with(PROCS as u32, |builder| {
        let add = |schedule: &mut Schedule| {
            schedule.add_systems(look_up.after(ProgressSystems::Complete));
        };
        let work = work.clone();
        builder.slot::<Credits>().world(move |world| world.insert_resource(work)).systems(add)
    });
    let world = cluster.engines[0].comm_world();
    for rank in 0..PROCS as u32 {
        drop(cluster.engines[0].isend(vec![0u8; 8], Rank(rank), Tag(9), world).expect("posted"));
    }
    cluster.tick_times(1000);
    let engine = &mut cluster.engines[0];
    let dynamic = engine.register_slot("notes", Layout::new::<u64>()).expect("a new name");

    let mut values: Vec<Credits> = (0..PROCS).map(|_| Credits(0)).collect();
    let mut best = [Duration::MAX; 4];
    for _ in 0..rounds {
        let times = [
            in_array(&mut values, lookups),
            in_system(engine, &work, lookups),
            timed(|| (0..lookups).for_each(|n| engine.slot::<Credits>(proc(n)).expect("contacted").0 += 1)),
            timed(|| (0..lookups).for_each(|n| engine.dynamic_slot(proc(n), dynamic).expect("contacted")[0] ^= 1)),
        ];
        best = std::array::from_fn(|which| best[which].min(times[which]));
    }
    let words = ["array[row]", "a static slot, in a system", "a static slot, by a call", "a dynamic slot, by a call"];
    for (words, time) in words.iter().zip(best).filter(|_| !test) {
        println!("{words:<28}{:>8.2} ns", time.as_secs_f64() / lookups as f64 * 1e9);
    }
}

fn proc(number: usize) -> ProcId {
    ProcId(black_box(number as u32 % PROCS as u32))
}

fn timed(what: impl FnOnce()) -> Duration {
    let start = Instant::now();
    what();
    start.elapsed()
}

#[inline(never)]
fn in_array(values: &mut [Credits], lookups: usize) -> Duration {
    timed(|| (0..lookups).for_each(|number| values[black_box(number % PROCS)].0 += 1))
}

/// Lets the system run once, in a tick that has something to do.
fn in_system(engine: &mut Engine, work: &Work, lookups: usize) -> Duration {
    let [left, time_ns] = &*work.0;
    left.store(lookups as u64, Ordering::Relaxed);
    let (me, world) = (engine.rank(), engine.comm_world());
    engine.send(&[1u8; 8], me, Tag(0), world).expect("to itself");
    engine.recv(&mut [0u8; 8], me, Tag(0), world).expect("from itself");
    assert_eq!(left.load(Ordering::Relaxed), 0, "the system has run");
    Duration::from_nanos(time_ns.load(Ordering::Relaxed))
}

fn look_up(mut credits: Column<Credits>, work: Res<Work>) {
    let [left, time_ns] = &*work.0;
    let lookups = left.swap(0, Ordering::Relaxed) as usize;
    if lookups > 0 {
        let time = timed(|| (0..lookups).for_each(|number| credits[black_box(number % PROCS)].0 += 1));
        time_ns.store(time.as_nanos() as u64, Ordering::Relaxed);
    }
}
