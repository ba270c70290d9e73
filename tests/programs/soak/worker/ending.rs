//! The end of an exchange. No rank leaves before the others have got all its messages, and nothing is left over.

use super::{Ended, Sending, Worker};
use crate::calls::{CONTROL, CONTROL_BYTES, Manner, Message, manner};
use crate::report::{get, now_ms};
use std::time::{Duration, Instant};
use tickwire::testing::check_invariants;
use tickwire::{Rank, Tag};

/// Says that the sender has received all its messages.
const DONE: u32 = CONTROL;
/// Says that the sender has posted its receive for [`ARROW`].
const READY: u32 = CONTROL + 1;
/// A message in ready mode to the next rank.
const ARROW: u32 = CONTROL + 2;
/// The message of a blocking call to the next rank.
const FAREWELL: u32 = CONTROL + 3;

/// How long an operation may stay pending after a death, ms: 1 s, and more for a loaded machine.
const NOTICE_MS_MAX: u64 = 1000 + 3000;
/// How long the note of a death may be missing. The rank writes it just before it dies.
const NOTE: Duration = Duration::from_secs(2);

impl Worker<'_> {
    /// Posts the receives for the "done" messages of the peers.
    pub(super) fn await_done(&mut self) {
        for peer in self.others() {
            // The receive may exist already: a probe may have found the message.
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

    /// Whether a control message has come, or will never come because the peer has failed.
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

    /// Cancels the receives for which no message is left.
    fn take_back(&mut self) {
        for place in 0..self.receives.len() {
            if self.receives[place].tag != Some(DONE) {
                self.cancel(place);
            }
        }
        self.until("cancelled receives", |worker| worker.receives.iter().all(|receive| receive.tag == Some(DONE)));
    }

    /// Checks that the messages of each sender were received in the order of sending. With exact receives there is no
    /// such order to check.
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

    /// Each rank sends one message in ready mode to the next rank, as soon as that rank says that its receive is
    /// posted.
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

    /// Checks that operations with a dead rank failed soon after its death.
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

    /// Checks that nothing is left in the engine.
    fn check_rest(&mut self) {
        // Sends whose requests were dropped may still be on their way.
        self.until("an engine at rest", |worker| worker.engine.dump().operations.is_empty());
        let dump = self.engine.dump();
        // Messages of a failed rank may be left. The farewell may have come already.
        let living = |peer: Option<u32>| peer.is_none_or(|peer| !self.failed.contains_key(&peer));
        let messages = dump.unexpected.iter().filter(|message| message.tag != FAREWELL);
        let left: Vec<_> = messages.filter(|message| living(message.peer)).collect();
        assert!(dump.active == 0 && left.is_empty(), "rank {}: something is left\n{dump}", self.me);
        check_invariants(self.engine).unwrap();
    }

    /// Sends to the next rank and receives from the one before, in one blocking call.
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
