//! Peers that are none, or that misbehave: they are refused and harm nobody.

use super::kit::{Net, RING, config};
use crate::handshake::Packet;
use crate::shm::socket::{Read, Received};
use crate::shm::*;
use rustix::fd::OwnedFd;
use tickwire_components::limits::{VISITOR_SILENCE_NS_MAX, VISITORS_MAX};

/// A peer that says what it likes.
struct Stranger {
    socket: OwnedFd,
    greeting: Greeting,
    pair: OwnedFd,
    inbox: OwnedFd,
    doorbell: OwnedFd,
    /// A file that can be cut.
    loose: OwnedFd,
}

impl Stranger {
    fn new(net: &mut Net, proc: u32) -> Self {
        let own = &net.shm(0).own;
        let pair = segment::create(own.place(), calling::pair_bytes(RING)).expect("a segment").0;
        let inbox = segment::create(own.place(), size_of::<Inbox>()).expect("a segment").0;
        let doorbell = eventfd(0, EventfdFlags::NONBLOCK).expect("a doorbell");
        let loose = rustix::fs::memfd_create("loose", rustix::fs::MemfdFlags::ALLOW_SEALING).expect("a file");
        rustix::fs::fallocate(&loose, rustix::fs::FallocateFlags::empty(), 0, calling::pair_bytes(RING) as u64)
            .expect("memory");
        let greeting = Greeting { proc, ..own.greeting.clone() };
        let socket = socket::socket().expect("a socket");
        rustix::net::connect(&socket, &socket::address(&net.job, 0).expect("an address")).expect("connects");
        Stranger { socket, greeting, pair, inbox, doorbell, loose }
    }

    fn bytes(&self, bytes: &[u8]) {
        let flags = rustix::net::SendFlags::NOSIGNAL;
        rustix::net::send(&self.socket, bytes, flags).expect("sent");
    }

    fn hello(&self, descriptors: &[BorrowedFd<'_>]) {
        socket::send(&self.socket, &Packet::Hello(self.greeting.clone()), descriptors).expect("sent");
    }

    fn all(&self) -> [BorrowedFd<'_>; 3] {
        [self.pair.as_fd(), self.inbox.as_fd(), self.doorbell.as_fd()]
    }

    fn answer(&self, net: &mut Net) -> Packet {
        for _ in 0..1000 {
            net.tick();
            match socket::read(&self.socket) {
                Read::Packet(Received { packet, .. }) => return packet.expect("a packet"),
                Read::Nothing => {}
                Read::Ended => panic!("hung up without a word"),
            }
        }
        panic!("no answer");
    }

    fn refused(&self, net: &mut Net, words: &str) {
        let answer = self.answer(net);
        let Packet::Refused(reason) = &answer else { panic!("{answer:?}") };
        assert!(reason.contains(words), "{reason}");
    }
}

#[test]
fn strangers_are_refused_and_harm_nobody() {
    let mut net = Net::new("strangers", 4);
    net.connect(0, 1);
    let hello = |net: &mut Net, change: fn(&mut Greeting), words: &str| {
        let mut stranger = Stranger::new(net, 2);
        change(&mut stranger.greeting);
        stranger.hello(&stranger.all());
        stranger.refused(net, words);
    };
    hello(&mut net, |g| g.proc = 9, "proc 9 of 4");
    hello(&mut net, |g| g.proc = 0, "which this process is");
    hello(&mut net, |g| g.proc = 1, "connected to proc 0 already");
    hello(&mut net, |g| g.procs = 5, "5 procs, this process 4");
    hello(&mut net, |g| g.slot = SLOTS as u32, "slot 4096");
    hello(&mut net, |g| g.pid = 1, "the kernel says");
    hello(&mut net, |g| g.start_time += 1, "was started at");
    hello(&mut net, |g| g.boot_id += 1, "not on one host");
    hello(&mut net, |g| g.ring_bytes *= 2, "rings of 8192 bytes");
    hello(&mut net, |g| g.first_ring_bytes *= 2, "rings of 8192 bytes at first");
    hello(&mut net, |g| g.job.push('x'), "belongs to job");

    let stranger = Stranger::new(&mut net, 2);
    stranger.bytes(b"GET / HTTP/1.1");
    stranger.refused(&mut net, "something other than a tickwire packet");
    let whole = Packet::Hello(stranger.greeting.clone()).encode();
    for cut in [1, 8, 9, 20, whole.len() - 1] {
        let stranger = Stranger::new(&mut net, 2);
        stranger.bytes(&whole[..cut]);
        stranger.refused(&mut net, if cut < 8 { "something other" } else { "" });
    }
    let stranger = Stranger::new(&mut net, 2);
    stranger.bytes(&[whole.clone(), vec![0; 100_000]].concat());
    stranger.refused(&mut net, "bytes where 160 are due");
    let stranger = Stranger::new(&mut net, 2);
    stranger.bytes(&Packet::Closed.encode());
    stranger.refused(&mut net, "did not start with a greeting");

    let passed = |net: &mut Net, words: &str, pick: for<'a> fn(&'a Stranger) -> Vec<BorrowedFd<'a>>| {
        let stranger = Stranger::new(net, 2);
        stranger.hello(&pick(&stranger));
        stranger.refused(net, words);
    };
    passed(&mut net, "three descriptors", |_| vec![]);
    passed(&mut net, "three descriptors", |s| vec![s.pair.as_fd(), s.inbox.as_fd()]);
    passed(&mut net, "three descriptors", |s| vec![s.pair.as_fd(); 4]);
    passed(&mut net, "bytes where 8960 are due", |s| vec![s.inbox.as_fd(), s.inbox.as_fd(), s.doorbell.as_fd()]);
    passed(&mut net, "segment of 8960 bytes", |s| vec![s.pair.as_fd(), s.pair.as_fd(), s.doorbell.as_fd()]);
    passed(&mut net, "not sealed against shrinking", |s| vec![s.loose.as_fd(), s.inbox.as_fd(), s.doorbell.as_fd()]);
    passed(&mut net, "not sealed against shrinking", |s| vec![s.pair.as_fd(), s.loose.as_fd(), s.doorbell.as_fd()]);
    passed(&mut net, "doorbell", |s| vec![s.pair.as_fd(), s.inbox.as_fd(), s.socket.as_fd()]);
    passed(&mut net, "other than a file", |s| vec![s.socket.as_fd(), s.inbox.as_fd(), s.doorbell.as_fd()]);

    let with_heap = |net: &mut Net, words: &str, pick: for<'a> fn(&'a Stranger) -> Vec<BorrowedFd<'a>>| {
        let mut stranger = Stranger::new(net, 2);
        (stranger.greeting.heap_base, stranger.greeting.heap_bytes) = (1 << 40, 4096);
        stranger.hello(&pick(&stranger));
        stranger.refused(net, words);
    };
    with_heap(&mut net, "three descriptors", |_| vec![]);
    with_heap(&mut net, "three descriptors", |s| s.all().to_vec());
    with_heap(&mut net, "not sealed", |s| [&s.all()[..], &[s.loose.as_fd()]].concat());
    with_heap(&mut net, "no file in memory", |s| [&s.all()[..], &[s.doorbell.as_fd()]].concat());
    passed(&mut net, "three descriptors", |s| [&s.all()[..], &[s.pair.as_fd()]].concat());

    net.talks(0, 1);
    net.connect(2, 0);
    net.talks(0, 2);
    assert!((0..4).all(|proc| net.failures(proc).is_empty()));
}

#[test]
fn a_stranger_with_manners_is_accepted_and_then_misbehaves() {
    let mut net = Net::new("manners", 4);
    net.connect(0, 1);
    let stranger = Stranger::new(&mut net, 2);
    stranger.hello(&stranger.all());
    assert!(matches!(stranger.answer(&mut net), Packet::Welcome(theirs) if theirs.proc == 0));
    stranger.bytes(b"noise");
    net.fails_with(0, "something other than a tickwire packet");
    let stranger = Stranger::new(&mut net, 3);
    stranger.hello(&stranger.all());
    assert!(matches!(stranger.answer(&mut net), Packet::Welcome(_)));
    stranger.hello(&stranger.all());
    net.fails_with(0, "out of turn");
    net.talks(0, 1);
}

#[test]
fn silent_visitors_are_sent_away_in_time() {
    let mut net = Net::new("visitors", 2);
    let silent: Vec<Stranger> = (0..VISITORS_MAX + 20).map(|_| Stranger::new(&mut net, 1)).collect();
    let started = net.now_ns;
    net.until("crowded", |net| net.shm(0).connections.crowded);
    net.connect(1, 0);
    assert!(net.now_ns - started >= VISITOR_SILENCE_NS_MAX);
    net.talks(0, 1);
    net.now_ns += 2 * VISITOR_SILENCE_NS_MAX;
    for _ in 0..10 {
        net.tick();
    }
    assert_eq!(net.shm(0).connections.visitors.iter().flatten().count(), 0);
    assert!(!net.shm(0).connections.crowded);
    assert!(silent.iter().all(|stranger| matches!(socket::read(&stranger.socket), Read::Ended)));
}

/// Calls a listener that is no endpoint, and lets it answer.
fn answered(name: &str, answer: impl Fn(&Own, &OwnedFd, Vec<OwnedFd>)) -> Vec<String> {
    let mut net = Net::new(name, 2);
    drop(net.shms[1].take());
    let listener = socket::listen(&config(&net.job, 1, 2)).expect("listens");
    net.call(0, 1).expect("starts");
    let socket = crate::connections::accept(&listener).expect("called");
    let Read::Packet(received) = socket::read(&socket) else { panic!("greeted") };
    assert!(matches!(received.packet, Ok(Packet::Hello(_))));
    answer(&net.shm(0).own, &socket, received.descriptors.expect("all of them"));
    drop((socket, listener));
    net.until("failed", |net| !net.failures(0).is_empty());
    net.failures(0)
}

#[test]
fn false_answers_fail_the_call() {
    let welcome = |own: &Own| Greeting { proc: 1, ..own.greeting.clone() };
    let fails = |reasons: Vec<String>, words: &str| {
        assert!(reasons.len() == 1 && reasons[0].contains(words), "{reasons:?}");
    };
    fails(
        answered("answer-no", |_, s, _| socket::send(s, &Packet::Refused("no".into()), &[]).expect("sent")),
        "refused",
    );
    let none = answered("answer-none", |own, s, _| {
        socket::send(s, &Packet::Welcome(welcome(own)), &[]).expect("sent");
    });
    fails(none, "two descriptors");
    let other = answered("answer-other", |own, s, _| {
        let theirs = Greeting { procs: 3, proc: 2, ..own.greeting.clone() };
        socket::send(s, &Packet::Welcome(theirs), &[]).expect("sent");
    });
    fails(other, "3 procs");
    let garbage = answered("answer-garbage", |_, s, _| {
        rustix::net::send(s, b"what?", rustix::net::SendFlags::NOSIGNAL).expect("sent");
    });
    fails(garbage, "something other");
    let swapped = answered("answer-swapped", |own, s, passed| {
        let all: Vec<BorrowedFd<'_>> = passed.iter().map(AsFd::as_fd).collect();
        socket::send(s, &Packet::Welcome(welcome(own)), &[all[2], all[1]]).expect("sent");
    });
    fails(swapped, "doorbell");
    fails(
        answered("answer-hello", |own, s, _| socket::send(s, &Packet::Hello(welcome(own)), &[]).expect("sent")),
        "out of turn",
    );
    fails(answered("answer-nothing", |_, _, _| ()), "has closed its endpoint, or has finalized");
}
