//! mpirun of Open MPI, which is prterun with its own options: it speaks PMIx.

use crate::kit::{self, Launcher, RANK, run, tool, words};
use std::path::PathBuf;
use std::process::Command;

pub(crate) struct OpenMpi(PathBuf);

impl Launcher for OpenMpi {
    fn command(&self, ranks: u32) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "-n", &ranks.to_string()]);
        command
    }

    fn words(&self) -> &'static str {
        "PMIx ("
    }
}

fn openmpi() -> Option<OpenMpi> {
    tool("openmpi", "mpirun").map(OpenMpi)
}

#[test]
fn its_ranks_know_their_places() {
    openmpi().iter().for_each(|openmpi| kit::knows_its_place(openmpi));
}

#[test]
fn its_ranks_draw_the_same_picture_in_two_jobs_at_once() {
    openmpi().iter().for_each(|openmpi| kit::draws_the_same_picture(openmpi));
}

#[test]
fn a_rank_that_fails_or_aborts_ends_the_job_with_its_status() {
    openmpi().iter().for_each(|openmpi| kit::ends_with_its_ranks(openmpi));
}

#[test]
fn ctrl_c_ends_its_ranks() {
    openmpi().iter().for_each(|openmpi| kit::ends_on_ctrl_c(openmpi));
}

#[test]
fn jobs_inside_jobs_are_jobs_of_their_own() {
    let Some(openmpi) = openmpi() else { return };
    kit::has_jobs_inside(&openmpi);
    kit::runs_inside(&openmpi);
}

#[test]
fn prterun_alone_finds_its_own_library() {
    let Some(prterun) = tool("openmpi", "prterun") else { return };
    let lines = kit::reports(&run(OpenMpi(prterun).command(2).args([RANK, "ring"])));
    assert!(lines.len() == 2 && lines.iter().all(|line| line.contains("openmpi/lib")), "{lines:?}");
}

#[test]
fn a_library_that_is_missing_or_no_pmix_is_said_in_one_line() {
    let Some(openmpi) = openmpi() else { return };
    for (library, expected) in [
        ("libc.so.6", "tests-launched: PMIx: libc.so.6 has no PMIx_Init: it is not PMIx"),
        ("libpmix-of-nobody.so.2", "tests-launched: PMIx: libpmix.so.2 cannot be loaded (libpmix-of-nobody.so.2:"),
    ] {
        let variable = format!("TICKWIRE_PMIX_LIBRARY={library}");
        let output = run(openmpi.command(2).args(["-x", &variable, RANK, "ring"]));
        let said = words(&output);
        assert!(!output.status.success() && said.contains(expected) && said.contains("apt-get install"), "{said}");
    }
}
