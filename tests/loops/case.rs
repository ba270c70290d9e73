//! A case, from its seed: two clusters, the calls that both are given, and the comparison.

use crate::calls::{Call, What, calls, choose};
use crate::ends::{Tally, same_parts};
use crate::joint::Joint;
use crate::one_sided::OneSided;
use crate::side::{Side, Traits};
use crate::threads::with_boards;
use std::fmt::Debug;
use std::ops::Range;
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::internals::traces::DELIVER;
use tickwire::internals::transports::shm::Splicing;
use tickwire::testing::{Cluster, Corruption, ProviderConfig, STEP_NS, SimConfig, SimNet, SplitMix};
use tickwire::transport::Hub;
use tickwire::{Limits, Matching};

/// Seeds of a run that nobody asked for others, of each network.
const SEEDS: u64 = 12;

/// Time from a death until others are told, ns: a few rounds, in which what is on its way arrives.
const NOTICE_NS: u64 = 5 * STEP_NS;

/// How a cluster's engines reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    Loopback,
    Shm,
    /// Frames late, sends refused, frames taken in parts, credit in portions, memory read and reads refused.
    Hindered,
    /// The same, and a proc dies, or frames are changed on their way. No operations of all ranks. No read is refused, so that both
    /// sides send the same frames.
    Failing,
    /// The same where a proc dies, with operations of all ranks.
    Dying,
    /// Endpoints match by themselves.
    Provider,
    /// Ranks have waited for each other before: they have a window, and boards if they can.
    Met,
}

/// Where and how ranks have met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Over shared memory, with boards.
    Shm,
    /// The same without boards: by messages.
    ShmWithoutBoards,
    /// Over loopback within a process: by messages, and a window is memory.
    Loopback,
    /// The same, as if each was on a host of its own: a window is served by the target's engine.
    LoopbackApart,
}

/// A case, from its seed.
struct Case {
    network: Network,
    seed: u64,
    ranks: u32,
    limits: Limits,
    config: SimConfig,
    /// Whether a rank dies.
    dies: bool,
    /// Where ranks have met, if they have.
    place: Place,
    /// Whether engines over loopback share no memory.
    apart: bool,
}

/// A rank that dies, so many frames after a call begins. After a call of all ranks it dies in any case.
pub(crate) struct Dies {
    /// The call's number.
    pub(crate) call: usize,
    /// The rank.
    pub(crate) rank: u32,
    /// How many frames it sends before.
    pub(crate) frames: u64,
}

impl Case {
    /// The case of a seed, and what chooses the rest of it.
    fn of(network: Network, seed: u64) -> (Self, SplitMix) {
        let mut random = SplitMix::new(seed ^ 0x10_0B5);
        let ranks = 2 + random.below(2) as u32;
        let matching = choose(&mut random, &[Matching::Auto, Matching::Lists, Matching::Index]);
        let passes_max = choose(&mut random, &[1, 8]);
        // Messages to oneself that need no frame are compared in `oneself.rs`.
        let mut limits = Limits {
            matching,
            passes_max,
            own_at_once: false,
            piece_bytes: 4096,
            part_bytes: 2048,
            ..Limits::default()
        };
        let mut config = SimConfig::calm(seed);
        if matches!(network, Network::Hindered | Network::Failing | Network::Dying) {
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
        let mut reading = SplitMix::new(seed ^ 0x4EAD);
        if matches!(network, Network::Hindered | Network::Failing | Network::Dying) {
            config.remote_read = reading.below(2) == 0;
            limits.read_min = choose(&mut reading, &[limits.read_min, 3000]);
        }
        if network == Network::Hindered {
            config.unread_of_256 = choose(&mut reading, &[0, 60]);
        }
        let mut dies = network == Network::Dying;
        if network == Network::Failing {
            match random.below(3) {
                0 => config.corrupt_of_65536 = 2000,
                // Each part that is tried would count as a frame, and how often that is is not the same.
                _ => (dies, config.partial_of_256) = (true, 0),
            }
            config.corruption = choose(&mut random, &[Corruption::Refused, Corruption::Payload]);
        }
        // Until it is quiet all have heard of a death.
        config.notice_ns = NOTICE_NS;
        let places = [Place::Shm, Place::ShmWithoutBoards, Place::Loopback, Place::LoopbackApart];
        let (place, apart) = (places[(seed % 4) as usize], random.below(2) == 0);
        (Case { network, seed, ranks, limits, config, dies, place, apart }, random)
    }

    /// Kinds of calls on memory of other ranks.
    fn kinds(&self) -> Vec<OneSided> {
        let windows = OneSided::WINDOWS.into_iter().filter(|_| self.network == Network::Met);
        OneSided::REGIONS.into_iter().chain(windows).collect()
    }

    /// One of the two clusters: row by row, or column by column.
    fn side(&self, deliver: bool) -> Side {
        let limits = Limits { deliver, ..self.limits.clone() };
        let net = SimNet::new(self.ranks, self.config.clone());
        let build = |builder: tickwire::Builder| builder.limits(limits.clone());
        let apart = Hub::new(self.ranks, LOOPBACK_RING_BYTES).apart();
        let loopback = |is_apart: bool| {
            let hub = |builder: tickwire::Builder| if is_apart { builder.hub(apart.clone()) } else { builder };
            Cluster::loopback_with(self.ranks, |builder| hub(build(builder)))
        };
        let shm = |boards: bool| {
            // What a message is cut into depends on the room that a growing ring has just then.
            let limits = Limits { first_ring_bytes: limits.ring_bytes, boards, ..limits.clone() };
            let build = |builder: tickwire::Builder| builder.limits(limits.clone()).splicing(Splicing::Never);
            Cluster::shm_with(self.ranks, build)
        };
        let cluster = match (self.network, self.place) {
            (Network::Loopback, _) => loopback(self.apart),
            (Network::Met, Place::Loopback | Place::LoopbackApart) => loopback(self.place == Place::LoopbackApart),
            (Network::Met, Place::Shm | Place::ShmWithoutBoards) => shm(self.place == Place::Shm),
            (Network::Shm, _) => shm(true),
            (Network::Hindered | Network::Failing | Network::Dying, _) => Cluster::sim_with(self.ranks, &net, build),
            (Network::Provider, _) => {
                // Else one-sided traffic would go past it, by memory.
                let build = |builder| build(builder).hub(apart.clone());
                Cluster::provider_with(self.ranks, &net, |_| ProviderConfig::calm(self.seed), build)
            }
        };
        let is = |network: Network| self.network == network;
        let traits = Traits {
            waits: is(Network::Met),
            expensive: is(Network::Provider),
            hinders: is(Network::Hindered),
            fails: is(Network::Failing) || is(Network::Dying),
            apart: is(Network::Dying),
        };
        let mut side = Side::new(cluster, traits);
        let boards = self.network == Network::Met && self.place == Place::Shm;
        for engine in &mut side.cluster.engines {
            assert_eq!(with_boards(engine), usize::from(boards), "{:?} {:?}", self.network, self.place);
        }
        side
    }

    /// Credit that goes with other frames goes with different ones, and in frames of its own at different times.
    fn is_exact(&self) -> bool {
        matches!(self.network, Network::Loopback | Network::Shm)
    }

    /// Runs it. How many operations of each kind that is counted there were, and how many a target's engine has done.
    fn run(&self, mut random: SplitMix) -> (Tally, u32) {
        let calls = calls(&mut random, self.ranks as usize, self.network != Network::Failing, &self.kinds());
        let death = self.death_among(&calls, &mut random);
        let mut sides = [true, false].map(|deliver| self.side(deliver));
        // Whether a rank dies before or after a call is the same only where all was quiet before the call.
        let fails = matches!(self.network, Network::Failing | Network::Dying);
        for (number, call) in calls.iter().enumerate() {
            let may = |next| call.may_precede(next) && !(fails && (call.is_of_several() || next.is_of_several()));
            let together = random.below(2) == 0 && calls.get(number + 1).is_some_and(may);
            for side in &mut sides {
                match &death {
                    Some(death) if death.call == number => side.call_and_die(number, call, death),
                    _ => side.call(number, call),
                }
                if !together {
                    side.settle();
                }
            }
            if !together {
                self.compare(&mut sides, &calls[..=number], death.as_ref().map(|death| death.call));
            }
        }
        for side in &mut sides {
            side.settle();
            side.note_memory();
        }
        self.compare(&mut sides, &calls, death.as_ref().map(|death| death.call));
        let delivered: [u64; 2] = sides
            .each_ref()
            .map(|side| side.cluster.engines.iter().map(|engine| engine.counters().runs()[DELIVER]).sum());
        assert!(delivered[0] > 0 && delivered[1] == 0, "each side has its own loop: {delivered:?}");
        let [rows, columns] = sides.map(Side::end);
        // How many parts of operations of all ranks end well is not the same where a proc dies.
        assert!(rows == columns || self.network == Network::Dying, "{rows:?}\n{columns:?}\nseed {}", self.seed);
        rows
    }

    /// Which rank dies, and when, if one is to: in one of the operations of all ranks, or at any call where there is none.
    fn death_among(&self, calls: &[Call], random: &mut SplitMix) -> Option<Dies> {
        let at_any = self.network == Network::Failing;
        let joint =
            |(number, call): (usize, &Call)| (at_any || matches!(call.what, What::Joint { .. })).then_some(number);
        let places: Vec<usize> = calls.iter().enumerate().filter_map(joint).collect();
        if !self.dies || places.is_empty() {
            return None;
        }
        let rank = random.below(self.ranks.into()) as u32;
        Some(Dies { call: choose(random, &places), rank, frames: random.below(8) })
    }

    /// # Panics
    /// If the two sides differ in what must be the same. `death` is the call in which a rank dies.
    fn compare(&self, sides: &mut [Side; 2], calls: &[Call], death: Option<usize>) {
        let words = || format!("{:?} seed {} after {calls:?}", self.network, self.seed);
        // Which of several signs of an end is seen first is not the same; that there is an end is.
        let logs = [0, 1].map(|side: usize| sides[side].log.iter().map(|line| without_reason(line)).collect());
        same(&logs, words);
        let columns = [0, 1].map(|side: usize| sides[side].columns(self.is_exact()));
        same(&columns, words);
        if let [Some(rows), Some(columns)] = sides.each_ref().map(|side| side.parts.as_ref()) {
            // How much of a failed operation was done is not the same, so what was posted and matched of it is not, either.
            same_parts([rows, columns], death, words);
            if death.is_some_and(|death| calls.len() > death) {
                return;
            }
        }
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

/// What is asked for, or as many as make every kind of call on a network.
fn seeds(network: Network) -> Range<u64> {
    let usual = if network == Network::Dying { 2 * SEEDS } else { SEEDS };
    let Ok(words) = std::env::var("TICKWIRE_LOOPS") else { return 0..usual };
    let number = |word: &str| word.parse().expect("a number");
    match words.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&words),
    }
}

pub(crate) fn all(network: Network) {
    let (mut tally, mut served, seeds) = (Tally::default(), 0, seeds(network));
    for seed in seeds.clone() {
        let (case, random) = Case::of(network, seed);
        let (of, by_engine) = case.run(random);
        tally.add(&of);
        served += by_engine;
    }
    if seeds.count() >= 2 * SEEDS as usize || std::env::var_os("TICKWIRE_LOOPS").is_none() {
        check(network, &mut tally, served);
    }
}

/// Every kind was begun, and has ended, well where nothing fails.
fn check(network: Network, tally: &mut Tally, served: u32) {
    let (case, _) = Case::of(network, 0);
    let joint = Joint::ALL.into_iter().filter(|_| network != Network::Failing).map(Joint::name);
    let names = joint.chain(case.kinds().into_iter().map(OneSided::name));
    let may_fail = matches!(network, Network::Failing | Network::Dying);
    for name in names {
        let ends = *tally.of(name);
        assert!(ends.begun > 0, "{network:?}: {name} was never begun: {tally:?}");
        assert_eq!(ends.begun, ends.well + ends.failed, "{network:?}: {name} does not end: {tally:?}");
        let fails = name == OneSided::Stale.name();
        assert!(may_fail || if fails { ends.failed > 0 } else { ends.failed == 0 }, "{name}: {tally:?}");
    }
    let [well, failed] = tally.ends();
    assert!(!may_fail || well > 0 && failed > 0, "{network:?}: {tally:?}");
    assert!(served > 0 || network == Network::Shm, "{network:?}: no target's engine has done anything");
}
