//! An exchange of messages and sums by ranks that go on in the middle of each other's calls, and what must be true of it in the end.

use super::stage;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tickwire::testing::{SplitMix, check_invariants};
use tickwire::{Comm, Engine, PostError, Rank, Request, RequestError, Source, Tag, TagFilter, Test, op};

/// Time between two steps, ns.
const STEP_NS: u64 = 5_000;
/// Longest message, bytes: longer than a ring, and longer than what goes without an offer.
const LENGTH_MAX: u64 = 40_000;

/// What follows from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) ranks: u32,
    /// The number of messages from one rank to another, by sender and receiver.
    counts: Vec<Vec<u32>>,
    /// The lengths of the sums that all ranks make, in elements.
    sums: Vec<usize>,
    /// Whether each rank receives from any source, with any tag.
    takes_any: Vec<bool>,
    /// The rank that goes without a farewell, and before which of its calls.
    gone: Option<(u32, usize)>,
    /// Whether ranks end as soon as they have nothing left to do. Others may not have looked at their messages by then.
    ends_early: bool,
    /// How many of 256 moments let another rank go on.
    pub(crate) of_256: u64,
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = SplitMix::new(seed);
        let ranks = 2 + random.below(3) as u32;
        let mut counts = || (0..ranks).map(|_| random.below(6) as u32).collect::<Vec<_>>();
        let counts = (0..ranks).map(|_| counts()).collect();
        let sums = (0..random.below(4)).map(|_| [1, 300, 6000][random.below(3) as usize]).collect();
        let takes_any = (0..ranks).map(|_| random.below(2) == 0).collect();
        let gone = (random.below(3) == 0).then(|| (random.below(ranks.into()) as u32, random.below(12) as usize));
        let of_256 = [4, 16, 60][random.below(3) as usize];
        Plan { seed, ranks, counts, sums, takes_any, gone, ends_early: random.below(2) == 0, of_256 }
    }

    fn count(&self, from: u32, to: u32) -> u32 {
        self.counts[from as usize][to as usize]
    }

    fn is_gone(&self, rank: u32) -> bool {
        self.gone.is_some_and(|(gone, _)| gone == rank)
    }

    fn message(&self, from: u32, to: u32, number: u32) -> Vec<u8> {
        let name = u64::from(from) << 40 | u64::from(to) << 32 | u64::from(number);
        let mut random = SplitMix::new(self.seed.wrapping_mul(0x9E37_79B9) ^ name);
        let length = match random.below(4) {
            0 => random.below(LENGTH_MAX),
            1 => random.below(4000),
            _ => random.below(64),
        };
        let words = (0..length.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes());
        words.take(length as usize).collect()
    }
}

#[derive(Clone, Copy)]
enum Call {
    Send { to: u32, number: u32 },
    Receive { from: u32, number: u32 },
    Sum { number: u32 },
}

/// A sum that has not ended.
type Sum = Request<(Vec<u64>, Vec<u64>)>;

/// A receive that has not ended.
struct Receive {
    place: usize,
    /// `None`: from any source.
    from: Option<u32>,
    request: Request<Vec<u8>>,
}

/// One rank's part.
struct Part {
    plan: Plan,
    me: u32,
    engine: Engine,
    random: SplitMix,
    calls: VecDeque<Call>,
    made: usize,
    sends: Vec<(u32, Request<Vec<u8>>)>,
    receives: Vec<Receive>,
    sums: Vec<(u32, Sum)>,
    /// The messages received, by sender: the position of the receive in the order of posting, and the number of the message.
    got: Vec<Vec<(usize, u32)>>,
}

/// What the ranks of an exchange share.
pub(crate) struct Shared {
    now_ns: AtomicU64,
    /// Ranks that have not got everything.
    busy: AtomicU32,
}

impl Shared {
    pub(crate) fn new(plan: &Plan) -> Self {
        let busy = plan.ranks - u32::from(plan.gone.is_some());
        Shared { now_ns: AtomicU64::new(0), busy: AtomicU32::new(busy) }
    }
}

/// Plays a rank, and checks what came of it.
///
/// # Panics
/// If a message is lost, changed or out of order, an operation fails, or the engine's tables contradict each other.
pub(crate) fn play(plan: &Plan, me: u32, engine: Engine, shared: &Shared) {
    let (mut part, mut is_done) = (Part::new(plan, me, engine), false);
    while is_done || !plan.ends_early || !part.has_nothing_left() {
        if plan.gone.is_some_and(|(gone, at)| gone == me && part.made >= at) {
            // It goes without a farewell: its engine is dropped.
            return;
        }
        if !is_done && part.is_done() {
            is_done = true;
            shared.busy.fetch_sub(1, Ordering::Relaxed);
        }
        if is_done && shared.busy.load(Ordering::Relaxed) == 0 {
            break;
        }
        part.step(shared.now_ns.fetch_add(STEP_NS, Ordering::Relaxed));
        if stage::is_late() {
            eprintln!("it does not end: {plan:?}\n{}", part.words());
            loop {
                stage::end_turn();
            }
        }
    }
    if !is_done {
        shared.busy.fetch_sub(1, Ordering::Relaxed);
    }
    part.judge();
}

impl Part {
    fn new(plan: &Plan, me: u32, engine: Engine) -> Self {
        let mut random = SplitMix::new(plan.seed ^ u64::from(me) << 32 ^ 0x57A6E);
        let mut calls = Vec::new();
        for other in 0..plan.ranks {
            calls.extend((0..plan.count(me, other)).map(|number| Call::Send { to: other, number }));
            calls.extend((0..plan.count(other, me)).map(|number| Call::Receive { from: other, number }));
        }
        calls.extend(plan.sums.iter().map(|_| Call::Sum { number: 0 }));
        for last in (1..calls.len()).rev() {
            calls.swap(last, random.below(last as u64 + 1) as usize);
        }
        // The messages to one rank keep their order, and so do the sums.
        let (mut next, mut next_sum) = (vec![0; plan.ranks as usize], 0);
        for call in &mut calls {
            let (number, next) = match call {
                Call::Send { to, number } => (number, &mut next[*to as usize]),
                Call::Sum { number } => (number, &mut next_sum),
                Call::Receive { .. } => continue,
            };
            *number = *next;
            *next += 1;
        }
        let got = vec![Vec::new(); plan.ranks as usize];
        let (sends, receives, sums) = Default::default();
        Part { plan: plan.clone(), me, engine, random, calls: calls.into(), made: 0, sends, receives, sums, got }
    }

    /// Makes a call.
    fn step(&mut self, now_ns: u64) {
        match self.random.below(4) {
            0 => self.make(),
            1 => {
                self.collect();
                self.collect_sums();
            }
            _ => drop(self.engine.tick_at(now_ns)),
        }
        if let Err(wrong) = check_invariants(&mut self.engine) {
            panic!("{wrong}\n{}", self.words());
        }
        // Others may go on where this rank makes no call of its transport, too.
        stage::moment();
    }

    fn make(&mut self) {
        // A rank that is to go makes calls of no consequence until then.
        self.made += 1;
        match self.calls.pop_front() {
            Some(Call::Send { to, number }) => self.send(to, number),
            Some(Call::Receive { from, number }) => self.receive(from, number),
            Some(Call::Sum { number }) => self.sum(number),
            None => {}
        }
    }

    fn send(&mut self, to: u32, number: u32) {
        let bytes = self.plan.message(self.me, to, number);
        match self.engine.isend(bytes, Rank(to), Tag(number), Comm::WORLD) {
            Ok(request) => self.sends.push((to, request)),
            Err(rejected) => assert!(self.is_of_gone(&rejected.error, to), "a send to {to}: {}", rejected.error),
        }
    }

    fn receive(&mut self, from: u32, number: u32) {
        let takes_any = self.plan.takes_any[self.me as usize];
        let (source, tag) = match takes_any {
            true => (Source::Any, TagFilter::Any),
            false => (Rank(from).into(), Tag(number).into()),
        };
        match self.engine.irecv(vec![0; LENGTH_MAX as usize], source, tag, Comm::WORLD) {
            Ok(request) => {
                let from = (!takes_any).then_some(from);
                self.receives.push(Receive { place: self.made, from, request });
            }
            // Where the source does not matter, another receive takes its place as soon as the failure is acknowledged.
            Err(rejected) if takes_any && matches!(rejected.error, PostError::PeerFailed { .. }) => {
                assert!(self.plan.gone.is_some(), "a receive: {}", rejected.error);
                self.engine.acknowledge_failures();
                self.calls.push_back(Call::Receive { from, number });
            }
            Err(rejected) => assert!(self.is_of_gone(&rejected.error, from), "a receive: {}", rejected.error),
        }
    }

    fn sum(&mut self, number: u32) {
        let own: Vec<u64> = self.addends(number).map(|addend| addend(self.me)).collect();
        let into = vec![0; own.len()];
        match self.engine.iallreduce(own, into, op::Sum, Comm::WORLD) {
            Ok(request) => self.sums.push((number, request)),
            Err(rejected) => assert!(self.plan.gone.is_some(), "sum {number}: {}", rejected.error),
        }
    }

    /// For each element of a sum, what a rank adds to it.
    fn addends(&self, number: u32) -> impl Iterator<Item = impl Fn(u32) -> u64 + use<>> + use<> {
        let (seed, length) = (self.plan.seed, self.plan.sums[number as usize] as u64);
        (0..length).map(move |at| move |rank: u32| seed ^ u64::from(rank) << 20 ^ u64::from(number) << 16 ^ at)
    }

    /// Takes the sums that have ended.
    fn collect_sums(&mut self) {
        let engine = &mut self.engine;
        let is_over = |(_, request): &mut (u32, _)| !matches!(engine.test(request), Ok(Test::Pending));
        let over: Vec<_> = self.sums.extract_if(.., is_over).collect();
        for (number, request) in over {
            match self.engine.take(request) {
                Ok(((_, sums), _)) => {
                    let ranks = self.plan.ranks;
                    let of_all = |addend: &dyn Fn(u32) -> u64| (0..ranks).map(addend).fold(0, u64::wrapping_add);
                    let expected = self.addends(number).map(|addend| of_all(&addend));
                    assert!(sums.into_iter().eq(expected), "rank {}: sum {number} differs", self.me);
                }
                Err(failed) => assert!(self.plan.gone.is_some(), "rank {}: a sum: {}", self.me, failed.error),
            }
        }
    }

    fn is_of_gone(&self, error: &PostError, rank: u32) -> bool {
        let is_end = matches!(error, PostError::PeerFailed { .. } | PostError::Unreachable { .. });
        is_end && self.plan.is_gone(rank)
    }

    /// Takes the operations that have ended.
    fn collect(&mut self) {
        let Part { engine, plan, sends, receives, got, me, .. } = self;
        let mut is_over = |request: &Request<Vec<u8>>| match engine.test(request) {
            Ok(Test::Pending) => false,
            Err(RequestError::PeerFailedPending { .. }) => {
                engine.acknowledge_failures();
                false
            }
            _ => true,
        };
        let sent: Vec<_> = sends.extract_if(.., |(_, request)| is_over(request)).collect();
        let received: Vec<_> = receives.extract_if(.., |receive| is_over(&receive.request)).collect();
        for (to, request) in sent {
            let ended = engine.take(request);
            assert!(ended.is_ok() || plan.is_gone(to), "rank {me}: a send to {to}: {ended:?}");
        }
        for Receive { place, from, request } in received {
            match engine.take(request) {
                Ok((bytes, status)) => {
                    let (source, number) = (status.source.0, status.tag.0);
                    assert!(from.is_none_or(|from| from == source), "rank {me}: a message of {source}");
                    let name = format!("message {number} of rank {source} to rank {me}");
                    assert!(bytes[..status.length] == plan.message(source, *me, number), "{name}: it has changed");
                    let got = &mut got[source as usize];
                    assert!(got.iter().all(|&(_, other)| other != number), "{name}: it came twice");
                    got.push((place, number));
                }
                // What a receive from any source was matched with may have ended with its sender.
                Err(failed) => {
                    let of_gone = from.map_or(plan.gone.is_some(), |from| plan.is_gone(from));
                    assert!(of_gone, "rank {me}: a receive from {from:?}: {}", failed.error);
                }
            }
        }
    }

    /// Whether everything that can come has come, and all sends have ended.
    fn is_done(&self) -> bool {
        let has_all = |from: u32| self.plan.is_gone(from) || self.got[from as usize].len() == self.due(from);
        self.sends.is_empty()
            && self.sums.is_empty()
            && self.receives.iter().all(|receive| receive.from.is_none())
            && !self.plan.is_gone(self.me)
            && !self.calls.iter().any(|call| matches!(call, Call::Send { .. } | Call::Sum { .. }))
            && (0..self.plan.ranks).all(has_all)
    }

    /// Whether all its calls have been made and have ended.
    fn has_nothing_left(&self) -> bool {
        self.calls.is_empty() && self.sends.is_empty() && self.receives.is_empty() && self.is_done()
    }

    fn due(&self, from: u32) -> usize {
        self.plan.count(from, self.me) as usize
    }

    /// Checks the order of messages, and that nothing is left.
    fn judge(&mut self) {
        let takes_any = self.plan.takes_any[self.me as usize];
        for (from, got) in self.got.iter_mut().enumerate().filter(|_| takes_any) {
            got.sort_unstable();
            let in_order = got.is_sorted_by_key(|&(_, number)| number);
            assert!(in_order, "rank {}: from {from} in the order {got:?}", self.me);
        }
        if self.plan.gone.is_none() {
            let words = self.words();
            assert!(self.calls.is_empty() && self.receives.is_empty(), "rank {}: {words}", self.me);
        }
    }

    fn words(&mut self) -> String {
        let left: Vec<_> = (0..self.plan.ranks).map(|from| self.due(from) - self.got[from as usize].len()).collect();
        let calls = self.calls.len();
        format!("rank {}: {left:?} messages missing by sender, {calls} calls left\n{}", self.me, self.engine.dump())
    }
}
