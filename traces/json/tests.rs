//! Tests of the lines that events become.

use super::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn the_arrow_of_a_message_has_a_name_and_an_id_of_its_own() {
    let ranks = [1, 2, 65_537, 65_538, (1 << 24) - 1];
    let pairs = ranks.iter().flat_map(|&from| ranks.map(|to| (from, to)));
    let arrows: Vec<_> = pairs.flat_map(|(from, to)| [0, 1].map(|number| arrow(from, to, number))).collect();
    assert_eq!(arrows.iter().collect::<BTreeSet<_>>().len(), 2 * ranks.len() * ranks.len());
    let is_number = |id: &str| id.strip_prefix("0x").is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok());
    assert!(arrows.iter().all(|(_, id)| is_number(id)), "Perfetto takes only numbers: {arrows:?}");
    assert_eq!(arrows[0], ("message".into(), "0x1000100000000".into()));
}

/// The lines of events of a rank, without those that name tracks.
fn lines(rank: u32, events: &[Event<'_>]) -> Vec<Value> {
    let (mut lines, mut told) = (Lines::default(), Vec::new());
    let mut put = |line: &[u8]| {
        told.push(serde_json::from_slice::<Value>(line)?);
        Ok(())
    };
    lines.event(&Event::Engine { rank, size: rank + 1 }, &mut put).unwrap();
    events.iter().for_each(|event| lines.event(event, &mut put).unwrap());
    told.retain(|line| line["ph"] != "M");
    told
}

#[test]
fn a_one_sided_call_is_a_slice_with_its_window_target_and_bytes() {
    let accessed = |name: &'static str, window, target, bytes| Event::Accessed {
        name: name.into(),
        access: Access { window, target, bytes },
        begin_ns: 1000,
        end_ns: 3500,
    };
    let calls = [accessed("put", 7, 1, 8), accessed("win_fence", 7, NIL, 0), accessed("region_get", NIL, 2, 16)];
    let told = lines(3, &calls);
    let expected = [
        ("put", json!({"window": 7, "target": 1, "bytes": 8})),
        ("win_fence", json!({"window": 7})),
        ("region_get", json!({"target": 2, "bytes": 16})),
    ];
    for (line, (name, args)) in told.iter().zip(expected) {
        let slice = json!({"ph": "X", "pid": 3, "tid": ACCESSES, "name": name, "ts": 1.0, "dur": 2.5, "args": args});
        assert_eq!(*line, slice);
    }
    assert_eq!(told.len(), 3);
}

#[test]
fn operations_that_overlap_are_asynchronous_slices_with_ids_of_their_own() {
    let access = Access { window: 7, target: 1, bytes: 64 };
    let started =
        |operation, name: &'static str, about, at_ns| Event::Started { operation, name: name.into(), about, at_ns };
    let ended = |operation, name: &'static str, at_ns| Event::Ended { operation, name: name.into(), at_ns };
    let told = lines(
        2,
        &[
            started(0, "allreduce", About::Comm(5), 1000),
            started(1, "rput", About::Memory(access), 2000),
            ended(0, "allreduce", 3000),
            ended(1, "rput", 4000),
        ],
    );
    let brief = |line: &Value| {
        assert_eq!((&line["pid"], &line["cat"]), (&json!(2), &json!("operation")));
        let of = |field: &str| line[field].as_str().unwrap().to_owned();
        (of("ph"), of("name"), of("id"), line["ts"].as_f64().unwrap())
    };
    let expected =
        [("b", "allreduce", 0, 1.0), ("b", "rput", 1, 2.0), ("e", "allreduce", 0, 3.0), ("e", "rput", 1, 4.0)];
    let expected =
        expected.map(|(ph, name, number, ts)| (ph.into(), name.into(), format!("{:#x}", 2u64 << 40 | number), ts));
    assert_eq!(told.iter().map(brief).collect::<Vec<_>>(), expected);
    let args = told.iter().map(|line| line["args"].clone()).collect::<Vec<_>>();
    let of_put = json!({"window": 7, "target": 1, "bytes": 64});
    assert_eq!(args, [json!({"context": 5}), of_put, Value::Null, Value::Null]);
    let other = lines(1, &[started(0, "allreduce", About::Comm(5), 1000)]);
    assert_ne!(other[0]["id"], told[0]["id"], "each rank has ids of its own");
}
