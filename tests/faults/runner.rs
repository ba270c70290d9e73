//! Runs many cases at once: the choice of seeds, the report of a failure, and a summary.

use super::{Case, FAULTS, Ran};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use tickwire::internals::traces::{Event, Ring};

/// The variable that names one seed.
pub const ENV_SEED: &str = "TICKWIRE_TEST_SEED";
/// The variable that gives the number of seeds, counted from 0, or their range `FIRST..END`.
pub const ENV_SEEDS: &str = "TICKWIRE_SEEDS";

/// How many events of each engine are printed.
const SHOWN: usize = 40;

/// The command that runs one seed again.
pub fn replay_command(seed: u64) -> String {
    format!("{ENV_SEED}={seed} cargo test -p tickwire-tests --test seeds replay -- --ignored --nocapture")
}

/// The sums over many cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Number of cases.
    pub cases: u64,
    /// Engines in all cases.
    pub engines: u64,
    /// Counts of all cases.
    pub ran: Ran,
    /// Number of cases with each of [`FAULTS`].
    pub faults: [u64; FAULTS.len()],
}

impl Sum {
    fn add(&mut self, case: &Case, ran: Ran) {
        self.cases += 1;
        self.engines += u64::from(case.engines);
        self.ran.calls += ran.calls;
        self.ran.deaths += ran.deaths;
        self.ran.corrupted += ran.corrupted;
        self.ran.lost += ran.lost;
        for (count, had) in self.faults.iter_mut().zip(case.faults()) {
            *count += u64::from(had);
        }
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ran { calls, deaths, corrupted, lost } = self.ran;
        writeln!(f, "{} seeds, {} engines, {calls} calls", self.cases, self.engines)?;
        writeln!(f, "{deaths} deaths, {corrupted} changed frames, {lost} messages lost with their connections")?;
        for (name, count) in FAULTS.iter().zip(self.faults) {
            writeln!(f, "  {name}: {count} seeds")?;
        }
        Ok(())
    }
}

/// Runs the cases from seed `first` on, on all processors, until seed `end` or as long as `more` returns true.
///
/// # Errors
/// Describes a failed case, with its trace and the command that runs it again.
pub fn run(first: u64, end: u64, more: impl Fn(&Sum) -> bool + Sync) -> Result<Sum, String> {
    let (next, stop) = (AtomicU64::new(first), AtomicBool::new(false));
    let sum = Mutex::new(Sum::default());
    let failed: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let case = Case::of(seed);
                    match attempt(&case, &[]) {
                        Ok(ran) => {
                            let mut sum = sum.lock().expect("nobody panics with it");
                            sum.add(&case, ran);
                            if !more(&sum) {
                                stop.store(true, Ordering::Relaxed);
                            }
                        }
                        Err(words) => {
                            stop.store(true, Ordering::Relaxed);
                            failed.lock().expect("nobody panics with it").get_or_insert((seed, words));
                        }
                    }
                }
            });
        }
    });
    match failed.into_inner().expect("nobody panics with it") {
        None => Ok(sum.into_inner().expect("nobody panics with it")),
        Some((seed, words)) => Err(format!("{words}\n{}\nreplay: {}", trace(seed), replay_command(seed))),
    }
}

/// Runs a case. If it panics, returns the words of the panic.
pub fn attempt(case: &Case, rings: &[Ring]) -> Result<Ran, String> {
    catch_unwind(AssertUnwindSafe(|| case.run(rings))).map_err(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
        format!("seed {}: {}", case.seed, words.unwrap_or_else(|| "a panic without words".into()))
    })
}

/// Runs a failed case again with a trace. Returns what its engines did last.
pub fn trace(seed: u64) -> String {
    let case = Case::of(seed);
    let (rings, start) = (case.rings(), Instant::now());
    let again = attempt(&case, &rings);
    let mut words = format!("{case:#?}\n");
    if again.is_ok() {
        words
            .push_str("Watched, it does not fail: an engine that is watched sends all messages through the systems.\n");
    }
    for (rank, ring) in rings.iter().enumerate() {
        let events = ring.events();
        let events: Vec<_> = events.iter().filter(|event| !matches!(event, Event::System { .. })).collect();
        words.push_str(&format!("the last events of engine {rank}, of {}:\n", events.len() as u64 + ring.dropped()));
        for event in &events[events.len().saturating_sub(SHOWN)..] {
            words.push_str(&format!("  {event:?}\n"));
        }
    }
    words.push_str(&format!("{:?}", start.elapsed()));
    words
}

/// The seeds that the environment asks for, as first and end. By default the first `unless` seeds.
///
/// # Panics
/// If the variable has another form.
pub fn seeds(unless: u64) -> (u64, u64) {
    let Ok(words) = std::env::var(ENV_SEEDS) else { return (0, unless) };
    let number = |words: &str| words.parse().unwrap_or_else(|_| panic!("{ENV_SEEDS}={words}: give N or FIRST..END"));
    match words.split_once("..") {
        Some((first, end)) => (number(first), number(end)),
        None => (0, number(&words)),
    }
}
