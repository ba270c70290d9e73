//! The short form of the fault campaign: every case of `tests/soak` at least once. Seeds come from the clock. A failure
//! prints its seed.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

use std::process::{Command, Stdio};

/// For how long new jobs are begun, seconds.
const SECONDS: &str = "30";

#[test]
fn all_cases_of_the_fault_campaign_are_as_they_must_be() {
    let mut soak = Command::new(env!("CARGO_BIN_EXE_tests-soak"));
    let output = soak.args(["--seconds", SECONDS]).stdin(Stdio::null()).output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    println!("{words}");
    assert!(output.status.success(), "{words}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(words.ends_with("all as it must be\n") && !words.contains("not run"), "{words}");
}

#[test]
fn a_wrong_use_of_the_campaign_is_one_that_it_explains() {
    let soak = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_tests-soak")).args(args).output().unwrap();
    let help = soak(&["--help"]);
    let words = String::from_utf8_lossy(&help.stdout);
    assert!(help.status.success() && words.contains("--seconds") && words.contains("no-membarrier"), "{words}");
    for wrong in [&["--case", "nonsense"][..], &["--seconds", "-1"], &["--at-once", "0"]] {
        let refused = soak(wrong);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}: {}", String::from_utf8_lossy(&refused.stderr));
    }
}
