//! The cost of the machine itself: half a round trip of a cache line between two processors, and copies in memory. It
//! is half of all latencies between processes. It differs by a factor of three with the places of the processors.
//!
//! `cargo bench -p tickwire-tests --bench line`. With `--test` it is short and nothing is printed.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A word alone in its cache line and in the neighbouring line, which the processor fetches with it.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU32);

/// Processors with a shorter time, ns, count as near: their caches are on the same chip.
const NEAR_NS: f64 = 90.0;

fn main() {
    let test = std::env::args().any(|word| word == "--test");
    let (trips, rounds, copied) = if test { (100, 1, 1 << 20) } else { (300_000, 5, 1 << 28) };
    let allowed = sched_getaffinity(None).expect("Linux tells where a thread may run");
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number)).collect();
    let report = |words: String| {
        if !test {
            println!("{words}");
        }
    };
    match processors[..] {
        [first, second, ..] => {
            let ns = (0..rounds).map(|_| half_a_round_trip([first, second], trips)).fold(f64::INFINITY, f64::min);
            report(format!("line {ns:.1} ns {}", if ns < NEAR_NS { "near" } else { "far" }));
        }
        _ => report("line - ns only one processor".to_owned()),
    }
    for bytes in [64 << 10, 4 << 20] {
        report(format!("memcpy {bytes} {:.1} GB/s", copies(bytes, copied)));
    }
}

fn bind(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).expect("it was allowed");
}

/// The time from a store on one processor until a load on another processor sees it, ns.
fn half_a_round_trip(processors: [usize; 2], trips: u32) -> f64 {
    let [there, back] = [Line::default(), Line::default()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bind(processors[1]);
            (1..=trips).for_each(|trip| {
                until(&there, trip);
                back.0.store(trip, Ordering::Release);
            });
        });
        let pinged = scope.spawn(|| {
            bind(processors[0]);
            // The first trip is not timed, because the other thread may still have to start.
            there.0.store(1, Ordering::Release);
            until(&back, 1);
            let begin = Instant::now();
            (2..=trips).for_each(|trip| {
                there.0.store(trip, Ordering::Release);
                until(&back, trip);
            });
            begin.elapsed().as_secs_f64() * 1e9 / f64::from(trips - 1) / 2.0
        });
        pinged.join().expect("nothing in it panics")
    })
}

fn until(line: &Line, trip: u32) {
    while line.0.load(Ordering::Acquire) < trip {
        spin_loop();
    }
}

/// The speed of copies of this many bytes, GB/s.
fn copies(bytes: usize, in_all: usize) -> f64 {
    let (from, mut into) = (vec![1u8; bytes], vec![2u8; bytes]);
    let begin = Instant::now();
    for _ in 0..in_all / bytes {
        into.copy_from_slice(black_box(&from));
        black_box(&mut into);
    }
    (in_all / bytes * bytes) as f64 / begin.elapsed().as_secs_f64() / 1e9
}
