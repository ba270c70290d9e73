//! A rank of the tests over shared memory: what it does is its first argument. Panics if something is wrong, so that
//! its launcher sees it fail.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tickwire::components::limits::Limits;
use tickwire::testing::{SplitMix, rows};
use tickwire::transports::ofi::Choice;
use tickwire::transports::rings::memory::RawRing;
use tickwire::{
    Bootstrap, ENV_SPLICE, ENV_TRANSPORTS, Engine, OperationError, PostError, Rank, RequestError, Source, Tag,
    TagFilter,
};
use tickwire_tests::cases::content;

/// Above everything that a loaded machine may need.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long after a death its peers may still wait, ms: 1 s, and half a second for a loaded machine.
const NOTICE_MS_MAX: u64 = 1500;
/// How long a link may be without an answer in these tests, ms.
const DEAD_LINK_MS: u32 = 2000;
/// How long after a network has been cut its peers may still wait, ms: the time of the link, a question of the kernel's,
/// and a second for a loaded machine.
const CUT_MS_MAX: u64 = DEAD_LINK_MS as u64 + 2000;
/// Bytes of a message through a network that is cut.
const LARGE: usize = 8 << 20;
/// Bytes of the message that a rank dies in: more than one tick can send, which is 64 frames of 255 KiB over a fabric.
const CUT_SHORT: usize = 32 << 20;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // In the test of a death messages go in pieces: only then they are half way for long enough.
    let read_min = if args[0] == "death" { usize::MAX } else { Limits::default().read_min };
    let connect_ms_max = (args[0] == "computes").then(|| args[2].parse().ok()).flatten();
    let limits = Limits { read_min, connect_ms_max, dead_link_ms_max: DEAD_LINK_MS, ..Limits::default() };
    let builder = Engine::builder().limits(limits);
    let builder = match args[0].as_str() {
        "devices" => builder.ofi(Choice { include: vec![args[2].clone()], devices: 2, ..Choice::default() }),
        _ => builder,
    };
    let mut engine = builder.build(Bootstrap::from_env().unwrap()).unwrap();
    let place = Path::new(&args[1]);
    if engine.rank().0 == 0 {
        std::fs::write(place.join("job"), std::env::var("TICKWIRE_JOB").unwrap()).unwrap();
    }
    match args[0].as_str() {
        "lengths" => lengths(&mut engine),
        "storm" => storm(&mut engine, args[2].parse().unwrap(), args[3].parse().unwrap()),
        "splices" => splices(&mut engine),
        "death" => death(&mut engine, place),
        "death-of-a-sender" => death_of_a_sender(&mut engine, place),
        "death-of-a-receiver" => death_of_a_receiver(&mut engine, place),
        "stopped-sender" => stopped_sender(&mut engine),
        "hosts" => hosts(&mut engine, place),
        "no-descriptors" => no_descriptors(&mut engine, place),
        "devices" => devices(&mut engine, &args[2]),
        "computes" => computes(&mut engine, place, connect_ms_max.is_some()),
        "stranger" => return stranger(engine, place, &args[2]),
        "memory" => memory(&mut engine, place, args[2].parse().unwrap()),
        "file-size" => file_size(&mut engine, place),
        "flood" => flood(&mut engine, place, args[2].parse().unwrap(), args[3] == "last"),
        other => panic!("no such test: {other}"),
    }
    engine.finalize(PATIENCE).unwrap();
}

/// Each rank to each other one so many bytes, or an empty message around in a tree; then what it has mapped and what it says that it has made, as lines of a file. It goes on
/// until all have written theirs.
fn memory(engine: &mut Engine, place: &Path, length: usize) {
    let (me, size, world) = (engine.rank().0, engine.size(), engine.comm_world());
    if length == 0 {
        barrier(engine);
    }
    let others: Vec<u32> = (0..size).filter(|&rank| rank != me && length > 0).collect();
    let receives: Vec<_> =
        others.iter().map(|&rank| engine.irecv(vec![0; length], Rank(rank), Tag(1), world).unwrap()).collect();
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

/// Nobody goes on before all have come: up and down a binary tree.
fn barrier(engine: &mut Engine) {
    let (me, size, world) = (engine.rank().0, engine.size(), engine.comm_world());
    let below = [2 * me + 1, 2 * me + 2].into_iter().filter(|&rank| rank < size);
    for rank in below.clone() {
        engine.recv(&mut [], Rank(rank), Tag(1), world).unwrap();
    }
    if me > 0 {
        engine.send(&[], Rank((me - 1) / 2), Tag(1), world).unwrap();
        engine.recv(&mut [], Rank((me - 1) / 2), Tag(2), world).unwrap();
    }
    below.for_each(|rank| engine.send(&[], Rank(rank), Tag(2), world).unwrap());
}

/// No segment of a pair may be made: that is an error of the connection, which says what was asked for.
fn file_size(engine: &mut Engine, place: &Path) {
    let (start, world) = (Instant::now(), engine.comm_world());
    if engine.rank() == Rank(0) {
        let sent = engine.send(&[1], Rank(1), Tag(1), world);
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

/// Messages of all orders of magnitude between two ranks, there and back.
fn lengths(engine: &mut Engine) {
    let world = engine.comm_world();
    let (me, peer) = (engine.rank(), Rank(1 - engine.rank().0));
    let around = |n: usize| [n - 1, n, n + 1];
    let small = [0, 1, 7, 8, 9, 63, 64, 65, 1000].into_iter();
    let large = [4096, 8192, 32 << 10, 64 << 10, 256 << 10, 1 << 20].into_iter().flat_map(around);
    for (number, length) in small.chain(large).chain([4 << 20, 64 << 20]).enumerate() {
        let message = content(number as u64, length);
        let mut buffer = vec![0; length];
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
    // What nobody has asked for is not there.
    assert!(!std::fs::read_to_string("/proc/self/maps").unwrap().contains("tickwire-heap"));
}

/// Long messages to and from each other rank at once, more of them than are read together. Where messages are to be spliced,
/// some are; where they are not, none is.
fn splices(engine: &mut Engine) {
    let (me, size, world) = (engine.rank().0, engine.size(), engine.comm_world());
    let start = Instant::now();
    let spliced = |engine: &mut Engine| engine.bytes_read().spliced;
    let when = std::env::var(ENV_SPLICE);
    for round in 0.. {
        let plan = |from, to| plan(round, from, to, 20).into_iter().map(|(tag, length)| (tag, length * 20));
        let others = || (0..size).filter(|&rank| rank != me);
        let mut receives = Vec::new();
        let mut sends = Vec::new();
        for rank in others() {
            for (number, (_, length)) in plan(rank, me).enumerate() {
                let request = engine.irecv(vec![0; length], Rank(rank), Tag(number as u32), world).unwrap();
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
        // All have been asked whether they have what they want.
        let happy = if when.as_deref() == Ok("always") { spliced(engine) > 0 } else { round == 5 };
        let mut all = u32::from(happy);
        for rank in others() {
            engine.send(&[u8::from(happy)], Rank(rank), Tag(99), world).unwrap();
        }
        for rank in others() {
            let mut theirs = [0];
            engine.recv(&mut theirs, Rank(rank), Tag(99), world).unwrap();
            all += u32::from(theirs[0]);
        }
        if all == size {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "nothing was spliced to rank {me}");
    }
    assert!(when.as_deref() != Ok("never") || spliced(engine) == 0);
    println!("rank {me}: {:?} after {:?}", engine.bytes_read(), start.elapsed());
}

/// Tag and length of each message of a pair.
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

fn name(from: u32, to: u32, number: usize) -> u64 {
    (u64::from(from) << 40) | (u64::from(to) << 20) | number as u64
}

/// All to all in random order; even ranks receive by tag, odd ones anything from a source.
fn storm(engine: &mut Engine, seed: u64, messages: usize) {
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
            let filter = if me.is_multiple_of(2) { TagFilter::Tag(tag) } else { TagFilter::Any };
            receives.push((rank, filter, engine.irecv(vec![0; 200_000], Rank(rank), filter, world).unwrap()));
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
        let fits =
            |n: &usize| !taken[rank as usize][*n] && (filter == TagFilter::Any || filter == TagFilter::Tag(plan[*n].0));
        let number = (0..messages).find(fits).unwrap();
        taken[rank as usize][number] = true;
        assert_eq!((status.tag.0, status.length), plan[number], "{rank} to {me}: order");
        assert!(bytes[..status.length] == content(name(rank, me, number), status.length), "{rank} to {me}: bytes");
    }
    engine.wait_all(&sends).unwrap();
}

fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Writes down when, and ends at once.
fn die(place: &Path) -> ! {
    // The time first: a rename shows it whole.
    std::fs::write(place.join("dying"), now_ms().to_string()).unwrap();
    std::fs::rename(place.join("dying"), place.join("died")).unwrap();
    let _ = kill_process(getpid(), Signal::KILL);
    unreachable!("killed")
}

/// The last rank is killed while it sends and receives large messages; the others notice in time and go on.
fn death(engine: &mut Engine, place: &Path) {
    let (me, size, world) = (engine.rank().0, engine.size(), engine.comm_world());
    let doomed = Rank(size - 1);
    // Everyone is connected to everyone.
    storm(engine, 1, 2);
    // And has all of it: what a transport has buffered may die with its process.
    if me != doomed.0 {
        engine.send(&[], doomed, Tag(9), world).unwrap();
    }
    if me == doomed.0 {
        for rank in 0..me {
            engine.recv(&mut [], Rank(rank), Tag(9), world).unwrap();
        }
        let _open: Vec<_> =
            (0..me).map(|rank| engine.isend(vec![1; CUT_SHORT], Rank(rank), Tag(1), world).unwrap()).collect();
        while copied(engine) < CUT_SHORT as u64 / 8 {
            engine.tick();
        }
        die(place);
    }
    let from_dead = engine.irecv(vec![0; CUT_SHORT], doomed, Tag(1), world).unwrap();
    let never = engine.irecv(vec![0; 8], doomed, Tag(2), world).unwrap();
    let to_dead = engine.isend(vec![2; CUT_SHORT], doomed, Tag(3), world).unwrap();
    let any = engine.irecv(vec![0; 8], Source::Any, Tag(4), world).unwrap();
    for id in [from_dead.id(), never.id(), to_dead.id()] {
        let error = engine.wait_for(&id, PATIENCE).unwrap_err();
        assert!(matches!(&error, RequestError::PeerFailed { proc, .. } if proc.0 == doomed.0), "{error}");
    }
    let died_ms: u64 = std::fs::read_to_string(place.join("died")).unwrap().parse().unwrap();
    let took_ms = now_ms() - died_ms;
    println!("rank {me} noticed after {took_ms} ms: {}", engine.test(&never).unwrap_err());
    assert!(took_ms <= NOTICE_MS_MAX, "noticed after {took_ms} ms");
    assert_eq!(engine.take(never).unwrap_err().buffer.unwrap().len(), 8, "buffers come back");
    let refused = engine.send(&[1], doomed, Tag(5), world).unwrap_err();
    assert!(matches!(refused, OperationError::Post(PostError::PeerFailed { .. })), "{refused}");
    let told = engine.wait_for(&any, PATIENCE).unwrap_err();
    assert!(matches!(told, RequestError::PeerFailedPending { .. }), "{told}");
    let later = engine.irecv(vec![0; 8], Source::Any, Tag(8), world).unwrap();
    let told = engine.wait_for(&later, PATIENCE).unwrap_err();
    assert!(matches!(told, RequestError::PeerFailedPending { .. }), "{told}");
    engine.acknowledge_failures();
    assert!(engine.cancel(&later).unwrap());
    // The others go on.
    let (left, right) = ((me + doomed.0 - 1) % doomed.0, (me + 1) % doomed.0);
    let send = engine.isend(content(me.into(), 100_000), Rank(right), Tag(6), world).unwrap();
    let mut buffer = vec![0; 100_000];
    let receive = engine.irecv(buffer, Rank(left), Tag(6), world).unwrap();
    engine.wait_for(&receive, PATIENCE).unwrap();
    buffer = engine.take(receive).unwrap().0;
    assert!(buffer == content(left.into(), 100_000));
    engine.wait_for(&send, PATIENCE).unwrap();
    engine.send(&[me as u8; 8], Rank(right), Tag(4), world).unwrap();
    assert_eq!(engine.wait_for(&any, PATIENCE).unwrap().source, Rank(left));
}

/// Leaves a word for the other ranks.
fn say(place: &Path, word: &str) {
    std::fs::write(place.join(word), []).unwrap();
}

/// Goes on with something until another rank has left a word.
fn until(place: &Path, word: &str, mut go_on: impl FnMut()) {
    let start = Instant::now();
    while !place.join(word).exists() {
        assert!(start.elapsed() < PATIENCE, "nobody says {word}");
        go_on();
    }
}

/// Rank 1 computes, or is stopped, before there is any contact, and rank 0 sends to it. Without a limit of the application's the
/// message waits; with one it fails, and so does what rank 1 does with rank 0 when it goes on.
fn computes(engine: &mut Engine, place: &Path, limited: bool) {
    let world = engine.comm_world();
    if engine.rank() == Rank(1) {
        std::fs::write(place.join("process"), getpid().to_string()).unwrap();
        kill_process(getpid(), Signal::STOP).unwrap();
        until(place, "go on", std::thread::yield_now);
        let start = Instant::now();
        let mut bytes = [0; 3];
        let received = engine.recv(&mut bytes, Rank(0), Tag(1), world);
        match received {
            Ok(status) => assert_eq!((status.length, bytes, limited), (3, [1, 2, 3], false)),
            Err(error) => {
                let words = error.to_string();
                assert!(limited && words.contains("gave the connection up"), "{words}");
                assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
                let refused = engine.send(&[1], Rank(0), Tag(1), world).unwrap_err().to_string();
                assert!(refused.contains("gave the connection up"), "{refused}");
            }
        }
        return say(place, "told");
    }
    until(place, "process", std::thread::yield_now);
    let start = Instant::now();
    let pid: i32 = loop {
        let pid = std::fs::read_to_string(place.join("process")).unwrap();
        if std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T ")) {
            break pid.parse().unwrap();
        }
        assert!(start.elapsed() < PATIENCE, "it never stopped");
    };
    let send = engine.isend(vec![1, 2, 3], Rank(1), Tag(1), world).unwrap();
    let waited = engine.wait_for(&send, Duration::from_millis(700)).unwrap_err();
    match limited {
        true => assert!(waited.to_string().contains("did not answer within"), "{waited}"),
        false => assert_eq!(waited, RequestError::Timeout),
    }
    kill_process(Pid::from_raw(pid).unwrap(), Signal::CONT).unwrap();
    assert_eq!(engine.test(&send).is_ok(), !limited, "it computes now");
    say(place, "go on");
    if !limited {
        engine.wait_for(&send, PATIENCE).unwrap();
    }
    until(place, "told", || {
        let _ = engine.tick();
    });
}

/// Rank 2 ends in one of several ways while rank 0, which may never have talked to it, receives from any source; rank 1 is well.
fn stranger(mut engine: Engine, place: &Path, way: &str) {
    let world = engine.comm_world();
    let knows = way != "killed";
    match engine.rank().0 {
        0 => {}
        1 => {
            until(place, "acknowledged", || {
                let _ = engine.tick();
            });
            for tag in [3, 4] {
                engine.send(&[tag; 8], Rank(0), Tag(tag.into()), world).unwrap();
            }
            return engine.finalize(PATIENCE).unwrap();
        }
        _ => {
            if knows {
                engine.send(&[1; 8], Rank(0), Tag(1), world).unwrap();
            }
            until(place, "posted", || {
                let _ = engine.tick();
            });
            std::fs::write(place.join("died"), now_ms().to_string()).unwrap();
            match way {
                "killed" => die(place),
                "panics" => panic!("as the test wants it"),
                "exits" => drop(engine),
                other => panic!("no such way: {other}"),
            }
            std::process::exit(3);
        }
    }
    if knows {
        engine.recv(&mut [0; 8], Rank(2), Tag(1), world).unwrap();
    }
    let any = engine.irecv(vec![0; 8], Source::Any, Tag(3), world).unwrap();
    say(place, "posted");
    let told = engine.wait_for(&any, PATIENCE).unwrap_err();
    let died_ms: u64 = std::fs::read_to_string(place.join("died")).unwrap().parse().unwrap();
    let took_ms = now_ms() - died_ms;
    println!("told after {took_ms} ms: {told}");
    assert!(matches!(&told, RequestError::PeerFailedPending { proc, .. } if proc.0 == 2), "{told}");
    let words = match way {
        "killed" => "killed by signal 9",
        "panics" => "without having finalized",
        _ => "exit status 3",
    };
    assert!(told.to_string().contains(words), "{told}");
    assert!(took_ms <= NOTICE_MS_MAX, "told after {took_ms} ms");
    let later = engine.irecv(vec![0; 8], Source::Any, Tag(4), world).unwrap();
    let again = engine.wait_for(&later, PATIENCE).unwrap_err();
    assert!(matches!(&again, RequestError::PeerFailedPending { proc, .. } if proc.0 == 2), "{again}");
    engine.acknowledge_failures();
    say(place, "acknowledged");
    assert_eq!(engine.wait_for(&any, PATIENCE).unwrap().source, Rank(1));
    assert_eq!(engine.wait_for(&later, PATIENCE).unwrap().source, Rank(1));
    engine.finalize(PATIENCE).unwrap();
}

/// Bytes that Transfer has moved.
fn copied(engine: &mut Engine) -> u64 {
    engine.accounting().systems.iter().find(|(system, _)| system == "transfer").unwrap().1.bytes
}

/// Whether long messages are to go straight from memory to memory.
fn goes_direct() -> bool {
    std::env::var(ENV_TRANSPORTS).is_ok_and(|names| names.ends_with("ofi:net"))
}

/// Long messages from rank 1 to rank 0 until there are pipes, or endpoints that take them straight into their places, where
/// there are to be any.
fn warm_up(engine: &mut Engine) {
    let (world, me) = (engine.comm_world(), engine.rank().0);
    let splices = std::env::var(ENV_SPLICE).as_deref() == Ok("always");
    let direct = goes_direct();
    let (mut more, mut warm) = ([1], vec![0; if direct { 1 << 20 } else { 100_000 }]);
    let start = Instant::now();
    while more == [1] {
        assert!(start.elapsed() < PATIENCE, "nothing was spliced, or went straight");
        if me == 1 {
            engine.send(&warm, Rank(0), Tag(99), world).unwrap();
            engine.recv(&mut more, Rank(0), Tag(99), world).unwrap();
        } else {
            let before = copied(engine);
            engine.recv(&mut warm, Rank(1), Tag(99), world).unwrap();
            let copies = copied(engine) - before >= warm.len() as u64;
            more = [u8::from(splices && engine.bytes_read().spliced == 0 || direct && copies)];
            engine.send(&more, Rank(1), Tag(99), world).unwrap();
        }
    }
}

/// Long messages of a rank that is stopped or killed, how long they are, and how many are done before.
const MESSAGES: u32 = 24;
const LENGTH: usize = 4 << 20;
const BEFORE: usize = 6;

/// Rank 1 is stopped while its long messages are read, spliced or not: all of them come without it.
fn stopped_sender(engine: &mut Engine) {
    let world = engine.comm_world();
    warm_up(engine);
    if engine.rank() == Rank(1) {
        engine.send(&getpid().as_raw_nonzero().get().to_ne_bytes(), Rank(0), Tag(99), world).unwrap();
        let messages: Vec<_> = (0..MESSAGES).map(|n| (n, content(n.into(), LENGTH))).collect();
        let send = |(n, message)| engine.isend(message, Rank(0), Tag(n), world).unwrap();
        let sends: Vec<_> = messages.into_iter().map(send).collect();
        while !engine.test(&sends[3]).unwrap().is_done() {
            engine.tick();
        }
        kill_process(getpid(), Signal::STOP).unwrap();
        return engine.wait_all(&sends).unwrap();
    }
    let mut pid = [0; 4];
    engine.recv(&mut pid, Rank(1), Tag(99), world).unwrap();
    let mut receive = |n| engine.irecv(vec![0; LENGTH], Rank(1), Tag(n), world).unwrap();
    let receives: Vec<_> = (0..MESSAGES).map(&mut receive).collect();
    for (n, request) in receives.into_iter().enumerate() {
        engine.wait_for(&request, PATIENCE).unwrap();
        assert!(engine.take(request).unwrap().0 == content(n as u64, LENGTH), "message {n} is whole");
    }
    // It goes on once it has stopped.
    let start = Instant::now();
    let stat = format!("/proc/{}/stat", i32::from_ne_bytes(pid));
    while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
        assert!(start.elapsed() < PATIENCE, "it never stopped");
        std::thread::yield_now();
    }
    println!("{:?} from one that has stopped", engine.bytes_read());
    kill_process(Pid::from_raw(i32::from_ne_bytes(pid)).unwrap(), Signal::CONT).unwrap();
}

/// Rank 1 is killed while its long messages are read, spliced or not: those that have come are whole, the others fail in time.
fn death_of_a_sender(engine: &mut Engine, place: &Path) {
    let (world, doomed) = (engine.comm_world(), Rank(1));
    warm_up(engine);
    if engine.rank() == doomed {
        let messages: Vec<_> = (0..MESSAGES).map(|n| (n, content(n.into(), LENGTH))).collect();
        let send = |(n, message)| engine.isend(message, Rank(0), Tag(n), world).unwrap();
        let sends: Vec<_> = messages.into_iter().map(send).collect();
        while !engine.test(&sends[BEFORE - 1]).unwrap().is_done() {
            engine.tick();
        }
        die(place);
    }
    let mut receive = |n| engine.irecv(vec![0; LENGTH], doomed, Tag(n), world).unwrap();
    let receives: Vec<_> = (0..MESSAGES).map(&mut receive).collect();
    let mut came = 0;
    for (n, request) in receives.into_iter().enumerate() {
        match engine.wait_for(&request, PATIENCE) {
            Ok(_) => {
                assert_eq!(came, n, "in order");
                assert!(engine.take(request).unwrap().0 == content(n as u64, LENGTH), "message {n} is whole");
                came += 1;
            }
            Err(error) => assert!(matches!(error, RequestError::PeerFailed { .. }), "{error}"),
        }
    }
    let died_ms: u64 = std::fs::read_to_string(place.join("died")).unwrap().parse().unwrap();
    println!("{came} came, {:?}, the last failed {} ms after the death", engine.bytes_read(), now_ms() - died_ms);
    assert!(came >= BEFORE && now_ms() - died_ms <= NOTICE_MS_MAX);
}

/// Rank 1 is killed while it receives long messages: those that have gone are done, the others fail in time, and all buffers
/// come back.
fn death_of_a_receiver(engine: &mut Engine, place: &Path) {
    let (world, doomed) = (engine.comm_world(), Rank(1));
    warm_up(engine);
    // What is ready for one direction is ready for the other.
    if engine.rank() == doomed {
        let mut receive = |n| engine.irecv(vec![0; LENGTH], Rank(0), Tag(n), world).unwrap();
        let receives: Vec<_> = (0..MESSAGES).map(&mut receive).collect();
        while !engine.test(&receives[BEFORE - 1]).unwrap().is_done() {
            engine.tick();
        }
        die(place);
    }
    let send = |n: u32| engine.isend(content(n.into(), LENGTH), doomed, Tag(n), world).unwrap();
    let sends: Vec<_> = (0..MESSAGES).map(send).collect();
    let mut failed = 0;
    for (n, request) in sends.into_iter().enumerate() {
        let bytes = match engine.wait_for(&request, PATIENCE) {
            Ok(_) => engine.take(request).unwrap().0,
            Err(error) => {
                assert!(matches!(error, RequestError::PeerFailed { .. }), "{error}");
                failed += 1;
                engine.take(request).unwrap_err().buffer.unwrap()
            }
        };
        assert!(bytes == content(n as u64, LENGTH), "buffer {n} comes back as it was");
    }
    let died_ms: u64 = std::fs::read_to_string(place.join("died")).unwrap().parse().unwrap();
    println!("{failed} failed, the last {} ms after the death, {} B copied", now_ms() - died_ms, copied(engine));
    assert!(failed > 0 && now_ms() - died_ms <= NOTICE_MS_MAX);
}

/// Rank 1 may open no more files: whoever calls it is told so in time, and is not left waiting.
fn no_descriptors(engine: &mut Engine, place: &Path) {
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
        // That opens no file.
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
    // By the call or by its request, whichever hears of it.
    let words = match engine.isend(vec![1; 8], Rank(1), Tag(1), world) {
        Ok(send) => engine.wait_for(&send, PATIENCE).unwrap_err().to_string(),
        Err(rejected) => rejected.error.to_string(),
    };
    let took = since.elapsed();
    std::fs::write(over, []).unwrap();
    assert!(words.contains("proc 1 may open no more files") && words.contains("ulimit -n"), "{words}");
    assert!(took.as_millis() <= u128::from(NOTICE_MS_MAX), "told after {took:?}");
}

/// Ranks 0 and 1 are on one host, 2 and 3 on another; the network between is away for a moment and then for long, while
/// messages are on their way. The first changes nothing; in the second what needs the network ends in time, and the rest goes
/// on, also when it is there again.
fn hosts(engine: &mut Engine, place: &Path) {
    let (me, world) = (engine.rank().0, engine.comm_world());
    let (near, far, quiet) = (Rank(me ^ 1), Rank((me + 2) % 4), Rank(3 - me));
    storm(engine, 5, 10);
    let never = engine.irecv(vec![0; 8], quiet, Tag(1), world).unwrap();
    let say = |what: &str| std::fs::write(place.join(format!("{what}-{me}")), []).unwrap();
    let mark = |rank: u32, round: u32| (rank + 4 * round) as u8;
    let (mut rounds, mut mended) = (0, None);
    // Rounds in which the message to here went straight to its place.
    let mut direct = 0;
    let start = Instant::now();
    let error = loop {
        let before = copied(engine);
        let send = engine.isend(vec![mark(me, rounds); LARGE], far, Tag(2), world);
        let receive = engine.irecv(vec![0; LARGE], far, Tag(2), world);
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
        // One that is sent in pieces counts as well.
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
    let took_ms = now_ms() - cut_ms;
    println!("rank {me} noticed after {took_ms} ms: {error}; {silent}");
    assert!(error.contains(&format!("proc {far}")) && silent.contains(&format!("proc {quiet}")), "{error}; {silent}");
    assert!(took_ms <= CUT_MS_MAX, "noticed after {took_ms} ms");
    say("noticed");
    let start = Instant::now();
    while !place.join("back-again").exists() {
        engine.tick();
        assert!(start.elapsed() < PATIENCE, "the network comes back");
    }
    // Who has failed stays so: what was on its way is lost, and nobody takes up in the middle.
    let gone = engine.isend(vec![1; 8], far, Tag(3), world).map(drop).unwrap_err().to_string();
    assert!(gone.contains(&format!("proc {far}")), "{gone}");
    let send = engine.isend(content(me.into(), 100_000), near, Tag(3), world).unwrap();
    let mut buffer = vec![0; 100_000];
    engine.recv(&mut buffer, near, Tag(3), world).unwrap();
    assert!(buffer == content(near.0.into(), 100_000), "the own host goes on");
    engine.wait_for(&send, PATIENCE).unwrap();
}

/// Bytes of a message of the flood.
const DROP: usize = 1 << 10;
/// Receives of the flood that are posted together.
const BATCH: usize = 64;
/// What the receiver of a flood may grow by, bytes.
const GROWTH_MAX: u64 = 64 << 20;

/// Two endpoints of a provider, each with a device of its own, of which the first is used.
fn devices(engine: &mut Engine, provider: &str) {
    let endpoints = rows(engine).endpoints;
    let open: Vec<_> = endpoints.iter_mut().map(|endpoint| endpoint.transport.get()).collect();
    let names: Vec<_> = open.iter().map(|transport| transport.name()).collect();
    assert_eq!(names, ["loopback", &format!("ofi:{provider}"), &format!("ofi:{provider}@2")]);
    assert_ne!(open[1].card(), open[2].card(), "each has an address of its own");
    lengths(engine);
    let moved: Vec<_> = rows(engine).endpoints.iter_mut().map(|endpoint| endpoint.transport.get().moved()).collect();
    assert!(moved[1].0 > 1 << 20 && moved[1].1 > 1 << 20 && moved[2] == (0, 0), "{moved:?}");
}

/// One rank sends so many messages that the other posts no receive for; then that one receives them all, the last one
/// first if so asked.
fn flood(engine: &mut Engine, place: &Path, messages: u32, last_first: bool) {
    let world = engine.comm_world();
    let contents: Vec<Arc<[u8]>> = (0..997).map(|n| content(n, DROP).into()).collect();
    let of = |n: u32| &contents[n as usize % contents.len()];
    if engine.rank().0 == 0 {
        // Both are connected before the other one looks at its memory.
        engine.send(&[], Rank(1), Tag(messages), world).unwrap();
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
    engine.recv(&mut [], Rank(0), Tag(messages), world).unwrap();
    let before = resident();
    let start = Instant::now();
    let (mut most, mut quiet) = (before, Instant::now());
    // Until all are posted and nothing more comes: credit is spent.
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
    let mut buffer = vec![0; DROP];
    if last_first {
        let status = engine.recv(&mut buffer, Rank(0), Tag(last), world).unwrap();
        assert_eq!((status.tag, status.length), (Tag(last), DROP));
        assert!(buffer[..] == of(last)[..], "message {last} is intact");
    }
    let rest = messages - u32::from(last_first);
    for first in (0..rest).step_by(BATCH) {
        let batch = first..rest.min(first + BATCH as u32);
        let receives: Vec<_> =
            batch.clone().map(|_| engine.irecv(vec![0; DROP], Rank(0), TagFilter::Any, world).unwrap()).collect();
        engine.wait_all(&receives).unwrap();
        for (n, receive) in batch.zip(receives) {
            let (bytes, status) = engine.take(receive).unwrap();
            assert_eq!((status.tag, status.length), (Tag(n), DROP));
            assert!(bytes[..] == of(n)[..], "message {n} is intact");
        }
    }
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// As [`resident`], every 10 ms or so; else 0.
fn resident_now_and_then(start: Instant) -> u64 {
    if start.elapsed().subsec_millis().is_multiple_of(10) { resident() } else { 0 }
}
