//! Our own launcher, in the tests that it shares with other launchers. All its other tests are those of
//! `tickwire run`.

use super::kit::{self, Launcher, RANK, run, words};
use std::process::Command;
use tickwire_tests::binaries::binary;

struct Own;

impl Launcher for Own {
    fn command(&self, ranks: u32) -> Command {
        let mut command = Command::new(binary("tickwire"));
        command.args(["run", "-n", &ranks.to_string(), "--"]);
        command
    }

    fn words(&self) -> &'static str {
        "tickwire run: "
    }
}

#[test]
fn a_rank_that_fails_or_aborts_ends_the_job_with_its_status() {
    kit::ends_with_its_ranks(&Own);
}

#[test]
fn an_abort_ends_ranks_that_would_go_on_after_a_failure() {
    let mut command = Command::new(binary("tickwire"));
    let output = run(command.args(["run", "-n", "3", "--on-failure=continue", "--", RANK, "abort"]));
    assert_eq!(output.status.code(), Some(7), "{}", words(&output));
    assert!(words(&output).contains("tickwire run: rank 1 ends the job with exit status 7"), "{}", words(&output));
}

#[test]
fn its_ranks_know_that_they_share_memory() {
    let lines = kit::reports(&run(Own.command(3).args([RANK, "ring"])));
    let expected =
        |rank: usize| format!("rank {rank} of 3, host 0 of 1, {rank} of 3 shared, by shm shm; tickwire run: ");
    assert_eq!(lines.len(), 3);
    assert!((0..3).all(|rank| lines[rank].starts_with(&expected(rank))), "{lines:?}");
}
