//! A case, made from its seed: two clusters get the same calls and are compared.

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
use tickwire::internals::transports::shm::Staging;
use tickwire::testing::{Cluster, Corruption, ProviderConfig, STEP_NS, SimConfig, SimNet, SplitMix};
use tickwire::transport::Hub;
use tickwire::{Limits, Matching};

/// Seeds of each network, unless the environment asks for others.
const SEEDS: u64 = 12;

/// Time from a death until the other ranks are told, ns. In these few rounds the frames in flight arrive.
const NOTICE_NS: u64 = 5 * STEP_NS;

/// How a cluster's engines reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    Loopback,
    Shm,
    /// Frames are late and are taken in parts, and sends are refused. Credit comes in portions. Memory is read, and
    /// some reads are refused.
    Hindered,
    /// As `Hindered`, and either a proc dies or frames are changed on their way. There are no operations of all ranks.
    /// No read is refused, so that both sides send the same frames.
    Failing,
    /// As `Failing`, but always a proc dies, and there are operations of all ranks.
    Dying,
    /// The provider's endpoints match messages themselves. It may not reach all ranks: then messages may have to wait for a
    /// receive that is at the provider.
    Provider,
    /// Ranks have waited for each other before. They have a window, and boards where the transport allows them.
    Met,
}

/// The transport over which ranks have met, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Over shared memory, with boards.
    Shm,
    /// Over shared memory, but without boards: by messages.
    ShmWithoutBoards,
    /// Over loopback within one process: by messages. A window is reached as memory.
    Loopback,
    /// Over loopback, as if each rank was on its own host. The target's engine serves operations on a window.
    LoopbackApart,
}

/// A case, made from its seed.
struct Case {
    network: Network,
    seed: u64,
    ranks: u32,
    limits: Limits,
    config: SimConfig,
    /// Whether a rank dies.
    dies: bool,
    /// Where ranks have met. Only [`Network::Met`] uses it.
    place: Place,
    /// Whether engines over loopback act as if they shared no memory.
    apart: bool,
    /// Whether long messages over shared memory are staged.
    stages: bool,
    /// Whether the provider does not reach all ranks.
    mixed: bool,
}

/// A rank that dies some frames after a call begins. If the call is an operation of all ranks, it dies after it at
/// the latest.
pub(crate) struct Dies {
    /// The call's number.
    pub(crate) call: usize,
    /// The rank.
    pub(crate) rank: u32,
    /// How many frames it still sends.
    pub(crate) frames: u64,
}

impl Case {
    /// The case of a seed, and the generator for its other choices.
    fn of(network: Network, seed: u64) -> (Self, SplitMix) {
        let mut random = SplitMix::new(seed ^ 0x10_0B5);
        let ranks = 2 + random.below(2) as u32;
        let matching = choose(&mut random, &[Matching::Auto, Matching::Lists, Matching::Index]);
        let passes_max = choose(&mut random, &[1, 8]);
        // `oneself.rs` compares the short cut for messages to oneself, so it is off here.
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
            config.credit_windows = reading.below(2) == 0;
            config.moves = reading.below(2) == 0;
        }
        if network == Network::Hindered {
            config.unread_of_256 = choose(&mut reading, &[0, 60]);
        }
        let mut dies = network == Network::Dying;
        if network == Network::Failing {
            match random.below(3) {
                0 => config.corrupt_of_65536 = 2000,
                // No frames in parts here: a death is set by the number of frames, and each try of a part would count
                // as a frame. The two sides try a different number of times.
                _ => (dies, config.partial_of_256) = (true, 0),
            }
            config.corruption = choose(&mut random, &[Corruption::Refused, Corruption::Payload]);
        }
        // The time is short: when a cluster is quiet, all ranks must have heard of a death.
        config.notice_ns = NOTICE_NS;
        let places = [Place::Shm, Place::ShmWithoutBoards, Place::Loopback, Place::LoopbackApart];
        let (place, apart) = (places[(seed % 4) as usize], random.below(2) == 0);
        let stages = network == Network::Shm && seed.is_multiple_of(3);
        let mixed = network == Network::Provider && !seed.is_multiple_of(2);
        (Case { network, seed, ranks, limits, config, dies, place, apart, stages, mixed }, random)
    }

    /// The operations on other ranks' memory that this network has.
    fn kinds(&self) -> Vec<OneSided> {
        let windows = OneSided::WINDOWS.into_iter().filter(|_| self.network == Network::Met);
        OneSided::REGIONS.into_iter().chain(windows).collect()
    }

    /// One of the two clusters: row by row if `deliver`, else column by column.
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
            // Rings have their full size at once. How a message is cut depends on the room in the ring, and a ring
            // that grows would not have the same room on both sides.
            let limits = Limits { first_ring_bytes: limits.ring_bytes, boards, ..limits.clone() };
            // Whether staging is cheaper depends on the times that are measured.
            let staging = if self.stages { Staging::Always } else { Staging::Never };
            let build = |builder: tickwire::Builder| builder.limits(limits.clone()).staging(staging).shared_heap(true);
            Cluster::shm_with(self.ranks, build)
        };
        let cluster = match (self.network, self.place) {
            (Network::Loopback, _) => loopback(self.apart),
            (Network::Met, Place::Loopback | Place::LoopbackApart) => loopback(self.place == Place::LoopbackApart),
            (Network::Met, Place::Shm | Place::ShmWithoutBoards) => shm(self.place == Place::Shm),
            (Network::Shm, _) => shm(true),
            (Network::Hindered | Network::Failing | Network::Dying, _) => Cluster::sim_with(self.ranks, &net, build),
            (Network::Provider, _) => {
                // Hubs are apart. Otherwise one-sided operations would use shared memory and bypass the provider.
                let build = |builder| build(builder).hub(apart.clone());
                // The last rank may be on a network of its own. The others reach it over loopback, where the engine matches.
                let last = self.ranks - 1;
                let near = |rank: u32| if rank == last { vec![last] } else { (0..last).collect() };
                let config = |rank: u32| ProviderConfig {
                    procs: self.mixed.then(|| near(rank)),
                    priority: u8::MAX,
                    ..ProviderConfig::calm(self.seed)
                };
                Cluster::provider_with(self.ranks, &net, config, build)
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

    /// Whether frames and credit are compared too. Elsewhere they differ: credit travels with whatever frame goes
    /// next, or in a frame of its own, and the two sides choose other frames and times.
    fn is_exact(&self) -> bool {
        matches!(self.network, Network::Loopback | Network::Shm)
    }

    /// Runs the case. Returns the tally of the counted kinds, and how many operations were for a target's engine to
    /// do.
    fn run(&self, mut random: SplitMix) -> (Tally, u32) {
        let calls = calls(&mut random, self.ranks as usize, self.network != Network::Failing, &self.kinds());
        let death = self.death_among(&calls, &mut random);
        let mut sides = [true, false].map(|deliver| self.side(deliver));
        // Where ranks die, a call of several ranks is made only when all is quiet. Otherwise the rank may die before
        // the call on one side and after it on the other.
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
        // Where a proc dies, the number of parts of operations of all ranks that end well may differ.
        assert!(rows == columns || self.network == Network::Dying, "{rows:?}\n{columns:?}\nseed {}", self.seed);
        rows
    }

    /// Which rank dies, and when, if the case has a death. It dies in an operation of all ranks. On
    /// [`Network::Failing`], which has none, it dies at any call.
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
    /// If the two sides differ where they must be equal. `death` is the call in which a rank dies.
    fn compare(&self, sides: &mut [Side; 2], calls: &[Call], death: Option<usize>) {
        let words = || format!("{:?} seed {} after {calls:?}", self.network, self.seed);
        // A failure may show in several ways, and the two sides may see different ones first. Only the fact that it
        // failed is compared.
        let logs = [0, 1].map(|side: usize| sides[side].log.iter().map(|line| without_reason(line)).collect());
        same(&logs, words);
        let columns = [0, 1].map(|side: usize| sides[side].columns(self.is_exact()));
        same(&columns, words);
        if let [Some(rows), Some(columns)] = sides.each_ref().map(|side| side.parts.as_ref()) {
            // After a failure, what was posted and matched may differ, since an operation may have failed at a
            // different point.
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

/// A line without the words that give the reason of a failure.
fn without_reason(line: &str) -> String {
    match line.split_once("reason: ") {
        Some((before, _)) => before.into(),
        None => line.into(),
    }
}

/// # Panics
/// If the lines of the two sides differ. It shows the first different line.
fn same([rows, columns]: &[Vec<String>; 2], words: impl Fn() -> String) {
    let differ = rows.iter().zip(columns).position(|(row, column)| row != column);
    if let Some(first) = differ.or_else(|| (rows.len() != columns.len()).then(|| rows.len().min(columns.len()))) {
        let [row, column] = [rows, columns].map(|lines| lines.get(first));
        panic!("by rows {row:?}\nby columns {column:?}\nof {rows:#?}\n{}", words());
    }
}

/// A range of numbers that can be `Copy`, as [`choose`] needs.
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

/// The seeds that the environment asks for. By default there are enough to make every kind of call on a network.
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

/// Checks that every kind was begun and has ended. Where nothing fails, every operation must end well, except a get
/// with a stale key.
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
