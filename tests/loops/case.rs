//! A case, from its seed: two clusters, the calls that both are given, and the comparison.

use crate::calls::{Call, calls, choose};
use crate::side::Side;
use std::fmt::Debug;
use std::ops::Range;
use tickwire::internals::traces::DELIVER;
use tickwire::internals::transports::shm::Splicing;
use tickwire::testing::{Cluster, Corruption, Death, ProviderConfig, SimConfig, SimNet, SplitMix};
use tickwire::{Limits, Matching};

/// Seeds of a run that nobody asked for others, of each network.
const SEEDS: u64 = 12;

/// How a cluster's engines reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    Loopback,
    Shm,
    /// Frames late, sends refused, frames taken in parts, credit in portions.
    Hindered,
    /// The same, and a proc dies, or frames are changed on their way.
    Failing,
    /// Endpoints match by themselves.
    Provider,
}

/// A case, from its seed.
struct Case {
    network: Network,
    seed: u64,
    ranks: u32,
    limits: Limits,
    config: SimConfig,
    death: Option<(u32, Death)>,
}

impl Case {
    fn of(network: Network, seed: u64) -> (Self, SplitMix) {
        let mut random = SplitMix::new(seed ^ 0x10_0B5);
        let ranks = 2 + random.below(2) as u32;
        let matching = choose(&mut random, &[Matching::Auto, Matching::Lists, Matching::Index]);
        let passes_max = choose(&mut random, &[1, 8]);
        // Messages to oneself that need no frame are compared in `oneself.rs`.
        let limits = Limits {
            matching,
            passes_max,
            own_at_once: false,
            piece_bytes: 4096,
            part_bytes: 2048,
            ..Limits::default()
        };
        let mut config = SimConfig::calm(seed);
        if matches!(network, Network::Hindered | Network::Failing) {
            config = SimConfig {
                delay_ns: choose(&mut random, &[0..1u64, 0..1, 0..300_000].map(Span::from)).into(),
                blocked_of_256: choose(&mut random, &[0, 32, 100]),
                storm_of_256: choose(&mut random, &[0, 8]),
                storm_ns: 0..300_000,
                partial_of_256: choose(&mut random, &[0, 0, 80]),
                credit_portion: choose(&mut random, &[0, 0, 20_000]),
                shuffled: random.below(2) == 0,
                ..config
            };
        }
        let mut death = None;
        if network == Network::Failing {
            match random.below(3) {
                0 => config.corrupt_of_65536 = 2000,
                _ => death = Some((random.below(ranks.into()) as u32, Death::Frame(random.below(40)))),
            }
            config.corruption = choose(&mut random, &[Corruption::Refused, Corruption::Payload]);
        }
        (Case { network, seed, ranks, limits, config, death }, random)
    }

    fn side(&self, deliver: bool) -> Side {
        let limits = Limits { deliver, ..self.limits.clone() };
        let net = SimNet::new(self.ranks, self.config.clone());
        let build = |builder: tickwire::Builder| builder.limits(limits.clone());
        let cluster = match self.network {
            Network::Loopback => Cluster::loopback_with(self.ranks, build),
            Network::Shm => Cluster::shm_with(self.ranks, |builder| {
                // What a message is cut into depends on the room that a growing ring has just then.
                let limits = Limits { first_ring_bytes: limits.ring_bytes, ..limits.clone() };
                builder.limits(limits).splicing(Splicing::Never)
            }),
            Network::Hindered | Network::Failing => Cluster::sim_with(self.ranks, &net, build),
            Network::Provider => Cluster::provider_with(self.ranks, &net, |_| ProviderConfig::calm(self.seed), build),
        };
        let mut side = Side::new(cluster);
        side.meet();
        if let Some((proc, Death::Frame(number))) = self.death {
            net.kill(proc, Death::Frame(net.frames(proc) + number));
        }
        side
    }

    /// Credit that goes with other frames goes with different ones, and in frames of its own at different times.
    fn is_exact(&self) -> bool {
        matches!(self.network, Network::Loopback | Network::Shm)
    }

    fn run(&self, mut random: SplitMix) {
        let calls = calls(&mut random, self.ranks as usize);
        let mut sides = [true, false].map(|deliver| self.side(deliver));
        for (number, call) in calls.iter().enumerate() {
            let together = random.below(2) == 0 && calls.get(number + 1).is_some_and(|next| call.may_precede(next));
            for side in &mut sides {
                side.call(number, call);
                if !together {
                    side.settle();
                }
            }
            if !together {
                self.compare(&mut sides, &calls[..=number]);
            }
        }
        sides.iter_mut().for_each(Side::settle);
        self.compare(&mut sides, &calls);
        let delivered: [u64; 2] =
            sides.map(|side| side.cluster.engines.iter().map(|engine| engine.counters().runs()[DELIVER]).sum());
        assert!(delivered[0] > 0 && delivered[1] == 0, "each side has its own loop: {delivered:?}");
    }

    fn compare(&self, sides: &mut [Side; 2], calls: &[Call]) {
        let words = || format!("{:?} seed {} after {calls:?}", self.network, self.seed);
        // Which of several signs of an end is seen first is not the same; that there is an end is.
        let logs = [0, 1].map(|side: usize| sides[side].log.iter().map(|line| without_reason(line)).collect());
        same(&logs, words);
        let columns = [0, 1].map(|side: usize| sides[side].columns(self.is_exact()));
        same(&columns, words);
        let work = [0, 1].map(|side: usize| {
            let of = |work: &[u64; 4]| if self.is_exact() { *work } else { [work[0], work[1], 0, 0] };
            sides[side].work.iter().map(of).collect::<Vec<_>>()
        });
        assert_eq!(work[0], work[1], "posted, matched, sent, received: {}", words());
    }
}

/// A line without the words of a failure's reason.
fn without_reason(line: &str) -> String {
    match line.split_once("reason: ") {
        Some((before, _)) => before.into(),
        None => line.into(),
    }
}

/// # Panics
/// If the lines of both sides are not the same: with the first that is not.
fn same([rows, columns]: &[Vec<String>; 2], words: impl Fn() -> String) {
    let differ = rows.iter().zip(columns).position(|(row, column)| row != column);
    if let Some(first) = differ.or_else(|| (rows.len() != columns.len()).then(|| rows.len().min(columns.len()))) {
        let [row, column] = [rows, columns].map(|lines| lines.get(first));
        panic!("by rows {row:?}\nby columns {column:?}\nof {rows:#?}\n{}", words());
    }
}

/// A range that can be chosen from a list.
#[derive(Clone, Copy)]
struct Span(u64, u64);

impl From<Range<u64>> for Span {
    fn from(range: Range<u64>) -> Self {
        Span(range.start, range.end)
    }
}

impl From<Span> for Range<u64> {
    fn from(span: Span) -> Self {
        span.0..span.1
    }
}

fn seeds() -> Range<u64> {
    let Ok(words) = std::env::var("TICKWIRE_LOOPS") else { return 0..SEEDS };
    let number = |word: &str| word.parse().expect("a number");
    match words.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&words),
    }
}

pub(crate) fn all(network: Network) {
    for seed in seeds() {
        let (case, random) = Case::of(network, seed);
        case.run(random);
    }
}
