//! Messages between ranks that all stay alive: lengths, storms, and staged ones.

use crate::kit::PATIENCE;
use std::time::Instant;
use tickwire::testing::SplitMix;
use tickwire::{ENV_STAGING, Engine, Rank, Tag, TagFilter};
use tickwire_tests::cases::content;

/// Messages of all orders of magnitude between two ranks, in both directions.
pub(crate) fn lengths(engine: &mut Engine) {
    let world = engine.comm_world();
    let (me, peer) = (engine.rank(), Rank(1 - engine.rank().0));
    let around = |n: usize| [n - 1, n, n + 1];
    let small = [0, 1, 7, 8, 9, 63, 64, 65, 1000].into_iter();
    let large = [4096, 8192, 32 << 10, 64 << 10, 256 << 10, 1 << 20].into_iter().flat_map(around);
    for (number, length) in small.chain(large).chain([4 << 20, 64 << 20]).enumerate() {
        let message = content(number as u64, length);
        let mut buffer = vec![0u8; length];
        for turn in [Rank(0), Rank(1)] {
            if me == turn {
                engine.send(&message, peer, Tag(number as u32), world).unwrap();
            } else {
                buffer.fill(0);
                let status = engine.recv(&mut buffer, peer, Tag(number as u32), world).unwrap();
                assert_eq!((status.length, status.source), (length, peer));
                assert!(buffer == message, "{length} bytes are intact");
            }
        }
    }
    // Nobody has asked for a shared heap, so there must be none.
    assert!(!std::fs::read_to_string("/proc/self/maps").unwrap().contains("tickwire-heap"));
}

/// Each rank exchanges long messages with each other rank at once, more of them than are read at the same time. If
/// messages are to be staged, some must be. If not, none may be.
pub(crate) fn staging(engine: &mut Engine) {
    let (me, size, world) = (engine.rank().0, engine.size(), engine.comm_world());
    let start = Instant::now();
    let staged = |engine: &mut Engine| engine.bytes_read().staged;
    let when = std::env::var(ENV_STAGING);
    for round in 0.. {
        let plan = |from, to| plan(round, from, to, 20).into_iter().map(|(tag, length)| (tag, length * 20));
        let others = || (0..size).filter(|&rank| rank != me);
        let mut receives = Vec::new();
        let mut sends = Vec::new();
        for rank in others() {
            for (number, (_, length)) in plan(rank, me).enumerate() {
                let request = engine.irecv(vec![0u8; length], Rank(rank), Tag(number as u32), world).unwrap();
                receives.push((rank, number, request));
            }
        }
        for rank in others() {
            for (number, (_, length)) in plan(me, rank).enumerate() {
                let message = content(name(me, rank, number), length);
                sends.push(engine.isend(message, Rank(rank), Tag(number as u32), world).unwrap());
            }
        }
        for (rank, number, request) in receives {
            engine.wait(&request).unwrap();
            let (bytes, status) = engine.take(request).unwrap();
            let due = content(name(rank, me, number), status.length);
            assert!(bytes[..status.length] == due, "{rank} to {me}: message {number} of round {round}");
        }
        engine.wait_all(&sends).unwrap();
        // All ranks tell each other whether they have reached what they wait for.
        let happy = if when.as_deref() == Ok("always") { staged(engine) > 0 } else { round == 5 };
        let mut all = u32::from(happy);
        for rank in others() {
            engine.send(&[u8::from(happy)], Rank(rank), Tag(99), world).unwrap();
        }
        for rank in others() {
            let mut theirs = [0u8];
            engine.recv(&mut theirs, Rank(rank), Tag(99), world).unwrap();
            all += u32::from(theirs[0]);
        }
        if all == size {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "nothing was staged to rank {me}");
    }
    assert!(when.as_deref() != Ok("never") || staged(engine) == 0);
    println!("rank {me}: {:?} after {:?}", engine.bytes_read(), start.elapsed());
}

/// The tag and length of each message of a pair.
fn plan(seed: u64, from: u32, to: u32, messages: usize) -> Vec<(u32, usize)> {
    let mut random = SplitMix::new(seed ^ (u64::from(from) << 32) ^ (u64::from(to) << 16));
    let mut one = || {
        let length = match random.below(10) {
            0 => 20_000 + random.below(180_000),
            1 => 8000 + random.below(500),
            2 => 0,
            _ => random.below(600),
        };
        (random.below(3) as u32, length as usize)
    };
    (0..messages).map(|_| one()).collect()
}

pub(crate) fn name(from: u32, to: u32, number: usize) -> u64 {
    (u64::from(from) << 40) | (u64::from(to) << 20) | number as u64
}

/// All ranks send to all in random order. Even ranks receive by tag. Odd ranks receive any message of a source.
pub(crate) fn storm(engine: &mut Engine, seed: u64, messages: usize) {
    let (me, size, world) = (engine.rank().0, engine.size(), engine.comm_world());
    let mut random = SplitMix::new(seed ^ (u64::from(me) << 48));
    let mut calls: Vec<(bool, u32)> = (0..size)
        .flat_map(|rank| [(true, rank), (false, rank)])
        .flat_map(|c| std::iter::repeat_n(c, messages))
        .collect();
    for at in (1..calls.len()).rev() {
        calls.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut next = vec![[0; 2]; size as usize];
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for (sending, rank) in calls {
        let number = &mut next[rank as usize][usize::from(sending)];
        if sending {
            let (tag, length) = plan(seed, me, rank, messages)[*number];
            let message = content(name(me, rank, *number), length);
            sends.push(engine.isend(message, Rank(rank), Tag(tag), world).unwrap());
        } else {
            let tag = plan(seed, rank, me, messages)[*number].0;
            let filter = if me.is_multiple_of(2) { TagFilter::Tag(Tag(tag)) } else { TagFilter::Any };
            receives.push((rank, filter, engine.irecv(vec![0u8; 200_000], Rank(rank), filter, world).unwrap()));
        }
        *number += 1;
        if random.below(3) == 0 {
            engine.tick();
        }
    }
    let mut taken = vec![vec![false; messages]; size as usize];
    for (rank, filter, request) in receives {
        engine.wait_for(&request, PATIENCE).unwrap();
        let (bytes, status) = engine.take(request).unwrap();
        let plan = plan(seed, rank, me, messages);
        let fits = |n: &usize| {
            !taken[rank as usize][*n] && (filter == TagFilter::Any || filter == TagFilter::Tag(Tag(plan[*n].0)))
        };
        let number = (0..messages).find(fits).unwrap();
        taken[rank as usize][number] = true;
        assert_eq!((status.tag.0, status.length), plan[number], "{rank} to {me}: order");
        assert!(bytes[..status.length] == content(name(rank, me, number), status.length), "{rank} to {me}: bytes");
    }
    engine.wait_all(&sends).unwrap();
}
