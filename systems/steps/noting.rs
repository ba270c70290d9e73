//! Messages that a sink is told of: notes what has been sent and what has been taken.
//!
//! Recording does not change the step. Only its caller differs: a send looks at [`Endpoint::aside`], and whoever runs Deliver for a watcher
//! takes frames through `Noting`.

use crate::procs::communicators::proc_of;
use crate::procs::endpoint::Endpoint;
use crate::rows::Rows;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, Communicator, Row, Span, Vc};
use tickwire_traces::Messages;
use tickwire_transports::{AnyTransport, Other, Sent, Take};

impl Endpoint {
    /// Sends a frame to a proc, and notes it if there is a sink.
    #[inline]
    pub(crate) fn send_noted(
        &mut self,
        proc: u32,
        header: &Header,
        send: impl FnOnce(&mut AnyTransport) -> Sent,
    ) -> Sent {
        let Endpoint { transport, messages, .. } = self;
        let mut messages = messages.get().as_deref_mut();
        let begin_ns = messages.as_mut().map_or(0, |messages| messages.begin(header));
        let sent = send(transport.get());
        if sent == Sent::Done
            && let Some(messages) = messages
        {
            messages.sent(proc, header, begin_ns);
        }
        sent
    }

    /// Notes a message of the proc to itself that has bypassed the transport. `begin_ns` is when it was sent.
    pub fn note_passed(&mut self, proc: u32, header: &Header, begin_ns: u64) {
        if let Some(messages) = self.messages.get() {
            messages.passed(proc, header, begin_ns);
        }
    }

    /// Notes frames that were drained. A message that was claimed at its transport comes without a VC: its source says who has sent it.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_drained(&mut self, arrivals: &[Arrival], vcs: &[Vc], communicators: &[Communicator]) {
        let Some(messages) = self.messages.get() else { return };
        for Arrival { vc, header, .. } in arrivals {
            let proc = match vcs.get(*vc as usize) {
                Some(vc) => Some(vc.proc),
                None => proc_of(communicators, header),
            };
            if let Some(proc) = proc {
                messages.received(proc, header);
            }
        }
    }
}

/// Takes frames as [`Rows`] do, and notes those that were taken.
pub(crate) struct Noting<'a, 'store, F> {
    rows: &'a mut Rows<'store>,
    messages: Option<&'a mut Messages>,
    /// Is called before each frame.
    found: F,
}

impl<'a, 'store, F: FnMut()> Noting<'a, 'store, F> {
    pub(crate) fn new(rows: &'a mut Rows<'store>, messages: Option<&'a mut Messages>, found: F) -> Self {
        Noting { rows, messages, found }
    }

    fn noted(&mut self, taken: bool, header: &Header, vc_row: Row) -> bool {
        if taken
            && let Some(messages) = &mut self.messages
            && let Some(vc) = self.rows.vcs.get(vc_row as usize)
        {
            messages.received(vc.proc, header);
        }
        taken
    }
}

#[expect(unsafe_code, reason = "payloads are addresses")]
impl<F: FnMut()> Take for Noting<'_, '_, F> {
    fn now_ns(&mut self) -> u64 {
        self.rows.now_ns()
    }

    unsafe fn message(&mut self, header: &Header, payload: Span, vc: Row) -> bool {
        (self.found)();
        // SAFETY: by the same contract.
        let taken = unsafe { self.rows.message(header, payload, vc) };
        self.noted(taken, header, vc)
    }

    unsafe fn other(&mut self, header: &Header, payload: Span, vc: Row) -> Other {
        (self.found)();
        // SAFETY: by the same contract.
        let taken = unsafe { self.rows.other(header, payload, vc) };
        self.noted(!matches!(taken, Other::Left), header, vc);
        taken
    }

    unsafe fn matched(&mut self, header: &Header, payload: Span, vc: Row, receive: Row) -> bool {
        (self.found)();
        // SAFETY: by the same contract.
        let taken = unsafe { self.rows.matched(header, payload, vc, receive) };
        self.noted(taken, header, vc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procs::endpoint::Aside;
    use crate::steps::arguments::Envelope;
    use crate::steps::posting::send_copied;
    use crate::store::Tables;
    use crate::testing::TestWorld;
    use crate::tick::drain_cq::drain_cq;
    use crate::tick::post::post;
    use tickwire_components::wire::Kind;
    use tickwire_components::{ArrivalState, CarState, Exclusive, VcState};
    use tickwire_traces::{Event, Ring, Trace};

    /// What a run has left: frames with their links, CARs, frames that Deliver has taken, and events.
    type Left = (Vec<(u32, Header)>, Vec<(CarState, u64, u16)>, Vec<bool>, Vec<(bool, u32, u32, u64)>);

    /// Sends and receives messages in each way, with or without a sink.
    fn exchange(noted: bool) -> Left {
        let (ring, mut world) = (Ring::new(64), TestWorld::new(2));
        let vc = world.contact(1, VcState::Connected);
        let endpoint = &mut world.all().endpoints[0];
        (endpoint.part_bytes, endpoint.eager_max, endpoint.inline_end) = (1000, 5000, 1001);
        if noted {
            let messages = Messages::new(Trace::new(ring.clone()));
            (endpoint.aside, endpoint.messages) = (Aside::Noted, Exclusive::new(Some(Box::new(messages))));
        }
        send_all(&mut world);
        // Read by DrainCq: two messages, and a frame that begins none.
        for (kind, tag) in [(Kind::Eager, 20), (Kind::Cts, 21), (Kind::Rts, 22)] {
            world.wire().incoming.push_back((vc, Header::new(kind, 0, 1, tag, 0, 0), Vec::new()));
        }
        world.step(drain_cq);
        // Claimed at a transport, which does not know the VC.
        let claimed =
            Arrival { header: Header::eager(0, 1, 23, 0), state: ArrivalState::Claimed, ..Arrival::default() };
        let Tables { endpoints, vcs, communicators, .. } = world.all();
        endpoints[0].note_drained(&[claimed], vcs, communicators);
        // Taken by Deliver: the first one is not awaited, so it is left.
        world.all().progress.arrivals = 0;
        world.receive(Some(1), Some(31), &[4]);
        let taken = [30, 31].map(|tag| deliver(&mut world, vc, tag, noted));
        let sent = world.wire().sent.iter().map(|frame| (frame.link, frame.header)).collect();
        let cars = world.all().cars.iter().map(|car| (car.state, car.done, car.flags)).collect();
        let events = ring.events();
        let told = events.iter().filter_map(|event| match event {
            Event::Sent(message) => Some((true, message.proc, message.tag, message.number)),
            Event::Received(message) => Some((false, message.proc, message.tag, message.number)),
            _ => None,
        });
        (sent, cars, taken.to_vec(), told.collect())
    }

    /// Sends one message at once, and others out of the queue: short, in parts, and offered. The transport has no room at first.
    fn send_all(world: &mut TestWorld) {
        let envelope = Envelope { context: 0, tag: 10, source: 0, proc: 1, length: 3 };
        let send = |world: &mut TestWorld| {
            let Tables { progress, procs, vcs, endpoints, .. } = world.all();
            let vc = &mut vcs[procs.known[1].row as usize];
            send_copied(progress, vc, &mut endpoints[0], &envelope, &&[1u8; 3])
        };
        world.wire().room = Some(0);
        assert!(!send(world));
        world.wire().room = None;
        assert!(send(world));
        world.wire().room = Some(0);
        world.send(1, 11, &[&[2; 8]]);
        world.send(1, 12, &[&[3; 2500]]);
        world.send(1, 13, &[&[4; 3000], &[5; 3000]]);
        world.step(post);
        world.wire().room = None;
        world.step(post);
    }

    /// Gives a message of 4 B to Deliver; whether it was taken.
    fn deliver(world: &mut TestWorld, vc: Row, tag: u32, noted: bool) -> bool {
        let (header, mut bytes, mut found) = (Header::new(Kind::Eager, 0, 1, tag, 0, 4), *b"abcd", 0);
        // SAFETY: the bytes outlive the calls.
        #[expect(unsafe_code, reason = "a span over a test's bytes")]
        let payload = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let taken = world.store.with(|rows, wire| unsafe {
            match noted {
                true => {
                    let messages = wire.endpoints[0].messages.get().as_deref_mut();
                    Noting::new(rows, messages, || found += 1).message(&header, payload, vc)
                }
                false => rows.message(&header, payload, vc),
            }
        });
        assert_eq!(found, u32::from(noted));
        taken
    }

    #[test]
    fn a_sink_is_told_of_each_message_once_and_nothing_else_differs() {
        let (plain, noted) = (exchange(false), exchange(true));
        assert_eq!((&noted.0, &noted.1, &noted.2), (&plain.0, &plain.1, &plain.2));
        assert_eq!((noted.2, plain.3), (vec![false, true], vec![]));
        let sent = [10, 11, 12, 13].into_iter().zip(0..).map(|(tag, number)| (true, 1, tag, number));
        let received = [20, 22, 23, 31].into_iter().zip(0..).map(|(tag, number)| (false, 1, tag, number));
        assert_eq!(noted.3, sent.chain(received).collect::<Vec<_>>());
    }
}
