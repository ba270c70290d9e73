//! An exchange in which procs may die and frames may be changed, and a ledger of its messages.
//!
//! Each message has a number among the messages from its sender to its receiver. The number is its tag, and its content
//! follows from sender, receiver and number. All receives take any tag. So a proc must receive the messages of one
//! sender in the order of their numbers. For each ordered pair of procs:
//!
//! - no message is received twice or out of order, and no byte is wrong unless it was changed on its way;
//! - if both procs live and their connection has not ended, all messages are received;
//! - if a header was changed to one that no engine accepts, the connection ends on both sides;
//! - every operation ends within a bounded number of rounds.

use super::{Case, Ran};
use crate::cases::{BOUND, content};
use std::collections::BTreeMap;
use tickwire::internals::components::VcState;
use tickwire::testing::{Cluster, Corruption, Death, SimNet, SplitMix, rows};
use tickwire::{Comm, PostError, ProcId, Rank, Request, RequestError, Source, Status, Tag, TagFilter, Test};

/// Longest message, bytes.
const LENGTH_MAX: usize = 12_000;
/// Each engine sends fewer messages than this.
const MESSAGES: u64 = 14;
/// Rounds in which operations may still end before the rest is cancelled. That is longer than a frame is delayed, a
/// slow engine sleeps, or a death stays unnoticed.
const ROUNDS: u32 = 400;

/// The content of message `number` from one proc to another.
fn message(case: &Case, from: u32, to: u32, number: u32) -> Vec<u8> {
    let name = u64::from(from) << 40 | u64::from(to) << 32 | u64::from(number);
    let mut random = SplitMix::new(case.seed ^ name);
    let length = match random.below(8) {
        0 => 0,
        1 => 4000 + random.below(200),
        2 => 5000 + random.below(LENGTH_MAX as u64 - 5000),
        3 => random.below(1200),
        _ => random.below(120),
    };
    content(name, length as usize)
}

/// A receive, and the message that it got. Receives are listed in the order of posting.
struct Receive {
    request: Option<Request<Vec<u8>>>,
    /// Sender and number of the message that it got.
    got: Option<(u32, u32)>,
}

/// One engine's part.
struct Part {
    me: u32,
    receives: Vec<Receive>,
    sends: Vec<Request<Vec<u8>>>,
}

/// The whole exchange.
struct Exchange<'a> {
    case: &'a Case,
    net: &'a SimNet,
    cluster: Cluster,
    world: Comm,
    parts: Vec<Part>,
    /// Number of messages sent, by sender and receiver.
    sent: BTreeMap<(u32, u32), u32>,
    /// Number of wrong bytes received, by sender and receiver.
    wrong: BTreeMap<(u32, u32), u64>,
}

/// Runs a case.
///
/// # Panics
/// If something is not as it must be.
pub fn run(cluster: Cluster, net: &SimNet, case: &Case) -> Ran {
    let world = cluster.engines[0].comm_world();
    let part = |me| Part { me, receives: Vec::new(), sends: Vec::new() };
    let parts = (0..case.engines).map(part).collect();
    let mut exchange = Exchange { case, net, cluster, world, parts, sent: BTreeMap::new(), wrong: BTreeMap::new() };
    let calls = exchange.begin();
    exchange.receive_all();
    if case.config.corruption == Corruption::Header {
        exchange.end_what_was_changed();
    }
    exchange.end();
    exchange.judge(calls)
}

impl Exchange<'_> {
    /// Posts sends and receives in a random order, with ticks between them. Returns the number of calls.
    fn begin(&mut self) -> usize {
        let (mut random, engines) = (SplitMix::new(self.case.seed ^ 0xE8C4), u64::from(self.case.engines));
        let mut calls = Vec::new();
        for from in 0..self.case.engines {
            for _ in 0..random.below(MESSAGES) {
                let to = random.below(engines) as u32;
                calls.push((from, to, false));
                // Some receives are not posted here. They are posted when a probe has found their message.
                if random.below(4) > 0 {
                    calls.push((to, from, true));
                }
            }
        }
        for last in (1..calls.len()).rev() {
            calls.swap(last, random.below(last as u64 + 1) as usize);
        }
        for &(me, other, receives) in &calls {
            match receives {
                true if random.below(4) == 0 => self.receive(me, Source::Any, LENGTH_MAX),
                true => self.receive(me, Rank(other).into(), LENGTH_MAX),
                false => self.send(me, other),
            }
            match random.below(8) {
                0 | 1 => drop(self.cluster.tick_all()),
                2 | 3 => drop(self.cluster.tick(random.below(engines) as usize)),
                4 => self.collect(),
                _ => {}
            }
        }
        calls.len()
    }

    fn receive(&mut self, me: u32, source: Source, room: usize) {
        match self.cluster.engines[me as usize].irecv(vec![0u8; room], source, TagFilter::Any, self.world) {
            Ok(request) => self.parts[me as usize].receives.push(Receive { request: Some(request), got: None }),
            Err(rejected) => assert!(matches!(rejected.error, PostError::PeerFailed { .. }), "{rejected:?}"),
        }
    }

    fn send(&mut self, me: u32, to: u32) {
        let number = self.sent.entry((me, to)).or_default();
        let bytes = message(self.case, me, to, *number);
        match self.cluster.engines[me as usize].isend(bytes, Rank(to), Tag(*number), self.world) {
            Ok(request) => {
                *number += 1;
                self.parts[me as usize].sends.push(request);
            }
            Err(rejected) => assert!(matches!(rejected.error, PostError::PeerFailed { .. }), "{rejected:?}"),
        }
    }

    /// Takes the operations that have ended.
    fn collect(&mut self) {
        for me in 0..self.parts.len() {
            let engine = &mut self.cluster.engines[me];
            let mut ended = |request: &Request<Vec<u8>>| match engine.test(request) {
                Ok(Test::Pending) => false,
                Err(RequestError::PeerFailedPending { .. }) => {
                    engine.acknowledge_failures();
                    false
                }
                _ => true,
            };
            let part = &mut self.parts[me];
            let sent = part.sends.extract_if(.., |request| ended(request)).collect::<Vec<_>>();
            let open = part.receives.iter_mut().enumerate();
            let done = open.filter_map(|(place, receive)| Some((place, receive.request.take_if(|r| ended(r))?)));
            let done = done.collect::<Vec<_>>();
            for send in sent {
                let end = engine.take(send);
                assert!(end.is_ok() || matches!(end, Err(ref failed) if is_peer(&failed.error)), "a send: {end:?}");
            }
            let ends: Vec<_> = done.into_iter().map(|(place, request)| (place, engine.take(request))).collect();
            for (place, end) in ends {
                match end {
                    Ok((bytes, status)) => self.note(me, place, &bytes, status),
                    Err(failed) => {
                        let cancelled = failed.error == RequestError::Cancelled;
                        assert!(cancelled || is_peer(&failed.error), "a receive: {:?}", failed.error);
                    }
                }
            }
        }
    }

    /// Checks the message that a receive got, and enters it in the ledger.
    fn note(&mut self, me: usize, place: usize, bytes: &[u8], status: Status) {
        let (from, to, number) = (status.source.0, me as u32, status.tag.0);
        if self.is_changed(from, to) {
            return;
        }
        let sent = self.sent.get(&(from, to)).copied().unwrap_or(0);
        assert!(number < sent, "{from} to {to}: message {number} was never sent");
        let expected = message(self.case, from, to, number);
        assert_eq!(status.length, expected.len(), "{from} to {to}: the length of message {number}");
        let wrong = bytes.iter().zip(&expected).filter(|(found, expected)| found != expected).count() as u64;
        *self.wrong.entry((from, to)).or_default() += wrong;
        self.parts[me].receives[place].got = Some((from, number));
    }

    /// Whether a frame between two procs, in either direction, arrived with a changed header.
    fn is_changed(&self, from: u32, to: u32) -> bool {
        let changed = self.net.corrupted(from, to) + self.net.corrupted(to, from) > 0;
        changed && self.case.config.corruption != Corruption::Payload
    }

    /// Whether both procs live, no header between them was changed, and their connection has not ended.
    fn is_whole(&mut self, from: u32, to: u32) -> bool {
        let dead = [from, to].iter().any(|&proc| self.net.died_ns(proc).is_some());
        let mut failed = |me: u32, proc| self.cluster.vc_state(me as usize, proc) == Some(VcState::Failed);
        !(dead || failed(from, to) || failed(to, from) || self.is_changed(from, to))
    }

    /// Ticks and receives until all messages that can arrive have arrived, and all sends that can end have ended.
    fn receive_all(&mut self) {
        for round in 0.. {
            assert!(round < BOUND, "not all has arrived: {:?}\n{}", self.missing(), self.cluster.report());
            self.cluster.tick_all();
            self.collect();
            for me in 0..self.case.engines {
                for source in 0..self.case.engines {
                    let engine = &mut self.cluster.engines[me as usize];
                    let found = engine.iprobe(Rank(source), TagFilter::Any, self.world);
                    if let Ok(Some(status)) = found {
                        // A changed header may state any length.
                        self.receive(me, Rank(source).into(), status.length.min(LENGTH_MAX));
                    }
                }
            }
            if self.missing().is_empty() && self.pending_sends() == 0 {
                return;
            }
        }
    }

    /// Number of sends that must still end. If a header was changed anywhere, a send may wait forever, so none must.
    fn pending_sends(&mut self) -> usize {
        let changed = (0..self.case.engines).any(|a| (0..self.case.engines).any(|b| self.is_changed(a, b)));
        if changed { 0 } else { self.parts.iter().map(|part| part.sends.len()).sum() }
    }

    /// Messages that must still arrive: sender, receiver, count.
    fn missing(&mut self) -> Vec<(u32, u32, u32)> {
        let sent: Vec<_> = self.sent.iter().map(|(&(from, to), &count)| (from, to, count)).collect();
        let received = |exchange: &Self, from, to: u32| {
            let receives = exchange.parts[to as usize].receives.iter();
            receives.filter(|receive| receive.got.is_some_and(|(source, _)| source == from)).count() as u32
        };
        let left = sent.into_iter().map(|(from, to, count)| (from, to, count - received(self, from, to)));
        let left: Vec<_> = left.filter(|&(_, _, count)| count > 0).collect();
        left.into_iter().filter(|&(from, to, _)| self.is_whole(from, to)).collect()
    }

    /// A changed header may mean anything, so operations may wait forever. The senders of such frames are killed, so
    /// that everything that waits for them ends.
    fn end_what_was_changed(&mut self) {
        for from in 0..self.case.engines {
            if (0..self.case.engines).any(|to| self.net.corrupted(from, to) > 0) {
                self.net.kill(from, Death::At(self.cluster.now_ns));
            }
        }
    }

    /// Cancels the receives that still wait. Then everything must end.
    fn end(&mut self) {
        for _ in 0..ROUNDS {
            self.cluster.tick_all();
        }
        self.collect();
        for part in &mut self.parts {
            let engine = &mut self.cluster.engines[part.me as usize];
            for request in part.receives.iter().filter_map(|receive| receive.request.as_ref()) {
                engine.cancel(&request.id()).expect("it can be asked for");
            }
        }
        for round in 0.. {
            let open = |part: &Part| part.sends.len() + part.receives.iter().filter(|r| r.request.is_some()).count();
            if self.parts.iter().map(open).sum::<usize>() == 0 {
                return;
            }
            assert!(round < BOUND, "not all operations have ended\n{}", self.cluster.report());
            self.cluster.tick_all();
            self.collect();
        }
    }

    /// Checks the ledger at the end.
    fn judge(mut self, calls: usize) -> Ran {
        let mut ran = Ran { calls, ..Ran::default() };
        ran.deaths = (0..self.case.engines).filter(|&proc| self.net.died_ns(proc).is_some()).count();
        for to in 0..self.case.engines {
            for from in 0..self.case.engines {
                let changed = self.net.corrupted(from, to);
                ran.corrupted += changed as usize;
                if self.is_changed(from, to) {
                    if self.case.config.corruption == Corruption::Refused {
                        self.must_have_ended(from, to);
                    }
                    continue;
                }
                let receives = self.parts[to as usize].receives.iter();
                let got = receives.filter_map(|receive| receive.got.filter(|(source, _)| *source == from));
                let got: Vec<u32> = got.map(|(_, number)| number).collect();
                assert!(got.is_sorted_by(|a, b| a < b), "{from} to {to}: received in the order {got:?}");
                let sent = self.sent.get(&(from, to)).copied().unwrap_or(0);
                ran.lost += sent as usize - got.len();
                let wrong = self.wrong.get(&(from, to)).copied().unwrap_or(0);
                assert!(wrong <= changed, "{from} to {to}: {wrong} bytes are wrong, {changed} were changed");
                if self.is_whole(from, to) {
                    assert_eq!(got.len(), sent as usize, "{from} to {to}: all arrive once");
                    assert_eq!(wrong, changed, "{from} to {to}: bytes that were changed");
                }
            }
        }
        if ran.deaths == 0 && ran.corrupted == 0 {
            self.cluster.assert_at_rest();
        }
        ran
    }

    /// Checks that both sides have ended the connection. The receiver must name a protocol violation as the reason.
    fn must_have_ended(&mut self, from: u32, to: u32) {
        for (me, other) in [(from, to), (to, from)] {
            assert_eq!(self.cluster.vc_state(me as usize, other), Some(VcState::Failed), "of {me} to {other}");
        }
        let all = rows(&mut self.cluster.engines[to as usize]);
        let row = all.vcs.iter().position(|vc| ProcId(vc.proc) == ProcId(from)).expect("a VC") as u32;
        let reason = all.procs.reason(row);
        let both = self.net.corrupted(to, from) > 0;
        assert!(both || reason.starts_with("protocol violation"), "{from} to {to} has ended by: {reason}");
    }
}

fn is_peer(error: &RequestError) -> bool {
    matches!(error, RequestError::PeerFailed { .. })
}
