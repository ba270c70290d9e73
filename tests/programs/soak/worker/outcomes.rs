//! How operations end, and whether they may end in this way.

use super::{Ended, Receiving, Sending, Worker};
use crate::calls::{CONTROL, Message, Mode, count};
use crate::report::now_ms;
use tickwire::{Agreed, CommError, PostError, RequestError, Status, Test};

/// After a send, messages up to this length are compared with their content again, bytes.
const LOOKED_AT: usize = 64 << 10;

impl Worker<'_> {
    /// Takes the operations that have ended.
    pub(super) fn collect(&mut self) {
        self.look();
        let mut at = 0;
        while at < self.sends.len() {
            match self.engine.test(&self.sends[at].request) {
                Ok(Test::Pending) => at += 1,
                _ => {
                    let send = self.sends.swap_remove(at);
                    self.take_send(send);
                }
            }
        }
        let mut at = 0;
        while at < self.receives.len() {
            match self.engine.test(&self.receives[at].request) {
                Ok(Test::Pending) => at += 1,
                Err(RequestError::PeerFailedPending { proc, .. }) => {
                    assert!(self.receives[at].from.is_none(), "only who waits for any source is told so");
                    self.acknowledge();
                    assert!(self.failed.contains_key(&proc.0), "what is told can be acknowledged");
                    at += 1;
                }
                _ => {
                    let receive = self.receives.swap_remove(at);
                    self.take_receive(receive);
                }
            }
        }
    }

    /// Acknowledges the failures of peers, so that receives from any source go on.
    pub(super) fn acknowledge(&mut self) {
        for (proc, reason) in self.engine.acknowledge_failures() {
            self.note_failure(proc.0, reason);
        }
    }

    fn take_send(&mut self, send: Sending) {
        let message = Message::of(self.plan, self.me, send.to, send.number);
        self.held -= message.length;
        let bytes = match self.engine.take(send.request) {
            Ok((bytes, _)) => bytes,
            Err(failed) => {
                self.note_end(&failed.error, send.to, send.posted_ms);
                failed.buffer.expect("buffers come back")
            }
        };
        // A buffered send may return an empty buffer. Any other buffer must be unchanged.
        let looked_at = bytes.len() <= LOOKED_AT && message.mode != Mode::Buffered;
        assert!(!looked_at || message.is(&bytes), "a send to {}: its buffer has changed", send.to);
    }

    fn take_receive(&mut self, receive: Receiving) {
        let Receiving { request, from, tag, place, cancelled, posted_ms } = receive;
        match self.engine.take(request) {
            Ok((bytes, status)) => {
                self.held -= bytes.len();
                let (source, found) = (status.source.0, status.tag.0);
                assert!(from.is_none_or(|from| from == source), "a message of {source} for a receive of {from:?}");
                assert!(tag.is_none_or(|tag| tag == found), "a message with tag {found} for a receive of {tag:?}");
                self.note_message(place, &bytes[..status.length], status);
                if found >= CONTROL && tag.is_none() && !cancelled {
                    // The receive got a control message. A receive for its own message is still needed.
                    self.receive(from, None);
                }
            }
            Err(failed) => {
                self.held -= failed.buffer.as_ref().expect("buffers come back").len();
                match failed.error {
                    RequestError::Cancelled => assert!(cancelled, "a receive was cancelled by nobody"),
                    ref error => {
                        let peer = match error {
                            RequestError::PeerFailed { proc, .. } if from.is_none() => proc.0,
                            _ => from.unwrap_or(self.me),
                        };
                        self.note_end(error, peer, posted_ms);
                        if from.is_none() && !cancelled {
                            // A receive for the message of another rank takes its place.
                            self.receive(None, None);
                        }
                    }
                }
            }
        }
    }

    /// Notes and checks a message that has arrived.
    fn note_message(&mut self, place: u64, bytes: &[u8], status: Status) {
        let (from, number) = (status.source.0, status.tag.0);
        let message = Message::of(self.plan, from, self.me, number);
        let name = format!("message {number} of rank {from} to rank {}", self.me);
        assert_eq!(bytes.len(), message.length, "{name}: its length");
        let differs = || {
            let wrong = message.content().iter().zip(bytes).position(|(due, found)| due != found);
            format!("{name}, {} bytes: the content differs from byte {wrong:?} on", bytes.len())
        };
        assert!(message.is(bytes), "{}", differs());
        if number >= CONTROL {
            assert!(self.control.insert((from, number)), "{name}: came twice");
            return;
        }
        assert!(number < count(self.plan, from, self.me), "{name}: was never sent");
        let got = &mut self.got[from as usize];
        assert!(got.iter().all(|&(_, other)| other != number), "{name}: came twice");
        got.push((place, number));
        self.bytes += bytes.len() as u64;
    }

    /// Notes that an operation was refused. Only the end of its peer may be the reason.
    pub(super) fn note_rejected(&mut self, error: &PostError, peer: u32, posted_ms: u64) {
        match error {
            PostError::PeerFailed { proc, reason } | PostError::Unreachable { proc, reason } if proc.0 == peer => {
                self.note_failure(peer, reason.clone());
                self.ended.push(Ended { peer, posted_ms, ended_ms: now_ms() });
            }
            other => panic!("rank {}: an operation with rank {peer} was refused: {other}", self.me),
        }
    }

    /// Notes that an operation has failed. Only the end of its peer may be the reason.
    fn note_end(&mut self, error: &RequestError, peer: u32, posted_ms: u64) {
        match error {
            RequestError::PeerFailed { proc, reason } if proc.0 == peer => {
                self.note_failure(peer, reason.clone());
                self.ended.push(Ended { peer, posted_ms, ended_ms: now_ms() });
            }
            other => panic!("rank {}: an operation with rank {peer} has failed: {other}", self.me),
        }
    }

    fn note_failure(&mut self, peer: u32, reason: String) {
        let me = self.me;
        let may = self.plan.is_doomed(peer) || self.plan.is_short();
        assert!(may && peer != me, "rank {me}: rank {peer} lives and is said to have failed: {reason}");
        self.failed.entry(peer).or_insert(reason);
    }

    /// Tests the agreement.
    pub(super) fn agree(&mut self) {
        let Some(agreement) = &mut self.agreement else { return };
        match self.engine.test_agreement(agreement) {
            Ok(Agreed::Pending) => return,
            Ok(Agreed::Done(comm)) => {
                let comm = comm.expect("a duplicate has all members");
                self.engine.comm_free(comm).unwrap();
            }
            Err(CommError::MemberFailed { .. } | CommError::Refused { .. }) if !self.plan.is_whole() => {}
            Err(error) => panic!("rank {}: no agreement: {error}", self.me),
        }
        self.agreement = None;
    }
}
