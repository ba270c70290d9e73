//! Matching against the reference model between two processes over shared memory. See [`tickwire_tests::model`].

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use std::time::{SystemTime, UNIX_EPOCH};
use tickwire::launch::Job;
use tickwire_tests::model::program::WAYS;

/// The least number of calls that the two ranks make together.
const CALLS: usize = 6000;

fn run(threads: usize) {
    let seed = match std::env::var("TICKWIRE_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
    };
    for (way, name) in WAYS.iter().enumerate() {
        let args = [way.to_string(), CALLS.to_string(), seed.to_string(), threads.to_string()];
        let job = Job::new(2).program(env!("CARGO_BIN_EXE_tests-matching")).args(&args).tag_output(true);
        let outcome = job.run().unwrap();
        assert_eq!(outcome.code(), 0, "TICKWIRE_TEST_SEED={seed}, {name:?}: {outcome:?}");
    }
}

#[test]
fn two_processes() {
    run(1);
}

#[test]
fn two_processes_of_two_threads() {
    run(2);
}
