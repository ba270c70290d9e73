//! Rings that grow, and peers that have them grow as they should not.
//!
//! Longer than other files: all its tests use the net and the counts that its first functions make.

use super::kit::{Net, RING, drain, payload, send};
use crate::handshake::Packet;
use crate::rings::mark::Mark;
use crate::shm::*;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use tickwire_components::limits::{ROOMY_RING_BYTES, STREAM_LAPS};

const RING_MAX: usize = 32 * RING;
/// Bytes that have to go through a small ring under want before it grows.
const WANT: usize = tickwire_components::limits::RING_PATIENCE as usize * RING;
/// Bytes of payload that go through any ring.
const SURE: usize = RING / 4 - HEADER_BYTES;

fn growing(name: &str, procs: u32) -> Net {
    bounded(name, procs, 1 << 30)
}

fn bounded(name: &str, procs: u32, grown_bytes_max: usize) -> Net {
    Net::with(name, procs, |config| {
        (config.ring_bytes, config.first_ring_bytes, config.grown_bytes_max) = (RING_MAX, RING, grown_bytes_max);
    })
}

/// What the ring of a link to its peer holds.
fn capacity(net: &mut Net, proc: usize, link: u32) -> usize {
    net.shm(proc).traffic(link).map_or(0, |traffic| traffic.rings[0] as usize)
}

/// Sends until the ring is full; from `next` on.
fn fill(net: &mut Net, from: usize, link: u32, next: &mut u32) {
    while send(net.shm(from), link, *next, &payload(*next, SURE)) == Sent::Done {
        *next += 1;
    }
}

/// Sends and reads until the ring to the peer has another size; how many frames that took.
fn grow(net: &mut Net, from: usize, to: usize) -> u32 {
    let link = net.link(from, to as u32).expect("open");
    let (before, mut next) = (capacity(net, from, link), 0);
    net.until("grown", |net| {
        fill(net, from, link, &mut next);
        capacity(net, from, link) != before
    });
    next
}

fn holds_in_order(net: &mut Net, to: usize, total: u32) {
    net.until("all there", |net| net.frames[to].len() >= total as usize);
    assert!(net.frames[to].iter().enumerate().all(|(n, f)| (f.1, &f.2) == (n as u32, &payload(n as u32, SURE))));
    assert_eq!(net.frames[to].len(), total as usize);
}

/// SplitMix64: the same numbers for a seed.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[test]
fn order_and_content_stay_while_rings_grow() {
    for seed in 1..=12u64 {
        let mut net = growing("grow", 2);
        let links = net.connect(0, 1);
        let (mut state, mut sent, total) = (seed, [0u32; 2], 4000);
        // Few long ones, many short ones, or both; one direction may have little to say.
        let longest = [64, SURE, 3 * RING, RING_MAX / 4 - HEADER_BYTES][seed as usize % 4];
        let totals = if seed % 3 == 0 { [total, 3] } else { [total, total] };
        net.until("all there", |net| {
            for (from, link) in [(0, links.0), (1, links.1)] {
                for _ in 0..random(&mut state) % 40 {
                    let next = sent[from];
                    if next == totals[from] {
                        break;
                    }
                    let bytes = payload(next, longest);
                    // The engine cuts what does not go; a test may as well wait, as long as there is somebody to grow for.
                    let fits = net.shm(from).fits(link, bytes.len() as u64) as usize;
                    let bytes = &bytes[..bytes.len().min(fits)];
                    if send(net.shm(from), link, next, bytes) != Sent::Done {
                        break;
                    }
                    sent[from] += 1;
                }
            }
            // Readers that stop anywhere, also before and behind a mark.
            let (now_ns, reader) = (net.now_ns, random(&mut state) as usize % 2);
            let some = drain(net.shm(reader), now_ns, random(&mut state) as usize % 9);
            net.frames[reader].extend(some);
            (0..2).all(|from| net.frames[1 - from].len() == totals[from] as usize)
        });
        for (from, link) in [(0, links.0), (1, links.1)] {
            for (n, (_, tag, bytes)) in net.frames[1 - from].iter().enumerate() {
                assert_eq!(*tag, n as u32, "seed {seed}");
                let whole = payload(n as u32, longest);
                assert!(bytes.len() == whole.len() || (SURE..whole.len()).contains(&bytes.len()), "seed {seed}");
                assert_eq!(bytes[..], whole[..bytes.len()], "seed {seed}");
            }
            let grown = capacity(&mut net, from, link);
            assert_eq!(grown > RING, longest > 64 && totals[from] == total, "seed {seed}: {grown}");
        }
        assert!(net.events.iter().all(|events| events.len() == 1), "{:?}", net.events);
    }
}

#[test]
fn a_ring_grows_to_its_bound_and_what_it_has_left_is_gone() {
    let mut net = growing("bound", 2);
    let before = [net.shm(0).shared_bytes(), net.shm(1).shared_bytes()];
    let (link, _) = net.connect(0, 1);
    let pair = net.shm(0).shared_bytes() - before[0];
    assert_eq!(net.shm(1).shared_bytes(), before[1], "the caller makes the segment of the pair");
    let mut sizes = vec![capacity(&mut net, 0, link)];
    let mut next = 0;
    while sizes.last() != Some(&RING_MAX) {
        net.until("grown", |net| {
            fill(net, 0, link, &mut next);
            capacity(net, 0, link) != sizes[sizes.len() - 1]
        });
        sizes.push(capacity(&mut net, 0, link));
        assert_eq!(net.shm(0).shared_bytes(), before[0] + pair + sizes[sizes.len() - 1] as u64);
        assert_eq!(net.shm(0).own.grown.load(Ordering::Relaxed), sizes[sizes.len() - 1] as u64);
    }
    assert_eq!(sizes, [RING, 4 * RING, 16 * RING, RING_MAX]);
    for _ in 0..1000 {
        fill(&mut net, 0, link, &mut next);
        net.tick();
    }
    assert_eq!(capacity(&mut net, 0, link), RING_MAX);
    holds_in_order(&mut net, 1, next);
    let back = net.link(1, 0).expect("open");
    assert_eq!(capacity(&mut net, 1, back), RING, "the other direction has nothing to say");
    net.shm(0).close_link(link);
    assert_eq!(net.shm(0).shared_bytes(), before[0]);
    net.until("told", |net| !net.failures(1).is_empty());
    assert_eq!(net.shm(1).shared_bytes(), before[1]);
}

#[test]
fn a_message_that_is_longer_than_a_ring_makes_none_grow() {
    let mut net = growing("few", 2);
    let (link, _) = net.connect(0, 1);
    let mut next = 0;
    // Two ringfuls, again and again with as much between that there is room for.
    for _ in 0..5 {
        let begin = net.shm(0).traffic(link).expect("open").sent;
        while net.shm(0).traffic(link).expect("open").sent - begin < 2 * RING as u64 {
            fill(&mut net, 0, link, &mut next);
            net.tick();
        }
        for _ in 0..100 {
            assert_eq!(send(net.shm(0), link, next, &payload(next, SURE)), Sent::Done);
            next += 1;
            net.tick();
        }
    }
    assert_eq!(capacity(&mut net, 0, link), RING);
    holds_in_order(&mut net, 1, next);
}

#[test]
fn what_all_rings_grow_by_has_a_bound_and_the_others_go_on_small() {
    let (procs, bound) = (7, 10 * RING);
    let mut net = bounded("share", procs, bound);
    let links: Vec<u32> = (1..procs).map(|peer| net.connect(0, peer).0).collect();
    let mut next = vec![0; links.len()];
    let mut rounds = 0;
    net.until("much has gone", |net| {
        for (&link, next) in links.iter().zip(&mut next) {
            fill(net, 0, link, next);
        }
        let grown: usize = links.iter().map(|&link| capacity(net, 0, link)).filter(|&bytes| bytes > RING).sum();
        assert!(grown <= bound, "{grown}");
        assert!(net.shm(0).own.grown.load(Ordering::Relaxed) <= bound as u64);
        rounds += 1;
        rounds > 4000
    });
    let mut sizes: Vec<usize> = links.iter().map(|&link| capacity(&mut net, 0, link)).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [RING, RING, RING, 2 * RING, 4 * RING, 4 * RING], "two have what they wish, one what is left");
    for (peer, total) in (1..).zip(next) {
        assert!(total > 10_000 / procs);
        holds_in_order(&mut net, peer, total);
    }
    // What one gives back another may have.
    let large = links.iter().position(|&link| capacity(&mut net, 0, link) == 4 * RING).expect("one of two");
    net.shm(0).close_link(links[large]);
    assert_eq!(net.shm(0).own.grown.load(Ordering::Relaxed), 6 * RING as u64);
}

#[test]
fn no_bound_at_all_leaves_all_rings_as_they_are() {
    let mut net = bounded("never", 2, 0);
    let (link, _) = net.connect(0, 1);
    let mut next = 0;
    for _ in 0..2000 {
        fill(&mut net, 0, link, &mut next);
        net.tick();
    }
    assert_eq!(capacity(&mut net, 0, link), RING);
    holds_in_order(&mut net, 1, next);
}

#[test]
fn a_reader_without_a_descriptor_to_spare_goes_on_as_it_is() {
    let mut net = growing("descriptors", 2);
    let (link, _) = net.connect(0, 1);
    let mut next = 0;
    while net.shm(0).links.wish(link).is_none() {
        fill(&mut net, 0, link, &mut next);
        net.drain(1);
    }
    // What arrives where no descriptor is free: the packet alone.
    let bytes = 4 * RING;
    let (file, map) = segment::create(net.shm(0).own.place(), bytes).expect("a segment");
    drop(file);
    net.shm(0).connections.line(link).expect("open").tell(&Packet::Ring(bytes as u64));
    let base = map.base();
    // SAFETY: a new segment of this length, which is kept.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    let passed = unsafe { crate::rings::links::Passed::new(base, bytes, Arc::new(map)) };
    net.shm(0).links.go_over(link, passed);
    let made = net.shm(0).shared_bytes();
    net.until("answered", |net| net.shm(0).shared_bytes() < made);
    for _ in 0..2000 {
        fill(&mut net, 0, link, &mut next);
        net.tick();
    }
    assert_eq!(capacity(&mut net, 0, link), RING, "it is not asked again");
    holds_in_order(&mut net, 1, next);
    assert!(net.failures(0).is_empty() && net.failures(1).is_empty());
}

#[test]
fn a_shared_run_that_cannot_be_mapped_here_is_done_without() {
    let mut net = growing("unmapped", 2);
    let (link, back) = net.connect(0, 1);
    // The kernel maps no bytes for anybody.
    let file = rustix::fs::memfd_create("empty", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("it can be sealed");
    net.shm(0).connections.line(link).expect("open").pass(&Packet::Shared(7), &[file.as_fd()]).expect("there is room");
    let mut taken = None;
    net.until("passed", |net| {
        taken = net.shm(1).take(back, 7);
        taken.is_some() || !net.failures(1).is_empty()
    });
    assert!(matches!(taken, Some(None)), "{:?}", net.failures(1));
    assert!(net.link(0, 1).is_some());
}

#[test]
fn either_side_may_go_at_any_moment_and_nothing_stays() {
    for (gone, step) in (0..2).flat_map(|gone| (0..8).map(move |step| (gone, step))) {
        let mut net = growing("gone", 2);
        let before = [net.shm(0).shared_bytes(), net.shm(1).shared_bytes()];
        let (link, _) = net.connect(0, 1);
        let mut next = 0;
        while net.shm(0).links.wish(link).is_none() {
            fill(&mut net, 0, link, &mut next);
            net.drain(1);
        }
        fill(&mut net, 0, link, &mut next);
        // Asked, passed, taken, gone over, followed: one after another, and what comes between.
        for at in 0..step {
            match at % 3 {
                0 => net.control(0),
                1 => net.control(1),
                _ => net.drain(1),
            }
            fill(&mut net, 0, link, &mut next);
        }
        drop(net.shms[gone].take());
        let left = 1 - gone;
        net.until("told", |net| !net.failures(left).is_empty());
        assert_eq!(net.shm(left).shared_bytes(), before[left], "{gone} after {step}");
        assert_eq!(net.shm(left).own.grown.load(Ordering::Relaxed), 0);
        if gone == 0 {
            // All that was written before is read.
            assert_eq!(net.frames[1].len(), next as usize, "after {step}");
            holds_in_order(&mut net, 1, next);
        }
    }
}

/// A net whose first proc is heard by the second one and says to it what it likes.
fn hostile(name: &str) -> (Net, u32) {
    let mut net = growing(name, 3);
    let (link, _) = net.connect(0, 1);
    net.connect(2, 1);
    (net, link)
}

fn pass(net: &mut Net, link: u32, bytes: u64, file: &OwnedFd) {
    net.shm(0).connections.line(link).expect("open").pass(&Packet::Ring(bytes), &[file.as_fd()]).expect("sent");
}

fn segment_of(net: &mut Net, bytes: usize) -> OwnedFd {
    segment::create(net.shm(0).own.place(), bytes).expect("a segment").0
}

#[test]
fn rings_that_a_peer_may_not_pass_end_its_link_and_no_other() {
    let refused = |bytes: u64, make: fn(&mut Net) -> OwnedFd, words: &str| {
        let (mut net, link) = hostile("may-not");
        let file = make(&mut net);
        pass(&mut net, link, bytes, &file);
        net.fails_with(1, words);
        net.talks(2, 1);
    };
    let ring = RING as u64;
    refused(ring, |net| segment_of(net, RING), "out of turn");
    refused(ring / 2, |net| segment_of(net, RING / 2), "out of turn");
    refused(2 * RING_MAX as u64, |net| segment_of(net, 2 * RING_MAX), "at most");
    refused(3 * ring, |net| segment_of(net, 3 * RING), "at most");
    refused(0, |net| segment_of(net, 2 * RING), "at most");
    refused(u64::MAX, |net| segment_of(net, 2 * RING), "at most");
    refused(2 * ring, |net| segment_of(net, 4 * RING), "bytes where");
    refused(2 * ring, |net| net.shm(0).own.doorbell.try_clone().expect("a descriptor"), "other than a file");
    let loose = |_: &mut Net| {
        let file = rustix::fs::memfd_create("loose", rustix::fs::MemfdFlags::ALLOW_SEALING).expect("a file");
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 * RING as u64).expect("memory");
        file
    };
    refused(2 * ring, loose, "not sealed");
}

#[test]
fn a_second_ring_before_the_first_is_used_ends_the_link() {
    let (mut net, link) = hostile("second");
    for bytes in [2 * RING, 4 * RING] {
        let file = segment_of(&mut net, bytes);
        pass(&mut net, link, bytes as u64, &file);
    }
    net.fails_with(1, "out of turn");
    net.talks(2, 1);
}

#[test]
fn a_mark_without_its_ring_is_a_corrupt_one() {
    // Nothing was passed, or another one.
    for passed in [None, Some(2 * RING)] {
        let (mut net, link) = hostile("mark");
        if let Some(bytes) = passed {
            let file = segment_of(&mut net, bytes);
            pass(&mut net, link, bytes as u64, &file);
            for _ in 0..10 {
                net.tick();
            }
        }
        // The ring is polled from its first frame on.
        assert_eq!(send(net.shm(0), link, 0, &[]), Sent::Done);
        net.until("polled", |net| !net.frames[1].is_empty());
        let memory = net.shm(0).links.memory(link, true).expect("open");
        let at = net.shm(0).traffic(link).expect("open").sent;
        let mark = Mark::Moved as u64 | u64::from((4 * RING).trailing_zeros()) << 8;
        crate::rings::ring::RingMemory::store(&memory, at, mark, Ordering::Release);
        net.fails_with(1, "never passed");
        net.talks(2, 1);
    }
}

#[test]
fn words_beside_a_ring_that_its_reader_writes_move_nothing() {
    // A reader that says that it has taken what it was never passed, and one that says nonsense.
    for answer in [1u32, 2, 77, u32::MAX] {
        let mut net = growing("answers", 2);
        let (link, _) = net.connect(0, 1);
        let memory = net.shm(0).links.memory(link, true).expect("open");
        memory.say_anything(answer);
        let mut next = 0;
        for _ in 0..300 {
            fill(&mut net, 0, link, &mut next);
            net.tick();
        }
        holds_in_order(&mut net, 1, next);
        assert!(next as usize * SURE / 2 > WANT, "as much as makes a ring grow");
    }
}

#[test]
fn a_growing_ring_keeps_its_reader_awake_and_its_writer_too() {
    let mut net = growing("awake", 2);
    let (link, _) = net.connect(0, 1);
    let total = grow(&mut net, 0, 1);
    holds_in_order(&mut net, 1, total);
    // Behind the mark nothing has come yet; then the first frame rings.
    net.until("asleep", |net| net.shm(1).arm());
    net.shm(1).disarm();
    net.until("asleep", |net| net.shm(1).arm());
    assert_eq!(send(net.shm(0), link, total, &payload(total, SURE)), Sent::Done);
    assert!(net.shm(1).ready(), "announced in the new place as in the old one");
    net.shm(1).disarm();
    holds_in_order(&mut net, 1, total + 1);
}

/// Streams as much as it takes for a ring of the longest size that is not for streams to grow beyond it.
fn stream(net: &mut Net, link: u32, next: &mut u32) {
    let bytes = vec![7; ROOMY_RING_BYTES / 4 - HEADER_BYTES];
    let laps = 4 * (STREAM_LAPS as u32 + 2);
    let end = *next + laps;
    net.until("streamed", |net| {
        while *next < end {
            let fits = net.shm(0).fits(link, bytes.len() as u64) as usize;
            if send(net.shm(0), link, *next, &bytes[..fits]) != Sent::Done {
                break;
            }
            *next += u32::from(fits == bytes.len());
        }
        net.frames.iter_mut().for_each(Vec::clear);
        *next == end
    });
}

#[test]
fn rings_that_are_streamed_through_grow_longer_within_half_of_what_all_may_take() {
    const MOST: usize = 8 * ROOMY_RING_BYTES;
    let mut net = Net::with("stream", 3, |config| {
        (config.ring_bytes, config.first_ring_bytes, config.grown_bytes_max) = (MOST, RING, 2 * MOST);
    });
    let (first, _) = net.connect(0, 1);
    let (second, _) = net.connect(0, 2);
    let sizes = |net: &mut Net| [first, second].map(|link| capacity(net, 0, link));
    let mut next = 0;
    // First as long as two of its frames in a row take.
    stream(&mut net, first, &mut next);
    net.until("grown", |net| sizes(net)[0] > ROOMY_RING_BYTES);
    // The place that it has left counted when it was asked for.
    assert_eq!(sizes(&mut net), [MOST / 2, RING]);
    let grown = |net: &mut Net| net.shm(0).own.grown.load(Ordering::Relaxed) as usize;
    assert_eq!(grown(&mut net), MOST / 2);
    stream(&mut net, second, &mut next);
    net.until("grown", |net| sizes(net)[1] > ROOMY_RING_BYTES);
    assert_eq!(sizes(&mut net), [MOST / 2, MOST / 4]);
    for _ in 0..3 {
        stream(&mut net, first, &mut next);
        stream(&mut net, second, &mut next);
    }
    assert!(grown(&mut net) <= MOST, "the other half is for rings that are not longer");
}
