//! Point-to-point cases between all ranks, wherever they run. Each rank sends to each other rank what the cases over
//! every transport send.

use super::PATIENCE;
use std::time::Instant;
use tickwire::{Comm, Engine, OperationError, Pieces, Rank, Request, RequestError, Source, Status, Tag, TagFilter};
use tickwire_tests::cases::{LENGTHS, content};

/// The message of a rank. Its content depends on the sender, so messages of two senders cannot be confused.
fn message(from: Rank, length: usize) -> Vec<u8> {
    content(u64::from(from.0) << 32 | length as u64, length)
}

/// Waits for a request and takes it.
fn finish<B: Pieces>(engine: &mut Engine, request: Request<B>) -> Result<(B, Status), RequestError> {
    let _ = engine.wait(&request);
    engine.take(request).map_err(|failed| failed.error)
}

/// The two ranks at this distance: the one that this rank sends to, and the one that it receives from.
fn neighbours(engine: &Engine, distance: u32) -> (Rank, Rank) {
    let (me, size) = (engine.rank().0, engine.size());
    (Rank((me + distance) % size), Rank((me + size - distance) % size))
}

/// Returns when all ranks have called it.
fn meet(engine: &mut Engine, world: Comm) {
    engine.barrier(world).unwrap();
}

/// Runs all cases below.
pub(crate) fn all(engine: &mut Engine) {
    let (world, start) = (engine.comm_world(), Instant::now());
    for distance in 1..engine.size() {
        let (to, from) = neighbours(engine, distance);
        every_length(engine, world, to, from);
        truncation(engine, world, to, from);
        modes(engine, world, to, from);
        probes(engine, world, to, from);
    }
    wildcards(engine, world);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
}

/// Messages of every length, with the receive posted before the message and after it.
fn every_length(engine: &mut Engine, world: Comm, to: Rank, from: Rank) {
    for expected in [true, false] {
        let post =
            |engine: &mut Engine, length: usize| engine.irecv(vec![0xEEu8; length + 3], from, Tag(2), world).unwrap();
        let mut receives: Vec<Request<Vec<u8>>> = Vec::new();
        if expected {
            receives.extend(LENGTHS.map(|length| post(engine, length)));
            meet(engine, world);
        }
        let me = engine.rank();
        let sends = LENGTHS.map(|length| engine.isend(message(me, length), to, Tag(2), world).unwrap());
        if !expected {
            meet(engine, world);
            receives.extend(LENGTHS.map(|length| post(engine, length)));
        }
        for (length, receive) in LENGTHS.into_iter().zip(receives) {
            let (bytes, status) = finish(engine, receive).unwrap();
            assert_eq!((status.source, status.tag, status.length), (from, Tag(2), length));
            assert!(
                bytes[..length] == message(from, length) && bytes[length..] == [0xEE; 3],
                "{length} bytes are intact"
            );
        }
        for (length, send) in LENGTHS.into_iter().zip(sends) {
            assert!(finish(engine, send).unwrap().0 == message(me, length), "the sender has its buffer back");
        }
    }
}

/// Messages that are longer than their receives. The part that fits must arrive, and the next message must be whole.
fn truncation(engine: &mut Engine, world: Comm, to: Rank, from: Rank) {
    for (length, capacity) in [(100, 60), (200_000, 1000), (200_000, 0)] {
        let me = engine.rank();
        let sends = [length, 50].map(|length| engine.isend(message(me, length), to, Tag(3), world).unwrap());
        let first = engine.irecv(vec![0u8; capacity], from, Tag(3), world).unwrap();
        let second = engine.irecv(vec![0u8; 50], from, Tag(3), world).unwrap();
        let error = finish(engine, first).unwrap_err();
        let RequestError::Truncated { status, capacity: found } = error else { panic!("{error:?}") };
        assert_eq!((status.length, status.source, found), (length, from, capacity));
        assert!(finish(engine, second).unwrap().0 == message(from, 50));
        sends.into_iter().for_each(|send| drop(finish(engine, send).unwrap()));
    }
}

/// Synchronous, ready and buffered sends, and a receive that is cancelled.
fn modes(engine: &mut Engine, world: Comm, to: Rank, from: Rank) {
    let me = engine.rank();
    engine.attach_buffer(1 << 20);
    for length in [8, 100_000] {
        let posted = engine.irecv(vec![0u8; length], from, Tag(4), world).unwrap();
        let never = engine.irecv(vec![0u8; 1], from, Tag(99), world).unwrap();
        meet(engine, world);
        let ready = engine.irsend(message(me, length), to, Tag(4), world).unwrap();
        let synchronous = engine.issend(message(me, length + 1), to, Tag(5), world).unwrap();
        engine.bsend(message(me, length + 2), to, Tag(6), world).unwrap();
        assert!(finish(engine, posted).unwrap().0 == message(from, length));
        let mut bytes = vec![0u8; length + 2];
        engine.recv(&mut bytes, from, Tag(6), world).unwrap();
        assert!(bytes == message(from, length + 2));
        engine.recv(&mut bytes[..=length], from, Tag(5), world).unwrap();
        assert!(bytes[..=length] == message(from, length + 1));
        drop(finish(engine, ready).unwrap());
        drop(finish(engine, synchronous).unwrap());
        assert_eq!(engine.cancel(&never), Ok(true));
        assert_eq!(finish(engine, never).unwrap_err(), RequestError::Cancelled);
    }
    engine.detach_buffer().unwrap();
}

/// A probe sees the message that a receive would take. A matched probe takes the message, so that no other call sees
/// it.
fn probes(engine: &mut Engine, world: Comm, to: Rank, from: Rank) {
    let me = engine.rank();
    // The sender of a short message may be ahead, so each length has its own tags.
    for (first, length) in [(20, 0), (22, 9), (24, 100_000)] {
        let [early, late] = [Tag(first), Tag(first + 1)];
        let sends = [early, late].map(|tag| engine.isend(message(me, length), to, tag, world).unwrap());
        let status = Status { source: from, tag: late, length };
        assert_eq!(engine.probe(from, late, world).unwrap(), status);
        let taken = engine.mprobe(from, late, world).unwrap();
        assert_eq!(taken.status(), status);
        assert_eq!(engine.iprobe(from, late, world), Ok(None));
        let mut bytes = vec![0u8; length];
        engine.mrecv(taken, &mut bytes).map_err(|error: OperationError| error.to_string()).unwrap();
        assert!(bytes == message(from, length));
        engine.recv(&mut bytes, from, early, world).unwrap();
        assert!(bytes == message(from, length));
        sends.into_iter().for_each(|send| drop(finish(engine, send).unwrap()));
    }
}

/// Receives from any source with any tag. Each message comes once, and messages of one sender come in order.
fn wildcards(engine: &mut Engine, world: Comm) {
    const EACH: u32 = 8;
    let (me, size) = (engine.rank(), engine.size());
    meet(engine, world);
    let length = |number: u32| if number.is_multiple_of(2) { 100 } else { 60_000 };
    let mut sends = Vec::new();
    for number in 0..EACH {
        for distance in 1..size {
            let (to, _) = neighbours(engine, distance);
            sends.push(engine.isend(message(me, length(number)), to, Tag(100 + number), world).unwrap());
        }
    }
    let mut next = vec![0; size as usize];
    for _ in 0..EACH * (size - 1) {
        let receive = engine.irecv(vec![0u8; 60_000], Source::Any, TagFilter::Any, world).unwrap();
        let (bytes, status) = finish(engine, receive).unwrap();
        let number = &mut next[status.source.0 as usize];
        assert_eq!((status.tag, status.length), (Tag(100 + *number), length(*number)), "from {:?}", status.source);
        assert!(bytes[..status.length] == message(status.source, status.length));
        *number += 1;
    }
    sends.into_iter().for_each(|send| drop(finish(engine, send).unwrap()));
}
