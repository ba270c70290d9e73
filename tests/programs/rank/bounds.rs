//! Limits of the machine: memory of a job, sizes of files, and the number of open files.

use crate::kit::{NOTICE_MS_MAX, PATIENCE};
use crate::messages::name;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::time::Instant;
use tickwire::internals::components::limits::Limits;
use tickwire::internals::transports::rings::memory::RawRing;
use tickwire::{Engine, Rank, Tag};
use tickwire_tests::cases::content;

/// Each rank sends `length` bytes to each other rank, or passes a barrier if the length is 0. Then it writes a file
/// with the rings that it has mapped, the bytes of rings that its engine reports, and its share of memory. It ticks
/// until all ranks have written theirs.
pub(crate) fn memory(engine: &mut Engine, place: &Path, length: usize) {
    let (me, size, world) = (engine.rank().0, engine.size(), engine.comm_world());
    if length == 0 {
        barrier(engine);
    }
    let others: Vec<u32> = (0..size).filter(|&rank| rank != me && length > 0).collect();
    let receives: Vec<_> =
        others.iter().map(|&rank| engine.irecv(vec![0u8; length], Rank(rank), Tag(1), world).unwrap()).collect();
    let message = |rank: u32| content(name(me, rank, 0), length);
    let sends: Vec<_> =
        others.iter().map(|&rank| engine.isend(message(rank), Rank(rank), Tag(1), world).unwrap()).collect();
    for (&rank, receive) in others.iter().zip(receives) {
        engine.wait_for(&receive, PATIENCE).unwrap();
        assert!(engine.take(receive).unwrap().0 == content(name(rank, me, 0), length), "from {rank}");
    }
    engine.wait_all(&sends).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut lines = String::new();
    for line in maps.lines().filter(|line| line.contains("memfd:tickwire-rings")) {
        let mut words = line.split_ascii_whitespace();
        let (first, last) = words.next().unwrap().split_once('-').unwrap();
        let [first, last] = [first, last].map(|address| u64::from_str_radix(address, 16).unwrap());
        lines += &format!("map {} {}\n", words.nth(3).unwrap(), last - first);
    }
    let made = engine.accounting().transports.iter().map(|transport| transport.shared_bytes).sum::<u64>();
    let pss = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let pss = pss.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap().trim().trim_end_matches(" kB").to_owned();
    lines += &format!("made {made}\npss {pss}\n");
    std::fs::write(place.join("writing").with_extension(me.to_string()), lines).unwrap();
    std::fs::rename(place.join("writing").with_extension(me.to_string()), place.join(format!("memory-{me}"))).unwrap();
    let start = Instant::now();
    while !(0..size).all(|rank| place.join(format!("memory-{rank}")).exists()) {
        engine.tick();
        std::thread::yield_now();
        assert!(start.elapsed() < PATIENCE, "not all have come so far");
    }
}

/// A barrier along a binary tree.
fn barrier(engine: &mut Engine) {
    let (me, size, world) = (engine.rank().0, engine.size(), engine.comm_world());
    let below = [2 * me + 1, 2 * me + 2].into_iter().filter(|&rank| rank < size);
    for rank in below.clone() {
        engine.recv(&mut [0u8; 0], Rank(rank), Tag(1), world).unwrap();
    }
    if me > 0 {
        engine.send(b"", Rank((me - 1) / 2), Tag(1), world).unwrap();
        engine.recv(&mut [0u8; 0], Rank((me - 1) / 2), Tag(2), world).unwrap();
    }
    below.for_each(|rank| engine.send(b"", Rank(rank), Tag(2), world).unwrap());
}

/// No file may be as long as the rings of a pair. So the connection fails, and the error names the requested number of
/// bytes.
pub(crate) fn file_size(engine: &mut Engine, place: &Path) {
    let (start, world) = (Instant::now(), engine.comm_world());
    if engine.rank() == Rank(0) {
        let sent = engine.send(&[1u8], Rank(1), Tag(1), world);
        let words = sent.expect_err("no ring may be made").to_string();
        let asked = 2 * RawRing::bytes(Limits::default().first_ring_bytes);
        assert!(words.contains("ulimit -f") && words.contains(&format!("{asked} bytes")), "{words}");
        std::fs::write(place.join("told"), []).unwrap();
    }
    while !place.join("told").exists() {
        engine.tick();
        assert!(start.elapsed() < PATIENCE, "nothing was told");
    }
}

/// Rank 1 may open no more files. A rank that connects to it must get an error in time.
pub(crate) fn no_descriptors(engine: &mut Engine, place: &Path) {
    let (full, over) = (place.join("full"), place.join("over"));
    let start = Instant::now();
    let in_time = || assert!(start.elapsed() < PATIENCE, "the other rank does not come");
    if engine.rank() == Rank(1) {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let filling = place.join("filling");
        std::fs::write(&filling, []).unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(open + 4), ..getrlimit(Resource::Nofile) }).unwrap();
        let files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        assert!(!files.is_empty());
        // A rename opens no file.
        std::fs::rename(filling, full).unwrap();
        while !over.exists() {
            engine.tick();
            in_time();
        }
        return;
    }
    while !full.exists() {
        std::thread::yield_now();
        in_time();
    }
    let (world, since) = (engine.comm_world(), Instant::now());
    // Either the call or its request reports the error.
    let words = match engine.isend(vec![1u8; 8], Rank(1), Tag(1), world) {
        Ok(send) => engine.wait_for(&send, PATIENCE).unwrap_err().to_string(),
        Err(rejected) => rejected.error.to_string(),
    };
    let took = since.elapsed();
    std::fs::write(over, []).unwrap();
    assert!(words.contains("proc 1 may open no more files") && words.contains("ulimit -n"), "{words}");
    assert!(took.as_millis() <= u128::from(NOTICE_MS_MAX), "told after {took:?}");
}
