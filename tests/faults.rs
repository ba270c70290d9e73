//! Random programs under random faults of a simulated network, each made from one seed. CI runs some thousands of
//! them. `tests/soak` runs any number, as one of its cases.
//!
//! A seed decides the number of engines, their limits, what the network does ([`SimConfig`]) and what the engines do.
//! If nothing can be lost, they carry out a program, and the reference model of matching must explain its answers
//! ([`crate::model`]). If a proc dies or frames are changed, they exchange messages that a ledger accounts for
//! ([`exchange`]). After every tick the invariants are checked. After every round it is checked that no credit is lost
//! or added.

pub mod exchange;
pub mod runner;

use crate::model::program::{WAYS, limits, programs, runner};
use crate::model::run::at_once_on;
use proptest::strategy::{Strategy, ValueTree};
use tickwire::internals::components::limits::{Limits, PASSES_MAX, READ_MIN};
use tickwire::internals::traces::Ring;
use tickwire::testing::{Cluster, Corruption, Death, SimConfig, SimNet, SplitMix};

/// Most engines of a case.
pub const ENGINES_MAX: u32 = 16;
/// Each part of a program has fewer calls than this.
const PART: usize = 30;
/// How many of its last events an engine keeps for the trace of a failed case.
const EVENTS: usize = 200;

/// The faults that a case may have, in the order of [`Case::faults`].
pub const FAULTS: [&str; 14] = [
    "delay",
    "reordering",
    "refused sends",
    "storms of refusals",
    "partial writes",
    "short credit",
    "slow engines",
    "deaths",
    "refused frames",
    "changed frames",
    "reading",
    "refused reads",
    "credit in memory",
    "direct moves",
];

/// Everything that follows from a seed.
#[derive(Clone, Debug)]
pub struct Case {
    /// The seed.
    pub seed: u64,
    /// How many engines.
    pub engines: u32,
    /// What the network does.
    pub config: SimConfig,
    /// The procs that die, and when.
    pub deaths: Vec<(u32, Death)>,
    /// The limits of the engines.
    pub limits: Limits,
}

impl Case {
    /// The case of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = SplitMix::new(seed);
        let engines = match random.below(8) {
            0 => 2 + random.below(u64::from(ENGINES_MAX) - 1) as u32,
            1 | 2 => 2,
            _ => 3 + random.below(4) as u32,
        };
        let mut config =
            SimConfig { delay_ns: 0..pick(&mut random, [1, 300_000, 300_000, 1_500_000]), ..SimConfig::calm(seed) };
        // Only few faults at once: otherwise one fault hides the effects of another.
        config.shuffled = random.below(2) == 0;
        config.blocked_of_256 = pick(&mut random, [0, 0, 32, 128]);
        config.storm_of_256 = pick(&mut random, [0, 0, 0, 20]);
        config.storm_ns = 200_000..1_500_000;
        config.partial_of_256 = pick(&mut random, [0, 0, 60, 200]);
        config.credit_portion = pick(&mut random, [0, 0, 3, 200]);
        config.slow_of_256 = pick(&mut random, [0, 0, 0, 100]);
        config.slow_rounds = 2 + random.below(12) as u32;
        config.notice_ns = 2_000_000;
        let mut deaths = Vec::new();
        match random.below(6) {
            0 => {
                for _ in 0..=random.below(2) {
                    let when = random.below(120);
                    let death = if when.is_multiple_of(2) { Death::At(when * 50_000) } else { Death::Frame(when) };
                    deaths.push((random.below(engines.into()) as u32, death));
                }
            }
            1 => {
                config.corruption = pick(&mut random, [Corruption::Refused, Corruption::Header, Corruption::Payload]);
                config.corrupt_of_65536 = pick(&mut random, [200, 1000, 4000]);
            }
            _ => {}
        }
        let way = random.below(WAYS.len() as u64) as usize;
        let mut limits = Limits {
            passes_max: pick(&mut random, [1, 2, PASSES_MAX]),
            tick_budget: pick(&mut random, [256, 256, 256, 3]),
            eager_max: pick(&mut random, [8192, 4000, 100]),
            piece_bytes: pick(&mut random, [4096, 700]),
            part_bytes: pick(&mut random, [8192, 1000, 64]),
            unexpected_bytes_max: pick(&mut random, [32 << 20, 64 << 10]),
            ..limits(way)
        };
        config.remote_read = random.below(2) == 0;
        config.unread_of_256 = pick(&mut random, [0, 0, 40, 180]);
        limits.read_min = pick(&mut random, [READ_MIN, 4000, 100]);
        config.credit_windows = random.below(2) == 0;
        config.moves = random.below(2) == 0;
        Case { seed, engines, config, deaths, limits }
    }

    /// Whether messages may be lost or changed.
    pub fn is_lossy(&self) -> bool {
        !self.deaths.is_empty() || self.config.corrupt_of_65536 > 0
    }

    /// Which of [`FAULTS`] it has.
    pub fn faults(&self) -> [bool; FAULTS.len()] {
        let SimConfig { delay_ns, shuffled, blocked_of_256, storm_of_256, partial_of_256, credit_portion, .. } =
            &self.config;
        let SimConfig { remote_read, unread_of_256, credit_windows, moves, .. } = &self.config;
        let (changed, refused) = (self.config.corrupt_of_65536 > 0, self.config.corruption == Corruption::Refused);
        [
            delay_ns.end > 1,
            *shuffled,
            *blocked_of_256 > 0,
            *storm_of_256 > 0,
            *partial_of_256 > 0,
            *credit_portion > 0,
            (0..self.engines).any(|proc| self.config.pace(proc) > 1),
            !self.deaths.is_empty(),
            changed && refused,
            changed && !refused,
            *remote_read,
            *remote_read && *unread_of_256 > 0,
            *credit_windows,
            *moves && !*remote_read,
        ]
    }

    /// Runs the case. `rings` is empty, or has one ring for each engine, which then gets its trace events.
    ///
    /// # Panics
    /// If something is not as it must be.
    pub fn run(&self, rings: &[Ring]) -> Ran {
        let net = SimNet::new(self.engines, self.config.clone());
        let mut cluster = Cluster::sim_each(self.engines, &net, |rank, builder| {
            let builder = builder.limits(self.limits.clone());
            match rings.get(rank as usize) {
                Some(ring) => builder.trace(ring.clone()),
                None => builder,
            }
        });
        cluster.checked = true;
        cluster.note = format!("{self:?}");
        if self.is_lossy() {
            self.deaths.iter().for_each(|&(proc, death)| net.kill(proc, death));
            return exchange::run(cluster, &net, self);
        }
        let mut runner = runner(self.seed);
        let tree = programs(self.engines..=self.engines, PART).new_tree(&mut runner);
        let played = at_once_on(cluster, &tree.expect("a program").current(), self.seed);
        Ran { calls: played.calls, ..Ran::default() }
    }

    /// The rings for a run with a trace.
    pub fn rings(&self) -> Vec<Ring> {
        (0..self.engines).map(|_| Ring::new(EVENTS)).collect()
    }
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ran {
    /// Calls that the engines made.
    pub calls: usize,
    /// Procs that died.
    pub deaths: usize,
    /// Frames that were changed.
    pub corrupted: usize,
    /// Messages that were never received because their sender, their receiver or the connection had ended.
    pub lost: usize,
}

fn pick<T: Copy, const N: usize>(random: &mut SplitMix, of: [T; N]) -> T {
    of[random.below(N as u64) as usize]
}
