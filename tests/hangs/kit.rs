//! Jobs that hang, and the output of `tickwire` about them.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tickwire_tests::binaries::binary;

/// Longer than any wait on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// A job that hangs. It is ended when this value is dropped.
pub(crate) struct Hanging {
    pub(crate) launcher: Child,
    pub(crate) stderr: BufReader<ChildStderr>,
    /// The job's name.
    pub(crate) job: String,
}

impl Hanging {
    pub(crate) fn start(way: &str, ranks: u32, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary("tickwire"));
        command.args(["run", "--print-job", "-n", &ranks.to_string(), "--"]);
        command.arg(env!("CARGO_BIN_EXE_tests-deadlocks")).arg(way).envs(env.iter().copied());
        let mut launcher = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(launcher.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split([' ', ',', '\n']).collect();
        let place = words.iter().position(|word| *word == "job").unwrap();
        Hanging { job: words[place + 1].to_owned(), launcher, stderr }
    }

    pub(crate) fn ask(&self, args: &[&str]) -> String {
        good(&tickwire(args, Some(&self.job)))
    }

    /// Asks again and again until the answer has all of these words: the job may not have started yet.
    #[track_caller]
    pub(crate) fn until(&self, args: &[&str], words: &[&str]) -> String {
        self.until_without(args, words, &[])
    }

    /// Asks again and again until the answer has all of `words` and none of `others`: the job may not have started yet,
    /// and messages may still be on their way.
    #[track_caller]
    pub(crate) fn until_without(&self, args: &[&str], words: &[&str], others: &[&str]) -> String {
        let start = Instant::now();
        loop {
            let output = tickwire(args, Some(&self.job));
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            if words.iter().all(|words| said.contains(words)) && !others.iter().any(|words| said.contains(words)) {
                return said;
            }
            let wanted = format!("all of {words:?} and none of {others:?}");
            assert!(start.elapsed() < PATIENCE, "{args:?} says\n{said}\nand not {wanted}");
        }
    }

    /// The process numbers of the job, by rank.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let own: Vec<_> = tickwire::jobs::processes().unwrap().into_iter().filter(|p| p.job == self.job).collect();
        own.iter().map(|process| process.pid).collect()
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.launcher), Signal::TERM);
        let _ = self.launcher.wait();
    }
}

pub(crate) fn tickwire(args: &[&str], job: Option<&str>) -> Output {
    Command::new(binary("tickwire")).args(args).args(job).output().unwrap()
}

#[track_caller]
pub(crate) fn good(output: &Output) -> String {
    let words = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{words}{}", String::from_utf8_lossy(&output.stderr));
    words
}
