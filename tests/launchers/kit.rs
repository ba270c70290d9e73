//! Jobs under other launchers: what each launcher must do, and how a job is run within a time limit.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tickwire_tests::binaries::{binary, example};
use tickwire_tests::needs::is_there;
use tickwire_tests::scratch::Directory;

/// Longest time of a job, even on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(40);

/// The program of a rank. Its argument says what it does.
pub(crate) const RANK: &str = env!("CARGO_BIN_EXE_tests-launched");

/// The path of a program of a tool that `tests/run` installs. If it is missing, returns `None`: the test is skipped
/// and says so.
pub(crate) fn tool(name: &str, program: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools").join(name).join("bin").join(program);
    let found = path.canonicalize().map_err(|_| format!("no {program} of {name}: tests/run installs it"));
    is_there(found.as_ref().map(drop)).then(|| found.ok()).flatten()
}

/// A launcher, as its command line up to the number of ranks.
pub(crate) trait Launcher {
    /// The command that starts this many ranks. The program and its arguments are to be added.
    fn command(&self, ranks: u32) -> Command;
    /// How a rank's report describes this launcher.
    fn words(&self) -> &'static str;
    /// Whether the launcher ends the other ranks when one rank fails.
    fn ends_others(&self) -> bool {
        true
    }
    /// The exit statuses that the launcher may return after a rank has aborted the job with status 7.
    fn aborted(&self) -> &'static [i32] {
        &[7]
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    let child = start(command);
    wait(child)
}

pub(crate) fn start(command: &mut Command) -> Running {
    use std::os::unix::process::CommandExt;
    // The input stays open until the job has ended. At its end MPICH's launcher forwards the end of file to the first
    // rank, and is killed by SIGPIPE if that rank has just ended.
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let program = command.get_program().to_owned();
    Running(Some(command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()))))
}

/// A launcher in its own process group. The group is killed when the test gives up.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn child(&self) -> &Child {
        self.0.as_ref().unwrap()
    }

    /// Sends a signal to the whole group, as a terminal does.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let group = rustix::process::Pid::from_child(self.child());
        rustix::process::kill_process_group(group, signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let group = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
        }
    }
}

/// Waits for the end. Returns everything that the job has written.
pub(crate) fn wait(mut running: Running) -> Output {
    let mut child = running.0.take().unwrap();
    let _input = child.stdin.take();
    let group = rustix::process::Pid::from_child(&child);
    let (ended, end) = std::sync::mpsc::channel();
    let watch = std::thread::spawn(move || {
        let late = end.recv_timeout(PATIENCE).is_err();
        if late {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        late
    });
    let output = child.wait_with_output().unwrap();
    let _ = ended.send(());
    assert!(!watch.join().unwrap(), "after {PATIENCE:?}: {}", words(&output));
    output
}

/// Everything that a job has written, and its exit status.
pub(crate) fn words(output: &Output) -> String {
    format!(
        "{:?}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The reports of the ranks, one line each, in the order of ranks.
pub(crate) fn reports(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", words(output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<_> = text.lines().filter(|line| line.starts_with("rank ")).map(str::to_owned).collect();
    lines.sort_by_key(|line| line.split(' ').nth(1).and_then(|rank| rank.parse::<u32>().ok()));
    lines
}

pub(crate) fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(comes(condition), "after {PATIENCE:?}: {what}");
}

/// Polls a condition. Returns whether it holds in time.
pub(crate) fn comes(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        // The loop sleeps, since spinning would take a processor from the processes that it waits for.
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Each rank of a job knows its place: with one rank, with two, and with eight.
pub(crate) fn knows_its_place(launcher: &dyn Launcher) {
    for ranks in [1, 2, 8] {
        let lines = reports(&run(launcher.command(ranks).args([RANK, "ring"])));
        assert_eq!(lines.len(), ranks as usize, "{lines:?}");
        for (rank, line) in lines.iter().enumerate() {
            let place = format!("rank {rank} of {ranks}, host 0 of 1, {rank} of {ranks} shared, by ");
            let routes = vec!["shm"; ranks as usize - 1].join(" ");
            let words = if ranks == 1 { "alone" } else { launcher.words() };
            assert!(line.starts_with(&format!("{place}{routes}; {words}")), "{line}");
        }
    }
}

/// The example `heat` writes the same picture with any number of ranks. Two of the jobs run at the same time.
pub(crate) fn draws_the_same_picture(launcher: &dyn Launcher) {
    let place = place("picture");
    let heat = |ranks: u32, name: &str| {
        let mut command = launcher.command(ranks);
        command.arg(example("heat")).args(["--width", "96", "--height", "64", "--iterations", "50", "--output"]);
        command.arg(place.join(name));
        start(&mut command)
    };
    for (ranks, name) in [(1, "1"), (2, "2")] {
        let output = wait(heat(ranks, name));
        assert!(output.status.success(), "{}", words(&output));
    }
    let two = [heat(8, "8"), heat(4, "4")].map(wait);
    two.iter().for_each(|output| assert!(output.status.success(), "{}", words(output)));
    let pictures = ["1", "2", "4", "8"].map(|name| std::fs::read(place.join(name)).unwrap());
    assert!(pictures.iter().all(|picture| !picture.is_empty() && *picture == pictures[0]));
}

/// A job ends when a rank fails, and when a rank aborts it.
pub(crate) fn ends_with_its_ranks(launcher: &dyn Launcher) {
    let output = run(launcher.command(3).args([RANK, "fail"]));
    // The exit status of hydra combines the bits of the statuses of all ranks.
    assert!(output.status.code().is_some_and(|code| code > 0), "{}", words(&output));
    if !launcher.ends_others() {
        assert!(words(&output).contains("proc 1 has failed"), "the others say who is missed: {}", words(&output));
    }
    let start = Instant::now();
    let output = run(launcher.command(3).args([RANK, "abort"]));
    assert!(output.status.code().is_some_and(|code| launcher.aborted().contains(&code)), "{}", words(&output));
    assert!(start.elapsed() < Duration::from_secs(25), "the launcher has ended the others");
}

/// A directory for one job. The name is unique because tests of several launchers run at the same time.
fn place(name: &str) -> Directory {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    Directory::new(&format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// Ctrl-C ends all ranks.
pub(crate) fn ends_on_ctrl_c(launcher: &dyn Launcher) {
    let place = place("ctrl-c");
    let running = start(launcher.command(3).args([RANK, "wait"]).arg(&*place));
    until("the ranks are there", || (0..3).all(|rank| place.join(rank.to_string()).exists()));
    let pids: Vec<u32> =
        (0..3).map(|rank| std::fs::read_to_string(place.join(rank.to_string())).unwrap().parse().unwrap()).collect();
    running.signal(rustix::process::Signal::INT);
    let output = wait(running);
    assert!(!output.status.success(), "{}", words(&output));
    until("a rank is left", || pids.iter().all(|&pid| is_gone(pid)));
}

/// Whether a process has ended. A zombie counts as ended: its new parent has to reap it.
fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X']))
}

/// Each rank of a job of the launcher starts a job of `tickwire run`, which must be a separate job.
pub(crate) fn has_jobs_inside(launcher: &dyn Launcher) {
    let mut command = launcher.command(2);
    command.arg(binary("tickwire")).args(["run", "-n", "2", "--", RANK, "ring"]);
    let lines = reports(&run(&mut command));
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(
        lines.iter().all(|line| line.contains("of 2, host 0 of 1") && line.contains("; tickwire run: ")),
        "{lines:?}"
    );
}

/// Each rank of a job of `tickwire run` starts a job of the launcher.
pub(crate) fn runs_inside(launcher: &dyn Launcher) {
    let inner = launcher.command(2);
    let mut command = Command::new(binary("tickwire"));
    command.args(["run", "-n", "2", "--"]).arg(inner.get_program()).args(inner.get_args()).args([RANK, "ring"]);
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let lines = reports(&run(&mut command));
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(
        lines.iter().all(|line| line.contains("of 2, host 0 of 1") && line.contains(launcher.words())),
        "{lines:?}"
    );
}
