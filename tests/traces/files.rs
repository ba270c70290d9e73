//! Trace files of jobs and of single programs, also if they were killed.

use crate::format::{arrows, lines, number, of, processes};
use crate::jobs::{tickwire, traced};
use crate::pictures::picture;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};
use tickwire::internals::traces::{Depths, Event, Message, Sink, TraceFile};
use tickwire::{Bootstrap, Engine, Rank, Tag};
use tickwire_tests::binaries::binary;
use tickwire_tests::scratch;

#[test]
fn a_job_becomes_one_file_with_an_arrow_for_each_message() {
    let path = scratch::path("traces-job");
    let (output, lines) = traced(&path, "3", &["storm", "1", "5"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(processes(&lines), BTreeSet::from([0, 1, 2]));
    let (starts, ends) = (arrows(&lines, "s"), arrows(&lines, "f"));
    // Each pair exchanges 5 messages in each direction, and each rank sends 5 to itself.
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
    assert!((0..3).all(|rank| !tickwire::internals::traces::part(&path, rank).exists()), "the parts are gone");
}

#[test]
fn a_rank_that_is_killed_leaves_a_file_that_is_whole() {
    let (output, lines) = traced(&scratch::path("traces-killed"), "2", &["death"]);
    assert_eq!(output.status.code(), Some(128 + 9), "{output:?}");
    assert_eq!(processes(&lines), BTreeSet::from([0, 1]));
    let failed = of(&lines, "i").find(|line| line["name"] == "rank 1 failed").unwrap();
    assert!(number(&failed["pid"]) == 0 && failed["args"]["words"].is_string(), "{failed}");
    let (starts, ends) = (arrows(&lines, "s"), arrows(&lines, "f"));
    assert!(ends.keys().all(|id| starts.contains_key(id)), "what it had told is there, up to its last message");
}

#[test]
fn the_file_is_an_array_once_its_engine_is_finalized() {
    let path = scratch::path("traces-finalized");
    let mut engine = Engine::builder().trace(TraceFile::create(&path).unwrap()).build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    for _ in 0..10 {
        engine.send(&[1u8; 8], Rank(0), Tag(1), world).unwrap();
        engine.recv(&mut [0u8; 8], Rank(0), Tag(1), world).unwrap();
    }
    assert!(std::fs::read(&path).unwrap().starts_with(b"tickwtrc"));
    engine.finalize(Duration::from_secs(10)).unwrap();
    let lines = lines(&path);
    assert_eq!(arrows(&lines, "f").len(), 10);
    drop(engine);
    assert!(!path.exists(), "it is not written again");
}

/// All ranks would write to one file, and lose each other's events.
#[test]
fn a_variable_of_the_programs_that_names_a_trace_is_one_for_the_job() {
    let path = scratch::path("traces-by-variable");
    let variable = format!("TICKWIRE_TRACE={}", path.display());
    let place = scratch::Directory::new("place-by-variable");
    let program = [env!("CARGO_BIN_EXE_tests-rank"), "storm", place.to_str().unwrap(), "1", "5"];
    let output = tickwire(&[&["run", "-n", "3", "--env", &variable, "--"][..], &program].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(processes(&lines(&path)), BTreeSet::from([0, 1, 2]));
    assert!((0..3).all(|rank| !tickwire::internals::traces::part(&path, rank).exists()));
}

/// A job that is to be killed. It is also ended if its test fails.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_that_is_killed_leaves_what_becomes_an_array() {
    let path = scratch::path("traces-alone-killed");
    let mut command = Command::new(binary("tickwire"));
    command.args(["perf", "self", "1000000000", "--by-tick", "--plain"]).env(tickwire::ENV_TRACE, &path);
    let child = Killed(command.stdout(std::process::Stdio::null()).spawn().unwrap());
    // The file has more than its beginning, so all parts of it are in use.
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
    let (path, png) = (scratch::path("traces-joined"), scratch::path("traces-joined-png"));
    let parts = [0, 1].map(|rank| tickwire::internals::traces::part(&path, rank));
    for (rank, part) in (0..).zip(&parts) {
        let mut trace = TraceFile::create_part(part).unwrap();
        trace.record(&Event::Engine { rank, size: 2 });
        let (begin_ns, end_ns) = (1000 + u64::from(rank), 2000);
        let message = Message { proc: 1 - rank, context: 1, tag: 2, bytes: 3, number: 0, begin_ns, end_ns };
        trace.record(&if rank == 0 { Event::Sent(message) } else { Event::Received(message) });
        trace.record(&Event::Called { name: "allreduce".into(), context: 7, begin_ns, end_ns: 9000 });
    }
    let [first, second, path_name, png_name] = [&parts[0], &parts[1], &path, &png].map(|path| path.to_str().unwrap());
    let make = || tickwire(&["trace", first, second, "--json", path_name, "--png", png_name]);
    let said = String::from_utf8(make().stdout).unwrap();
    assert!(said.contains(" of 2 ranks, ") && said.contains(", 1 message\n"), "{said}");
    assert!(said.ends_with(" events of 2 files\n"), "{said}");
    assert!(!picture(&png).is_empty());
    let joined = lines(&path);
    assert!(processes(&joined) == BTreeSet::from([0, 1]) && arrows(&joined, "f").len() == 1);
    let calls: Vec<_> = joined.iter().filter(|line| line["name"] == "allreduce").collect();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(
        (&calls[0]["ts"], &calls[0]["dur"], &calls[0]["args"]["context"]),
        (&json!(1.0), &json!(8.0), &json!(7))
    );
    let named = |line: &&Value| line["name"] == "thread_name" && line["args"]["name"] == "collectives";
    assert!(joined.iter().filter(named).all(|line| line["tid"] == calls[0]["tid"]));

    // A file that is cut off is reported. A file that is no trace is an error.
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
    let path = scratch::path("traces-alone");
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
