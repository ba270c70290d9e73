//! Several network devices, and a network that is cut.

use crate::kit::{DEAD_LINK_MS, PATIENCE, copied, goes_direct};
use crate::messages::{lengths, storm};
use std::path::Path;
use std::time::Instant;
use tickwire::testing::rows;
use tickwire::{Engine, Limits, ProcId, Rank, Tag, TrafficClass};
use tickwire_tests::cases::content;
use tickwire_tests::clocks::monotonic_ms;

/// How long after a cut a rank may still wait for its peers, ms. That is the time of the link, the time of a question
/// of the kernel, and a second for a loaded machine.
const CUT_MS_MAX: u64 = DEAD_LINK_MS as u64 + 2000;

/// Length of a message through a network that is cut, bytes.
const LARGE: usize = 8 << 20;

/// Ranks 0 and 1 are on one host, and ranks 2 and 3 on another. While messages are in flight, the network between the
/// hosts is cut for a moment, and later for a long time. The short cut must change nothing. After the long cut,
/// operations that need the network must end in time. All other operations must go on, also when the network is back.
pub(crate) fn hosts(engine: &mut Engine, place: &Path) {
    let (me, world) = (engine.rank().0, engine.comm_world());
    let (near, far, quiet) = (Rank(me ^ 1), Rank((me + 2) % 4), Rank(3 - me));
    storm(engine, 5, 10);
    let never = engine.irecv(vec![0u8; 8], quiet, Tag(1), world).unwrap();
    let say = |what: &str| std::fs::write(place.join(format!("{what}-{me}")), []).unwrap();
    let mark = |rank: u32, round: u32| (rank + 4 * round) as u8;
    let (mut rounds, mut mended) = (0, None);
    // Rounds in which messages went straight from memory to memory.
    let mut direct = 0;
    let start = Instant::now();
    let error = loop {
        let before = copied(engine);
        let send = engine.isend(vec![mark(me, rounds); LARGE], far, Tag(2), world);
        let receive = engine.irecv(vec![0u8; LARGE], far, Tag(2), world);
        let (send, receive) = match (send, receive) {
            (Ok(send), Ok(receive)) => (send, receive),
            (send, receive) => break send.map(drop).and(receive.map(drop)).unwrap_err().to_string(),
        };
        if let Err(error) = engine.wait_for(&receive, PATIENCE).and_then(|_| engine.wait_for(&send, PATIENCE)) {
            break error.to_string();
        }
        let (bytes, status) = engine.take(receive).unwrap();
        assert!(status.length == LARGE && bytes.iter().all(|byte| *byte == mark(far.0, rounds)), "{rounds}");
        rounds += 1;
        // A message that is sent in pieces counts as copied, too. So both messages of the round went straight.
        direct += u32::from(copied(engine) == before);
        assert!(start.elapsed() < PATIENCE, "the network is still there");
        if rounds == 2 {
            say("away");
        }
        if mended.is_none() && place.join("back").exists() {
            mended = Some(rounds);
        }
        if mended.is_some_and(|before| rounds == before + 2) {
            say("ready");
        }
    };
    assert!(mended.is_some_and(|before| rounds > before), "rank {me}: a moment without a network is none: {error}");
    assert_eq!(direct > 0, goes_direct(), "rank {me}: {direct} of {rounds} rounds");
    let silent = engine.wait_for(&never, PATIENCE).unwrap_err().to_string();
    let cut_ms: u64 = std::fs::read_to_string(place.join("cut")).unwrap().parse().unwrap();
    let took_ms = monotonic_ms() - cut_ms;
    println!("rank {me} noticed after {took_ms} ms: {error}; {silent}");
    assert!(error.contains(&format!("proc {far}")) && silent.contains(&format!("proc {quiet}")), "{error}; {silent}");
    assert!(took_ms <= CUT_MS_MAX, "noticed after {took_ms} ms");
    say("noticed");
    let start = Instant::now();
    while !place.join("back-again").exists() {
        engine.tick();
        assert!(start.elapsed() < PATIENCE, "the network comes back");
    }
    // A failed connection stays failed: messages in flight were lost, so it is not resumed.
    let gone = engine.isend(vec![1u8; 8], far, Tag(3), world).map(drop).unwrap_err().to_string();
    assert!(gone.contains(&format!("proc {far}")), "{gone}");
    let send = engine.isend(content(me.into(), 100_000), near, Tag(3), world).unwrap();
    let mut buffer = vec![0u8; 100_000];
    engine.recv(&mut buffer, near, Tag(3), world).unwrap();
    assert!(buffer == content(near.0.into(), 100_000), "the own host goes on");
    engine.wait_for(&send, PATIENCE).unwrap();
}

/// A provider has two endpoints on two devices. The first one is used.
pub(crate) fn devices(engine: &mut Engine, provider: &str) {
    let endpoints = rows(engine).endpoints;
    let open: Vec<_> = endpoints.iter_mut().map(|endpoint| endpoint.transport.get()).collect();
    let names: Vec<_> = open.iter().map(|transport| transport.name()).collect();
    assert_eq!(names, ["loopback", &format!("ofi:{provider}"), &format!("ofi:{provider}@2")]);
    assert_ne!(open[1].card(), open[2].card(), "each has an address of its own");
    lengths(engine);
    let moved: Vec<_> = rows(engine).endpoints.iter_mut().map(|endpoint| endpoint.transport.get().moved()).collect();
    assert!(moved[1].0 > 1 << 20 && moved[1].1 > 1 << 20 && moved[2] == (0, 0), "{moved:?}");
}

/// Bytes of a rank's rings. Even and odd ranks have different sizes, so that they refuse each other's shared memory.
pub(crate) fn unlike_ring(rank: &str) -> usize {
    let is_odd = rank.parse::<u32>().unwrap() % 2 == 1;
    Limits::default().ring_bytes << u32::from(is_odd)
}

/// Only every second rank shares memory with this rank. All ranks exchange messages, over shared memory or over the
/// fabric.
pub(crate) fn unlike(engine: &mut Engine) {
    storm(engine, 3, 30);
    let me = engine.rank().0;
    for other in (0..engine.size()).filter(|&other| other != me) {
        let routes = engine.routes(ProcId(other), TrafficClass::PointToPoint);
        let chosen: Vec<&str> = routes.iter().filter(|route| route.chosen).map(|route| &*route.transport).collect();
        let expected = if other % 2 == me % 2 { "shm" } else { "ofi:" };
        assert!(chosen.len() == 1 && chosen[0].starts_with(expected), "{me} to {other}: {routes:?}");
    }
    // No rank may leave before all have looked: the route to a rank that has left is that of a new connection.
    let world = engine.comm_world();
    engine.barrier(world).unwrap();
}
