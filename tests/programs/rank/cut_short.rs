//! Ranks that are stopped or killed while their long messages are in flight.

use crate::kit::{NOTICE_MS_MAX, PATIENCE, copied, die, goes_direct, since_death_ms};
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::path::Path;
use std::time::Instant;
use tickwire::{ENV_STAGING, Engine, Rank, RequestError, Tag};
use tickwire_tests::cases::content;

/// Passes long messages from rank 1 to rank 0 until they take the way of the test: staged, or straight
/// from memory to memory. In other tests one message is enough.
fn warm_up(engine: &mut Engine) {
    let (world, me) = (engine.comm_world(), engine.rank().0);
    let stages = std::env::var(ENV_STAGING).as_deref() == Ok("always");
    let direct = goes_direct();
    let (mut more, mut warm) = ([1], vec![0u8; if direct { 1 << 20 } else { 100_000 }]);
    let start = Instant::now();
    while more == [1] {
        assert!(start.elapsed() < PATIENCE, "nothing was staged, or went straight");
        if me == 1 {
            engine.send(&warm, Rank(0), Tag(99), world).unwrap();
            engine.recv(&mut more, Rank(0), Tag(99), world).unwrap();
        } else {
            let before = copied(engine);
            engine.recv(&mut warm, Rank(1), Tag(99), world).unwrap();
            let copies = copied(engine) - before >= warm.len() as u64;
            more = [u8::from(stages && engine.bytes_read().staged == 0 || direct && copies)];
            engine.send(&more, Rank(1), Tag(99), world).unwrap();
        }
    }
}

/// Number of long messages of a rank that is stopped or killed meanwhile.
const MESSAGES: u32 = 24;
/// Length of each message, bytes.
const LENGTH: usize = 4 << 20;
/// The number of messages that are done before the rank is stopped or killed.
const BEFORE: usize = 6;

/// Rank 1 is stopped while its long messages are read, staged or not. All of them must arrive although it does not
/// run.
pub(crate) fn stopped_sender(engine: &mut Engine) {
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
    let mut receive = |n| engine.irecv(vec![0u8; LENGTH], Rank(1), Tag(n), world).unwrap();
    let receives: Vec<_> = (0..MESSAGES).map(&mut receive).collect();
    for (n, request) in receives.into_iter().enumerate() {
        engine.wait_for(&request, PATIENCE).unwrap();
        assert!(engine.take(request).unwrap().0 == content(n as u64, LENGTH), "message {n} is whole");
    }
    // Rank 1 is continued only when it has surely stopped.
    let start = Instant::now();
    let stat = format!("/proc/{}/stat", i32::from_ne_bytes(pid));
    while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
        assert!(start.elapsed() < PATIENCE, "it never stopped");
        std::thread::yield_now();
    }
    println!("{:?} from one that has stopped", engine.bytes_read());
    kill_process(Pid::from_raw(i32::from_ne_bytes(pid)).unwrap(), Signal::CONT).unwrap();
}

/// Rank 1 is killed while its long messages are read, staged or not. Messages that arrive must be whole. The others
/// must fail in time.
pub(crate) fn death_of_a_sender(engine: &mut Engine, place: &Path) {
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
    let mut receive = |n| engine.irecv(vec![0u8; LENGTH], doomed, Tag(n), world).unwrap();
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
    let took_ms = since_death_ms(place);
    println!("{came} came, {:?}, the last failed {} ms after the death", engine.bytes_read(), took_ms);
    assert!(came >= BEFORE && took_ms <= NOTICE_MS_MAX);
}

/// Rank 1 is killed while it receives long messages. Sends end well or fail in time, and all buffers come back.
pub(crate) fn death_of_a_receiver(engine: &mut Engine, place: &Path) {
    let (world, doomed) = (engine.comm_world(), Rank(1));
    warm_up(engine);
    // Once one direction is warm, the other one is too.
    if engine.rank() == doomed {
        let mut receive = |n| engine.irecv(vec![0u8; LENGTH], Rank(0), Tag(n), world).unwrap();
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
    let took_ms = since_death_ms(place);
    println!("{failed} failed, the last {} ms after the death, {} B copied", took_ms, copied(engine));
    assert!(failed > 0 && took_ms <= NOTICE_MS_MAX);
}
