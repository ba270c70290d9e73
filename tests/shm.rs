//! Processes over shared memory: jobs of real ranks, one of which may be killed.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

use std::path::PathBuf;
use tickwire::launch::{Job, JobOutcome, OnFailure, RankStatus};

/// An empty directory of a test's own.
fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tickwire-shm-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).unwrap();
    path
}

/// Runs a job of `rank` programs and looks at what it leaves behind.
fn run(ranks: u32, test: &str, args: &[&str]) -> JobOutcome {
    let place = scratch(&format!("{test}-{ranks}-{}", args.join("-")));
    let job = Job::new(ranks).program(env!("CARGO_BIN_EXE_tests-rank")).args([test]).args([place.as_os_str()]);
    let outcome = job.args(args).on_failure(OnFailure::Continue).tag_output(true).run().unwrap();
    let name = std::fs::read_to_string(place.join("job")).unwrap();
    let left: Vec<_> = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|entry| entry.to_string_lossy().contains(&name)), "left in /dev/shm: {left:?}");
    let _ = std::fs::remove_dir_all(place);
    outcome
}

#[test]
fn messages_from_nothing_to_64_mib() {
    assert_eq!(run(2, "lengths", &[]).code(), 0);
}

#[test]
fn all_to_all() {
    for (ranks, messages) in [(2, "60"), (3, "40"), (8, "10"), (16, "4")] {
        let outcome = run(ranks, "storm", &[&ranks.to_string(), messages]);
        assert_eq!(outcome.code(), 0, "{ranks} ranks: {outcome:?}");
    }
}

#[test]
fn a_killed_rank_is_noticed_and_the_others_go_on() {
    for ranks in [2, 4] {
        let outcome = run(ranks, "death", &[]);
        assert_eq!(outcome.first_failure, Some((ranks - 1, RankStatus::Killed(9))), "{outcome:?}");
        let others = &outcome.statuses[..ranks as usize - 1];
        assert!(others.iter().all(|status| status.is_success()), "{outcome:?}");
    }
}
