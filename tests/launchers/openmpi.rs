//! mpirun of Open MPI. It is prterun with its own options, and speaks PMIx.

use super::kit::{self, Launcher, RANK, run, tool, words};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tickwire_tests::needs::is_there;
use tickwire_tests::scratch::Directory;

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

/// A library with all functions of PMIx. The function that `HANGS` names does not return.
const HANGING: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { char nspace[256]; uint32_t rank; } proc;
typedef struct { uint16_t type; union { uint32_t number; char *text; uint64_t widest[3]; } data; } value;
static void hang(const char *at) { const char *of = getenv("HANGS"); while (of && !strcmp(of, at)) pause(); }
int PMIx_Init(proc *me, void *infos, size_t n) { hang("init"); strcpy(me->nspace, "hanging"); me->rank = 0; return 0; }
int PMIx_Finalize(const void *infos, size_t n) { hang("finalize"); return 0; }
int PMIx_Put(uint8_t scope, const char *key, value *v) { return 0; }
int PMIx_Commit(void) { return 0; }
int PMIx_Fence_nb(const proc *p, size_t n, const void *i, size_t m, void (*done)(int, void *), void *of) { return -157; }
int PMIx_Get_nb(const proc *p, const char *key, const void *i, size_t n, void (*got)(int, value *, void *), void *of) {
    value size = { 14, { 1 } }, map = { 3 };
    map.data.text = "(vector,(0,1,1))";
    if (!strcmp(key, "pmix.job.size")) got(0, &size, of);
    else if (!strcmp(key, "pmix.anlmap")) got(0, &map, of);
    else return -46;
    return 0;
}
int PMIx_Abort(int code, const char *words, proc *p, size_t n) { return 0; }
const char *PMIx_Error_string(int code) { return "an error"; }
const char *PMIx_Get_version(void) { return "hanging"; }
"#;

#[test]
fn a_library_that_does_not_come_back_is_given_up() {
    let place = Directory::new("hanging-library");
    let (source, library) = (place.join("hanging.c"), place.join("hanging.so"));
    std::fs::write(&source, HANGING).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).stderr(Stdio::null()).status();
    if !is_there(built.map_err(|error| format!("no C compiler ({error}): apt-get install gcc")).map(drop)) {
        return;
    }
    let start = |hangs: &str| {
        let mut command = Command::new(RANK);
        command
            .arg("start")
            .env("TICKWIRE_BOOTSTRAP", "pmix")
            .env("PMIX_NAMESPACE", "hanging")
            .env("TICKWIRE_PMIX_LIBRARY", &library);
        let begin = Instant::now();
        let output = run(command.env("TICKWIRE_FENCE_MS", "300").env("HANGS", hangs));
        assert!(begin.elapsed() < Duration::from_secs(20), "{}", words(&output));
        output
    };
    let output = start("init");
    let said = words(&output);
    assert!(output.status.code() == Some(9) && said.contains("PMIx_Init") && said.contains("300 ms"), "{said}");
    // A finalize that hangs does no harm: everything is done by then, and the launcher sees the exit.
    for hangs in ["finalize", "nothing"] {
        let output = start(hangs);
        assert!(output.status.success(), "{}", words(&output));
    }
}
