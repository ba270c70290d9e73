//! What an engine tells: events in memory against the engine's own counters, and files of real ranks.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use bevy_ecs::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tickwire::components::VcState;
use tickwire::components::credit::{LINE_BYTES, cost};
use tickwire::testing::{Cluster, Death, ROWS, Sim, SimConfig, SimNet};
use tickwire::traces::{DELIVER, Depths, Event, Message, Ring, Sink, TraceFile};
use tickwire::transports::{Hub, Loopback};
use tickwire::{Bootstrap, Engine, ProgressSystems, Rank, Source, Tag};
use tickwire_tests::binaries::binary;
use tickwire_tests::cases;

/// More events than any run here has.
const MANY: usize = 1 << 20;

/// A cluster each of whose engines tells a ring.
fn told(engines: u32, make: impl Fn(u32) -> tickwire::Builder + Sync) -> (Cluster, Vec<Ring>) {
    let rings: Vec<Ring> = (0..engines).map(|_| Ring::new(MANY)).collect();
    let cluster = Cluster::build(engines, |rank| make(rank).initial_rows(ROWS).trace(rings[rank as usize].clone()));
    (cluster, rings)
}

/// The same over each transport.
fn everywhere(engines: u32, case: impl Fn(Cluster, Vec<Ring>)) {
    let hub = Hub::new(engines, tickwire::components::limits::LOOPBACK_RING_BYTES);
    let (cluster, rings) = told(engines, |_| Engine::builder().hub(hub.clone()));
    case(cluster, rings);
    let (cluster, rings) = told(engines, |_| Engine::builder());
    case(cluster, rings);
    let (cluster, rings) = simulated(engines, &SimNet::new(engines, SimConfig::new(5)));
    case(cluster, rings);
}

fn simulated(engines: u32, net: &SimNet) -> (Cluster, Vec<Ring>) {
    let hub = Hub::new(engines, tickwire::components::limits::LOOPBACK_RING_BYTES);
    told(engines, |rank| {
        let inner = Loopback::join(&hub, rank).unwrap();
        Engine::builder().exclude(["loopback", "shm"]).transport(Sim::new(inner, rank, net))
    })
}

fn events(ring: &Ring) -> Vec<Event<'static>> {
    assert_eq!(ring.dropped(), 0);
    ring.events()
}

/// Runs of each system, and the rows that they had.
fn runs(events: &[Event<'_>]) -> (Vec<u64>, Vec<u64>) {
    let (mut runs, mut rows) = (vec![0; DELIVER + 1], vec![0; DELIVER + 1]);
    for event in events {
        if let Event::SystemRan { system, rows: of, begin_ns, end_ns } = event {
            assert!(begin_ns <= end_ns);
            runs[*system as usize] += 1;
            rows[*system as usize] += of;
        }
    }
    (runs, rows)
}

/// The messages from one engine to another, as one of them tells it.
fn messages(events: &[Event<'_>], peer: u32, sent: bool) -> Vec<Message> {
    let of = events.iter().filter_map(|event| match event {
        Event::Sent(message) if sent => Some(*message),
        Event::Received(message) if !sent => Some(*message),
        _ => None,
    });
    of.filter(|message| message.proc == peer).collect()
}

#[test]
fn every_run_and_every_message_is_told() {
    everywhere(3, |mut cluster, rings| {
        cases::all(&mut cluster);
        let told: Vec<_> = rings.iter().map(events).collect();
        for (rank, events) in told.iter().enumerate() {
            let counted = cluster.engines[rank].counters().runs();
            let (runs, rows) = runs(events);
            assert_eq!(runs, counted, "rank {rank}");
            assert!(runs[DELIVER] > 0, "messages that are awaited are delivered row by row, watched or not");
            assert_eq!(events[0], Event::Engine { rank: rank as u32, size: 3 });
            let ended: Vec<_> = events
                .iter()
                .filter_map(|event| match event {
                    Event::TickEnded { work, passes, .. } => Some((*work, u64::from(*passes))),
                    _ => None,
                })
                .collect();
            assert_eq!(events.iter().filter(|event| matches!(event, Event::TickBegan { .. })).count(), ended.len());
            let sum =
                |value: fn(&tickwire::Work) -> u32| ended.iter().map(|(work, _)| u64::from(value(work))).sum::<u64>();
            let (matched, read) = (sum(|work| work.matched), rows[ProgressSystems::DrainCq as usize]);
            assert!(rows[ProgressSystems::Match as usize] >= read && matched > 0, "rank {rank}: {rows:?}");
            let (delivered, received) = (rows[DELIVER], sum(|work| work.received));
            assert!(read + delivered <= received, "the rest was read out of other processes' memory");
            assert!(read > 0 && delivered > 0, "rank {rank}: {rows:?}");
            assert!(rows[ProgressSystems::Complete as usize] <= sum(|work| work.completed), "rank {rank}");
            let most = ended.iter().map(|(_, passes)| *passes).sum::<u64>();
            assert!(runs.iter().all(|&runs| runs <= most), "at most once a pass: {runs:?} in {most}");
        }
        for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
            let sent = messages(&told[from], to as u32, true);
            let received = messages(&told[to], from as u32, false);
            assert!(sent.iter().zip(0..).all(|(message, number)| message.number == number), "from {from} to {to}");
            assert!(from == to || !sent.is_empty(), "from {from} to {to}");
            let envelope = |m: &Message| (m.context, m.tag, m.bytes, m.number);
            let [sent_to, received_by] = [&sent, &received].map(|all| all.iter().map(envelope).collect::<Vec<_>>());
            assert_eq!(sent_to, received_by, "from {from} to {to}");
            assert!(sent.iter().zip(&received).all(|(sent, received)| sent.begin_ns <= received.end_ns));
        }
    });
}

#[test]
fn systems_of_the_application_have_names_and_runs() {
    let (ring, count) = (Ring::new(MANY), Arc::new(AtomicU64::new(0)));
    let counted = count.clone();
    let counts = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let builder = Engine::builder().systems(|schedule| {
        schedule.add_systems(IntoSystem::into_system(counts).with_name("counts").after(ProgressSystems::DrainCq));
    });
    let mut engine = builder.trace(ring.clone()).build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    for _ in 0..10 {
        let incoming = engine.irecv(vec![0; 8], Source::Any, Tag(1), world).unwrap();
        engine.send(&[1; 8], Rank(0), Tag(1), world).unwrap();
        engine.wait(&incoming).unwrap();
    }
    let events = events(&ring);
    let (system, name) = events
        .iter()
        .find_map(|event| match event {
            Event::System { system, name } if usize::from(*system) > DELIVER => Some((*system, name.clone())),
            _ => None,
        })
        .unwrap();
    assert!(name.contains("counts"), "{name}");
    let runs = events.iter().filter(|event| matches!(event, Event::SystemRan { system: of, .. } if *of == system));
    assert_eq!(runs.count() as u64, count.load(Ordering::Relaxed));
    assert!(count.load(Ordering::Relaxed) >= 10);
}

#[test]
fn connections_and_errors_are_told() {
    let net = SimNet::new(2, SimConfig::new(9));
    let (mut cluster, rings) = simulated(2, &net);
    cases::storm(&mut cluster, 1, 4);
    net.kill(1, Death::At(cluster.now_ns));
    let world = cluster.engines[0].comm_world();
    let never = cluster.engines[0].irecv(vec![0; 8], Rank(1), Tag(9), world).unwrap();
    let error = cluster.finish(cases::BOUND, 0, never).unwrap_err().error;
    let events = events(&rings[0]);
    let states: Vec<VcState> = events
        .iter()
        .filter_map(|event| match event {
            Event::VcChanged { proc: 1, state, reason, .. } => {
                assert_eq!(*state == VcState::Failed, !reason.is_empty(), "{reason}");
                Some(*state)
            }
            _ => None,
        })
        .collect();
    assert_eq!(states.last(), Some(&VcState::Failed));
    assert_eq!(states[states.len() - 2], VcState::Connected, "{states:?}");
    let told = |event: &Event<'_>| matches!(event, Event::Error { words, .. } if words.contains(&error.to_string()));
    assert!(events.iter().any(told), "{error}");
}

#[test]
fn what_waits_is_counted() {
    for matching in [tickwire::Matching::Lists, tickwire::Matching::Index] {
        let hub = Hub::new(2, tickwire::components::limits::LOOPBACK_RING_BYTES);
        let limits = tickwire::Limits { matching, ..Default::default() };
        let (mut cluster, rings) = told(2, |_| Engine::builder().hub(hub.clone()).limits(limits.clone()));
        let world = cluster.engines[0].comm_world();
        let mut posted = Vec::new();
        for tag in 0..5 {
            posted.push(cluster.engines[0].irecv(vec![0; 8], Rank(1), Tag(tag), world).unwrap());
        }
        for tag in 10..13 {
            posted.push(cluster.engines[0].irecv(vec![0; 8], Source::Any, Tag(tag), world).unwrap());
        }
        for tag in 20..27 {
            let sent = cluster.engines[1].isend(vec![7; 100], Rank(0), Tag(tag), world).unwrap();
            cluster.finish(cases::BOUND, 1, sent).unwrap();
        }
        cluster.tick_times(5);
        let [depths, sender] = [0, 1].map(|rank: usize| {
            let ended = rings[rank].events().iter().rev().find_map(|event| match event {
                Event::TickEnded { depths, .. } => Some(*depths),
                _ => None,
            });
            ended.unwrap()
        });
        let credit_bytes = depths.credit_bytes;
        let expected = Depths { posted: 8, wildcard: 3, unexpected: 7, unexpected_bytes: 700, cars: 8, credit_bytes };
        assert_eq!(depths, expected, "{matching:?}");
        // The first message has waited for the connection and left in a tick; the others have left at once.
        let spent = u64::from(cost(100)) * LINE_BYTES as u64;
        assert_eq!(sender.credit_bytes, credit_bytes - spent, "both have been granted the same");
    }
}

// Files.

/// A file of a test's own.
fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tickwire-traces-{name}-{}", std::process::id()))
}

fn lines(path: &Path) -> Vec<Value> {
    let lines: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
    lines.iter().for_each(in_format);
    nested(&lines);
    flows(&lines);
    lines
}

/// Fields of every event, and of those of a phase: what the Trace Event Format demands of it, and nothing that it does not
/// know.
const COMMON: [&str; 5] = ["ph", "pid", "tid", "name", "ts"];
const OF_PHASE: [(&str, &[&str], &[&str]); 6] = [
    ("M", &["args"], &[]),
    ("X", &["dur", "args"], &["cat"]),
    ("i", &["s"], &["args"]),
    ("C", &["args"], &[]),
    ("s", &["cat", "id"], &[]),
    ("f", &["cat", "id", "bp"], &[]),
];

/// One event against the Trace Event Format.
#[track_caller]
fn in_format(line: &Value) {
    let event = line.as_object().unwrap();
    let phase = event["ph"].as_str().unwrap();
    let (_, must, may) = OF_PHASE.iter().find(|(known, ..)| *known == phase).unwrap_or_else(|| panic!("{line}"));
    assert!(COMMON.iter().chain(*must).all(|field| event.contains_key(*field)), "{line}");
    let known = |field: &String| COMMON.iter().chain(*must).chain(*may).any(|known| known == field);
    assert!(event.keys().all(known), "{line}");
    assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{line}");
    assert!(event["name"].as_str().is_some_and(|name| !name.is_empty()), "{line}");
    let time = |field: &str| event.get(field).is_none_or(|us| us.as_f64().is_some_and(|us| (0.0..1e15).contains(&us)));
    assert!(time("ts") && time("dur"), "{line}");
    let args = event.get("args").map(|args| args.as_object().unwrap_or_else(|| panic!("{line}")));
    match (phase, event["name"].as_str().unwrap()) {
        ("M", "process_name" | "thread_name") => assert!(line["args"]["name"].is_string(), "{line}"),
        ("M", "process_sort_index" | "thread_sort_index") => assert!(line["args"]["sort_index"].is_i64(), "{line}"),
        ("M", _) => panic!("{line}"),
        // A counter is drawn from numbers only.
        ("C", _) => assert!(args.is_some_and(|args| !args.is_empty() && args.values().all(Value::is_number)), "{line}"),
        ("i", _) => assert!(["g", "p", "t"].contains(&line["s"].as_str().unwrap()), "{line}"),
        // An end that is bound to the slice around it, not to the next one.
        ("f", _) => assert_eq!(line["bp"], "e", "{line}"),
        _ => {}
    }
}

/// Begin and end of a slice, ns: what is written in microseconds has three places.
fn span(line: &Value) -> (u64, u64) {
    let ns = |field: &str| (line[field].as_f64().unwrap_or(0.0) * 1000.0).round() as u64;
    (ns("ts"), ns("ts") + ns("dur"))
}

/// Slices of a track lie beside or within each other: what overlaps otherwise is drawn wrongly, or dropped.
#[track_caller]
fn nested(lines: &[Value]) {
    let mut tracks: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for line in of(lines, "X") {
        tracks.entry((number(&line["pid"]), number(&line["tid"]))).or_default().push(span(line));
    }
    for (track, mut slices) in tracks {
        slices.sort_by_key(|&(begin, end)| (begin, std::cmp::Reverse(end)));
        let mut around: Vec<u64> = Vec::new();
        for (begin, end) in slices {
            while around.last().is_some_and(|&outer| outer <= begin) {
                around.pop();
            }
            assert!(around.last().is_none_or(|&outer| end <= outer), "{track:?}: {begin} to {end} in {around:?}");
            around.push(end);
        }
    }
}

/// Both ends of an arrow have one name and category, are in a slice of their track, and the first is not the later one.
#[track_caller]
fn flows(lines: &[Value]) {
    let mut slices: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for line in of(lines, "X") {
        slices.entry((number(&line["pid"]), number(&line["tid"]))).or_default().push(span(line));
    }
    let ends = |phase| {
        let mut found = BTreeMap::new();
        for line in lines.iter().filter(|line| line["ph"] == phase) {
            let (track, (at, _)) = ((number(&line["pid"]), number(&line["tid"])), span(line));
            let around = slices.get(&track).is_some_and(|slices| slices.iter().any(|&(b, e)| b <= at && at <= e));
            assert!(around, "{line}");
            assert!(found.insert(line["id"].as_str().unwrap().to_owned(), line).is_none(), "{line}");
        }
        found
    };
    let (starts, ends) = (ends("s"), ends("f"));
    for (id, start) in starts {
        let Some(end) = ends.get(&id) else { continue };
        assert!(start["name"] == end["name"] && start["cat"] == end["cat"], "{start} {end}");
        assert!(start["ts"].as_f64() <= end["ts"].as_f64(), "{start} {end}");
    }
}

fn of<'a>(lines: &'a [Value], phase: &'a str) -> impl Iterator<Item = &'a Value> {
    lines.iter().filter(move |line| line["ph"] == phase)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Processes and tracks that have events, each of which must have a name.
#[track_caller]
fn processes(lines: &[Value]) -> BTreeSet<u64> {
    let name = |what: &str| -> BTreeMap<(u64, u64), &str> {
        let named = of(lines, "M").filter(|line| line["name"] == what);
        named
            .map(|line| ((number(&line["pid"]), number(&line["tid"])), line["args"]["name"].as_str().unwrap()))
            .collect()
    };
    let (processes, tracks) = (name("process_name"), name("thread_name"));
    for line in lines.iter().filter(|line| line["ph"] == "X" || line["ph"] == "s" || line["ph"] == "f") {
        let place = (number(&line["pid"]), number(&line["tid"]));
        assert!(tracks.contains_key(&place), "{line}");
        assert_eq!(processes[&(place.0, 0)], format!("rank {}", place.0));
        assert!(line["ts"].as_f64().unwrap() > 0.0 && line["dur"].as_f64().is_none_or(|us| us >= 0.0), "{line}");
    }
    processes.keys().map(|(pid, _)| *pid).collect()
}

/// The arrows: where and when each begins and ends. Each end must be in a slice.
#[track_caller]
fn arrows(lines: &[Value], phase: &str) -> BTreeMap<String, (u64, f64)> {
    let slices: BTreeSet<(u64, u64, u64)> = of(lines, "X").map(place).collect();
    let mut found = BTreeMap::new();
    for line in of(lines, phase) {
        assert!(slices.contains(&place(line)), "{line}");
        let end = (number(&line["pid"]), line["ts"].as_f64().unwrap());
        let id = line["id"].as_str().unwrap().to_owned();
        assert!(found.insert(id, end).is_none(), "{line}");
    }
    found
}

fn place(line: &Value) -> (u64, u64, u64) {
    (number(&line["pid"]), number(&line["tid"]), line["ts"].as_f64().unwrap().to_bits())
}

fn tickwire(args: &[&str]) -> Output {
    Command::new(binary("tickwire")).args(args).output().unwrap()
}

/// Runs `rank` programs, traced.
fn traced(path: &Path, ranks: &str, test: &[&str]) -> (Output, Vec<Value>) {
    (run_traced(path, ranks, test), lines(path))
}

fn run_traced(path: &Path, ranks: &str, test: &[&str]) -> Output {
    let place = scratch(&format!("place-{}", path.file_name().unwrap().to_str().unwrap()));
    std::fs::create_dir_all(&place).unwrap();
    let program = env!("CARGO_BIN_EXE_tests-rank");
    let run = ["run", "-n", ranks, "--on-failure", "continue", "--trace", path.to_str().unwrap(), "--", program];
    let output = tickwire(&[&run, &test[..1], &[place.to_str().unwrap()], &test[1..]].concat());
    std::fs::remove_dir_all(place).unwrap();
    output
}

#[test]
fn what_is_not_in_the_format_is_noticed() {
    let bad = [
        r#"{"ph":"Z","pid":0,"tid":1,"name":"a","ts":1.0}"#,
        r#"{"ph":"X","pid":0,"tid":1,"name":"a","ts":1.0,"args":{}}"#,
        r#"{"ph":"X","pid":0,"tid":1,"name":"a","ts":-1.0,"dur":1.0,"args":{}}"#,
        r#"{"ph":"X","pid":"0","tid":1,"name":"a","ts":1.0,"dur":1.0,"args":{}}"#,
        r#"{"ph":"C","pid":0,"tid":1,"name":"a","ts":1.0,"args":{"value":"1"}}"#,
        r#"{"ph":"i","pid":0,"tid":1,"name":"a","ts":1.0,"s":"x"}"#,
        r#"{"ph":"f","pid":0,"tid":1,"name":"a","ts":1.0,"cat":"c","id":"1"}"#,
        r#"{"ph":"M","pid":0,"tid":1,"name":"thread_nam","ts":0.0,"args":{"name":"b"}}"#,
    ];
    let fails = |check: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err();
    for line in bad {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(fails(&|| in_format(&line)), "{line}");
    }
    let slice =
        |ts: f64, dur: f64| serde_json::json!({"ph":"X","pid":0,"tid":1,"name":"a","ts":ts,"dur":dur,"args":{}});
    nested(&[slice(1.0, 5.0), slice(2.0, 4.0), slice(6.0, 1.0)]);
    assert!(fails(&|| nested(&[slice(1.0, 5.0), slice(2.0, 4.001)])));
    let arrow =
        |phase: &str, ts: f64| serde_json::json!({"ph":phase,"pid":0,"tid":1,"name":"m","ts":ts,"cat":"c","id":"1"});
    flows(&[slice(1.0, 5.0), arrow("s", 1.0), arrow("f", 2.0)]);
    assert!(fails(&|| flows(&[slice(1.0, 5.0), arrow("s", 0.5)])), "in no slice");
    assert!(fails(&|| flows(&[slice(1.0, 5.0), arrow("s", 3.0), arrow("f", 2.0)])), "backwards");
    assert!(fails(&|| flows(&[slice(1.0, 5.0), arrow("s", 3.0), arrow("s", 3.0)])), "twice");
}

#[test]
fn a_job_becomes_one_file_with_an_arrow_for_each_message() {
    let path = scratch("job");
    let (output, lines) = traced(&path, "3", &["storm", "1", "5"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(processes(&lines), BTreeSet::from([0, 1, 2]));
    let (starts, ends) = (arrows(&lines, "s"), arrows(&lines, "f"));
    // 5 messages each way of each pair, and to oneself.
    assert_eq!(starts.len(), 3 * 3 * 5);
    assert!(starts.keys().eq(ends.keys()), "every arrow that begins ends");
    assert!(starts.iter().all(|(id, (_, at))| *at <= ends[id].1), "no message arrives before it is sent");
    for system in ["drain_cq", "match", "transfer", "complete"] {
        assert!(of(&lines, "X").any(|line| line["name"] == system), "{system}");
    }
    let connected: BTreeSet<&str> = of(&lines, "i").filter_map(|line| line["name"].as_str()).collect();
    assert!(connected.contains("rank 1 connected"), "{connected:?}");
    assert!(!connected.iter().any(|words| words.ends_with("failed")), "an orderly end is none: {connected:?}");
    for counter in Depths::NAMES.into_iter().chain(["shm bytes"]) {
        assert!(of(&lines, "C").any(|line| line["name"] == counter), "{counter}");
    }
    assert!((0..3).all(|rank| !tickwire::traces::part(&path, rank).exists()), "the parts are gone");
}

#[test]
fn a_rank_that_is_killed_leaves_a_file_that_is_whole() {
    let (output, lines) = traced(&scratch("killed"), "2", &["death"]);
    assert_eq!(output.status.code(), Some(128 + 9), "{output:?}");
    assert_eq!(processes(&lines), BTreeSet::from([0, 1]));
    let failed = of(&lines, "i").find(|line| line["name"] == "rank 1 failed").unwrap();
    assert!(number(&failed["pid"]) == 0 && failed["args"]["words"].is_string(), "{failed}");
    let (starts, ends) = (arrows(&lines, "s"), arrows(&lines, "f"));
    assert!(ends.keys().all(|id| starts.contains_key(id)), "what it had told is there, up to its last message");
}

#[test]
fn the_file_is_an_array_once_its_engine_is_finalized() {
    let path = scratch("finalized");
    let mut engine = Engine::builder().trace(TraceFile::create(&path).unwrap()).build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    for _ in 0..10 {
        engine.send(&[1; 8], Rank(0), Tag(1), world).unwrap();
        engine.recv(&mut [0; 8], Rank(0), Tag(1), world).unwrap();
    }
    assert!(std::fs::read(&path).unwrap().starts_with(b"tickwtrc"));
    engine.finalize(Duration::from_secs(10)).unwrap();
    let lines = lines(&path);
    assert_eq!(arrows(&lines, "f").len(), 10);
    drop(engine);
    assert!(!path.exists(), "it is not written again");
}

/// A job that is to be killed; it is ended if its test fails.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_that_is_killed_leaves_what_becomes_an_array() {
    let path = scratch("alone-killed");
    let mut command = Command::new(binary("tickwire"));
    command.args(["perf", "self", "1000000000", "--by-tick", "--plain"]).env(tickwire::ENV_TRACE, &path);
    let child = Killed(command.stdout(std::process::Stdio::null()).spawn().unwrap());
    // More than the beginning, so that all parts of the file are in use.
    let end = Instant::now() + Duration::from_secs(60);
    while std::fs::metadata(&path).map_or(0, |file| file.len()) < 80_000 {
        std::thread::yield_now();
        assert!(Instant::now() < end, "nothing is written");
    }
    drop(child);
    assert!(std::fs::read(&path).unwrap().starts_with(b"tickwtrc"), "it had no time to make an array");
    let name = path.to_str().unwrap();
    let output = tickwire(&["trace", name, "--json", name]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.ends_with(" events of 1 file\n"), "{said}");
    let lines = lines(&path);
    assert_eq!(processes(&lines), BTreeSet::from([0]));
    let (starts, ends) = (arrows(&lines, "s"), arrows(&lines, "f"));
    assert!(starts.len() > 100 && ends.keys().all(|id| starts.contains_key(id)));
}

#[test]
fn files_of_ranks_whose_launcher_was_killed_are_put_together() {
    let (path, png) = (scratch("joined"), scratch("joined-png"));
    let parts = [0, 1].map(|rank| tickwire::traces::part(&path, rank));
    for (rank, part) in (0..).zip(&parts) {
        let mut trace = TraceFile::create_part(part).unwrap();
        trace.record(&Event::Engine { rank, size: 2 });
        let (begin_ns, end_ns) = (1000 + u64::from(rank), 2000);
        let message = Message { proc: 1 - rank, context: 1, tag: 2, bytes: 3, number: 0, begin_ns, end_ns };
        trace.record(&if rank == 0 { Event::Sent(message) } else { Event::Received(message) });
    }
    let [first, second, path_name, png_name] = [&parts[0], &parts[1], &path, &png].map(|path| path.to_str().unwrap());
    let make = || tickwire(&["trace", first, second, "--json", path_name, "--png", png_name]);
    let said = String::from_utf8(make().stdout).unwrap();
    assert!(said.contains(" of 2 ranks, ") && said.contains(", 1 message\n"), "{said}");
    assert!(said.ends_with(" events of 2 files\n"), "{said}");
    assert!(!picture(&png).is_empty());
    let joined = lines(&path);
    assert!(processes(&joined) == BTreeSet::from([0, 1]) && arrows(&joined, "f").len() == 1);

    // A file that is cut is told of, and one that is none is an error.
    let whole = std::fs::read(second).unwrap();
    std::fs::write(second, &whole[..whole.len() - 3]).unwrap();
    let said = String::from_utf8(make().stdout).unwrap();
    assert!(said.ends_with(" of 2 files; 1 event left out, cut at the end of a file\n"), "{said}");
    assert!(lines(&path).len() < joined.len());
    std::fs::remove_file(&png).unwrap();
    std::fs::write(second, [&whole[..32], &[99; 8]].concat()).unwrap();
    for made in [["--json", path_name], ["--png", png_name]] {
        let output = tickwire(&[&["trace", first, second], &made[..]].concat());
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{line}");
        assert!(line.contains(&format!("{second}: byte 32: there is no record of kind 99")), "{line}");
        assert!(!path.exists() && !png.exists());
    }
    parts.iter().for_each(|part| std::fs::remove_file(part).unwrap());
}

#[test]
fn a_program_without_a_launcher_writes_the_file_itself() {
    let path = scratch("alone");
    let mut command = Command::new(binary("tickwire"));
    command.args(["perf", "self", "20", "--plain"]).env(tickwire::ENV_TRACE, &path);
    assert!(command.output().unwrap().status.success());
    let lines = lines(&path);
    assert_eq!(processes(&lines), BTreeSet::from([0]));
    let (starts, ends) = (arrows(&lines, "s"), arrows(&lines, "f"));
    assert!(starts.len() >= 20 && starts.keys().eq(ends.keys()));
}

#[test]
fn a_place_that_cannot_be_written_is_one_line() {
    let run = tickwire(&["run", "-n", "2", "--trace", "/no/such/place", "--", "/bin/true"]);
    let mut command = Command::new(binary("tickwire"));
    let alone = command.args(["perf", "self", "20"]).env(tickwire::ENV_TRACE, "/no/such/place").output().unwrap();
    for (output, code) in [(run, 2), (alone, 1)] {
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), line.lines().count()), (Some(code), 1), "{line}");
        assert!(line.contains("/no/such/place: No such file or directory") && line.contains("; name a file"), "{line}");
    }
}

// Pictures.

/// The pixels of a picture, row by row.
fn picture(path: &Path) -> Vec<Vec<[u8; 3]>> {
    let mut reader =
        png::Decoder::new(std::io::BufReader::new(std::fs::File::open(path).unwrap())).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    std::fs::remove_file(path).unwrap();
    let (pixels, rest) = bytes.as_chunks::<3>();
    assert!(rest.is_empty());
    pixels.chunks(info.width as usize).map(<[_]>::to_vec).collect()
}

#[test]
fn a_trace_becomes_a_picture_with_bands_and_arrows() {
    let (path, png) = (scratch("drawn"), scratch("png"));
    assert!(run_traced(&path, "3", &["storm", "1", "5"]).status.success());
    let draw =
        |more: &[&str]| tickwire(&[&["trace", path.to_str().unwrap(), "--png", png.to_str().unwrap()], more].concat());
    let output = draw(&[]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains(" of 3 ranks, ") && said.ends_with(", 45 messages\n"), "{said}");
    let pixels = picture(&png);
    assert_eq!(pixels[0].len(), 1400);
    // Left of the tracks are only names, so the ground is there between ranks too; right of them it ends.
    let ground = pixels[0][0];
    let first = pixels.iter().position(|row| row[1000..].contains(&[255; 3])).unwrap();
    // An arrow may cross any column, but not most of a row.
    let is_ground = |y: &usize| pixels[*y][190..1382].iter().filter(|pixel| **pixel == ground).count() > 1192 / 2;
    let between: Vec<usize> = (first..pixels.len()).filter(is_ground).collect();
    let gaps: Vec<&[usize]> = between.chunk_by(|a, b| a + 1 == *b).collect();
    assert_eq!(gaps.len(), 3, "between three ranks, and below them");
    let colours = [[205, 62, 48], [28, 104, 196], [20, 140, 92]];
    // A line between two pixels has its colour in part in both.
    let near = |pixel: &[u8; 3], colour: [u8; 3]| {
        let part =
            |i: usize| (f64::from(ground[i]) - f64::from(pixel[i])) / (f64::from(ground[i]) - f64::from(colour[i]));
        (0..3).all(|i| part(i) > 0.35 && (part(i) - part((i + 1) % 3)).abs() < 0.15)
    };
    // Others may lie over it in a few rows.
    let has = |rows: &[usize], rank: usize| {
        let drawn = |&&y: &&usize| pixels[y][190..1382].iter().any(|pixel| near(pixel, colours[rank]));
        rows.iter().filter(drawn).count() * 2 > rows.len()
    };
    assert!(has(gaps[0], 0) && has(gaps[0], 1) && has(gaps[1], 2) && has(gaps[1], 1), "arrows go both ways");
    assert!(gaps[2].iter().all(|&y| pixels[y].iter().all(|pixel| *pixel == ground)), "and none goes out");

    // A part of it: one message, and one rank.
    let output = draw(&["--messages", "0..1", "--ranks", "0,2", "--width", "700"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains(" of 2 ranks, "), "{said}");
    assert_eq!(picture(&png)[0].len(), 700);
    for (more, words) in [
        (&["--messages", "0..46"][..], "it has 45"),
        (&["--from", "1000s"], "there is nothing from"),
        (&["--ranks", "3"], "there is no rank 3"),
    ] {
        let output = draw(more);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), line.lines().count()), (Some(2), 1), "{line}");
        assert!(line.contains(words) && !png.exists(), "{line}");
    }
    std::fs::write(&path, "no trace\n").unwrap();
    for (file, words) in [(path.to_str().unwrap(), "line 1 is no event"), ("/no/such", "No such file")] {
        let output = tickwire(&["trace", file, "--png", png.to_str().unwrap()]);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{line}");
        assert!(line.contains(words) && line.contains(file) && !png.exists(), "{line}");
    }
    std::fs::remove_file(path).unwrap();
}
