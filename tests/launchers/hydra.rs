//! mpiexec of MPICH.

use super::kit::{self, Launcher, RANK, run, tool, words};
use std::path::PathBuf;
use std::process::Command;

pub(crate) struct Hydra(pub(crate) PathBuf);

impl Launcher for Hydra {
    fn command(&self, ranks: u32) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["-n", &ranks.to_string()]);
        command
    }

    fn words(&self) -> &'static str {
        "PMI-1 over PMI_FD: "
    }
}

pub(crate) fn hydra() -> Option<Hydra> {
    tool("mpich", "mpiexec").map(Hydra)
}

#[test]
fn its_ranks_know_their_places() {
    hydra().iter().for_each(|hydra| kit::knows_its_place(hydra));
}

#[test]
fn its_ranks_draw_the_same_picture_in_two_jobs_at_once() {
    hydra().iter().for_each(|hydra| kit::draws_the_same_picture(hydra));
}

#[test]
fn a_rank_that_fails_or_aborts_ends_the_job_with_its_status() {
    hydra().iter().for_each(|hydra| kit::ends_with_its_ranks(hydra));
}

#[test]
fn ctrl_c_ends_its_ranks() {
    hydra().iter().for_each(|hydra| kit::ends_on_ctrl_c(hydra));
}

#[test]
fn jobs_inside_jobs_are_jobs_of_their_own() {
    let Some(hydra) = hydra() else { return };
    kit::has_jobs_inside(&hydra);
    kit::runs_inside(&hydra);
}

#[test]
fn a_way_that_is_forced_and_not_there_is_said_in_one_line() {
    let Some(hydra) = hydra() else { return };
    let output = run(hydra.command(2).args(["-env", "TICKWIRE_BOOTSTRAP", "pmix", RANK, "ring"]));
    let said = words(&output);
    assert!(said.contains("tests-launched: TICKWIRE_BOOTSTRAP is set but PMIX_NAMESPACE is not"), "{said}");
    let lines = kit::reports(&run(hydra.command(2).args(["-env", "TICKWIRE_BOOTSTRAP", "alone", RANK, "ring"])));
    assert!(lines.len() == 2 && lines.iter().all(|line| line.starts_with("rank 0 of 1,")), "{lines:?}");
}
