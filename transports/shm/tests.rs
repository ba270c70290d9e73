//! Endpoints of one process that talk to each other, peers that misbehave, and one process that is killed.

use super::*;
use crate::connections::{SILENCE_NS_MAX, Stage, VISITORS_MAX};
use crate::handshake::Packet;
use crate::shm::socket::{Read, Received};
use crate::testing::{Given, copy};
use rustix::event::{PollFd, PollFlags, poll};
use tickwire_components::wire::Kind;
use tickwire_components::{NoBytes, Span};

mod growing;
mod splicing;

const RING: usize = 4096;
const TICK_NS: u64 = 100_000;
const TICKS_MAX: u32 = 60_000;

/// A frame as it came: vc, tag, payload.
type Frame = (Row, u32, Vec<u8>);

/// Endpoints under one virtual clock.
struct Net {
    job: String,
    now_ns: u64,
    shms: Vec<Option<Shm>>,
    events: Vec<Vec<LinkEvent>>,
    frames: Vec<Vec<Frame>>,
}

fn config(job: &str, me: u32, procs: u32) -> ShmConfig {
    ShmConfig { ring_bytes: RING, ..ShmConfig::new(job, me, procs) }
}

/// A job name that no other test and no other run uses.
fn job(name: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn send(shm: &mut Shm, link: u32, tag: u32, payload: &[u8]) -> Sent {
    let header = Header::new(Kind::Eager, 1, 2, tag, 3, payload.len() as u64);
    shm.send(link, &header, &payload, &mut ())
}

fn drain(shm: &mut Shm, now_ns: u64, most: usize) -> Vec<Frame> {
    let mut arrivals = [Arrival::default(); 64];
    let count = shm.drain(now_ns, &mut arrivals[..most.min(64)]);
    let frames = arrivals[..count]
        .iter()
        .map(|arrival| {
            let mut bytes = vec![0; arrival.payload.len()];
            // SAFETY: a local buffer that outlives the copy.
            #[expect(unsafe_code, reason = "lends local bytes")]
            let to = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
            copy(to, arrival.payload);
            (arrival.vc, arrival.header.tag(), bytes)
        })
        .collect();
    shm.release();
    frames
}

/// Payload number `n`: its length and bytes follow from it.
fn payload(n: u32, most: usize) -> Vec<u8> {
    let length = n.wrapping_mul(2_654_435_761) as usize % (most + 1);
    (0..length).map(|i| (i as u32 ^ n) as u8).collect()
}

impl Net {
    fn new(name: &str, procs: u32) -> Self {
        Self::with(name, procs, |_| ())
    }

    fn with(name: &str, procs: u32, change: impl Fn(&mut ShmConfig)) -> Self {
        let job = job(name);
        let open = |me| {
            let mut config = config(&job, me, procs);
            change(&mut config);
            Some(Shm::open(config).expect("opens"))
        };
        let shms = (0..procs).map(open).collect();
        let (events, frames) = ((0..procs).map(|_| vec![]).collect(), (0..procs).map(|_| vec![]).collect());
        Net { job, now_ns: 1, shms, events, frames }
    }

    fn shm(&mut self, proc: usize) -> &mut Shm {
        self.shms[proc].as_mut().expect("there")
    }

    fn control(&mut self, proc: usize) {
        let now_ns = self.now_ns;
        let Some(shm) = &mut self.shms[proc] else { return };
        let mut events = Vec::new();
        shm.control(now_ns, &mut events);
        for event in &events {
            match *event {
                LinkEvent::Connected { link } | LinkEvent::Accepted { link, .. } => shm.attach(link, link),
                LinkEvent::Replaced { link, by } => {
                    shm.close_link(link);
                    shm.attach(by, by);
                }
                LinkEvent::Failed { link, .. } => shm.close_link(link),
            }
        }
        self.events[proc].append(&mut events);
    }

    fn drain(&mut self, proc: usize) {
        let now_ns = self.now_ns;
        if let Some(shm) = &mut self.shms[proc] {
            self.frames[proc].append(&mut drain(shm, now_ns, 64));
        }
    }

    fn tick(&mut self) {
        self.now_ns += TICK_NS;
        for proc in 0..self.shms.len() {
            self.control(proc);
            self.drain(proc);
        }
    }

    fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Net) -> bool) {
        for _ in 0..TICKS_MAX {
            if condition(self) {
                return;
            }
            self.tick();
        }
        panic!("never {what}: {:?}", self.events);
    }

    fn call(&mut self, from: usize, to: u32) -> Result<u32, String> {
        let now_ns = self.now_ns;
        let shm = self.shm(from);
        let card = shm.card();
        shm.connect(to, &card, now_ns)
    }

    /// The link of `from` to `to` once both have one.
    fn connect(&mut self, from: usize, to: u32) -> (u32, u32) {
        self.call(from, to).expect("starts");
        self.until("connected", |net| net.link(from, to).is_some() && net.link(to as usize, from as u32).is_some());
        (self.link(from, to).expect("open"), self.link(to as usize, from as u32).expect("open"))
    }

    /// The open link of `from` to `to`.
    fn link(&mut self, from: usize, to: u32) -> Option<u32> {
        let shm = self.shm(from);
        let link = *shm.connections.procs.get(&to)?;
        matches!(shm.connections.stage(link), Some(Stage::Open(_))).then_some(link)
    }

    fn failures(&self, proc: usize) -> Vec<String> {
        let reason = |event: &LinkEvent| match event {
            LinkEvent::Failed { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        self.events[proc].iter().filter_map(reason).collect()
    }

    fn fails_with(&mut self, proc: usize, words: &str) {
        self.until(words, |net| net.failures(proc).iter().any(|reason| reason.contains(words)));
    }

    /// Frames go both ways between two procs.
    fn talks(&mut self, a: usize, b: usize) {
        let (there, back) = (self.link(a, b as u32).expect("open"), self.link(b, a as u32).expect("open"));
        for (from, to, link, other) in [(a, b, there, back), (b, a, back, there)] {
            self.frames[to].clear();
            assert_eq!(send(self.shm(from), link, 5, b"hello"), Sent::Done);
            self.until("arrived", |net| !net.frames[to].is_empty());
            assert_eq!(self.frames[to], [(other, 5, b"hello".to_vec())]);
        }
    }
}

#[test]
fn frames_arrive_whole_and_in_order_both_ways_around_the_ring() {
    for files in [Files::Memory, Files::Unnamed, Files::Named] {
        let mut net = Net::with("both-ways", 2, |config| config.files = files);
        let (a, b) = net.connect(0, 1);
        let most = net.shm(0).capabilities().frame_max;
        let total = 3000;
        let mut sent = [0, 0];
        net.until("all there", |net| {
            for (from, link) in [(0, a), (1, b)] {
                for _ in 0..7 {
                    let next = sent[from];
                    if next < total && send(net.shm(from), link, next, &payload(next, most)) == Sent::Done {
                        sent[from] += 1;
                    }
                }
            }
            net.frames.iter().all(|frames| frames.len() == total as usize)
        });
        for (proc, link) in [(0, a), (1, b)] {
            for (n, frame) in net.frames[proc].iter().enumerate() {
                assert_eq!(*frame, (link, n as u32, payload(n as u32, most)));
            }
        }
        assert!(net.events.iter().all(|events| events.len() == 1), "{:?}", net.events);
    }
}

#[test]
fn a_full_ring_blocks_and_recovers() {
    let mut net = Net::new("full-ring", 2);
    let (link, _) = net.connect(0, 1);
    let most = net.shm(0).capabilities().frame_max;
    let mut sent = 0;
    for _ in 0..20 {
        let before = sent;
        loop {
            match send(net.shm(0), link, sent, &payload(sent, most)) {
                Sent::Done => sent += 1,
                other => break assert_eq!(other, Sent::Blocked),
            }
            assert!(sent - before < 200, "a ring of {RING} bytes takes no more");
        }
        assert!(sent > before, "a drained ring takes the next frame");
        net.until("drained", |net| net.frames[1].len() == sent as usize);
    }
    assert!(net.frames[1].iter().enumerate().all(|(n, f)| (f.1, &f.2) == (n as u32, &payload(n as u32, most))));
}

#[test]
fn peers_that_are_not_watched_announce_themselves() {
    let procs = 12;
    let mut net = Net::new("many", procs);
    let links: Vec<u32> = (1..procs).map(|proc| net.connect(proc as usize, 0).0).collect();
    let mut total = 0;
    for round in 0..300u32 {
        // All at once, then a few in turn, then one alone.
        let some = |proc: u32| round % 3 == 0 || proc % 4 == round % 4 || proc == 1 + round % (procs - 1);
        for proc in (1..procs).filter(|&proc| some(proc)) {
            assert_eq!(send(net.shm(proc as usize), links[proc as usize - 1], proc << 16 | round, &[7]), Sent::Done);
            total += 1;
        }
        net.until("arrived", |net| net.frames[0].len() == total);
    }
    for proc in 1..procs {
        let rounds: Vec<u32> = net.frames[0].iter().filter(|f| f.1 >> 16 == proc).map(|f| f.1 & 0xFFFF).collect();
        assert!(rounds.is_sorted() && !rounds.is_empty());
    }
    assert!(!net.shm(0).ready());
}

#[test]
fn a_sleeper_is_woken_by_every_frame() {
    let mut net = Net::new("sleep", 2);
    let (a, b) = net.connect(0, 1);
    let mut sleeper = net.shms[0].take().expect("there");
    let mut other = net.shms[1].take().expect("there");
    let rounds = 300;
    let receive = |shm: &mut Shm, n: u32| {
        for _ in 0..1000 {
            if let Some(frame) = drain(shm, 0, 1).pop() {
                assert_eq!((frame.1, frame.2), (n, vec![n as u8]));
                return;
            }
            if shm.arm() {
                let fd = shm.wait_fd().expect("a descriptor");
                let timeout = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
                let woken = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).expect("polls");
                assert_eq!(woken, 1, "slept through frame {n}");
            }
            shm.disarm();
        }
        panic!("woken without a frame, again and again");
    };
    let thread = std::thread::spawn(move || {
        for n in 0..rounds {
            receive(&mut other, n);
            assert_eq!(send(&mut other, b, n, &[n as u8]), Sent::Done);
        }
        other
    });
    for n in 0..rounds {
        assert_eq!(send(&mut sleeper, a, n, &[n as u8]), Sent::Done);
        receive(&mut sleeper, n);
    }
    drop(thread.join().expect("no panic"));
}

#[test]
fn the_lower_number_wins_when_both_connect_at_once() {
    for round in 0..60 {
        let mut net = Net::new("at-once", 2);
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for proc in order {
            net.call(proc, 1 - proc as u32).expect("starts");
        }
        // Different ones look first, and at different moments.
        for step in 0..round % 5 {
            net.control((round + step) % 2);
        }
        net.until("connected", |net| {
            net.link(0, 1).is_some()
                && net.link(1, 0).is_some()
                && net.shms.iter().flatten().all(|s| s.connections.calls.is_empty())
        });
        for _ in 0..50 {
            net.tick();
        }
        net.talks(0, 1);
        assert_eq!(net.events[0], [LinkEvent::Connected { link: 0 }], "round {round}");
        assert_eq!(net.events[1], [LinkEvent::Replaced { link: 0, by: 1 }], "round {round}");
    }
}

#[test]
fn two_threads_that_connect_at_once_agree() {
    for round in 0..40 {
        let mut net = Net::new("threads-at-once", 2);
        let barrier = Arc::new(std::sync::Barrier::new(2));
        let threads: Vec<_> = [0, 1]
            .map(|me| {
                let (mut shm, barrier) = (net.shms[me].take().expect("there"), barrier.clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    let card = shm.card();
                    shm.connect(1 - me as u32, &card, 0).expect("starts");
                    let mut events = Vec::new();
                    for now in 0..TICKS_MAX {
                        shm.control(u64::from(now) * 1000, &mut events);
                        let peer = shm.connections.procs.get(&(1 - me as u32)).copied();
                        if let Some(link) =
                            peer.filter(|&link| matches!(shm.connections.stage(link), Some(Stage::Open(_))))
                        {
                            shm.attach(link, link);
                            break;
                        }
                        std::thread::yield_now();
                    }
                    (shm, events)
                })
            })
            .into();
        for (me, thread) in threads.into_iter().enumerate() {
            let (shm, events) = thread.join().expect("no panic");
            net.shms[me] = Some(shm);
            net.events[me] = events;
        }
        net.now_ns = u64::from(TICKS_MAX) * 1000;
        net.until("agreed", |net| net.link(0, 1).is_some() && net.link(1, 0).is_some());
        net.talks(0, 1);
        assert!(net.failures(0).is_empty() && net.failures(1).is_empty(), "{round} {:?}", net.events);
    }
}

#[test]
fn connecting_again_gives_the_same_link() {
    let mut net = Net::new("again", 2);
    let (a, b) = net.connect(0, 1);
    assert_eq!((net.call(0, 1), net.call(1, 0)), (Ok(a), Ok(b)));
    net.tick();
    assert_eq!(net.events[1], [LinkEvent::Accepted { link: b, proc: 0 }, LinkEvent::Connected { link: b }]);
    net.talks(0, 1);
}

#[test]
fn numbers_are_used_again() {
    let mut net = Net::new("numbers", 2);
    for _ in 0..100 {
        let (a, b) = net.connect(0, 1);
        net.talks(0, 1);
        net.shm(0).close_link(a);
        net.events[1].clear();
        net.fails_with(1, "proc 0 (process");
        assert_eq!(net.failures(1).len(), 1);
        assert_eq!(send(net.shm(0), a, 1, b"x"), Sent::Failed);
        assert_eq!(send(net.shm(1), b, 1, b"x"), Sent::Failed);
    }
    assert!(net.shms.iter().flatten().all(|shm| shm.connections.table.len() <= 2));
}

#[test]
fn what_a_peer_sent_before_its_end_is_read_first() {
    let mut net = Net::new("end", 3);
    let (link, _) = net.connect(1, 0);
    net.connect(2, 0);
    for n in 0..20 {
        assert_eq!(send(net.shm(1), link, n, &payload(n, 64)), Sent::Done);
    }
    drop(net.shms[1].take());
    for _ in 0..20 {
        net.now_ns += TICK_NS;
        net.control(0);
        assert!(net.failures(0).is_empty(), "frames are still unread");
        let frame = drain(net.shm(0), 0, 1).pop().expect("a frame");
        net.frames[0].push(frame);
    }
    net.fails_with(0, "has closed the connection");
    assert!(net.frames[0].iter().enumerate().all(|(n, f)| f.2 == payload(n as u32, 64)));
    assert_eq!((net.frames[0].len(), net.failures(0).len()), (20, 1));
    net.talks(0, 2);
}

#[test]
fn what_a_peer_sent_before_its_end_is_read_however_busy_another_one_is() {
    let mut net = Net::new("busy", 3);
    let (busy, _) = net.connect(1, 0);
    let (quiet, at) = net.connect(2, 0);
    while send(net.shm(1), busy, 0, &[]) == Sent::Done {}
    // Less than there is room for in a ring: it has more to say when the other one begins.
    assert_eq!(drain(net.shm(0), 0, 16).len(), 16);
    for n in 0..30 {
        assert_eq!(send(net.shm(2), quiet, n, &payload(n, 64)), Sent::Done);
    }
    net.shm(2).close_link(quiet);
    for _ in 0..TICKS_MAX {
        while send(net.shm(1), busy, 0, &[]) == Sent::Done {}
        net.now_ns += TICK_NS;
        net.control(0);
        if !net.failures(0).is_empty() {
            break;
        }
        let now_ns = net.now_ns;
        let mut frames = drain(net.shm(0), now_ns, 16);
        net.frames[0].append(&mut frames);
    }
    assert_eq!(net.failures(0).len(), 1, "its end is told");
    let heard: Vec<u32> = net.frames[0].iter().filter(|(vc, ..)| *vc == at).map(|(_, tag, _)| *tag).collect();
    assert!(heard.iter().copied().eq(0..30), "{heard:?}");
}

#[test]
fn one_link_alone_can_be_drained() {
    let mut net = Net::new("alone", 3);
    let (first, at_first) = net.connect(1, 0);
    let (second, at_second) = net.connect(2, 0);
    for n in 0..3 {
        assert_eq!(send(net.shm(1), first, n, &[]), Sent::Done);
        assert_eq!(send(net.shm(2), second, n, &[]), Sent::Done);
    }
    let mut arrivals = [Arrival::default(); 8];
    for link in [at_second, at_first] {
        let count = net.shm(0).drain_link(link, 0, &mut arrivals);
        net.shm(0).release();
        assert_eq!(count, 3);
        assert!(arrivals[..count].iter().all(|arrival| arrival.vc == link));
    }
}

#[test]
fn an_end_is_reported_though_nobody_reads() {
    let mut net = Net::new("unread", 2);
    let (link, _) = net.connect(1, 0);
    assert_eq!(send(net.shm(1), link, 1, b"never read"), Sent::Done);
    drop(net.shms[1].take());
    let started = net.now_ns;
    for _ in 0..TICKS_MAX {
        net.now_ns += TICK_NS;
        net.control(0);
        if !net.failures(0).is_empty() {
            break;
        }
    }
    let waited = net.now_ns - started;
    assert!((1_000_000_000..1_100_000_000).contains(&waited), "{waited} ns");
}

#[test]
fn payloads_outlive_their_link_until_they_are_released() {
    let mut net = Net::new("outlive", 2);
    let (link, back) = net.connect(1, 0);
    assert_eq!(send(net.shm(1), link, 1, b"still here"), Sent::Done);
    let shm = net.shm(0);
    let mut arrivals = [Arrival::default(); 4];
    let count = (0..1000).map(|_| shm.drain(0, &mut arrivals)).find(|&count| count > 0);
    assert_eq!(count, Some(1));
    shm.close_link(back);
    let mut bytes = vec![0; arrivals[0].payload.len()];
    // SAFETY: a local buffer that outlives the copy.
    #[expect(unsafe_code, reason = "lends local bytes")]
    let to = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
    copy(to, arrivals[0].payload);
    assert_eq!(bytes, b"still here");
    shm.release();
}

#[test]
fn a_corrupt_ring_ends_its_link_and_no_other() {
    let mut net = Net::new("corrupt", 3);
    let (link, _) = net.connect(1, 0);
    net.connect(2, 0);
    let header = Header { lead: 77, ..Header::default() };
    assert_eq!(net.shm(1).send(link, &header, &NoBytes, &mut ()), Sent::Done);
    net.fails_with(0, "corrupt ring: a frame of unknown kind 77");
    net.fails_with(1, "gave the connection up: corrupt ring");
    net.talks(0, 2);
    net.events[0].clear();
    net.connect(1, 0);
    net.talks(0, 1);
}

#[test]
fn a_proc_that_does_not_run_is_reported() {
    let mut net = Net::new("absent", 3);
    drop(net.shms[1].take());
    let started = net.now_ns;
    let link = net.call(0, 1).expect("starts");
    assert!(net.shm(0).wants_control());
    net.fails_with(0, "proc 1 has closed its endpoint, or has finalized");
    let waited = net.now_ns - started;
    assert!((250_000_000..300_000_000).contains(&waited), "{waited} ns");
    assert!(!net.shm(0).wants_control());
    assert_eq!(net.events[0].len(), 1);
    // It starts a little later than who calls it.
    assert_eq!(net.call(0, 1), Ok(link));
    net.tick();
    let late = config(&net.job.clone(), 1, 3);
    net.shms[1] = Some(Shm::open(late).expect("opens"));
    net.until("connected", |net| net.link(0, 1).is_some());
    net.talks(0, 1);
}

#[test]
fn a_proc_that_computes_for_an_hour_answers_when_it_goes_on() {
    for calls_back in [false, true] {
        let mut net = Net::new("computes", 2);
        net.call(0, 1).expect("starts");
        for _ in 0..3600 {
            net.now_ns += 1_000_000_000;
            net.control(0);
        }
        assert!(net.events[0].is_empty(), "{:?}", net.events);
        if calls_back {
            net.call(1, 0).expect("starts");
        }
        net.until("connected", |net| net.link(0, 1).is_some() && net.link(1, 0).is_some());
        net.talks(0, 1);
    }
}

#[test]
fn a_proc_that_does_not_answer_in_the_applications_time_is_reported() {
    let mut net = Net::with("silent", 2, |config| config.connect_ms_max = Some(10_000));
    let _link = net.call(0, 1).expect("starts");
    let started = net.now_ns;
    while net.failures(0).is_empty() {
        net.now_ns += 10 * TICK_NS;
        net.control(0);
        assert!(net.now_ns - started < 11_000_000_000);
    }
    net.fails_with(0, "proc 1 did not answer within 10001 ms");
    // The late answer finds nobody, and harms nobody.
    for _ in 0..100 {
        net.tick();
    }
    assert_eq!(net.link(1, 0), None);
    net.connect(0, 1);
    net.talks(0, 1);
}

#[test]
fn a_link_that_is_given_up_tells_its_peer_why() {
    let mut net = Net::new("given-up", 3);
    let (a, _) = net.connect(0, 1);
    net.connect(0, 2);
    net.shm(0).give_up(a, "it is of no use");
    net.fails_with(1, "proc 0 gave the connection up: it is of no use");
    assert!(net.failures(0).is_empty() && net.link(0, 1).is_none());
    net.talks(0, 2);
}

#[test]
fn closing_is_in_order_and_final() {
    let mut net = Net::new("close", 2);
    net.connect(0, 1);
    net.shm(0).close();
    net.shm(0).close();
    assert!(net.shm(0).wait_fd().is_none());
    assert!(net.call(0, 1).expect_err("closed").contains("closed"));
    net.fails_with(1, "has closed the connection");
    assert_eq!(net.failures(1).len(), 1);
}

#[test]
fn what_cannot_be_opened_says_what_to_do() {
    let name = job("refused");
    let refused = |change: fn(&mut ShmConfig)| {
        let mut config = config(&name, 0, 2);
        change(&mut config);
        Shm::open(config).err().expect("refused").to_string()
    };
    assert!(refused(|c| c.job = "a/b".into()).contains("letters"));
    assert!(refused(|c| c.job = String::new()).contains("letters"));
    assert!(refused(|c| c.job = "j".repeat(65)).contains("letters"));
    assert!(refused(|c| c.me = 2).contains("proc 2 of 2"));
    assert!(refused(|c| c.ring_bytes = 5000).contains("power of two"));
    assert!(refused(|c| c.first_ring_bytes = 64).contains("first_ring_bytes is 64"));
    let nowhere = |c: &mut ShmConfig| c.directory = "/no/such/place".into();
    let mut without = config(&job("without"), 0, 2);
    nowhere(&mut without);
    Shm::open(without).expect("memory is in no directory");
    assert!(refused(|c| (c.directory, c.files) = ("/no/such/place".into(), Files::Unnamed)).contains("tmpfs"));
    let _first = Shm::open(config(&name, 0, 2)).expect("opens");
    assert!(refused(|_| ()).contains("runs on this host already"));
}

#[test]
fn a_lack_of_memory_fails_a_connection_in_words() {
    // Rings that no machine has memory for, after the inbox was made.
    let mut net = Net::new("full", 2);
    (net.shm(0).own.config.ring_bytes, net.shm(0).own.config.first_ring_bytes) = (1 << 60, 1 << 60);
    let error = net.call(0, 1).expect_err("no room");
    assert!(error.contains("no memory") && error.contains("2305843009213694720 bytes were asked for"), "{error}");
    assert!(net.shm(0).connections.procs.is_empty());
}

#[test]
fn cards_tell_hosts_apart() {
    let net = Net::new("cards", 2);
    let [Some(a), Some(b)] = &net.shms[..] else { panic!("two") };
    let card = HostCard::decode(&b.card()).expect("a card");
    assert_eq!(a.reaches(1, &b.card()), Ok(()));
    let elsewhere = HostCard { host: [0; 8], ..card };
    assert_eq!(a.reaches(1, &elsewhere.encode()), Err("proc 1 runs on another host".into()));
    assert_eq!((a.has_ended(1, &b.card()), a.has_ended(1, &elsewhere.encode())), (None, None));
    let gone = HostCard { start_time: card.start_time + 1, ..card };
    assert_eq!(a.has_ended(1, &gone.encode()), Some(format!("process {} has ended", card.pid)));
    assert!(a.reaches(1, &[0; 8]).is_err_and(|why| why.contains("one build of tickwire")));
    assert_eq!(a.reaches(1, &[]), Err("proc 1 has not opened it".into()));
    assert!(a.reaches(0, &a.card()).is_err());
    assert!(a.reaches(2, &b.card()).is_err());
}

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
    assert!(net.now_ns - started >= SILENCE_NS_MAX);
    net.talks(0, 1);
    net.now_ns += 2 * SILENCE_NS_MAX;
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
    let listener = listen(&config(&net.job, 1, 2)).expect("listens");
    net.call(0, 1).expect("starts");
    let socket = socket::accept(&listener).expect("called");
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

const CHILD: &str = "TICKWIRE_TEST_SHM_CHILD";

/// Not a test: the process that the next test kills.
#[test]
fn child() {
    let Ok(job) = std::env::var(CHILD) else { return };
    let mut shm = Shm::open(config(&job, 1, 2)).expect("opens");
    if std::env::var_os(STOPS).is_some() {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::STOP).expect("the own process");
    }
    let parent = rustix::process::getppid().expect("a parent").as_raw_nonzero().get() as u32;
    let start_time = crate::processes::start_time(parent).expect("it lives");
    let card = HostCard { pid: parent, start_time, ..shm.own.card };
    shm.connect(0, &card.encode(), 0).expect("starts");
    let started = std::time::Instant::now();
    let mut events = Vec::new();
    let mut sent = 0;
    while started.elapsed().as_secs() < 60 {
        shm.control(started.elapsed().as_nanos() as u64, &mut events);
        let open = events.iter().find_map(|event| match *event {
            LinkEvent::Connected { link } | LinkEvent::Replaced { by: link, .. } => Some(link),
            _ => None,
        });
        if sent < 10 && open.is_some_and(|link| send(&mut shm, link, sent, b"last") == Sent::Done) {
            sent += 1;
        }
        std::thread::yield_now();
    }
}

/// The variable that has the child stop itself once it is open.
const STOPS: &str = "TICKWIRE_TEST_SHM_STOPS";

/// Starts [`child`] as proc 1.
fn start_child(net: &Net, stops: bool) -> std::process::Child {
    let mut command = std::process::Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "shm::tests::child", "--nocapture"]).env(CHILD, &net.job);
    if stops {
        command.env(STOPS, "1");
    }
    command.stdout(std::process::Stdio::null()).spawn().expect("starts")
}

#[test]
fn a_stopped_process_is_waited_for_until_it_goes_on_or_dies() {
    for (hold, dies) in [(false, false), (false, true), (true, true)] {
        let mut net = Net::with("stopped", 1, |config| config.procs = 2);
        let mut child = start_child(&net, true);
        let stat = format!("/proc/{}/stat", child.id());
        let started = std::time::Instant::now();
        while !std::fs::read_to_string(&stat).expect("it is this test's own").contains(") T ") {
            assert!(started.elapsed().as_secs() < 60, "it never stopped");
            std::thread::yield_now();
        }
        let start_time = crate::processes::start_time(child.id()).expect("it lives");
        let card = HostCard { pid: child.id(), start_time, ..net.shm(0).own.card };
        let now_ns = net.now_ns;
        net.shm(0).connect(1, &card.encode(), now_ns).expect("starts");
        for _ in 0..3600 {
            net.now_ns += 1_000_000_000;
            net.control(0);
        }
        assert!(net.events[0].is_empty(), "{:?}", net.events);
        let held = if hold { hold_descriptors(child.id()) } else { vec![] };
        let started = std::time::Instant::now();
        if dies {
            child.kill().expect("it is this test's own");
            net.fails_with(0, &format!("process {} has ended before it answered", child.id()));
            assert!(started.elapsed().as_millis() < 1000, "{:?}", started.elapsed());
            assert!(net.shm(0).connect(1, &card.encode(), now_ns).is_err_and(|why| why.contains("has ended")));
        } else {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it is this test's own");
            while net.frames[0].len() < 10 && started.elapsed().as_secs() < 60 {
                net.tick();
                std::thread::yield_now();
            }
            assert_eq!(net.frames[0].len(), 10);
            child.kill().expect("it is this test's own");
        }
        child.wait().expect("reaped");
        drop(held);
    }
}

#[test]
fn a_killed_process_is_noticed_though_its_socket_is_held() {
    for (hold, told) in [(false, true), (true, true), (true, false)] {
        let mut net = Net::with("killed", 1, |config| config.procs = 2);
        let mut child = start_child(&net, false);
        let started = std::time::Instant::now();
        while net.frames[0].len() < 10 && started.elapsed().as_secs() < 60 {
            net.tick();
            std::thread::yield_now();
        }
        assert_eq!(net.frames[0].len(), 10);
        let held = if hold { hold_descriptors(child.id()) } else { vec![] };
        if !told {
            // As where the kernel has no descriptors of processes.
            let link = net.link(0, 1).expect("open");
            let Shm { own, connections, .. } = net.shm(0);
            connections.forget_process(link, &own.watched);
        }
        child.kill().expect("killed");
        child.wait().expect("reaped");
        net.fails_with(0, &format!("process {} has ended", child.id()));
        assert_eq!(net.events[0].len(), 2, "{:?}", net.events[0]);
        drop(held);
    }
}

/// Copies of all descriptors of a process, as a child of it would have them; none where that is forbidden.
fn hold_descriptors(pid: u32) -> Vec<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let pid_of = Pid::from_raw(pid as i32).expect("a pid");
    let process = pidfd_open(pid_of, PidfdFlags::empty()).expect("a process");
    let numbers = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("readable").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()).collect()
}

/// Bytes that outlive what is done with them.
fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: valid for as long as the tests use it.
    #[expect(unsafe_code, reason = "lends local bytes")]
    unsafe {
        Span::new(bytes.as_mut_ptr(), bytes.len())
    }
}

/// Reads a peer's bytes from `address` on.
fn read(net: &mut Net, proc: usize, link: u32, address: *const u8, length: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; length];
    let into = span(&mut bytes);
    let read = MemoryRead { address: address.expose_provenance() as u64, into };
    net.shm(proc).read_into(link, &[read]).map(|()| bytes)
}

#[test]
fn memory_of_a_peer_is_read_while_it_stands_by_it() {
    let mut net = Net::new("reads", 2);
    let (a, b) = net.connect(0, 1);
    if !net.shm(0).reads(a, 0, 1) {
        // What the kernel forbids is not tried: such messages go in pieces.
        assert!(!net.shm(0).capabilities().remote_read);
        return;
    }
    let bytes: Vec<u8> = (0..100_000).map(|n| (n * 31 % 251) as u8).collect();
    assert_eq!(read(&mut net, 0, a, bytes.as_ptr(), bytes.len()).as_ref(), Ok(&bytes));
    assert_eq!(read(&mut net, 1, b, bytes[500..].as_ptr(), 1000).as_deref(), Ok(&bytes[500..1500]));
    let wrong = read(&mut net, 0, a, std::ptr::without_provenance(16), 100).unwrap_err();
    assert!(wrong.contains("cannot be read") && wrong.contains("Bad address"), "{wrong}");
    assert!(read(&mut net, 0, a + 7, bytes.as_ptr(), 8).is_err(), "no such link");
    // Several at once, as many as need more than one piece of the stack, and one of them wrong.
    let mut many = vec![0; bytes.len()];
    let mut reads: Vec<MemoryRead> = (many.chunks_mut(9000).zip(bytes.chunks(9000)))
        .map(|(into, from)| MemoryRead { address: from.as_ptr().expose_provenance() as u64, into: span(into) })
        .collect();
    assert_eq!(net.shm(0).read_into(a, &reads), Ok(()));
    assert!(many == bytes && reads.len() > 8);
    assert_eq!(net.shm(0).traffic(a).expect("open").read, 200_000);
    reads[3].address = 16;
    let wrong = net.shm(0).read_into(a, &reads).unwrap_err();
    assert!(wrong.contains("cannot be read") && wrong.contains("Bad address"), "{wrong}");
    // The engine of proc 1 gives the connection up and its application has its memory back; proc 0 has not heard of it.
    net.shm(1).close_link(b);
    let wrong = read(&mut net, 0, a, bytes.as_ptr(), 8).unwrap_err();
    assert!(wrong.contains("given the message up"), "{wrong}");
    net.fails_with(0, "has closed the connection");
    assert!(!net.shm(0).reads(a, 0, 1));
}

/// Copies bytes out of the heap of proc 0's peer.
fn copy_out(net: &mut Net, link: u32, address: u64, into: &mut [u8]) -> bool {
    net.shm(0).read_into_at_once(link, address, span(into), false)
}

#[test]
fn what_is_alone_is_read_by_the_kernel_at_once_where_nobody_is_asked_to_splice_it() {
    for splicing in [Splicing::Never, Splicing::IfCheaper] {
        let mut net = Net::with("alone", 2, |config| config.splicing = splicing);
        let (a, b) = net.connect(0, 1);
        if !net.shm(0).reads(a, 0, 1) {
            return;
        }
        let bytes: Vec<u8> = (0..100_000).map(|n| (n * 31 % 251) as u8).collect();
        let address = bytes.as_ptr().expose_provenance() as u64;
        let mut into = vec![0; bytes.len()];
        let quiet = splicing == Splicing::Never;
        assert!(!net.shm(0).read_into_at_once(a, address, span(&mut into), false), "it may go with others");
        assert_eq!(net.shm(0).read_into_at_once(a, address, span(&mut into), true), quiet);
        assert_eq!((into == bytes, net.shm(0).bytes_read().attach), (quiet, if quiet { 100_000 } else { 0 }));
        assert!(!net.shm(0).read_into_at_once(a, 16, span(&mut into), true), "nothing is there");
        net.shm(1).close_link(b);
        assert!(!net.shm(0).read_into_at_once(a, address, span(&mut into), true), "given up");
    }
}

#[test]
fn a_peers_heap_is_read_without_the_kernel_and_nothing_else_of_it() {
    crate::heap::open().expect("a heap");
    let change = |config: &mut ShmConfig| {
        (config.cross_memory_attach, config.shared_heap) = (false, config.me != 2);
    };
    let mut net = Net::with("heap", 4, change);
    let (a, b) = net.connect(0, 1);
    let mut buffer = crate::HeapBuffer::new(100_000).expect("room");
    buffer.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n * 31 % 251) as u8);
    let plain = vec![1; 100_000];
    let at = |bytes: &[u8]| bytes.as_ptr().expose_provenance() as u64;
    assert!(net.shm(0).capabilities().remote_read && net.shm(0).reads(a, at(&buffer), 100_000));
    assert!(read(&mut net, 0, a, buffer.as_ptr(), 100_000).as_deref() == Ok(&buffer[..]));
    assert!(read(&mut net, 1, b, buffer[500..].as_ptr(), 1000).as_deref() == Ok(&buffer[500..1500]));
    assert_eq!(net.shm(0).bytes_read(), BytesRead { heap: 100_000, ..BytesRead::default() });
    let mut into = vec![0; 1000];
    assert!(copy_out(&mut net, a, at(&buffer[500..]), &mut into) && into == buffer[500..1500]);
    assert_eq!(net.shm(0).bytes_read().heap, 101_000);
    assert_eq!(net.shm(0).traffic(a).map(|traffic| traffic.read), Some(101_000));
    // Neither what is elsewhere, nor what is partly elsewhere.
    let offer = crate::heap::offer().expect("on");
    let end = offer.base + offer.bytes;
    for (address, length) in [(at(&plain), 100_000), (offer.base - 8, 16), (end - 8, 16), (end, 8), (u64::MAX - 8, 64)]
    {
        assert!(!net.shm(0).reads(a, address, length), "{address:#x}");
        let address = std::ptr::with_exposed_provenance(address as usize);
        assert!(read(&mut net, 0, a, address, length as usize).unwrap_err().contains("may not be read"));
        assert!(!copy_out(&mut net, a, address.expose_provenance() as u64, &mut vec![0; length as usize]));
    }
    // A peer that offers no heap reads from one that does, and has nothing read.
    let (c, d) = net.connect(2, 1);
    assert!(!net.shm(2).capabilities().remote_read && !net.shm(1).reads(d, at(&buffer), 8));
    assert!(read(&mut net, 2, c, buffer.as_ptr(), 100_000).as_deref() == Ok(&buffer[..]));
    // Two procs of one process have one heap, and one map of it that goes with the last of them.
    let (e, _) = net.connect(0, 3);
    let map = |net: &mut Net, link| {
        net.shm(0).connections.line(link).and_then(Line::heap).map(Arc::downgrade).expect("a map")
    };
    let (first, second) = (map(&mut net, a), map(&mut net, e));
    assert!(first.ptr_eq(&second));
    net.shm(1).close_link(b);
    let wrong = read(&mut net, 0, a, buffer.as_ptr(), 8).unwrap_err();
    assert!(wrong.contains("given the message up"), "{wrong}");
    assert!(!copy_out(&mut net, a, at(&buffer), &mut into), "given up");
    net.fails_with(0, "has closed the connection");
    assert!(!copy_out(&mut net, a, at(&buffer), &mut into), "closed");
    assert!(!net.shm(0).reads(a, at(&buffer), 8) && first.upgrade().is_some());
    net.shm(0).close_link(e);
    assert!(first.upgrade().is_none());
}
