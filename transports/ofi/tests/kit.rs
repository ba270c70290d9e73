//! Helpers of several files: endpoints of one process with a clock.

use crate::ofi::wrapper_tests::library;
use crate::ofi::*;
use crate::{LinkEvent, Sent, Transport};
use std::time::{Duration, Instant};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Arrival, ArrivalState, Row, Span};

/// How long anything here may take.
pub(super) const BOUND: Duration = Duration::from_secs(20);

/// One of three procs, over one provider.
pub(super) fn config(me: u32, provider: &str) -> OfiConfig {
    let choice = Choice { include: vec![provider.into()], ..Choice::default() };
    OfiConfig { choice, ..OfiConfig::new("ofi-tests", me, 3) }
}

/// An endpoint; `None` where the provider, or libfabric, is missing.
pub(super) fn endpoint(me: u32, provider: &str) -> Option<Ofi> {
    endpoint_of(&config(me, provider))
}

pub(super) fn endpoint_of(config: &OfiConfig) -> Option<Ofi> {
    library()?;
    let provider = &config.choice.include[0];
    match Ofi::open(config) {
        Ok(mut opened) => opened.pop(),
        Err(OfiError::Unknown { found, .. }) => {
            eprintln!("SKIPPED: no provider {provider}: {found}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Endpoints with a clock.
pub(super) struct World {
    pub(super) all: Vec<Ofi>,
    pub(super) start: Instant,
    pub(super) events: Vec<Vec<LinkEvent>>,
    pub(super) received: Vec<Vec<(Header, Vec<u8>)>>,
    /// Rows of messages that went straight between the memory of both.
    pub(super) moved: Vec<Vec<Row>>,
}

impl World {
    pub(super) fn new(all: Vec<Ofi>) -> Self {
        let count = all.len();
        World {
            all,
            start: Instant::now(),
            events: vec![Vec::new(); count],
            received: vec![Vec::new(); count],
            moved: vec![Vec::new(); count],
        }
    }

    /// Two endpoints; `None` where the provider is missing.
    pub(super) fn pair(provider: &str) -> Option<Self> {
        Some(World::new(vec![endpoint(0, provider)?, endpoint(1, provider)?]))
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// One look at everything, by all endpoints.
    pub(super) fn step(&mut self) {
        self.step_those(|_| true);
    }

    /// One look at everything, by some endpoints. The others compute.
    pub(super) fn step_those(&mut self, is_awake: impl Fn(usize) -> bool) {
        let now_ns = self.now_ns();
        for (index, ofi) in self.all.iter_mut().enumerate().filter(|(index, _)| is_awake(*index)) {
            let before = self.events[index].len();
            ofi.control(now_ns, &mut self.events[index]);
            for event in &self.events[index][before..] {
                match event {
                    LinkEvent::Connected { link } | LinkEvent::Accepted { link, .. } => ofi.attach(*link, 100 + *link),
                    LinkEvent::Replaced { by, .. } => ofi.attach(*by, 100 + *by),
                    LinkEvent::Failed { .. } => {}
                }
            }
            ofi.ready();
            let mut arrivals = [Arrival::default(); 8];
            let count = ofi.drain(now_ns, &mut arrivals);
            for arrival in &arrivals[..count] {
                if arrival.state == ArrivalState::Moved {
                    self.moved[index].push(arrival.receive());
                    continue;
                }
                self.received[index].push((arrival.header, bytes(arrival.payload)));
            }
            ofi.release();
        }
    }

    #[track_caller]
    pub(super) fn until(&mut self, what: &str, mut condition: impl FnMut(&mut World) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < BOUND, "{what}: {:?}", self.events);
            self.step();
        }
    }

    /// Connects endpoint 0 to endpoint 1; gives the link of each.
    pub(super) fn connect(&mut self) -> [u32; 2] {
        let (card, now_ns) = (self.all[1].card(), self.now_ns());
        let link = self.all[0].connect(1, &card, now_ns).unwrap();
        self.until("a connection", |world| !world.events[0].is_empty() && !world.events[1].is_empty());
        assert_eq!(self.events[0], [LinkEvent::Connected { link }]);
        let [LinkEvent::Accepted { link: theirs, proc: 0 }] = self.events[1][..] else {
            panic!("{:?}", self.events[1])
        };
        // The first frames have left and are here.
        let is_ready =
            |ofi: &mut Ofi, link| ofi.port.get_mut().is_ready(link) && ofi.port.get_mut().counts(link).1 == 1;
        let both = |world: &mut World| is_ready(&mut world.all[0], link) && is_ready(&mut world.all[1], theirs);
        self.until("first frames", both);
        [link, theirs]
    }

    /// Connects endpoint 0 to one more; gives its link to it.
    pub(super) fn connect_to(&mut self, peer: usize) -> u32 {
        let (card, now_ns) = (self.all[peer].card(), self.now_ns());
        let link = self.all[0].connect(peer as u32, &card, now_ns).unwrap();
        self.until("one more connection", |world| {
            world.events[0].contains(&LinkEvent::Connected { link })
                && !world.events[peer].is_empty()
                && world.all[0].port.get_mut().is_ready(link)
        });
        link
    }

    /// Sends a frame, however long that takes.
    pub(super) fn send(&mut self, from: usize, link: u32, tag: u32, payload: Vec<u8>) {
        let header = Header::new(Kind::Eager, 1, 2, tag, 0, payload.len() as u64);
        let mut sent = Sent::Blocked;
        self.until("a send", |world| {
            sent = world.all[from].send(link, &header, &payload, &mut ());
            sent != Sent::Blocked
        });
        assert_eq!(sent, Sent::Done);
    }
}

#[expect(unsafe_code, reason = "a span over a test's bytes")]
pub(super) fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: used while the bytes are there.
    unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
}

#[expect(unsafe_code, reason = "a payload that has arrived")]
pub(super) fn bytes(span: Span) -> Vec<u8> {
    // SAFETY: the transport keeps it until it is released.
    unsafe { std::slice::from_raw_parts(span.start(), span.len()).to_vec() }
}
