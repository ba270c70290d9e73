//! A flood of messages that nobody receives yet.

use crate::kit::PATIENCE;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tickwire::{Engine, Rank, Tag, TagFilter};
use tickwire_tests::cases::content;

/// Length of a message of the flood, bytes.
const DROP: usize = 1 << 10;

/// How many receives of the flood are posted together.
const BATCH: usize = 64;

/// How much the receiver's memory may grow, bytes.
const GROWTH_MAX: u64 = 64 << 20;

/// Rank 0 sends many messages before the other rank posts any receive. Then the other rank receives them all. With
/// `last_first`, it receives the last one first.
pub(crate) fn flood(engine: &mut Engine, place: &Path, messages: u32, last_first: bool) {
    let world = engine.comm_world();
    let contents: Vec<Arc<[u8]>> = (0..997).map(|n| content(n, DROP).into()).collect();
    let of = |n: u32| &contents[n as usize % contents.len()];
    if engine.rank().0 == 0 {
        // This connects the ranks before the other rank measures its memory.
        engine.send(b"", Rank(1), Tag(messages), world).unwrap();
        let mut sends = Vec::with_capacity(messages as usize);
        for n in 0..messages {
            sends.push(engine.isend(of(n).clone(), Rank(1), Tag(n), world).unwrap());
            if n.is_multiple_of(64) {
                engine.tick();
            }
        }
        std::fs::write(place.join("posted"), []).unwrap();
        engine.wait_all(&sends).unwrap();
        for send in sends {
            engine.take(send).unwrap();
        }
        return;
    }
    engine.recv(&mut [0u8; 0], Rank(0), Tag(messages), world).unwrap();
    let before = resident();
    let start = Instant::now();
    let (mut most, mut quiet) = (before, Instant::now());
    // Ticks until the sender has posted all messages and no more arrive, because the credit is used up.
    while quiet.elapsed() < Duration::from_millis(200) {
        if engine.tick().received > 0 || !place.join("posted").exists() {
            quiet = Instant::now();
        }
        most = most.max(resident_now_and_then(start));
        assert!(start.elapsed() < PATIENCE, "messages come without end");
    }
    most = most.max(resident());
    assert!(most - before <= GROWTH_MAX, "grown from {before} to {most} bytes");
    assert!(most - before >= 16 << 20 || messages < 100_000, "the window is used: from {before} to {most} bytes");

    let last = messages - 1;
    let mut buffer = vec![0u8; DROP];
    if last_first {
        let status = engine.recv(&mut buffer, Rank(0), Tag(last), world).unwrap();
        assert_eq!((status.tag, status.length), (Tag(last), DROP));
        assert!(buffer[..] == of(last)[..], "message {last} is intact");
    }
    let rest = messages - u32::from(last_first);
    for first in (0..rest).step_by(BATCH) {
        let batch = first..rest.min(first + BATCH as u32);
        let receives: Vec<_> =
            batch.clone().map(|_| engine.irecv(vec![0u8; DROP], Rank(0), TagFilter::Any, world).unwrap()).collect();
        engine.wait_all(&receives).unwrap();
        for (n, receive) in batch.zip(receives) {
            let (bytes, status) = engine.take(receive).unwrap();
            assert_eq!((status.tag, status.length), (Tag(n), DROP));
            assert!(bytes[..] == of(n)[..], "message {n} is intact");
        }
    }
}

/// The resident memory of this process, bytes.
fn resident() -> u64 {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// As [`resident`], but only about every 10 ms, because it takes long. Otherwise 0.
fn resident_now_and_then(start: Instant) -> u64 {
    if start.elapsed().subsec_millis().is_multiple_of(10) { resident() } else { 0 }
}
