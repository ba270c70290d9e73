//! Ranks that are killed, end or compute, and the errors that the others must get in time.

use crate::kit::{NOTICE_MS_MAX, PATIENCE, copied, die, say, since_death_ms, until};
use crate::messages::storm;
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::path::Path;
use std::time::{Duration, Instant};
use tickwire::{Engine, OperationError, PostError, Rank, RequestError, Source, Tag};
use tickwire_tests::cases::content;
use tickwire_tests::clocks::monotonic_ms;

/// Length of the message that a rank dies in, bytes. One tick cannot send so much: over a fabric that is 64 frames of
/// 255 KiB.
const CUT_SHORT: usize = 32 << 20;

/// The last rank is killed while it sends and receives large messages. The others must notice in time and go on.
pub(crate) fn death(engine: &mut Engine, place: &Path) {
    let (me, size, world) = (engine.rank().0, engine.size(), engine.comm_world());
    let doomed = Rank(size - 1);
    // This connects each rank to each other one.
    storm(engine, 1, 2);
    // The doomed rank goes on only when all others have their messages: data that a transport has buffered may be
    // lost with its process.
    if me != doomed.0 {
        engine.send(b"", doomed, Tag(9), world).unwrap();
    }
    if me == doomed.0 {
        for rank in 0..me {
            engine.recv(&mut [0u8; 0], Rank(rank), Tag(9), world).unwrap();
        }
        let _open: Vec<_> =
            (0..me).map(|rank| engine.isend(vec![1u8; CUT_SHORT], Rank(rank), Tag(1), world).unwrap()).collect();
        while copied(engine) < CUT_SHORT as u64 / 8 {
            engine.tick();
        }
        die(place);
    }
    let from_dead = engine.irecv(vec![0u8; CUT_SHORT], doomed, Tag(1), world).unwrap();
    let never = engine.irecv(vec![0u8; 8], doomed, Tag(2), world).unwrap();
    let to_dead = engine.isend(vec![2u8; CUT_SHORT], doomed, Tag(3), world).unwrap();
    let any = engine.irecv(vec![0u8; 8], Source::Any, Tag(4), world).unwrap();
    for id in [from_dead.id(), never.id(), to_dead.id()] {
        let error = engine.wait_for(&id, PATIENCE).unwrap_err();
        assert!(matches!(&error, RequestError::PeerFailed { proc, .. } if proc.0 == doomed.0), "{error}");
    }
    let took_ms = since_death_ms(place);
    println!("rank {me} noticed after {took_ms} ms: {}", engine.test(&never).unwrap_err());
    assert!(took_ms <= NOTICE_MS_MAX, "noticed after {took_ms} ms");
    assert_eq!(engine.take(never).unwrap_err().buffer.unwrap().len(), 8, "buffers come back");
    let refused = engine.send(&[1u8], doomed, Tag(5), world).unwrap_err();
    assert!(matches!(refused, OperationError::Post(PostError::PeerFailed { .. })), "{refused}");
    let told = engine.wait_for(&any, PATIENCE).unwrap_err();
    assert!(matches!(told, RequestError::PeerFailedPending { .. }), "{told}");
    let later = engine.irecv(vec![0u8; 8], Source::Any, Tag(8), world).unwrap();
    let told = engine.wait_for(&later, PATIENCE).unwrap_err();
    assert!(matches!(told, RequestError::PeerFailedPending { .. }), "{told}");
    engine.acknowledge_failures();
    assert!(engine.cancel(&later).unwrap());
    // The other ranks go on.
    let (left, right) = ((me + doomed.0 - 1) % doomed.0, (me + 1) % doomed.0);
    let send = engine.isend(content(me.into(), 100_000), Rank(right), Tag(6), world).unwrap();
    let mut buffer = vec![0u8; 100_000];
    let receive = engine.irecv(buffer, Rank(left), Tag(6), world).unwrap();
    engine.wait_for(&receive, PATIENCE).unwrap();
    buffer = engine.take(receive).unwrap().0;
    assert!(buffer == content(left.into(), 100_000));
    engine.wait_for(&send, PATIENCE).unwrap();
    engine.send(&[me as u8; 8], Rank(right), Tag(4), world).unwrap();
    assert_eq!(engine.wait_for(&any, PATIENCE).unwrap().source, Rank(left));
}

/// Rank 1 computes, or is stopped, before any contact, and rank 0 sends to it. Without a limit of the application the
/// message waits. With a limit the send fails. Then operations of rank 1 with rank 0 fail, too, when it goes on.
pub(crate) fn computes(engine: &mut Engine, place: &Path, limited: bool) {
    let world = engine.comm_world();
    if engine.rank() == Rank(1) {
        std::fs::write(place.join("process"), getpid().to_string()).unwrap();
        kill_process(getpid(), Signal::STOP).unwrap();
        until(place, "go on", std::thread::yield_now);
        let start = Instant::now();
        let mut bytes = [0u8; 3];
        let received = engine.recv(&mut bytes, Rank(0), Tag(1), world);
        match received {
            Ok(status) => assert_eq!((status.length, bytes, limited), (3, [1, 2, 3], false)),
            Err(error) => {
                let words = error.to_string();
                assert!(limited && words.contains("gave the connection up"), "{words}");
                assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
                let refused = engine.send(&[1u8], Rank(0), Tag(1), world).unwrap_err().to_string();
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
    let send = engine.isend(vec![1u8, 2, 3], Rank(1), Tag(1), world).unwrap();
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

/// Rank 2 ends in one of several ways while rank 0 receives from any source. Rank 0 may never have had contact with it.
/// Rank 1 stays well.
pub(crate) fn stranger(mut engine: Engine, place: &Path, way: &str) {
    let world = engine.comm_world();
    let knows = way != "killed";
    match engine.rank().0 {
        0 => {}
        1 => {
            until(place, "acknowledged", || {
                let _ = engine.tick();
            });
            for tag in [3u8, 4] {
                engine.send(&[tag; 8], Rank(0), Tag(tag.into()), world).unwrap();
            }
            return engine.finalize(PATIENCE).unwrap();
        }
        _ => {
            if knows {
                engine.send(&[1u8; 8], Rank(0), Tag(1), world).unwrap();
            }
            until(place, "posted", || {
                let _ = engine.tick();
            });
            std::fs::write(place.join("died"), monotonic_ms().to_string()).unwrap();
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
        engine.recv(&mut [0u8; 8], Rank(2), Tag(1), world).unwrap();
    }
    let any = engine.irecv(vec![0u8; 8], Source::Any, Tag(3), world).unwrap();
    say(place, "posted");
    let told = engine.wait_for(&any, PATIENCE).unwrap_err();
    let took_ms = since_death_ms(place);
    println!("told after {took_ms} ms: {told}");
    assert!(matches!(&told, RequestError::PeerFailedPending { proc, .. } if proc.0 == 2), "{told}");
    let words = match way {
        "killed" => "killed by signal 9",
        "panics" => "without having finalized",
        _ => "exit status 3",
    };
    assert!(told.to_string().contains(words), "{told}");
    assert!(took_ms <= NOTICE_MS_MAX, "told after {took_ms} ms");
    let later = engine.irecv(vec![0u8; 8], Source::Any, Tag(4), world).unwrap();
    let again = engine.wait_for(&later, PATIENCE).unwrap_err();
    assert!(matches!(&again, RequestError::PeerFailedPending { proc, .. } if proc.0 == 2), "{again}");
    engine.acknowledge_failures();
    say(place, "acknowledged");
    assert_eq!(engine.wait_for(&any, PATIENCE).unwrap().source, Rank(1));
    assert_eq!(engine.wait_for(&later, PATIENCE).unwrap().source, Rank(1));
    engine.finalize(PATIENCE).unwrap();
}
