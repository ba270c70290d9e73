//! The messages of one endpoint, as a sink is told of them.
//!
//! Both ends count the envelopes from one proc to another, and frames of a connection keep their order. So the number of an envelope is the
//! same at both ends, without being sent.

use crate::event::{Event, Message};
use crate::trace::Trace;
use tickwire_components::wire::Header;

/// Reports the messages of one endpoint to a sink. Frames that do not begin a message are not reported.
#[derive(Debug)]
pub struct Messages {
    trace: Trace,
    /// The envelopes to and from each proc, by its number.
    counts: Vec<Counts>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    sent: u64,
    received: u64,
}

impl Messages {
    /// For an endpoint that has carried no message yet.
    pub fn new(trace: Trace) -> Self {
        Messages { trace, counts: Vec::new() }
    }

    /// The time at which the transport is asked to take a frame, ns; 0 if the frame is not reported.
    pub fn begin(&mut self, header: &Header) -> u64 {
        if header.is_envelope() { self.trace.now_ns() } else { 0 }
    }

    /// Reports a frame that the transport has taken. `begin_ns` is of [`Messages::begin`].
    pub fn sent(&mut self, proc: u32, header: &Header, begin_ns: u64) {
        if !header.is_envelope() {
            return;
        }
        let end_ns = if header.payload() >= Message::TIMED_BYTES { self.trace.now_ns() } else { begin_ns };
        let counts = self.counts_of(proc);
        let message = message(proc, header, counts.sent, begin_ns, end_ns);
        counts.sent += 1;
        self.trace.record(&Event::Sent(message));
    }

    /// Reports a frame that has arrived.
    pub fn received(&mut self, proc: u32, header: &Header) {
        if !header.is_envelope() {
            return;
        }
        let (before_ns, end_ns) = (self.trace.last_ns(), self.trace.now_ns());
        let begin_ns = if before_ns == 0 { end_ns } else { before_ns };
        let counts = self.counts_of(proc);
        let message = message(proc, header, counts.received, begin_ns, end_ns);
        counts.received += 1;
        self.trace.record(&Event::Received(message));
    }

    /// Reports a message of the proc to itself that has bypassed the transport, and is in its receive. `begin_ns` is when it was sent.
    pub fn passed(&mut self, proc: u32, header: &Header, begin_ns: u64) {
        let end_ns = self.trace.now_ns();
        let counts = self.counts_of(proc);
        let sent = message(proc, header, counts.sent, begin_ns, begin_ns);
        let received = message(proc, header, counts.received, begin_ns, end_ns);
        (counts.sent, counts.received) = (counts.sent + 1, counts.received + 1);
        self.trace.record(&Event::Sent(sent));
        self.trace.record(&Event::Received(received));
    }

    fn counts_of(&mut self, proc: u32) -> &mut Counts {
        let at = proc as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, Counts::default());
        }
        &mut self.counts[at]
    }
}

fn message(proc: u32, header: &Header, number: u64, begin_ns: u64, end_ns: u64) -> Message {
    let (context, tag, bytes) = (header.context(), header.tag(), header.length);
    Message { proc, context, tag, bytes, number, begin_ns, end_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Ring;
    use tickwire_components::wire::Kind;

    #[test]
    fn only_the_first_frame_of_a_message_is_told_and_numbers_are_of_each_direction() {
        let ring = Ring::new(64);
        let mut messages = Messages::new(Trace::new(ring.clone()));
        let frame = |kind, tag| Header::new(kind, 0, 1, tag, 1, 9);
        for kind in [Kind::Head, Kind::Part, Kind::Cts, Kind::Piece, Kind::Done, Kind::Rts, Kind::Sync, Kind::Eager] {
            let header = frame(kind, kind as u32);
            let begin_ns = messages.begin(&header);
            messages.sent(3, &header, begin_ns);
            messages.received(0, &header);
        }
        messages.passed(3, &frame(Kind::Eager, 99), 5);
        let told = |sent: bool| -> Vec<(u32, u32, u64)> {
            let of = |event: &Event<'_>| match event {
                Event::Sent(message) if sent => Some((message.proc, message.tag, message.number)),
                Event::Received(message) if !sent => Some((message.proc, message.tag, message.number)),
                _ => None,
            };
            ring.events().iter().filter_map(of).collect()
        };
        let envelopes = [Kind::Head, Kind::Rts, Kind::Sync, Kind::Eager].map(|kind| kind as u32);
        let of = |proc| (0..).zip(envelopes).map(move |(number, tag)| (proc, tag, number));
        assert!(told(true).into_iter().eq(of(3).chain([(3, 99, 4)])));
        assert!(told(false).into_iter().eq(of(0).chain([(3, 99, 0)])));
    }
}
