//! `tickwire run` as its users see it: the real binary. The ranks are shell scripts, or processes that only bootstrap
//! an engine.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

mod ranks;
mod signals;
mod streams;
mod top;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tickwire::bootstrap::{Bootstrap, BootstrapEvent};
use tickwire_tests::binaries::binary;
use tickwire_tests::scratch::Directory;

/// Longer than all time limits of the launcher together (2 s until SIGKILL, 2 s for the last output) on a loaded
/// machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn launcher(args: &[&str], script: &str) -> Command {
    let mut command = Command::new(binary("tickwire"));
    command.arg("run").args(args).args(["--", "/bin/sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str], script: &str) -> Output {
    launcher(args, script).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A launcher that is killed when the test gives up.
struct Running(Child);

impl Running {
    /// Starts the launcher. Returns it with the process ids of its `n` ranks, which each rank writes as its first
    /// line.
    fn start(mut command: Command, n: usize) -> (Self, Vec<u32>) {
        let mut running = Self(command.spawn().unwrap());
        let mut lines = BufReader::new(running.0.stderr.take().unwrap()).lines();
        let pids = (0..n).map(|_| lines.next().unwrap().unwrap().parse().unwrap()).collect();
        // The rest of the output must be read. Otherwise a full pipe could stop the launcher.
        std::thread::spawn(move || lines.for_each(drop));
        (running, pids)
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.0.id());
        assert!(Command::new("/bin/sh").args(["-c", &kill]).status().unwrap().success());
    }

    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the launcher has not ended", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process has ended. A zombie counts as ended: its new parent has to reap it.
fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X']))
}

fn all_gone(pids: &[u32]) {
    until("a rank is still there", || pids.iter().all(|&pid| is_gone(pid)));
}

#[test]
fn every_rank_runs_once_and_success_is_zero() {
    let output = run(&["-n", "5"], "echo $TICKWIRE_RANK of $TICKWIRE_SIZE");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(sorted_lines(&stdout(&output)), ["0 of 5", "1 of 5", "2 of 5", "3 of 5", "4 of 5"]);
    assert_eq!(stderr(&output), "");
}

#[test]
fn the_status_of_the_first_failing_rank_is_returned_and_the_others_are_ended() {
    let output = run(&["-n", "4"], "test $TICKWIRE_RANK = 2 && exit 5; exec sleep 1000");
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(stderr(&output), "tickwire run: rank 2 ended with exit status 5; ending the other ranks\n");
}

#[test]
fn a_killed_rank_is_reported_with_its_signal() {
    let output = run(&["-n", "3"], "test $TICKWIRE_RANK = 2 && kill -9 $$; exec sleep 1000");
    assert_eq!(output.status.code(), Some(137));
    let expected = "tickwire run: rank 2 was killed by signal 9 (SIGKILL); ending the other ranks\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn ranks_that_ignore_sigterm_are_killed() {
    let directory = Directory::new("launch-ignore");
    // Rank 0 fails once the other ranks ignore the signal.
    let script = r#"
        if test $TICKWIRE_RANK = 0; then
            while ! { test -e "$DIR/1" && test -e "$DIR/2"; }; do sleep 0.01; done
            exit 4
        fi
        trap "" TERM
        echo $$ > "$DIR/$TICKWIRE_RANK.pid"; mv "$DIR/$TICKWIRE_RANK.pid" "$DIR/$TICKWIRE_RANK"
        exec sleep 1000"#;
    let output = launcher(&["-n", "3"], script).env("DIR", &*directory).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let pid = |rank: &str| std::fs::read_to_string(directory.join(rank)).unwrap().trim().parse().unwrap();
    all_gone(&[pid("1"), pid("2")]);
}

#[test]
fn with_on_failure_continue_the_others_go_on() {
    let directory = Directory::new("launch-continue");
    // The other ranks wait until the launcher has reaped rank 1. Then it knows of the failure.
    let script = r#"
        if test $TICKWIRE_RANK = 1; then
            echo $$ > "$DIR/new"; mv "$DIR/new" "$DIR/pid"
            exit 3
        fi
        while ! test -e "$DIR/pid"; do sleep 0.01; done
        while kill -0 $(cat "$DIR/pid") 2>/dev/null; do sleep 0.01; done
        echo rank $TICKWIRE_RANK went on"#;
    let args = ["-n", "4", "--on-failure=continue"];
    let output = launcher(&args, script).env("DIR", &*directory).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(sorted_lines(&stdout(&output)), ["rank 0 went on", "rank 2 went on", "rank 3 went on"]);
    assert_eq!(stderr(&output), "tickwire run: rank 1 ended with exit status 3; the other ranks go on\n");
}

#[test]
fn lines_stay_whole_and_in_the_order_of_their_rank() {
    let script = r#"i=0; while test $i -lt 300; do
        printf "rank $TICKWIRE_RANK "; printf "line $i "; printf "end\n"; i=$((i+1)); done"#;
    let output = run(&["-n", "6"], script);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    for rank in 0..6 {
        let start = format!("rank {rank} ");
        let own: Vec<_> = text.lines().filter(|line| line.starts_with(&start)).collect();
        let expected: Vec<_> = (0..300).map(|i| format!("rank {rank} line {i} end")).collect();
        assert_eq!(own, expected);
    }
    assert_eq!(text.lines().count(), 6 * 300);
}

#[test]
fn tagged_lines_name_their_rank_and_a_last_line_without_end_is_kept() {
    let output = run(&["-n", "2", "--tag-output"], r#"echo out; echo err >&2; printf "no end""#);
    assert_eq!(sorted_lines(&stdout(&output)), ["[0] no end", "[0] out", "[1] no end", "[1] out"]);
    assert_eq!(sorted_lines(&stderr(&output)), ["[0] err", "[1] err"]);
}

#[test]
fn rank_0_reads_the_launchers_input_and_the_others_none() {
    let mut command = launcher(&["-n", "3", "--tag-output"], "cat; echo end");
    let mut running = Running(command.stdin(Stdio::piped()).spawn().unwrap());
    running.0.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let mut text = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(sorted_lines(&text), ["[0] end", "[0] typed", "[1] end", "[2] end"]);
}

#[test]
fn ctrl_c_ends_every_rank_even_a_deaf_one() {
    let script = r#"test $TICKWIRE_RANK = 1 && trap "" TERM; echo $$ >&2; exec sleep 1000"#;
    let (mut running, pids) = Running::start(launcher(&["-n", "3"], script), 3);
    running.signal("INT");
    assert_eq!(running.wait().code(), Some(130));
    assert!(pids.iter().all(|&pid| is_gone(pid)));
}

#[test]
fn sigterm_on_the_launcher_reaches_the_ranks() {
    let script = r#"trap "echo rank $TICKWIRE_RANK cleans up; exit 0" TERM; echo $$ >&2; while :; do sleep 0.01; done"#;
    let (mut running, pids) = Running::start(launcher(&["-n", "3"], script), 3);
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(143));
    assert!(pids.iter().all(|&pid| is_gone(pid)));
    let mut text = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(sorted_lines(&text), ["rank 0 cleans up", "rank 1 cleans up", "rank 2 cleans up"]);
}

#[test]
fn ctrl_c_works_while_nobody_reads_the_output() {
    let (mut running, pids) = Running::start(launcher(&["-n", "2"], "echo $$ >&2; exec yes"), 2);
    running.signal("INT");
    assert_eq!(running.wait().code(), Some(130));
    assert!(pids.iter().all(|&pid| is_gone(pid)));
}

/// A rank ends and leaves a process that writes for ever. The launcher writes what a pipe can hold, and ends.
#[test]
fn a_job_ends_though_a_rank_has_left_a_process_that_writes() {
    let directory = Directory::new("launch-left");
    let path = directory.join("output");
    for tag in [&["-n", "1", "--tag-output"][..], &["-n", "1"]] {
        let mut command = launcher(tag, "yes 2>/dev/null & exit 0");
        command.stdout(std::fs::File::create(&path).unwrap()).stderr(Stdio::null());
        assert!(Running(command.spawn().unwrap()).wait().success());
    }
    let mut command = launcher(&["-n", "1"], "yes 2>/dev/null & echo $$ >&2; exit 0");
    command.stdout(Stdio::piped());
    let (mut running, _) = Running::start(command, 1);
    // Somebody reads all the time, so there is always room for more.
    std::io::copy(&mut running.0.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    assert!(running.wait().success());
}

#[test]
fn ranks_do_not_outlive_a_launcher_that_is_killed() {
    let script = r#"trap "" TERM INT HUP; echo $$ >&2; exec sleep 1000"#;
    let (mut running, pids) = Running::start(launcher(&["-n", "4"], script), 4);
    running.signal("KILL");
    assert_eq!(running.wait().code(), None);
    all_gone(&pids);
}

#[test]
fn wrong_use_is_one_clear_line_and_status_2() {
    let wrong: [(&[&str], &str); 5] = [
        (&["-n", "0", "true"], "0 ranks are no job: give 1 to 4096"),
        (&["-n", "4097", "true"], "4097 ranks are too many for one host: give 1 to 4096"),
        (&["-n", "2", "no-such-program"], "`no-such-program` was not found in PATH"),
        (&["-n", "2", "./no/such/program"], "`./no/such/program` was not found: check the path"),
        (&["-n", "2", "/etc/passwd"], "`/etc/passwd` is not an executable file"),
    ];
    for (args, expected) in wrong {
        let output = Command::new(binary("tickwire")).arg("run").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = stderr(&output);
        assert!(text.starts_with("tickwire run: ") && text.contains(expected), "{text}");
        assert_eq!((text.lines().count(), output.stdout.len()), (1, 0));
    }
    for args in [&["-n", "many", "true"][..], &["-n", "2"], &["-n", "2", "--on-failure=perhaps", "true"]] {
        let output = Command::new(binary("tickwire")).arg("run").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

/// Runs the launcher with exactly these arguments.
fn run_words(words: &[&str]) -> Output {
    Command::new(binary("tickwire")).arg("run").args(words).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn several_programs_have_ranks_variables_and_directories_of_their_own() {
    let say = "echo $TICKWIRE_RANK of $TICKWIRE_SIZE: $TICKWIRE_APPNUM $LEVEL $(pwd) $0 $1";
    let first = ["-n", "1", "--env", "LEVEL=a=b", "--wdir", "/", "--", "sh", "-c", say, "one", "-n"];
    let second = [":", "-n", "2", "sh", "-c", say, "two", "--wdir"];
    let third = [":", "--ranks", "1", "--env", "LEVEL=c", "--wdir=/bin", "./sh", "-c", say, "three"];
    let output = run_words(&[&first[..], &second, &third].concat());
    assert_eq!(stderr(&output), "");
    let here = std::env::current_dir().unwrap().display().to_string();
    let expected = [
        "0 of 4: 0 a=b / one -n".to_owned(),
        format!("1 of 4: 1 {here} two --wdir"),
        format!("2 of 4: 1 {here} two --wdir"),
        "3 of 4: 2 c /bin three".to_owned(),
    ];
    assert_eq!(sorted_lines(&stdout(&output)), expected);
}

#[test]
fn wrong_programs_variables_directories_and_times_are_one_clear_line_and_status_2() {
    let wrong: [(&[&str], &str); 11] = [
        (&["-n", "1", "--env", "LEVEL", "true"], "NAME=VALUE"),
        (&["-n", "1", "--env", "=1", "true"], "NAME=VALUE"),
        (&["-n", "1", "--wdir", "/no/such", "true"], "directory /no/such: No such file or directory"),
        (&["-n", "1", "--wdir", "/etc/passwd", "true"], "directory /etc/passwd: not a directory"),
        (&["-n", "1", "--timeout", "0", "true"], "give a number of seconds above 0, such as 90 or 0.5"),
        (&["-n", "1", "--timeout", "soon", "true"], "give a number of seconds above 0"),
        (&["-n", "1", "true", ":"], "required arguments were not provided"),
        (&["-n", "1", "true", ":", "true"], "required arguments were not provided: --ranks <N>"),
        (&["-n", "1", "true", ":", "-n", "1", "no-such-program"], "`no-such-program` was not found in PATH"),
        (&["-n", "1", "true", ":", "-n", "1", "--pin", "true"], "program `--pin` was not found in PATH"),
        (&["-n", "4096", "true", ":", "-n", "1", "true"], "4097 ranks are too many for one host"),
    ];
    for (words, expected) in wrong {
        let output = run_words(words);
        let text = stderr(&output);
        assert!(text.starts_with("tickwire run: ") && text.contains(expected), "{words:?}: {text}");
        assert_eq!((output.status.code(), text.lines().count(), output.stdout.len()), (Some(2), 1, 0), "{text}");
    }
}

#[test]
fn a_job_that_takes_too_long_is_ended_and_leaves_nobody() {
    let started = Instant::now();
    let (mut running, pids) =
        Running::start(launcher(&["-n", "3", "--timeout", "2"], "echo $$ >&2; exec sleep 1000"), 3);
    assert_eq!(running.wait().code(), Some(124));
    assert!(started.elapsed() >= Duration::from_secs(2));
    all_gone(&pids);
    // The job has one rank only: on a busy machine, a second rank might not have been started yet.
    let output = run(&["-n", "1", "--timeout", "0.05"], "exec sleep 1000");
    assert_eq!(stderr(&output), "tickwire run: 1 rank has not ended after 50ms; ending it\n");
    // A job that ends in time has its own status.
    assert_eq!(run(&["-n", "2", "--timeout", "1000"], "exit 3").status.code(), Some(3));
}

#[test]
fn two_jobs_of_a_user_are_not_bound_to_the_same_processor() {
    let bound = "taskset=$(grep Cpus_allowed_list /proc/self/status); echo ${taskset##*:}";
    let processors = std::thread::available_parallelism().unwrap().get();
    if processors < 2 {
        return;
    }
    // The rank of the first job prints its processor and stays until its input ends.
    let mut first = launcher(&["-n", "1", "--pin"], &format!("{bound}; read end"));
    let mut first = Running(first.stdin(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(first.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let other = run(&["-n", "1", "--pin"], bound);
    let (first_number, other): (usize, usize) = (line.trim().parse().unwrap(), stdout(&other).trim().parse().unwrap());
    assert_ne!(first_number, other);
    drop(first.0.stdin.take());
    first.wait();
    // The first ranks get one processor each. Further ranks share these processors.
    let mut all: Vec<usize> = Vec::new();
    let output = run(&["-n", &(2 * processors).to_string(), "--pin"], bound);
    all.extend(stdout(&output).split_whitespace().map(|number| number.parse::<usize>().unwrap()));
    all.sort_unstable();
    assert!(all.chunks(2).all(|pair| pair[0] == pair[1]), "{all:?}");
    all.dedup();
    assert_eq!(all.len(), processors);
}

#[test]
fn every_shells_completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = Command::new(binary("tickwire")).args(["completions", shell]).output().unwrap();
        let script = stdout(&output);
        assert!(
            output.status.success() && ["whowaits", "wdir", "completions"].iter().all(|word| script.contains(word))
        );
    }
    let check = format!("{} completions bash | bash -n", binary("tickwire").display());
    assert!(Command::new("bash").args(["-c", &check]).status().unwrap().success());
    let output = Command::new(binary("tickwire")).args(["completions", "tcsh"]).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(2), 1));
}

#[test]
fn a_launcher_inside_a_rank_makes_a_job_of_its_own() {
    let inner =
        format!("exec {} run -n 3 -- /bin/sh -c 'echo $TICKWIRE_SIZE $TICKWIRE_JOB'", binary("tickwire").display());
    let output = run(&["-n", "2"], &inner);
    let text = stdout(&output);
    let mut lines = sorted_lines(&text);
    assert!(lines.len() == 6 && lines.iter().all(|line| line.starts_with("3 job-")), "{text}");
    lines.dedup();
    assert_eq!(lines.len(), 2);
}
