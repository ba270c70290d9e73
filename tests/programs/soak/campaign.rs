//! Runs jobs for a given time, and reports on them.

use crate::job::OUTCOME;
use crate::plan::{Case, Plan};
use crate::{CampaignArgs, PartArgs};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two looks at a job's process.
const LOOK: Duration = Duration::from_millis(20);
/// Time between two lines of progress, if there is no terminal.
const EVERY: Duration = Duration::from_secs(10);
/// The longest absence of a rank in a long and in a short campaign, ms, and the length from which on a campaign is
/// long, seconds.
const AWAY_MS: u64 = 20_000;
const AWAY_MS_SHORT: u64 = 1_500;
const LONG_SECONDS: u64 = 300;
/// How much longer than its own patience a job may take. A job that works ends by itself before.
const LONGER: Duration = Duration::from_secs(30);
/// How long a job may take to end when it is told to. A launcher gives its ranks two seconds.
const GRACE: Duration = Duration::from_secs(6);
/// How many of the last lines of a job's output are shown.
const SHOWN: usize = 200;

/// The sums over the jobs of a case.
#[derive(Clone, Debug, Default)]
struct Sum {
    jobs: u64,
    ranks: u64,
    messages: u64,
    bytes: u64,
    ends: u64,
    continued: u64,
    failed: u64,
    seconds: f64,
    skipped: Option<String>,
}

impl Sum {
    fn add(&mut self, outcome: &Value, time: Duration) {
        let figure = |name: &str| outcome[name].as_u64().unwrap_or(0);
        self.jobs += 1;
        self.ranks += figure("ranks");
        self.messages += figure("messages");
        self.bytes += figure("bytes");
        self.ends += figure("ends");
        self.continued += figure("continued");
        self.failed += figure("failed");
        self.seconds += time.as_secs_f64();
        if let Some(words) = outcome["skipped"].as_str() {
            self.skipped = Some(words.to_owned());
        }
    }
}

/// What the threads of a campaign share.
struct Campaign {
    cases: Vec<Case>,
    first: u64,
    away_ms: u64,
    time: Duration,
    jobs: u64,
    start: Instant,
    place: PathBuf,
    next: AtomicU64,
    /// Whether no further job may begin.
    stop: AtomicBool,
    interrupted: Arc<AtomicBool>,
    sums: Mutex<BTreeMap<Case, Sum>>,
    failure: Mutex<Option<String>>,
}

fn name(case: Case) -> String {
    case.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Runs a campaign and reports the outcome.
pub(crate) fn run(args: &CampaignArgs) -> ExitCode {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64);
    let away_ms = if args.seconds < LONG_SECONDS { AWAY_MS_SHORT } else { AWAY_MS };
    let place = std::env::temp_dir().join(format!("tickwire-soak-{}", std::process::id()));
    let campaign = Campaign {
        cases: if args.case.is_empty() { Case::value_variants().to_vec() } else { args.case.clone() },
        first: args.seed.unwrap_or_else(clock),
        away_ms: args.away_ms.unwrap_or(away_ms),
        time: Duration::from_secs(args.seconds),
        jobs: args.jobs.unwrap_or(u64::MAX),
        start: Instant::now(),
        place,
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        interrupted: Arc::new(AtomicBool::new(false)),
        sums: Mutex::new(BTreeMap::new()),
        failure: Mutex::new(None),
    };
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, campaign.interrupted.clone()).expect("a signal that can be caught");
    }
    println!("seeds from {} on, ranks away for {} ms at most", campaign.first, campaign.away_ms);
    std::fs::create_dir_all(&campaign.place).expect("a directory for the jobs' files");
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.at_once).map(|_| scope.spawn(|| campaign.work())).collect();
        campaign.show(|| workers.iter().all(|worker| worker.is_finished()));
    });
    print!("{}", campaign.summary());
    let failure = campaign.failure.lock().expect("nobody panics with it").take();
    let _ = std::fs::remove_dir_all(&campaign.place);
    match failure {
        Some(words) => {
            println!("{words}");
            ExitCode::FAILURE
        }
        None if campaign.interrupted.load(Ordering::Relaxed) => {
            println!("interrupted");
            ExitCode::from(130)
        }
        None => {
            println!("all as it must be");
            ExitCode::SUCCESS
        }
    }
}

impl Campaign {
    /// Runs jobs until there are enough.
    fn work(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let enough = number >= self.cases.len() as u64 && self.start.elapsed() >= self.time;
            let stop = self.stop.load(Ordering::Relaxed) || self.interrupted.load(Ordering::Relaxed);
            if enough || stop || number >= self.jobs {
                return;
            }
            let case = self.cases[(number % self.cases.len() as u64) as usize];
            let seed = self.first.wrapping_add(number);
            let start = Instant::now();
            match self.job(case, seed, number) {
                Ok(Some(outcome)) => {
                    let mut sums = self.sums.lock().expect("nobody panics with it");
                    sums.entry(case).or_default().add(&outcome, start.elapsed());
                }
                Ok(None) => return,
                Err(words) => {
                    self.stop.store(true, Ordering::Relaxed);
                    let command =
                        format!("tests/soak --case {} --seed {seed} --jobs 1 --away-ms {}", name(case), self.away_ms);
                    let words = format!("{words}\ncase {}, seed {seed} has failed; again: {command}", name(case));
                    self.failure.lock().expect("nobody panics with it").get_or_insert(words);
                    return;
                }
            }
        }
    }

    /// Runs one job in its own process. Returns `None` if the campaign was interrupted.
    fn job(&self, case: Case, seed: u64, number: u64) -> Result<Option<Value>, String> {
        let place = self.place.join(number.to_string());
        let failed = |error: std::io::Error| format!("no job: {error}");
        std::fs::create_dir(&place).map_err(failed)?;
        let path = place.join("output");
        let output = File::create(&path).map_err(failed)?;
        let args = PartArgs { case, seed, away_ms: self.away_ms, place: place.clone(), parent: 0 };
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(args.words("job")).stdin(Stdio::null());
        command.stdout(output.try_clone().map_err(failed)?).stderr(output);
        let mut child = command.spawn().map_err(failed)?;
        let deadline = Instant::now() + Plan::of(case, seed, self.away_ms).patience() + LONGER;
        let status = loop {
            let interrupted = self.interrupted.load(Ordering::Relaxed);
            if interrupted || Instant::now() > deadline {
                end(&mut child);
                if interrupted {
                    return Ok(None);
                }
                return Err(format!("{}\nthe job did not end", tail(&path)));
            }
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            std::thread::sleep(LOOK);
        };
        let words = std::fs::read_to_string(&path).unwrap_or_default();
        let outcome = words.lines().rev().find_map(|line| line.strip_prefix(OUTCOME));
        match outcome.and_then(|line| serde_json::from_str(line).ok()).filter(|_| status.success()) {
            Some(outcome) => {
                let _ = std::fs::remove_dir_all(&place);
                Ok(Some(outcome))
            }
            None => Err(format!("{}\nthe job has ended with {status}", tail(&path))),
        }
    }

    /// Shows the progress until all is done: as a bar on a terminal, else as a line from time to time.
    fn show(&self, is_done: impl Fn() -> bool) {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(self.time.as_secs()) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} s, {msg}");
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let mut told = Instant::now();
        while !is_done() {
            let sums = self.sums.lock().expect("nobody panics with it");
            let (jobs, cases) = (sums.values().map(|sum| sum.jobs).sum::<u64>(), sums.len());
            drop(sums);
            let words = format!("{jobs} jobs of {cases} of {} cases", self.cases.len());
            if !terminal && told.elapsed() >= EVERY {
                eprintln!("{:.0?}: {words}", self.start.elapsed());
                told = Instant::now();
            }
            bar.set_position(self.start.elapsed().min(self.time).as_secs());
            bar.set_message(words);
            std::thread::sleep(LOOK);
        }
        bar.finish_and_clear();
    }

    /// The table of what the cases have done.
    fn summary(&self) -> String {
        let sums = self.sums.lock().expect("nobody panics with it");
        let mut words = format!(
            "{:<14} {:>6} {:>7} {:>10} {:>10} {:>6} {:>8} {:>7} {:>8}\n",
            "case", "jobs", "ranks", "messages", "MiB", "ended", "stopped", "failed", "s"
        );
        for &case in &self.cases {
            let Some(sum) = sums.get(&case) else {
                let _ = writeln!(words, "{:<14} not run", name(case));
                continue;
            };
            if let Some(reason) = &sum.skipped {
                let _ = writeln!(words, "{:<14} SKIPPED: {reason}", name(case));
                continue;
            }
            let Sum { jobs, ranks, messages, bytes, ends, continued, failed, seconds, .. } = sum;
            let mib = bytes >> 20;
            let _ = writeln!(
                words,
                "{:<14} {jobs:>6} {ranks:>7} {messages:>10} {mib:>10} {ends:>6} {continued:>8} {failed:>7} {seconds:>8.1}",
                name(case)
            );
        }
        words
    }
}

/// Ends a job, and with it its ranks. If it does not end in time, it is killed.
fn end(child: &mut Child) {
    let since = Instant::now();
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    while since.elapsed() < GRACE {
        if let Ok(Some(_)) = child.try_wait() {
            return;
        }
        std::thread::sleep(LOOK);
    }
    // When the job dies, the kernel ends its ranks.
    let _ = child.kill();
    let _ = child.wait();
}

/// The last lines of a file.
fn tail(path: &Path) -> String {
    let words = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = words.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}
