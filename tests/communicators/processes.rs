//! Communicators of real processes, and error handlers that end them.

use std::process::Command;
use tickwire::launch::{Job, OnFailure, RankStatus};

#[test]
fn an_error_on_a_communicator_whose_handler_is_abort_ends_the_process() {
    let line = |what: &str, on: &str, why: &str| format!("tickwire: rank 0: {what} on communicator {on}: {why}");
    let cases = [
        ("send", line("send", "0 (world)", "rank 7 is out of range")),
        ("receive", line("receive", "0 (world)", "rank 7 is out of range")),
        ("blocking", line("send", "0 (world)", "rank 7 is out of range")),
        ("test", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("take", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("wait", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("wait_all", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("wait_any", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("wait_some", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("test_all", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("nobody", line("send", "0 (world)", "tag ANY is above the bound")),
        ("inherited", line("send", "3", "tag ANY is above the bound")),
        ("free", line("comm_free", "0 (world)", "the communicators of the world")),
        ("stale", line("send", "2", "communicator 2 has been freed")),
        ("freed", line("receive", "3", "message truncated: 5 bytes")),
        ("graph", line("graph", "0 (world)", "message truncated: 5 bytes")),
    ];
    for (what, start) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_tests-communicators")).arg(what).output().unwrap();
        let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!((output.status.code(), &*out), (Some(1), ""), "{what}: {error}");
        assert!(error.starts_with(&start) && error.lines().count() == 1, "{what}: {error}");
    }
}

#[test]
fn a_rank_that_aborts_ends_its_job() {
    let job = Job::new(3).program(env!("CARGO_BIN_EXE_tests-communicators")).args(["together"]);
    let outcome = job.on_failure(OnFailure::End).run().unwrap();
    assert_eq!(outcome.code(), 1, "{outcome:?}");
    assert_eq!(outcome.first_failure.map(|(rank, _)| rank), Some(1), "{outcome:?}");
}

#[test]
fn a_blocking_call_ends_when_a_member_is_killed() {
    let job = Job::new(4).program(env!("CARGO_BIN_EXE_tests-communicators")).args(["killed"]);
    let outcome = job.on_failure(OnFailure::Continue).tag_output(true).run().unwrap();
    assert_eq!(outcome.first_failure, Some((3, RankStatus::Killed(9))), "{outcome:?}");
    assert!(outcome.statuses[..3].iter().all(|status| status.is_success()), "{outcome:?}");
}

#[test]
fn four_processes_over_shared_memory() {
    let job = Job::new(4).program(env!("CARGO_BIN_EXE_tests-communicators")).args(["four"]);
    let outcome = job.on_failure(OnFailure::End).tag_output(true).run().unwrap();
    assert_eq!(outcome.code(), 0, "{outcome:?}");
}
