//! What a Tracy profiler is told. A small profiler connects to a process with engines. It counts zones, plots, frame
//! marks and messages by name. The counts must be those of the engines themselves.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

#[path = "tracy/server.rs"]
mod server;

use bevy_ecs::prelude::*;
use serde_json::{Value, json};
use server::{Heard, Server};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tickwire::internals::traces::{DELIVER, Depths, Event, Ring, tracy};
use tickwire::internals::transports::Hub;
use tickwire::testing::{Cluster, ROWS};
use tickwire::{Bootstrap, Engine, ProgressSystems, Rank, Source, Tag};
use tickwire_tests::cases;

/// Longest wait for the other process.
const PATIENCE: Duration = Duration::from_secs(60);
/// The last message of the watched process.
const LAST: &str = "that is all";
/// The variable that is set for the watched process.
const WATCHED: &str = "TICKWIRE_TEST_WATCHED";

fn counts() {}

/// Passes expected, unexpected and long messages in both directions.
fn exchange(cluster: &mut Cluster) {
    let world = cluster.engines[0].comm_world();
    for (from, to) in [(0, 1), (1, 0)] {
        for length in [0, 8, 5000, 100_000] {
            for expected in [true, false] {
                let post = |cluster: &mut Cluster| {
                    let source = if length == 8 { Source::Any } else { Source::Rank(Rank(from as u32)) };
                    cluster.engines[to].irecv(vec![0u8; length], source, Tag(1), world).unwrap()
                };
                let posted = expected.then(|| post(cluster));
                let sent = cluster.engines[from].isend(vec![1u8; length], Rank(to as u32), Tag(1), world).unwrap();
                cluster.tick_times(3);
                let receive = posted.unwrap_or_else(|| post(cluster));
                cluster.finish(cases::BOUND, to, receive).unwrap();
                cluster.finish(cases::BOUND, from, sent).unwrap();
            }
        }
    }
}

/// The watched process. Engine 0 has a system of the application and a sink. Engine 1 has neither.
#[test]
fn watched() {
    if std::env::var_os(WATCHED).is_none() {
        return;
    }
    let (ring, hub) = (Ring::new(1 << 20), Hub::new(2, 1 << 16));
    let mut cluster = Cluster::build(2, |rank| {
        let builder = Engine::builder().hub(hub.clone()).initial_rows(ROWS);
        let add = |schedule: &mut bevy_ecs::schedule::Schedule| {
            schedule.add_systems(counts.after(ProgressSystems::DrainCq));
        };
        if rank == 0 { builder.systems(add).trace(ring.clone()) } else { builder }
    });
    // Before a profiler connects, nothing is reported and nothing may fail.
    exchange(&mut cluster);
    await_profiler();
    ring.take();
    let before: Vec<_> = cluster.engines.iter().map(|engine| engine.counters().runs()).collect();
    exchange(&mut cluster);
    let world = cluster.engines[0].comm_world();
    let waiting = [3, 4].map(|tag| cluster.engines[0].irecv(vec![0u8; 8], Source::Any, Tag(tag), world).unwrap());
    let alone = cluster.engines[0].comm_self();
    cluster.engines[0].barrier(alone).unwrap();
    let refused = cluster.engines[1].isend(vec![1u8], Rank(7), Tag(1), world).unwrap_err().error;
    exchange(&mut cluster);

    let runs: Vec<Vec<u64>> = (cluster.engines.iter().zip(&before))
        .map(|(engine, before)| engine.counters().runs().iter().zip(before).map(|(now, then)| now - then).collect())
        .collect();
    let (mut ticks, mut completed, mut received, mut own, mut depths) = (0, 0, 0, 0, Depths::default());
    let mut plotted = [[0; 2]; 2];
    let mut last = [None; 2];
    for event in ring.take() {
        match event {
            Event::TickEnded { work, passes, depths: now, .. } => {
                for ((plot, last), value) in plotted.iter_mut().zip(&mut last).zip([work.completed, passes]) {
                    if last.replace(value) != Some(value) {
                        *plot = [plot[0] + 1, plot[1] + value];
                    }
                }
                (ticks, completed, received) = (ticks + 1, completed + work.completed, received + work.received);
                depths = now;
            }
            Event::SystemRan { system, .. } if usize::from(system) > DELIVER => own += 1,
            _ => {}
        }
    }
    let depths = depths.values();
    println!(
        "{}",
        json!({ "runs": runs, "ticks": ticks, "completed": completed, "received": received, "own": own,
            "plotted": plotted, "depths": depths, "refused": refused.to_string() })
    );
    tracy::message(0, LAST);
    stay();
    drop(waiting);
}

/// Waits until the watching process ends this one.
fn stay() {
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

/// Waits for a profiler.
fn await_profiler() {
    println!("\nready");
    let until = Instant::now() + PATIENCE;
    while !tracy::connected() {
        assert!(Instant::now() < until, "no profiler comes");
        std::thread::yield_now();
    }
}

/// The timed process. It sends messages of 8 B to itself, and measures ns for each, before a profiler connects and
/// after.
#[test]
fn timed() {
    if std::env::var_os(WATCHED).is_none() {
        return;
    }
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    let mut run = |messages: u32| {
        let start = Instant::now();
        for _ in 0..messages {
            let incoming = engine.irecv([0u8; 8].to_vec(), Rank(0), Tag(1), world).unwrap();
            engine.send(&[1u8; 8], Rank(0), Tag(1), world).unwrap();
            engine.wait(&incoming).unwrap();
            engine.take(incoming).unwrap();
        }
        start.elapsed().as_nanos() as f64 / f64::from(messages)
    };
    run(TIMED);
    let alone = run(TIMED);
    await_profiler();
    run(1000);
    let connected = run(TIMED);
    println!("{}", json!({ "alone": alone, "connected": connected }));
    tracy::message(0, LAST);
    stay();
}

/// Number of messages in a measurement.
const TIMED: u32 = 200_000;

/// `cargo test -p tickwire-tests --features tracy --test tracy -- --ignored --nocapture cost`.
#[test]
#[ignore = "measures"]
fn cost_of_a_profiler_that_is_connected() {
    let (heard, times) = listen("timed");
    let zones: u64 = heard.zones.values().map(|zone| zone.count).sum();
    println!("a message of 8 B to oneself, ns: {times}; {zones} zones");
}

/// Runs one of the processes above under a profiler. Returns what the profiler has heard, and what the process has
/// counted.
fn listen(process: &str) -> (Heard, Value) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", process, "--nocapture"]).env(WATCHED, "1").env("TRACY_PORT", port.to_string());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "ready"), "it gets ready");
    let heard = Server::connect(port, PATIENCE).listen(LAST, PATIENCE);
    let counted = lines.find(|line| line.starts_with('{')).unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(heard.pid, u64::from(child.id()));
    (heard, serde_json::from_str(&counted).unwrap())
}

#[test]
fn zones_plots_frames_and_messages_are_what_the_engines_have_counted() {
    let (heard, counted) = listen("watched");
    let number = |value: &Value| value.as_u64().unwrap();
    assert!(heard.on_demand);

    let names = ProgressSystems::ORDER.map(ProgressSystems::name).into_iter().chain(["deliver"]);
    for (system, name) in names.enumerate() {
        let runs = number(&counted["runs"][0][system]) + number(&counted["runs"][1][system]);
        assert_eq!(heard.zones.get(name).map_or(0, |zone| zone.count), runs, "{name}");
        assert!(runs > 0 || name == "supply_buffers" || name == "post", "{name} has run");
    }
    assert_eq!(number(&counted["runs"][0][DELIVER]), 0);
    let own: u64 = heard.zones.iter().filter(|(name, _)| name.contains("counts")).map(|(_, zone)| zone.count).sum();
    assert_eq!((own, own > 0), (number(&counted["own"]), true), "{:?}", heard.zones.keys());
    assert_eq!(heard.zones.get("barrier").map(|zone| zone.count), Some(1), "{:?}", heard.zones.keys());
    assert_eq!(heard.open, 0, "every zone ends");
    let rows = |name: &str| heard.zones[name].values;
    assert!(rows("drain_cq") >= number(&counted["received"]) && rows("deliver") > 0);
    assert!(rows("complete") >= number(&counted["completed"]));

    assert_eq!(heard.frames["tick of rank 0"], number(&counted["ticks"]));
    for rank in 0..2 {
        let plot = |name: &str| &heard.plots[&format!("{name} (rank {rank})")];
        for (name, told) in ["completions a tick", "passes"].into_iter().zip(counted["plotted"].as_array().unwrap()) {
            assert!((1..=heard.frames[&format!("tick of rank {rank}")]).contains(&plot(name).count), "{name}");
            // Only rank 0 has also kept its events.
            let expected = (number(&told[0]), number(&told[1]) as f64);
            assert!(rank != 0 || (plot(name).count, plot(name).sum) == expected, "{name}: {expected:?}");
        }
        for name in Depths::NAMES.into_iter().chain(["loopback bytes sent", "loopback bytes received"]) {
            assert!(plot(name).count > 0, "{name}");
        }
        assert_eq!(plot("unexpected bytes").most, 5000.0);
    }
    assert!(heard.plots["posted (rank 0)"].most >= 2.0 && heard.plots["wildcard (rank 0)"].most >= 2.0);
    for (name, value) in Depths::NAMES.into_iter().zip(counted["depths"].as_array().unwrap()) {
        assert_eq!(heard.plots[&format!("{name} (rank 0)")].last, number(value) as f64, "{name}");
    }

    let refused = counted["refused"].as_str().unwrap();
    assert!(heard.messages.iter().any(|words| words.starts_with("rank 1: ") && words.contains(refused)));
    assert!(heard.threads.values().any(|name| name.contains("(rank ")), "{:?}", heard.threads);
}
