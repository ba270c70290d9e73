//! Frames through rings: their order, full rings, sleepers, and what was sent before an end.

use super::kit::{Net, RING, TICK_NS, TICKS_MAX, drain, payload, send};
use crate::shm::*;
use crate::testing::copy;
use rustix::event::{PollFd, PollFlags, poll};
use tickwire_components::Span;

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
fn what_a_peer_sent_before_its_end_is_read_however_long_the_program_computes_in_between() {
    let mut net = Net::new("late", 2);
    let (link, _) = net.connect(1, 0);
    for n in 0..20 {
        assert_eq!(send(net.shm(1), link, n, &payload(n, 64)), Sent::Done);
    }
    drop(net.shms[1].take());
    // Looks that read nothing, with hours between them.
    for _ in 0..10 {
        net.now_ns += 3_600_000_000_000;
        net.control(0);
        assert!(net.failures(0).is_empty(), "frames are still unread");
    }
    let mut frames = drain(net.shm(0), 0, 20);
    net.frames[0].append(&mut frames);
    net.fails_with(0, "has closed the connection");
    assert_eq!(net.frames[0].len(), 20);
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
