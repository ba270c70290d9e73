//! The ranks' last output, readers that do not read, and signals that come twice.

use super::*;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::os::fd::OwnedFd;

#[test]
fn two_signals_at_once_are_one_stop() {
    let script = r#"trap "sleep 0.1; echo rank $TICKWIRE_RANK cleans up; exit 0" TERM; echo $$ >&2; while :; do sleep 0.01; done"#;
    let (mut running, _) = Running::start(launcher(&["-n", "3"], script), 3);
    let kill = format!("kill -TERM {0}; kill -INT {0}; kill -TERM {0}", running.0.id());
    assert!(Command::new("/bin/sh").args(["-c", &kill]).status().unwrap().success());
    assert!([Some(143), Some(130)].contains(&running.wait().code()));
    let mut text = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(sorted_lines(&text), ["rank 0 cleans up", "rank 1 cleans up", "rank 2 cleans up"]);
}

#[test]
fn what_a_rank_leaves_to_another_process_to_pass_on_is_written() {
    let directory = Directory::new("launch-tee");
    // The shell ends before its helper has passed on what it has said.
    let script = r#"{ sleep 0.2; tee "$DIR/$TICKWIRE_RANK"; } <<< "rank $TICKWIRE_RANK is late" & echo early; exit 0"#;
    let mut command = Command::new(binary("tickwire"));
    command.args(["run", "-n", "2", "--", "bash", "-c", script]).env("DIR", &*directory);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(sorted_lines(&stdout(&output)), ["early", "early", "rank 0 is late", "rank 1 is late"]);
    let kept = ["0", "1"].map(|rank| std::fs::read_to_string(directory.join(rank)).unwrap());
    assert_eq!(kept, ["rank 0 is late\n", "rank 1 is late\n"]);
}

/// The screen of a terminal, and the terminal, which nobody reads.
pub(super) fn terminal() -> (OwnedFd, File) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&screen).and_then(|()| unlockpt(&screen)).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap();
    let terminal = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (screen, terminal.into())
}

/// While the ranks run, and when only their output is left.
#[test]
fn a_time_limit_holds_though_nobody_reads_the_output() {
    for script in ["exec yes", "head -c 500000 /dev/zero | tr '\\0' x"] {
        let (_screen, terminal) = terminal();
        let (_reader, pipe) = std::io::pipe().unwrap();
        for stdout in [Stdio::from(terminal), pipe.into()] {
            let mut command = launcher(&["-n", "1", "--timeout", "1"], script);
            let mut running = Running(command.stdout(stdout).stderr(Stdio::null()).spawn().unwrap());
            assert_eq!(running.wait().code(), Some(124), "{script}");
        }
    }
}

/// A rank has its trace file mapped, and its events would be lost in one that is shortened.
#[test]
fn a_launcher_that_a_rank_starts_leaves_the_trace_of_the_rank_alone() {
    let directory = Directory::new("launch-trace");
    let of_rank = directory.join("trace.json.0");
    std::fs::write(&of_rank, "events of rank 0").unwrap();
    let mut command = launcher(&["-n", "1"], "true");
    command.env("TICKWIRE_TRACE", &of_rank).env("TICKWIRE_RANK", "0");
    let launcher = command.spawn().unwrap();
    let own = directory.join(format!("trace.json.0-{}", launcher.id()));
    assert!(Running(launcher).wait().success());
    assert_eq!(std::fs::read_to_string(&of_rank).unwrap(), "events of rank 0");
    assert!(own.exists());
    // And a file of the same name that somebody still writes to stays as long as it was.
    let held = File::open(&of_rank).unwrap();
    assert!(launcher_with_trace(&of_rank).wait().success());
    assert_eq!(held.metadata().unwrap().len(), 16);
    assert_ne!(std::fs::read_to_string(&of_rank).unwrap(), "events of rank 0");
}

/// The names of a rotated log are those of the files of ranks.
#[test]
fn a_trace_never_takes_the_place_of_files_that_are_none() {
    let directory = Directory::new("launch-rotated");
    let path = |name: &str| directory.join(name);
    for name in ["app.log", "app.log.1", "app.log.2"] {
        std::fs::write(path(name), name).unwrap();
    }
    let run = |ranks: &str| run(&["-n", ranks, "--trace", path("app.log").to_str().unwrap()], "true");
    let output = run("2");
    let words = format!("{} is there and is no trace", path("app.log.1").display());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(&words) && stderr(&output).lines().count() == 1, "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(path("app.log")).unwrap(), "app.log", "nothing was touched");
    // The only rank of a job has a name that nobody uses.
    assert_eq!(run("1").status.code(), Some(0));
    for name in ["app.log.1", "app.log.2"] {
        assert_eq!(std::fs::read_to_string(path(name)).unwrap(), name);
    }
}

fn launcher_with_trace(path: &std::path::Path) -> Running {
    let mut command = launcher(&["-n", "1"], "true");
    command.env("TICKWIRE_TRACE", path).env_remove("TICKWIRE_RANK");
    Running(command.spawn().unwrap())
}
