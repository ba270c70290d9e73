//! The end of an exchange: nobody leaves before all others have what it has sent, and nothing is left.

use super::{Ended, Sending, Worker};
use crate::calls::{CONTROL, CONTROL_BYTES, Manner, Message, manner};
use crate::report::{get, now_ms};
use std::time::{Duration, Instant};
use tickwire::testing::check_invariants;
use tickwire::{Rank, Tag};

/// A rank has all its messages.
const DONE: u32 = CONTROL;
/// A receive is posted for [`ARROW`].
const READY: u32 = CONTROL + 1;
/// Sent in ready mode to the next rank.
const ARROW: u32 = CONTROL + 2;
/// Sent by a call that waits to the next rank.
const FAREWELL: u32 = CONTROL + 3;

/// How long after a death an operation may still be pending, ms: 1 s, and the rest for a loaded machine.
const NOTICE_MS_MAX: u64 = 1000 + 3000;
/// How long the note of a death may take to be there.
const NOTE: Duration = Duration::from_secs(2);

impl Worker<'_> {
    /// Posts what hears that peers are done.
    pub(super) fn await_done(&mut self) {
        for peer in self.others() {
            // A probe may have found it, and its receive be under way.
            let asked = self.receives.iter().any(|receive| (receive.from, receive.tag) == (Some(peer), Some(DONE)));
            if !asked && !self.control.contains(&(peer, DONE)) {
                self.receive_into(Some(peer), Some(DONE), CONTROL_BYTES);
            }
        }
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let me = self.me;
        (0..self.plan.ranks).filter(move |&rank| rank != me)
    }

    /// Whether a control message has come, or never will.
    fn has(&self, peer: u32, tag: u32) -> bool {
        self.control.contains(&(peer, tag)) || self.failed.contains_key(&peer)
    }

    /// Ends the exchange.
    pub(super) fn end(&mut self) {
        self.take_back();
        self.check_order();
        self.until("an agreement", |worker| worker.agreement.is_none());
        if !self.plan.control_first {
            self.await_done();
        }
        for peer in self.others() {
            self.send(peer, DONE);
        }
        let others: Vec<u32> = self.others().collect();
        self.until("that all are done", |worker| others.iter().all(|&peer| worker.has(peer, DONE)));
        self.pass_arrows();
        self.until("operations that are left", |worker| worker.sends.is_empty() && worker.receives.is_empty());
        self.check_times();
        self.check_rest();
        if self.plan.is_whole() {
            self.say_farewell();
        }
    }

    /// Cancels receives that no message is left for.
    fn take_back(&mut self) {
        for place in 0..self.receives.len() {
            if self.receives[place].tag != Some(DONE) {
                self.cancel(place);
            }
        }
        self.until("cancelled receives", |worker| worker.receives.iter().all(|receive| receive.tag == Some(DONE)));
    }

    /// Messages of a sender were received in the order in which they were sent, where receives took what came.
    fn check_order(&mut self) {
        if manner(self.plan, self.me) == Manner::Exact {
            return;
        }
        for (from, got) in self.got.iter_mut().enumerate() {
            got.sort_unstable();
            let numbers: Vec<u32> = got.iter().map(|&(_, number)| number).collect();
            assert!(numbers.is_sorted(), "rank {}: received from rank {from} in the order {numbers:?}", self.me);
        }
    }

    /// Each sends one message to the next rank in ready mode, once that has said that its receive is posted.
    fn pass_arrows(&mut self) {
        let ranks = self.plan.ranks;
        let (right, left) = ((self.me + 1) % ranks, (self.me + ranks - 1) % ranks);
        self.receive_into(Some(left), Some(ARROW), CONTROL_BYTES);
        self.send(left, READY);
        self.receive_into(Some(right), Some(READY), CONTROL_BYTES);
        self.until("that a receive is posted", |worker| worker.has(right, READY));
        let (bytes, posted_ms) = (Message::of(self.plan, self.me, right, ARROW).content(), now_ms());
        match self.engine.irsend(bytes, Rank(right), Tag(ARROW), self.world) {
            Ok(request) => self.add_send(Sending { request, to: right, number: ARROW, posted_ms }, CONTROL_BYTES),
            Err(rejected) => self.note_rejected(&rejected.error, right, posted_ms),
        }
        self.until("a message in ready mode", |worker| worker.has(left, ARROW));
    }

    /// What a death has ended has ended soon after it.
    fn check_times(&mut self) {
        let gap_ms = self.gap.as_millis() as u64;
        for &Ended { peer, posted_ms, ended_ms } in &self.ended {
            if !self.plan.is_doomed(peer) {
                continue;
            }
            let start = Instant::now();
            let died_ms: u64 = loop {
                if let Some(words) = get(self.place, &format!("died-{peer}")) {
                    break words.parse().unwrap();
                }
                assert!(
                    start.elapsed() < NOTE,
                    "rank {}: rank {peer} has not died and is said to have failed",
                    self.me
                );
                std::thread::yield_now();
            };
            let took_ms = ended_ms.saturating_sub(died_ms.max(posted_ms));
            let most = NOTICE_MS_MAX + gap_ms;
            assert!(took_ms <= most, "rank {}: the death of rank {peer} was noticed after {took_ms} ms", self.me);
        }
    }

    /// Nothing is left in the engine.
    fn check_rest(&mut self) {
        // Sends without a token may still be on their way.
        self.until("an engine at rest", |worker| worker.engine.dump().operations.is_empty());
        let dump = self.engine.dump();
        // What was sent here by one that has failed may be left, and the last message may have come.
        let living = |peer: Option<u32>| peer.is_none_or(|peer| !self.failed.contains_key(&peer));
        let messages = dump.unexpected.iter().filter(|message| message.tag != FAREWELL);
        let left: Vec<_> = messages.filter(|message| living(message.peer)).collect();
        assert!(dump.active == 0 && left.is_empty(), "rank {}: something is left\n{dump}", self.me);
        check_invariants(self.engine).unwrap();
    }

    /// To the next rank, and from the one before, in one call that waits.
    fn say_farewell(&mut self) {
        let ranks = self.plan.ranks;
        let (right, left) = ((self.me + 1) % ranks, (self.me + ranks - 1) % ranks);
        let (ours, theirs) =
            (Message::of(self.plan, self.me, right, FAREWELL), Message::of(self.plan, left, self.me, FAREWELL));
        let (out, mut into) = (ours.content(), vec![0u8; theirs.length]);
        let (tag, world) = (Tag(FAREWELL), self.world);
        let status = self.engine.sendrecv(&out, Rank(right), tag, &mut into, Rank(left), tag, world).unwrap();
        assert!(status.source == Rank(left) && theirs.is(&into), "rank {}: the last message differs", self.me);
    }
}
