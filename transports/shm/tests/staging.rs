//! Endpoints that stage messages to each other, and such that do it wrong.

mod wrong;

use super::kit::{Net, drain, send, span};
use crate::Other;
use crate::connections::Stage;
use crate::handshake::Packet;
use crate::rings::outlet::Question;
use crate::rings::staging::{self, Position, StagingWords};
use crate::shm::*;
use crate::sim::SplitMix;
use crate::testing::GivenMemory;
use tickwire_components::limits::{
    STAGED_A_CALL, STAGING_BYTES, STAGING_CALLS_MAX, STAGING_MIN, STAGING_QUESTIONS_MAX, STAGING_STEP_BYTES,
};
use tickwire_components::wire::Kind;
use tickwire_components::{NoBytes, Span};

/// Two connected endpoints with staging buffers both ways, the first's link to the second and the other way; `None` where the kernel
/// lets nobody read memory.
fn connected(name: &str) -> Option<(Net, u32, u32)> {
    let mut net = Net::with(name, 2, |config| config.staging = Staging::Always);
    let (a, b) = net.connect(0, 1);
    let mut bytes = vec![0; STAGING_MIN];
    let read = [MemoryRead { address: 16, into: span(&mut bytes) }];
    for (proc, link) in [(0, a), (1, b)] {
        assert_eq!(net.shm(proc).wants_staging(link, &read), None, "no buffer yet");
    }
    let has_buffer = |net: &mut Net, proc, link| net.shm(proc).wants_staging(link, &read).is_some();
    net.until("buffers", |net| has_buffer(net, 0, a) && has_buffer(net, 1, b));
    net.shm(0).reads(a, 0, 1).then_some((net, a, b))
}

fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut random = SplitMix::new(seed);
    (0..length.div_ceil(8)).flat_map(|_| random.next_u64().to_ne_bytes()).take(length).collect()
}

/// Where bytes are, as their owner tells a peer.
fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

/// Reads of buffers of a peer, into buffers of as many bytes.
fn reads(from: &[Vec<u8>], into: &mut [Vec<u8>]) -> Vec<MemoryRead> {
    from.iter().zip(into).map(|(from, into)| MemoryRead { address: address(from), into: span(into) }).collect()
}

fn staged(net: &mut Net, proc: usize) -> u64 {
    net.shm(proc).bytes_read().staged
}

/// Has the second endpoint offer buffers to the first.
fn expose(net: &mut Net, link: u32, from: &mut [Vec<u8>]) {
    from.iter_mut().for_each(|bytes| net.shm(1).expose_run(link, span(bytes)));
}

/// The second endpoint hears questions, and puts as much as the buffer holds: each call puts a part.
fn put_all(net: &mut Net) {
    (0..=STAGING_BYTES / STAGED_A_CALL).for_each(|_| net.drain(1));
}

/// The first endpoint reads what the second has offered, which looks at the questions before that: how many were asked.
fn read_all(net: &mut Net, link: u32, reads: &[MemoryRead]) -> usize {
    let asked = net.shm(0).ask(link, reads);
    put_all(net);
    assert_eq!(net.shm(0).read_asked(link, reads, asked).err(), None);
    asked
}

/// The first endpoint sends the second what it likes as a question.
fn put_question(net: &mut Net, link: u32, header: &Header) {
    assert_eq!(net.shm(0).links.send(link, header, &NoBytes), Sent::Done);
}

#[test]
fn what_a_peer_stages_is_not_read_and_what_it_does_not_is() {
    let Some((mut net, a, b)) = connected("stage") else { return };
    let mut from = [STAGING_BYTES + 777, STAGING_MIN, 100_001].map(|length| content(length as u64, length));
    expose(&mut net, b, &mut from);
    let mut into = from.each_ref().map(|bytes| vec![0; bytes.len()]);
    let reads = reads(&from, &mut into);
    assert_eq!(read_all(&mut net, a, &reads), 3);
    assert!(into == from);
    // The buffer was full, and nobody has emptied it meanwhile.
    let there = STAGING_BYTES as u64;
    let all: u64 = from.iter().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(net.shm(0).bytes_read(), BytesRead { heap: 0, attach: all - there, staged: there });
    assert_eq!(net.shm(0).traffic(a).expect("open").read, all);
    // The peer comes too late for the rest, and in time for the next messages.
    into.iter_mut().for_each(|bytes| bytes.fill(0));
    assert_eq!(read_all(&mut net, a, &reads[1..]), 2);
    assert!(into[1..] == from[1..]);
    let length = (STAGING_MIN + 100_001) as u64;
    assert_eq!(staged(&mut net, 0), there + length);
    // Of a short one the peer knows nothing: it and what comes behind it are not asked for.
    let short =
        [reads[1], MemoryRead { address: reads[0].address, into: reads[0].into.part(0, STAGING_MIN - 1) }, reads[2]];
    assert_eq!(read_all(&mut net, a, &short), 1);
    assert_eq!(staged(&mut net, 0), there + length + STAGING_MIN as u64);
    assert_eq!(net.shm(0).wants_staging(a, &short[1..]), None);
    // Without an answer, nothing is staged, and nothing is waited for without end.
    into.iter_mut().for_each(|bytes| bytes.fill(0));
    assert_eq!(net.shm(0).read_into(a, &reads), Ok(()));
    assert!(into == from);
    assert_eq!(staged(&mut net, 0), there + length + STAGING_MIN as u64);
    net.drain(1);
    assert!(!net.shm(1).ready() && net.frames[1].is_empty(), "questions are nobody else's");
    assert!(net.failures(1).is_empty());
}

#[test]
fn two_threads_stage_and_read_whatever_comes_in_time() {
    // A patient reader, and one that often gives up while bytes are on their way.
    for (seed, patience) in [(7, Staging::Always), (8, Staging::IfCheaper)] {
        two_threads(seed, patience);
    }
}

fn two_threads(seed: u64, patience: Staging) {
    let Some((mut net, a, b)) = connected("staging-threads") else { return };
    let mut random = SplitMix::new(seed);
    let mut rounds: Vec<Vec<Vec<u8>>> = (0..300)
        .map(|round| {
            let count = 1 + random.below(4);
            (0..count).map(|n| content(round * 10 + n, 1 + random.below(400_000) as usize)).collect()
        })
        .collect();
    let (mut reader, mut sender) = (net.shms[0].take().expect("there"), net.shms[1].take().expect("there"));
    let copies = rounds.clone();
    for run in rounds.iter_mut().flatten() {
        sender.expose_run(b, span(run));
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = SplitMix::new(seed);
            while !over.load(Ordering::Relaxed) {
                assert!(drain(&mut sender, 1, 64).is_empty());
                // It computes for a while now and then: for more and for less time than an impatient reader waits.
                if patience == Staging::IfCheaper && random.below(4) == 0 {
                    (0..random.below(1000)).for_each(|_| std::hint::spin_loop());
                }
            }
        });
        for (from, copy) in rounds.iter().zip(&copies) {
            let mut into: Vec<_> = from.iter().map(|bytes| vec![0; bytes.len()]).collect();
            let reads = reads(from, &mut into);
            reader.own.config.staging = Staging::Always;
            let asked = reader.ask(a, &reads);
            reader.own.config.staging = patience;
            assert_eq!(reader.read_asked(a, &reads, asked).err(), None);
            assert!(into == *copy);
        }
        over.store(true, Ordering::Relaxed);
    });
    let BytesRead { attach, staged, .. } = reader.bytes_read();
    assert_eq!(attach + staged, rounds.iter().flatten().map(|bytes| bytes.len() as u64).sum::<u64>());
    // How much an impatient one gets depends on the machine.
    assert!(staged > 0 || patience != Staging::Always);
}

#[test]
fn a_reader_that_says_what_is_not_so_is_not_believed() {
    let Some((mut net, a, b)) = connected("stage-questions") else { return };
    let mut from = [content(1, 3 * STAGING_MIN)];
    let secret = content(2, STAGING_MIN);
    let (start, length) = (address(&from[0]), from[0].len() as u64);
    let question = |address, length| Question { address, length, at: 0 }.header();
    let wrong = [
        ("memory that was not offered", question(address(&secret), STAGING_MIN as u64)),
        ("one byte before", question(start - 1, 10)),
        ("one byte more", question(start, length + 1)),
        ("behind the end", question(start + length, 1)),
        ("nothing", question(start, 0)),
        ("more than there is", question(start + 1, u64::MAX)),
        ("nowhere", question(u64::MAX, 2)),
    ];
    for (what, wrong) in wrong {
        expose(&mut net, b, &mut from);
        put_question(&mut net, a, &wrong);
        net.fails_with(1, "that were not offered");
        assert_eq!(net.shm(1).links.outlets().count(), 0, "{what}");
        let Some((again, ..)) = connected("stage-questions") else { return };
        net = again;
    }
    for (what, wrong) in
        [("flags", question(start, 1).with_flags(1)), ("a reserved byte", question(start, 1).with_type(1))]
    {
        expose(&mut net, b, &mut from);
        put_question(&mut net, a, &wrong);
        net.fails_with(1, "corrupt ring: a frame of unknown kind 130");
        assert_eq!(net.shm(1).links.outlets().count(), 0, "{what}");
        let Some((again, ..)) = connected("stage-questions") else { return };
        net = again;
    }
}

#[test]
fn what_is_offered_to_one_peer_is_not_staged_to_another() {
    let mut net = Net::with("stage-others", 3, |config| config.staging = Staging::Always);
    let ((a, _), (_, c)) = (net.connect(0, 1), net.connect(2, 1));
    if !net.shm(0).reads(a, 0, 1) {
        return;
    }
    let mut from = [content(1, STAGING_MIN)];
    expose(&mut net, c, &mut from);
    put_question(&mut net, a, &Question { address: address(&from[0]), length: 100, at: 0 }.header());
    net.fails_with(1, "that were not offered");
    net.talks(1, 2);
}

#[test]
fn what_is_withdrawn_is_forgotten_and_asking_for_it_later_is_no_lie() {
    let Some((mut net, a, b)) = connected("stage-withdrawn") else { return };
    let mut from = [content(1, STAGING_BYTES + 99)];
    let mut into = [vec![0; STAGING_BYTES + 99]];
    let reads = reads(&from, &mut into);
    let waits = |net: &mut Net| net.shm(1).ready();
    for end in 0..3 {
        expose(&mut net, b, &mut from);
        let asked = net.shm(0).ask(a, &reads);
        put_all(&mut net);
        assert!(asked == 1 && waits(&mut net) && !net.shm(1).arm(), "the last bytes wait for room");
        net.shm(1).disarm();
        match end {
            0 => net.shm(1).withdraw(b, span(&mut from[0])),
            1 => net.shm(1).withdraw_all(),
            _ => net.shm(1).close_link(b),
        }
        net.drain(1);
        assert!(!waits(&mut net), "nothing is left of it");
        if end < 2 {
            assert_eq!(net.shm(0).read_asked(a, &reads, asked).err(), None);
            assert!(into == from);
            // A full buffer, but for a part of a step at its end.
            let missing = (end + 1) * STAGING_BYTES as u64 - staged(&mut net, 0);
            assert!(missing < (end + 1) * STAGING_STEP_BYTES as u64, "{missing}");
        }
        if end == 0 {
            // Its send is over by now.
            let asked = net.shm(0).ask(a, &reads);
            net.drain(1);
            assert!(asked == 1 && net.shm(0).read_asked(a, &reads, asked).is_ok());
            assert_eq!(staged(&mut net, 0), STAGING_BYTES as u64);
            net.tick();
            assert!(net.failures(1).is_empty());
        }
    }
    net.until("told", |net| !net.failures(0).is_empty());
}

/// Takes the ends of messages: of one with this run.
struct Ends(Span, usize);

#[expect(unsafe_code, reason = "payloads are addresses")]
impl Take for Ends {
    fn now_ns(&mut self) -> u64 {
        0
    }

    unsafe fn message(&mut self, _: &Header, _: Span, _: Row) -> bool {
        true
    }

    unsafe fn other(&mut self, header: &Header, _: Span, _: Row) -> Other {
        assert_eq!(header.kind(), Some(Kind::Done));
        self.1 += 1;
        Other::Ended(self.0)
    }

    unsafe fn matched(&mut self, _: &Header, _: Span, _: Row, _: Row) -> bool {
        false
    }
}

#[test]
fn what_a_delivery_ends_is_withdrawn_at_once_over_whichever_link_it_was_offered() {
    let mut net = Net::with("stage-ends", 3, |config| config.staging = Staging::Always);
    let ((a, b), (_, c)) = (net.connect(0, 1), net.connect(2, 1));
    if !net.shm(0).reads(a, 0, 1) {
        return;
    }
    net.talks(0, 1);
    net.talks(2, 1);
    // Two links to one peer, as it may call twice.
    net.shm(1).attach(c, b);
    for link in [b, c] {
        let mut from = [content(1, 3 * STAGING_MIN)];
        expose(&mut net, link, &mut from);
        let mut ends = Ends(span(&mut from[0]), 0);
        assert_eq!(net.shm(0).links.send(a, &Header::new(Kind::Done, 0, 0, 0, 5, 0), &NoBytes), Sent::Done);
        for _ in 0..4 {
            assert!(ends.1 == 1 || net.shm(1).ready());
            net.shm(1).deliver(4, &mut ends);
        }
        assert_eq!(ends.1, 1);
        let outlet = net.shm(1).links.outlet(link).expect("open");
        assert!(!outlet.withdraw(span(&mut from[0])), "it was exposed once");
        // Frames go on behind it.
        net.talks(0, 1);
    }
    // What was asked for before is not answered any more, and what stands behind it is read.
    let mut from = [content(1, 3 * STAGING_MIN)];
    expose(&mut net, b, &mut from);
    let question = Question { address: address(&from[0]), length: from[0].len() as u64, at: 0 };
    let done = Header::new(Kind::Done, 0, 0, 0, 5, 0);
    for header in [question.header(), done, Header::new(Kind::Eager, 0, 0, 7, 0, 0)] {
        put_question(&mut net, a, &header);
    }
    let mut ends = Ends(span(&mut from[0]), 0);
    let mut count = 0;
    for _ in 0..4 {
        count += net.shm(1).deliver(4, &mut ends).0;
    }
    assert_eq!((count, ends.1), (2, 1), "a question is no frame");
    assert!(net.failures(1).is_empty());
}

#[test]
fn who_has_nothing_but_questions_does_not_keep_the_others_waiting() {
    let mut net = Net::with("stage-turns", 3, |config| config.staging = Staging::Always);
    let ((a, b), (c, _)) = (net.connect(0, 1), net.connect(2, 1));
    if !net.shm(0).reads(a, 0, 1) {
        return;
    }
    net.talks(0, 1);
    net.talks(2, 1);
    let mut from = [content(1, 2 * STAGING_BYTES)];
    expose(&mut net, b, &mut from);
    for at in 0..10 {
        let length = from[0].len() as u64;
        put_question(&mut net, a, &Question { address: address(&from[0]), length, at }.header());
    }
    assert_eq!(send(net.shm(2), c, 5, b"hello"), Sent::Done);
    let (mut ends, mut calls) = (Ends(span(&mut from[0]), 0), 1);
    while net.shm(1).deliver(1, &mut ends).0 == 0 {
        calls += 1;
        assert!(calls < 4, "each call begins behind the ring that had the last turn");
    }
    assert!(net.failures(1).is_empty());
}

#[test]
fn a_reader_that_asks_without_end_or_never_takes_is_not_waited_for() {
    let Some((mut net, a, b)) = connected("stage-flood") else { return };
    let mut from = [content(1, 2 * STAGING_BYTES)];
    expose(&mut net, b, &mut from);
    let length = from[0].len() as u64;
    let mut asked = 0;
    while asked < 4 * STAGING_QUESTIONS_MAX as u32 {
        let header = Question { address: address(&from[0]), length, at: u64::from(asked) * 4096 }.header();
        if net.shm(0).links.send(a, &header, &NoBytes) == Sent::Done {
            asked += 1;
        }
        net.drain(1);
    }
    // Frames come as ever meanwhile.
    assert_eq!(send(net.shm(0), a, 5, b"hello"), Sent::Done);
    net.until("arrived", |net| !net.frames[1].is_empty());
    let mut looks = 0u32;
    while net.shm(1).ready() {
        net.drain(1);
        looks += 1;
        assert!(looks < 2 * STAGING_CALLS_MAX);
    }
    assert!(net.failures(1).is_empty() && net.shm(1).links.traffic(b).is_some());
}

#[test]
fn what_has_asked_for_bytes_is_released_without_a_frame_behind_it() {
    let Some((mut net, a, b)) = connected("stage-only") else { return };
    let mut from = [content(1, 2 * STAGING_BYTES)];
    expose(&mut net, b, &mut from);
    let length = from[0].len() as u64;
    // Several rings full. An engine releases frames only, so this drains as an engine does.
    let mut asked = 0;
    for _ in 0..100_000 {
        if asked == 1000 {
            return;
        }
        let header = Question { address: address(&from[0]), length, at: asked }.header();
        if net.shm(0).links.send(a, &header, &NoBytes) == Sent::Done {
            asked += 1;
        }
        let now_ns = net.now_ns;
        let mut arrivals = [Arrival::default(); 4];
        assert_eq!(net.shm(1).drain(now_ns, &mut arrivals), 0);
    }
    panic!("after {asked} the ring stays full");
}
