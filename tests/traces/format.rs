//! Checks of a trace file: lines must have the format, slices must be nested, and arrows must have two ends.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Reads a finished trace file, checks its lines with all functions below, and removes the file.
pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let lines: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
    lines.iter().for_each(in_format);
    nested(&lines);
    flows(&lines);
    operations(&lines);
    lines
}

/// Fields that the Trace Event Format requires in every event.
const COMMON: [&str; 5] = ["ph", "pid", "tid", "name", "ts"];
/// For each phase: further fields that the format requires, and fields that it allows. An event has no others.
const OF_PHASE: [(&str, &[&str], &[&str]); 8] = [
    ("M", &["args"], &[]),
    ("X", &["dur", "args"], &["cat"]),
    ("i", &["s"], &["args"]),
    ("C", &["args"], &[]),
    ("s", &["cat", "id"], &[]),
    ("f", &["cat", "id", "bp"], &[]),
    ("b", &["cat", "id", "args"], &[]),
    ("e", &["cat", "id"], &[]),
];

/// Checks one event against the Trace Event Format.
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
        // A counter can only be drawn from numbers.
        ("C", _) => assert!(args.is_some_and(|args| !args.is_empty() && args.values().all(Value::is_number)), "{line}"),
        ("i", _) => assert!(["g", "p", "t"].contains(&line["s"].as_str().unwrap()), "{line}"),
        // The end of an arrow is bound to the slice around it, not to the next slice.
        ("f", _) => assert_eq!(line["bp"], "e", "{line}"),
        _ => {}
    }
}

/// Begin and end of a slice, ns. The file has microseconds with three decimal places.
fn span(line: &Value) -> (u64, u64) {
    let ns = |field: &str| (line[field].as_f64().unwrap_or(0.0) * 1000.0).round() as u64;
    (ns("ts"), ns("ts") + ns("dur"))
}

/// Checks that slices of a track lie beside or within each other. A viewer draws other overlaps wrongly, or drops
/// them.
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

/// Checks the arrows. Both ends must have the same name and category and be within a slice of their track, and the end
/// must not be before the begin.
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

/// Checks the asynchronous slices. Each has an id of its own and begins once; it ends not before, with the same name and category.
#[track_caller]
fn operations(lines: &[Value]) {
    let mut open = BTreeMap::new();
    for line in lines.iter().filter(|line| line["ph"] == "b") {
        assert!(open.insert(line["id"].as_str().unwrap(), line).is_none(), "{line}");
    }
    for line in lines.iter().filter(|line| line["ph"] == "e") {
        let begin = open.remove(line["id"].as_str().unwrap()).unwrap_or_else(|| panic!("{line}"));
        assert!(["pid", "name", "cat"].iter().all(|field| begin[field] == line[field]), "{begin} {line}");
        assert!(begin["ts"].as_f64() <= line["ts"].as_f64(), "{begin} {line}");
    }
}

pub(crate) fn of<'a>(lines: &'a [Value], phase: &'a str) -> impl Iterator<Item = &'a Value> {
    lines.iter().filter(move |line| line["ph"] == phase)
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// The processes and tracks that have events. Each of them must have a name.
#[track_caller]
pub(crate) fn processes(lines: &[Value]) -> BTreeSet<u64> {
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

/// For each arrow, the track and the time at which it begins (`s`) or ends (`f`). An arrow must begin where a slice
/// begins, and end 1 ns before a slice ends.
#[track_caller]
pub(crate) fn arrows(lines: &[Value], phase: &str) -> BTreeMap<String, (u64, f64)> {
    let touched = |line: &Value| {
        let (begin, end) = span(line);
        (place(line), if phase == "s" { begin } else { end - 1 })
    };
    let slices: BTreeSet<_> = of(lines, "X").map(touched).collect();
    let mut found = BTreeMap::new();
    for line in of(lines, phase) {
        assert!(slices.contains(&(place(line), span(line).0)), "{line}");
        let end = (number(&line["pid"]), line["ts"].as_f64().unwrap());
        let id = line["id"].as_str().unwrap().to_owned();
        assert!(found.insert(id, end).is_none(), "{line}");
    }
    found
}

/// The track of a line.
fn place(line: &Value) -> (u64, u64) {
    (number(&line["pid"]), number(&line["tid"]))
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
    let end = |phase: &str, name: &str, ts: f64| serde_json::json!({"ph":phase,"pid":0,"name":name,"ts":ts,"cat":"c","id":"1"});
    operations(&[end("b", "a", 1.0), end("e", "a", 1.0)]);
    for bad in [
        &[end("e", "a", 1.0)][..],
        &[end("b", "a", 2.0), end("e", "a", 1.0)],
        &[end("b", "a", 1.0), end("e", "b", 1.0)],
        &[end("b", "a", 1.0), end("b", "a", 1.0)],
        &[end("b", "a", 1.0), end("e", "a", 1.0), end("e", "a", 1.0)],
    ] {
        assert!(fails(&|| operations(bad)), "{bad:?}");
    }
}
