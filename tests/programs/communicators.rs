//! A rank in the tests of communicators. Its first argument says what it does. It panics if something is wrong, so
//! that its launcher sees a failure.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use rustix::process::{Signal, getpid, kill_process};
use std::time::{Duration, Instant};
use tickwire::{
    Bootstrap, Comm, CommError, Comparison, Engine, ErrorHandler, PostError, ProcId, Rank, Request, RequestError,
    Source, Tag, TagFilter,
};
use tickwire_tests::cases::content;

fn main() {
    let what = std::env::args().nth(1).unwrap();
    match what.as_str() {
        "four" => four(),
        "together" => together(),
        "killed" => killed(),
        other => abort(other),
    }
}

/// Real processes make and use the rows and columns of a grid of 2 × 2 again and again.
fn four() {
    let mut engine = Engine::builder().build(Bootstrap::from_env().unwrap()).unwrap();
    let (me, world) = (engine.rank().0, engine.comm_world());
    assert_eq!(engine.size(), 4);
    for round in 0..50u32 {
        let dup = engine.comm_dup(world).unwrap();
        let row = engine.comm_split(dup, Some(me / 2), -(me as i32)).unwrap().unwrap();
        let column = engine.comm_split(world, Some(me % 2), me as i32).unwrap().unwrap();
        assert_eq!(engine.comm_compare(dup, world).unwrap(), Comparison::Congruent);
        let ids = [dup, row, column].map(|comm| engine.comm_context_id(comm).unwrap());
        assert_eq!(ids, [2, 3, 4], "round {round}: ids are used again");
        // In a row the higher rank comes first, in a column the lower one.
        assert_eq!(engine.comm_rank(row).unwrap(), Rank(1 - me % 2));
        assert_eq!(engine.comm_rank(column).unwrap(), Rank(me / 2));
        for (comm, peer) in [(row, me ^ 1), (column, me ^ 2)] {
            exchange(&mut engine, comm, me, peer, round);
        }
        for comm in [dup, row, column] {
            engine.comm_free(comm).unwrap();
        }
    }
    let some = engine.comm_group(world).unwrap().include(&[3, 1]).unwrap();
    if me % 2 == 1 {
        let odd = engine.comm_create_group(world, &some, Tag(9)).unwrap();
        exchange(&mut engine, odd, me, 4 - me, 0);
    }
    engine.finalize(Duration::from_secs(20)).unwrap();
}

/// Sends one message in each direction, in a communicator of two. Messages are short or long. The receive takes any
/// source and any tag.
fn exchange(engine: &mut Engine, comm: Comm, me: u32, peer: u32, round: u32) {
    let other = Rank(1 - engine.comm_rank(comm).unwrap().0);
    let length = |from: u32| [100, 50_000][(from as usize / 2 + round as usize) % 2];
    let send = engine.isend(content(me.into(), length(me)), other, Tag(round), comm).unwrap();
    let mut buffer = vec![0u8; length(peer)];
    let status = engine.recv(&mut buffer, Source::Any, TagFilter::Any, comm).unwrap();
    assert_eq!((status.source, status.tag, status.length), (other, Tag(round), length(peer)));
    assert!(buffer == content(peer.into(), length(peer)));
    engine.wait(&send).unwrap();
}

/// Rank 3 is killed while the others wait for it in a collective call.
fn killed() {
    let mut engine = Engine::builder().build(Bootstrap::from_env().unwrap()).unwrap();
    let world = engine.comm_world();
    let dup = engine.comm_dup(world).unwrap();
    if engine.rank().0 == 3 {
        // Its neighbour in the tree waits for it already, or will find it dead.
        let _ = kill_process(getpid(), Signal::KILL);
    }
    let start = Instant::now();
    let failed = engine.comm_dup(dup).unwrap_err();
    assert!(matches!(&failed, CommError::MemberFailed { proc: ProcId(3), .. }), "{failed}");
    assert!(start.elapsed() < Duration::from_millis(1500), "noticed after {:?}", start.elapsed());
    // The other ranks go on without it.
    let others = engine.comm_group(dup).unwrap().exclude(&[3]).unwrap();
    let rest = engine.comm_create_group(dup, &others, Tag(0)).unwrap();
    let me = engine.comm_rank(rest).unwrap().0;
    let send = engine.isend(vec![me as u8; 100], Rank((me + 1) % 3), Tag(1), rest).unwrap();
    let mut buffer = [0; 100];
    engine.recv(&mut buffer, Source::Any, TagFilter::Any, rest).unwrap();
    assert_eq!(buffer, [((me + 2) % 3) as u8; 100]);
    engine.wait(&send).unwrap();
    engine.finalize(Duration::from_secs(20)).unwrap();
}

/// Rank 1 makes an error on a communicator whose handler is `Abort`. The others wait for it forever.
fn together() {
    let mut engine = Engine::builder().build(Bootstrap::from_env().unwrap()).unwrap();
    let world = engine.comm_world();
    let dup = engine.comm_dup(world).unwrap();
    if engine.rank().0 == 1 {
        engine.comm_set_error_handler(dup, ErrorHandler::Abort).unwrap();
        let _ = engine.send(&[1u8], Rank(3), Tag(0), dup);
        panic!("still here");
    }
    let never = engine.irecv(vec![0u8; 1], engine.rank(), Tag(0), world).unwrap();
    panic!("the others are ended by the launcher: {:?}", engine.wait_for(&never, Duration::from_secs(60)));
}

/// Makes errors on a communicator whose handler is `Abort`. The last line must not be reached.
fn abort(what: &str) {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let (me, world) = (Rank(0), engine.comm_world());
    let own = engine.comm_self();
    // Errors on other communicators, cancelled requests and successful operations must not abort.
    let quiet = engine.comm_dup(world).unwrap();
    engine.comm_set_error_handler(world, ErrorHandler::Abort).unwrap();
    assert!(matches!(engine.isend(vec![1u8], Rank(7), Tag(0), quiet).unwrap_err().error, PostError::Rank { .. }));
    let truncated = |engine: &mut Engine, comm| {
        let request = engine.irecv(vec![0u8; 2], me, Tag(1), comm).unwrap();
        engine.send(&[1u8; 5], me, Tag(1), comm).unwrap();
        engine.tick();
        request
    };
    let request = truncated(&mut engine, quiet);
    assert!(matches!(engine.take(request).unwrap_err().error, RequestError::Truncated { .. }));
    let request = engine.irecv(vec![0u8; 2], me, Tag(1), world).unwrap();
    assert!(engine.cancel(&request).unwrap());
    engine.tick();
    assert_eq!(engine.take(request).unwrap_err().error, RequestError::Cancelled);
    let child = engine.comm_dup(world).unwrap();
    match what {
        "send" => drop(engine.isend(vec![1u8], Rank(7), Tag(0), world)),
        "receive" => drop(engine.irecv(vec![1u8], Rank(7), Tag(0), world)),
        "blocking" => drop(engine.send(&[1u8], Rank(7), Tag(0), world)),
        "test" | "take" | "wait" | "wait_all" | "wait_any" | "wait_some" | "test_all" => {
            let request = truncated(&mut engine, world);
            hear(&mut engine, what, request);
        }
        "nobody" => drop(engine.isend(vec![1u8], Rank::NULL, Tag(u32::MAX), world)),
        "inherited" => drop(engine.isend(vec![1u8], me, Tag(u32::MAX), child)),
        "free" => drop(engine.comm_free(world)),
        "stale" => {
            engine.comm_set_error_handler(own, ErrorHandler::Abort).unwrap();
            engine.comm_free(quiet).unwrap();
            drop(engine.isend(vec![1u8], me, Tag(0), quiet));
        }
        "freed" => {
            // The communicator was freed meanwhile. Its handler still counts.
            let request = truncated(&mut engine, child);
            engine.comm_free(child).unwrap();
            let _ = engine.take(request);
        }
        "graph" => {
            let _sent = engine.gather_block(me, Tag(1), world).send(vec![1u8; 5]).start();
            let received = engine.scatter_block(me, Tag(1), world).recv(vec![0u8; 2]).start().unwrap();
            let _ = engine.wait_take(received);
        }
        other => panic!("no such test: {other}"),
    }
    println!("still here");
}

/// Gets the error of a request in one of the possible ways.
fn hear(engine: &mut Engine, how: &str, request: Request<Vec<u8>>) {
    match how {
        "test" => drop(engine.test(&request)),
        "take" => drop(engine.take(request)),
        "wait" => drop(engine.wait(&request)),
        "wait_all" => drop(engine.wait_all(&[&request])),
        "wait_any" => drop(engine.wait_any(&[&request])),
        "wait_some" => drop(engine.wait_some(&[&request])),
        "test_all" => drop(engine.test_all(&[&request])),
        other => panic!("no such way: {other}"),
    }
}
