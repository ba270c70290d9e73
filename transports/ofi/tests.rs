//! Two endpoints of one process, and peers that are none.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

mod delivering;
mod direct;

use super::card::Card;
use super::wrapper_tests::{library, open};
use super::*;
use crate::handshake::{Greeting, Packet};
use crate::{LinkEvent, Sent, Transport};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tickwire_components::wire::{Header, Kind, VERSION};
use tickwire_components::{Arrival, ArrivalState, Row, Span};

/// How long anything here may take.
const BOUND: Duration = Duration::from_secs(20);

fn config(me: u32, provider: &str) -> OfiConfig {
    let choice = Choice { include: vec![provider.into()], ..Choice::default() };
    OfiConfig { choice, ..OfiConfig::new("ofi-tests", me, 3) }
}

/// An endpoint; `None` where the provider, or libfabric, is missing.
fn endpoint(me: u32, provider: &str) -> Option<Ofi> {
    endpoint_of(&config(me, provider))
}

fn endpoint_of(config: &OfiConfig) -> Option<Ofi> {
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
struct World {
    all: Vec<Ofi>,
    start: Instant,
    events: Vec<Vec<LinkEvent>>,
    received: Vec<Vec<(Header, Vec<u8>)>>,
    /// Rows of messages that went straight between the memory of both.
    moved: Vec<Vec<Row>>,
}

impl World {
    fn new(all: Vec<Ofi>) -> Self {
        let count = all.len();
        World {
            all,
            start: Instant::now(),
            events: vec![Vec::new(); count],
            received: vec![Vec::new(); count],
            moved: vec![Vec::new(); count],
        }
    }

    fn pair(provider: &str) -> Option<Self> {
        Some(World::new(vec![endpoint(0, provider)?, endpoint(1, provider)?]))
    }

    /// The same with buffers for one frame each.
    fn single(provider: &str) -> Option<Self> {
        let one = |me| endpoint_of(&OfiConfig { multi_receive: false, ..config(me, provider) });
        Some(World::new(vec![one(0)?, one(1)?]))
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// One look at everything.
    fn step(&mut self) {
        let now_ns = self.now_ns();
        for (index, ofi) in self.all.iter_mut().enumerate() {
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
                    self.moved[index].push(arrival.car);
                    continue;
                }
                self.received[index].push((arrival.header, bytes(arrival.payload)));
            }
            ofi.release();
        }
    }

    #[track_caller]
    fn until(&mut self, what: &str, mut condition: impl FnMut(&mut World) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < BOUND, "{what}: {:?}", self.events);
            self.step();
        }
    }

    /// Connects endpoint 0 to endpoint 1; gives the link of each.
    fn connect(&mut self) -> [u32; 2] {
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

    /// Sends a frame, however long that takes.
    fn send(&mut self, from: usize, link: u32, tag: u32, payload: Vec<u8>) {
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
fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: used while the bytes are there.
    unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
}

#[expect(unsafe_code, reason = "a payload that has arrived")]
fn bytes(span: Span) -> Vec<u8> {
    // SAFETY: the transport keeps it until it is released.
    unsafe { std::slice::from_raw_parts(span.start(), span.len()).to_vec() }
}

#[test]
fn frames_of_all_lengths_arrive_in_order() {
    let providers = ["tcp;ofi_rxm", "net", "sockets", "shm", "udp;ofi_rxd"];
    for (provider, multi) in providers.into_iter().flat_map(|provider| [(provider, true), (provider, false)]) {
        let world = if multi { World::pair(provider) } else { World::single(provider) };
        let Some(mut world) = world else { continue };
        eprintln!("{provider}: buffers for many frames: {}", world.all[0].is_multi());
        assert!(multi || !world.all[0].is_multi());
        let links = world.connect();
        let frame_max = world.all[0].capabilities().frame_max;
        // Long ones before short ones, which providers send in other ways.
        let lengths: Vec<usize> = (0..200).map(|n| [frame_max, 0, 5000, 8, 64, 17_000, 300][n % 7]).collect();
        for (tag, &length) in lengths.iter().enumerate() {
            for (from, link) in links.into_iter().enumerate() {
                world.send(from, link, tag as u32, vec![tag as u8; length]);
            }
        }
        world.until("all frames", |world| world.received.iter().all(|received| received.len() == lengths.len()));
        for received in &world.received {
            for (tag, (header, payload)) in received.iter().enumerate() {
                assert_eq!((header.tag(), payload.len()), (tag as u32, lengths[tag]), "{provider}");
                assert!(payload.iter().all(|&byte| byte == tag as u8), "{provider}");
            }
        }
        let traffic = world.all[0].traffic(links[0]).unwrap();
        assert_eq!((traffic.sent, traffic.sent), (traffic.received, world.all[0].moved().0), "{provider}");
    }
}

#[test]
fn two_that_call_each_other_have_one_link() {
    let Some(mut world) = World::pair("sockets") else { return };
    let cards = [world.all[0].card(), world.all[1].card()];
    let calls = [0, 1].map(|me| world.all[me].connect(1 - me as u32, &cards[1 - me], 0).unwrap());
    world.until("both connected", |world| world.events.iter().all(|events| !events.is_empty()));
    assert_eq!(world.events[0], [LinkEvent::Connected { link: calls[0] }], "the lower number's attempt wins");
    let [LinkEvent::Replaced { link, by }] = world.events[1][..] else { panic!("{:?}", world.events[1]) };
    assert_eq!(link, calls[1]);
    world.send(0, calls[0], 7, vec![1; 10]);
    world.send(1, by, 8, vec![2; 10]);
    world.until("both frames", |world| world.received.iter().all(|received| received.len() == 1));
}

/// What a hostile caller says, and what it is told.
fn told(world: &mut World, at: SocketAddr, words: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(words).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut answer = Vec::new();
    world.until("an answer", |_| {
        let mut part = [0; 600];
        match stream.read(&mut part) {
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
        !answer.is_empty()
    });
    let Ok(Packet::Refused(why)) = Packet::decode(&answer[4..]) else { panic!("{answer:?}") };
    why
}

#[test]
fn callers_that_are_none_are_told_why_and_harm_nobody() {
    let Some(mut world) = World::pair("sockets") else { return };
    let links = world.connect();
    let card = Card::decode(&world.all[1].card()).unwrap();
    let greeting = Greeting {
        capabilities: 0,
        slot: 0,
        proc: 2,
        procs: 3,
        ring_bytes: 0,
        first_ring_bytes: 0,
        frame_max: world.all[1].capabilities().frame_max as u64,
        pid: 1,
        start_time: 1,
        boot_id: 1,
        job: "ofi-tests".into(),
        heap_base: 0,
        heap_bytes: 0,
    };
    let hello = |greeting: &Greeting, secret: u64| {
        let (packet, mut proof) = (Packet::Hello(greeting.clone()).encode(), secret.to_be_bytes().to_vec());
        proof.extend([1; 8]);
        proof.push(0);
        let mut message = ((4 + packet.len() + proof.len()) as u16).to_be_bytes().to_vec();
        message.extend((packet.len() as u16).to_be_bytes());
        message.extend([packet, proof].concat());
        message
    };
    let mut other_version = hello(&greeting, card.secret);
    other_version[4 + 16..][..2].copy_from_slice(&(VERSION + 1).to_ne_bytes());
    let job = Greeting { job: "another".into(), ..greeting.clone() };
    let frame_max = Greeting { frame_max: 77, ..greeting.clone() };
    let number = Greeting { proc: 3, ..greeting.clone() };
    let cases = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "another program"),
        (other_version, "use one version"),
        (hello(&greeting, card.secret ^ 1), "does not know this proc's card"),
        (hello(&job, card.secret), "belongs to job \"another\""),
        (hello(&frame_max, card.secret), "takes payloads of 77 bytes"),
        (hello(&number, card.secret), "proc 3 of 3"),
        (hello(&greeting, card.secret), "fi_av_insert"),
    ];
    for (words, expected) in cases {
        let why = told(&mut world, card.control, &words);
        assert!(why.contains(expected), "{expected}: {why}");
    }
    world.send(0, links[0], 7, vec![1; 10]);
    world.until("a frame", |world| world.received[1].len() == 1);
}

#[test]
fn frames_without_the_token_are_dropped_and_corrupt_ones_end_their_link() {
    let Some(mut world) = World::pair("sockets") else { return };
    let Some(library) = library() else { return };
    let [link, theirs] = world.connect();
    let stranger = open(&library, "sockets", false).unwrap().unwrap();
    let to = stranger.addresses.insert(&Card::decode(&world.all[1].card()).unwrap().address).unwrap();
    let token = world.all[1].port.get_mut().token(theirs);
    let frame = |link: u32, number: u32, token: u64, header: Header| {
        let mut words = vec![u64::from(link) | u64::from(number) << 32, token];
        words.extend([header.lead, header.origin, header.name, header.length]);
        words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>()
    };
    let plain = Header::new(Kind::Eager, 1, 2, 3, 0, 0);
    let strays = [
        vec![1],
        vec![1; 47],
        frame(theirs, 0, token ^ 1, plain),
        frame(theirs + 1, 0, token, plain),
        frame(theirs, 0, 0, plain),
    ];
    let send = |world: &mut World, mut bytes: Vec<u8>| {
        let run = span(&mut bytes);
        world.until("a stray", |_| {
            // SAFETY: the bytes are there until the call returns, and may be used again then.
            #[expect(unsafe_code, reason = "FFI")]
            let sent = unsafe { stranger.endpoint.inject(run, to) };
            let _ = stranger.queue.read(&mut [no_completion()]);
            sent.is_ok()
        });
    };
    let count = strays.len() as u64;
    strays.into_iter().for_each(|stray| send(&mut world, stray));
    world.until("strays", |world| {
        let _ = stranger.queue.read(&mut [no_completion()]);
        world.all[1].port.get_mut().strays() == count
    });
    world.send(0, link, 7, vec![1; 10]);
    world.until("a frame", |world| world.received[1].len() == 1);
    assert!(world.events.iter().all(|events| events.len() == 1), "{:?}", world.events);
    // With the token, which only the peer has: a frame that says another length than it has.
    send(&mut world, frame(theirs, 2, token, Header::new(Kind::Eager, 1, 2, 3, 0, 1 << 40)));
    world.until("an end", |world| {
        let _ = stranger.queue.read(&mut [no_completion()]);
        world.events.iter().all(|events| events.len() == 2)
    });
    let LinkEvent::Failed { reason, .. } = &world.events[1][1] else { panic!() };
    assert!(reason.contains("corrupt bytes"), "{reason}");
    let LinkEvent::Failed { reason, .. } = &world.events[0][1] else { panic!() };
    assert!(reason.contains("gave the connection up: corrupt bytes"), "{reason}");
}

#[test]
fn a_peer_that_is_not_there_or_does_not_answer_is_one_clear_error() {
    let Some(caller) = endpoint(0, "sockets") else { return };
    let mut world = World::new(vec![caller]);
    world.all[0].own.config.connect_ms_max = Some(100);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let real = Card::decode(&world.all[0].card()).unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cases = [
        (silent.local_addr().unwrap(), "did not answer within", "TICKWIRE_OFI_INTERFACE"),
        (gone, "is not running any more", "Connection refused"),
    ];
    for (control, what, more) in cases {
        let card = Card { control, ..real.clone() };
        let now_ns = world.now_ns();
        let called = world.all[0].connect(1, &card.encode(), now_ns);
        let reason = match called {
            Err(reason) => reason,
            Ok(link) => {
                world.events[0].clear();
                world.until("an error", |world| !world.events[0].is_empty());
                let [LinkEvent::Failed { link: failed, reason }] = &world.events[0][..] else { panic!() };
                assert_eq!(*failed, link);
                let reason = reason.clone();
                world.all[0].close_link(link);
                reason
            }
        };
        assert!(reason.contains(what) && reason.contains(more), "{reason}");
    }
    assert!(world.all[0].reaches(1, &[]).unwrap_err().contains("open the same transports"));
    assert!(world.all[0].reaches(0, &real.encode()).unwrap_err().contains("loopback"));
}

#[test]
fn what_was_sent_before_a_close_arrives_and_the_close_is_told() {
    for provider in ["tcp;ofi_rxm", "net", "sockets", "shm"] {
        let Some(mut world) = World::pair(provider) else { continue };
        let links = world.connect();
        for tag in 0..50 {
            world.send(0, links[0], tag, vec![tag as u8; [10, 30_000][tag as usize % 2]]);
        }
        // Another thread, since a close waits for its peers.
        let mut closing = world.all.remove(0);
        world.events.remove(0);
        world.received.remove(0);
        closing.own.greeting.pid = 0;
        std::thread::scope(|scope| {
            scope.spawn(move || drop(closing));
            world.until("an end", |world| world.events[0].len() == 2);
        });
        assert_eq!(world.received[0].len(), 50, "{provider}");
        let LinkEvent::Failed { reason, .. } = &world.events[0][1] else { panic!() };
        assert!(reason.contains("has closed the connection"), "{reason}");
    }
}

/// Sends a frame without looking at anything.
fn send_blindly(ofi: &mut Ofi, link: u32, tag: u32, bytes: usize) -> Sent {
    let payload = vec![tag as u8; bytes];
    let header = Header::new(Kind::Eager, 1, 2, tag, 0, bytes as u64);
    ofi.send(link, &header, &payload, &mut ())
}

#[test]
fn many_short_frames_in_a_row_go_together_and_at_the_latest_with_the_next_look() {
    // With these, what is sent is on its way without another call.
    for provider in ["net", "shm"] {
        let Some(mut world) = World::pair(provider) else { continue };
        let [link, _] = world.connect();
        world.send(0, link, 0, Vec::new());
        world.until("the way is made", |world| world.received[1].len() == 1);
        let [sender, receiver] = &mut world.all[..] else { unreachable!() };
        let mut arrivals = [Arrival::default(); 64];
        let mut found = Vec::new();
        let mut receive = |receiver: &mut Ofi, due: usize| {
            let start = Instant::now();
            while found.len() < due {
                assert!(start.elapsed() < BOUND, "{provider}: {due} frames");
                receiver.ready();
                let count = receiver.drain(0, &mut arrivals);
                for arrival in &arrivals[..count] {
                    assert!(bytes(arrival.payload).iter().all(|byte| *byte == arrival.header.tag() as u8));
                    found.push((arrival.header.tag(), arrival.payload.len()));
                }
                receiver.release();
            }
            for (tag, found) in (0..).zip(&found) {
                assert_eq!(found.0, tag, "in order");
            }
            found.len()
        };
        for tag in 0..10 {
            assert_eq!(send_blindly(sender, link, tag, 8 + tag as usize), Sent::Done);
        }
        assert_eq!(receive(receiver, 4), 4, "{provider}: the first go at once");
        assert!(sender.port.get_mut().has_packs());
        sender.flush();
        assert_eq!(receive(receiver, 10), 10);
        // Full ones go by themselves; a long frame goes behind what has waited.
        let start = Instant::now();
        for tag in 10..210 {
            while send_blindly(sender, link, tag, 1000) == Sent::Blocked {
                assert!(start.elapsed() < BOUND, "{provider}: frame {tag}");
                receiver.ready();
            }
        }
        let most = receive(receiver, 150);
        assert!(most < 210 && sender.port.get_mut().has_packs(), "{provider}: {most} frames");
        while send_blindly(sender, link, 210, 30_000) == Sent::Blocked {
            assert!(receive(receiver, most) <= 210 && start.elapsed() < BOUND, "{provider}");
            receiver.ready();
        }
        assert_eq!(receive(receiver, 211), 211);
        assert!(!sender.port.get_mut().has_packs());
        // A look lets them go, and then frames go at once again.
        for tag in 211..217 {
            assert_eq!(send_blindly(sender, link, tag, 0), Sent::Done);
        }
        sender.ready();
        assert_eq!(receive(receiver, 217), 217);
        assert_eq!(send_blindly(sender, link, 217, 0), Sent::Done);
        assert_eq!(receive(receiver, 218), 218);
        assert_eq!(receiver.port.get_mut().strays(), 0);
    }
}

#[test]
fn frames_that_wait_when_a_link_ends_hold_nothing_up() {
    let Some(mut world) = World::pair("sockets") else { return };
    let [link, theirs] = world.connect();
    for tag in 0..20 {
        assert_eq!(send_blindly(&mut world.all[0], link, tag, 100), Sent::Done);
    }
    world.all[1].close_link(theirs);
    world.until("an end", |world| world.events[0].len() == 2);
    assert!(!world.all[0].port.get_mut().has_packs());
    world.until("nothing under way", |world| !world.all[0].port.get_mut().is_sending());
}

#[test]
fn a_frame_that_a_provider_loses_ends_the_link_also_with_nothing_behind_it() {
    for (provider, behind) in [("tcp;ofi_rxm", 0), ("sockets", 1), ("shm", 0), ("shm", 20)] {
        let Some(mut world) = World::pair(provider) else { continue };
        let links = world.connect();
        world.send(0, links[0], 1, vec![1; 100]);
        world.all[0].port.get_mut().lose(links[0]);
        for tag in 0..behind {
            world.send(0, links[0], tag, vec![1; 100]);
            // Each by itself: as many as there are buffers hold all of them.
            world.step();
        }
        // The clock goes faster than the world; a second is as long as any frame takes.
        let dead_ms = u64::from(world.all[1].own.config.dead_link_ms_max);
        let mut ahead = Duration::ZERO;
        world.until("frames", |world| world.received[1].len() == 1);
        world.until("an end", |world| {
            ahead += Duration::from_millis(10);
            world.start = world.start.checked_sub(Duration::from_millis(10)).unwrap();
            world.events[1].len() == 2
        });
        assert!(ahead > Duration::from_millis(2 * dead_ms - 1000), "{provider}: {ahead:?}");
        assert!(ahead < Duration::from_millis(3 * dead_ms), "{provider}: {ahead:?}");
        let LinkEvent::Failed { reason, .. } = &world.events[1][1] else { panic!() };
        assert!(reason.contains("has lost a frame: exclude it"), "{reason}");
        world.until("word of it", |world| world.events[0].len() == 2);
        let LinkEvent::Failed { reason, .. } = &world.events[0][1] else { panic!() };
        assert!(reason.contains("gave the connection up: provider"), "{reason}");
    }
}

#[test]
fn nothing_is_lost_while_frames_come_or_nobody_looks() {
    let Some(mut world) = World::pair("tcp;ofi_rxm") else { return };
    let links = world.connect();
    for round in 0..40 {
        world.send(0, links[0], round, vec![1; 100]);
        // Long without a look.
        world.start = world.start.checked_sub(Duration::from_secs(3600)).unwrap();
        world.until("a frame", |world| world.received[1].len() == round as usize + 1);
    }
    assert_eq!([world.events[0].len(), world.events[1].len()], [1, 1]);
}

#[test]
fn sockets_opens_carries_and_closes_200_times_in_a_row() {
    let start = Instant::now();
    for round in 0..200 {
        let Some(mut world) = World::pair("sockets") else { return };
        let links = world.connect();
        world.send(0, links[0], round, vec![1; 3000]);
        world.send(1, links[1], round, vec![2; 30]);
        if round % 2 == 0 {
            world.until("both frames", |world| world.received.iter().all(|received| received.len() == 1));
        }
        for ofi in &mut world.all {
            ofi.own.config.close_ms_max = 1;
            ofi.close();
            ofi.close();
        }
        assert!(start.elapsed() < 3 * BOUND, "round {round}");
    }
}

#[test]
fn it_says_whether_it_can_be_slept_on() {
    for provider in ["tcp;ofi_rxm", "net", "sockets", "shm", "udp;ofi_rxd"] {
        let Some(mut world) = World::pair(provider) else { continue };
        let links = world.connect();
        let can_sleep = world.all[1].capabilities().can_sleep;
        assert_eq!(world.all[1].wait_fd().is_some(), can_sleep, "{provider}");
        // The others have none for queues that only calls progress.
        assert_eq!(can_sleep, ["tcp;ofi_rxm", "net"].contains(&provider), "{provider}");
        if !can_sleep {
            continue;
        }
        world.until("quiet", |world| world.all[1].arm());
        world.send(0, links[0], 1, vec![1; 100]);
        let descriptor = world.all[1].wait_fd().unwrap();
        let mut fds = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
        let time = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&time)), Ok(1), "{provider}: it is woken");
        world.all[1].disarm();
        world.until("a frame", |world| world.received[1].len() == 1);
    }
}
