//! The cost of recording an event in memory and in a file, and of reading the clock.
//!
//! `cargo bench -p tickwire-tests --bench traces`. With `--test` the work is small and nothing is timed. Each figure is
//! the best of many rounds. The events are those of a tick in which a message left. `-- COUNT ring|file|clock` only
//! records this many ticks, so that their instructions can be counted.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;
use tickwire::internals::components::Work;
use tickwire::internals::traces::{Depths, Event, Message, Ring, Sink, Trace, TraceFile, now_ns};

/// Number of events of a tick.
const EVENTS: u64 = 7;
/// Number of rounds. The best one counts.
const ROUNDS: u64 = 20;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let test = words.iter().any(|word| word == "--test");
    if let [count, what] = &words[..] {
        let ticks = count.parse().expect("a number of ticks");
        return match &**what {
            "ring" => told(&mut ring(), 0, ticks),
            "file" => told(&mut file().0, 0, ticks),
            "clock" => clock(ticks),
            other => panic!("{other} is none of ring, file, clock"),
        };
    }
    let ticks = if test { 10 } else { 20_000 };
    let ((mut file, path), mut ring) = (file(), ring());
    let rows = [
        ("in memory", best(ticks, |first| told(&mut ring, first, ticks)) / EVENTS as f64),
        ("in a file", best(ticks, |first| told(&mut file, first, ticks)) / EVENTS as f64),
        ("the clock", best(ticks, |_| clock(ticks))),
    ];
    drop(file);
    std::fs::remove_file(path).expect("the file is there");
    for (words, ns) in rows.iter().filter(|_| !test) {
        println!("{words:<12}{ns:>8.1} ns");
    }
}

fn ring() -> Trace {
    Trace::new(Ring::new(1000))
}

/// A trace file that is kept as it is written.
fn file() -> (Trace, PathBuf) {
    let path = tickwire_tests::scratch::path("bench");
    let mut file = TraceFile::create_part(&path).expect("there is room");
    file.record(&Event::Engine { rank: 0, size: 2 });
    (Trace::new(file), path)
}

/// The time of a turn in the best round, ns.
fn best(turns: u64, mut round: impl FnMut(u64)) -> f64 {
    let mut best = f64::MAX;
    for number in 0..ROUNDS {
        let start = Instant::now();
        round(number * turns);
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / turns as f64);
    }
    best
}

fn clock(turns: u64) {
    for _ in 0..turns {
        black_box(now_ns());
    }
}

/// Records this many ticks in which a message leaves.
fn told(trace: &mut Trace, first: u64, ticks: u64) {
    for tick in first..first + ticks {
        let at = |part: u64| 5_000_000_000_000 + tick * 1000 + part * 100;
        trace.record(&Event::TickBegan { at_ns: at(0) });
        for system in 0..3 {
            let (begin_ns, end_ns) = (at(system) + 10, at(system) + 90);
            trace.record(&Event::SystemRan { system: system as u16, rows: 1, begin_ns, end_ns });
        }
        let (begin_ns, end_ns) = (at(3), at(3) + 70);
        trace.record(&Event::Sent(Message { proc: 1, context: 7, tag: 9, bytes: 8, number: tick, begin_ns, end_ns }));
        let (sent_bytes, received_bytes, at_ns) = (tick * 64, tick * 32, at(5));
        trace.record(&Event::Moved { transport: "shm".into(), sent_bytes, received_bytes, at_ns });
        let work = Work { posted: 1, matched: 0, sent: 1, received: 0, completed: 1 };
        let depths = Depths { cars: tick % 3, credit_bytes: 1 << 20, ..Depths::default() };
        trace.record(&Event::TickEnded { at_ns: at(6), work, passes: 1, depths });
    }
}
