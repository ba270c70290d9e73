//! A rank in the tests of launchers. Its first argument says what it does. It ends with status 9 if something is
//! wrong.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod cases;

use std::io::Write;
use std::path::Path;
use std::process::exit;
use std::time::{Duration, Instant};
use tickwire::{Bootstrap, Engine, ProcId, Rank, Tag};

/// How long a rank waits for what its test has to do.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let bootstrap = Bootstrap::from_env().unwrap_or_else(|error| {
        say(&error.to_string());
        exit(9)
    });
    let words = bootstrap.describe();
    let mut engine = Engine::builder().build(bootstrap).unwrap_or_else(|error| {
        say(&error.to_string());
        exit(9)
    });
    if args[1] != "start" {
        ring(&mut engine);
    }
    match args[1].as_str() {
        "start" => {}
        "cases" => {
            cases::all(&mut engine);
            println!("rank {} has had all cases", engine.rank().0);
        }
        "ring" => report(&mut engine, &words),
        "fail" => fail(&mut engine),
        "abort" => abort(&mut engine),
        "abort-alone" if engine.rank().0 == 1 => engine.abort(7),
        "abort-alone" => {}
        "miss" => miss(&mut engine, Path::new(&args[2])),
        "wait" => wait(&mut engine, Path::new(&args[2])),
        other => panic!("no such test: {other}"),
    }
    engine.finalize(PATIENCE).unwrap();
}

/// Writes one line to stderr at once. Otherwise lines of several ranks would mix.
fn say(words: &str) {
    std::io::stderr().write_all(format!("tests-launched: {words}\n").as_bytes()).unwrap();
}

/// All ranks exchange short and long messages with their neighbours.
fn ring(engine: &mut Engine) {
    let (world, me, size) = (engine.comm_world(), engine.rank().0, engine.size());
    let (right, left) = (Rank((me + 1) % size), Rank((me + size - 1) % size));
    for length in [1, 50_000] {
        let mut incoming = vec![0u32; length];
        engine.sendrecv(vec![me; length], right, Tag(7), &mut incoming, left, Tag(7), world).unwrap();
        assert!(incoming.iter().all(|&from| from == left.0));
    }
}

/// Reports what the rank knows of its place: its rank and the size, its host and the number of hosts, its rank among
/// those that share memory with it, and the transports that reach the others.
fn report(engine: &mut Engine, words: &str) {
    let (world, me, size) = (engine.comm_world(), engine.rank().0, engine.size());
    let shared = engine.comm_split_shared(world, 0).unwrap();
    let (many, place) = (engine.comm_size(shared).unwrap(), engine.comm_rank(shared).unwrap().0);
    let routes: Vec<String> = (0..size)
        .filter(|&other| other != me)
        .map(|other| {
            let routes = engine.routes(ProcId(other), tickwire::TrafficClass::PointToPoint);
            routes.into_iter().find(|route| route.chosen).map_or("none".into(), |route| route.transport)
        })
        .collect();
    let (hosts, host) = (engine.hosts().unwrap(), engine.host_of(ProcId(me)).unwrap());
    assert_eq!(engine.host_of(ProcId(size)), None);
    println!("rank {me} of {size}, host {host} of {hosts}, {place} of {many} shared, by {}; {words}", routes.join(" "));
}

/// Rank 1 ends without a farewell, and the others wait for it.
fn fail(engine: &mut Engine) {
    if engine.rank().0 == 1 {
        exit(3);
    }
    let world = engine.comm_world();
    let error = engine.recv(&mut [0u8; 1], Rank(1), Tag(1), world).unwrap_err();
    say(&error.to_string());
    exit(4);
}

/// Rank 1 aborts the job, and the others wait for it.
fn abort(engine: &mut Engine) {
    if engine.rank().0 == 1 {
        engine.abort(7);
    }
    let world = engine.comm_world();
    let _ = engine.recv(&mut [0u8; 1], Rank(1), Tag(1), world);
    // Rank 1 has ended without a farewell. The launcher must end this rank too, within this time.
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        engine.tick();
        std::thread::sleep(Duration::from_millis(1));
    }
    exit(5);
}

/// Waits for a message of the last rank, which is on another host and never sends one. Leaves the reason of the failure
/// in a file.
fn miss(engine: &mut Engine, place: &Path) {
    let (world, me, last) = (engine.comm_world(), engine.rank().0, engine.size() - 1);
    // All ranks first connect to the last one: the test is about the end of a connection.
    for other in 0..last {
        match me {
            _ if me == last => drop(engine.recv(&mut [0u8; 1], Rank(other), Tag(2), world).unwrap()),
            _ if me == other => engine.send(&[1u8], Rank(last), Tag(2), world).unwrap(),
            _ => {}
        }
    }
    leave(place, &format!("waits-{}", engine.rank().0), &std::process::id().to_string());
    if engine.rank().0 == last {
        return wait(engine, place);
    }
    let error = engine.recv(&mut [0u8; 1], Rank(last), Tag(1), world).unwrap_err();
    leave(place, &format!("missed-{}", engine.rank().0), &error.to_string());
    // The rank waits, because its end would end the others before they notice the failure.
    wait(engine, place);
}

/// Writes a file that is seen only when it is complete.
fn leave(place: &Path, name: &str, text: &str) {
    let draft = place.join(format!("{name}-draft"));
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(&draft, place.join(name)).unwrap();
}

/// Says that it is there, and waits for its end.
fn wait(engine: &mut Engine, place: &Path) {
    leave(place, &engine.rank().0.to_string(), &std::process::id().to_string());
    let start = Instant::now();
    while start.elapsed() < 2 * PATIENCE {
        engine.tick();
        std::thread::sleep(Duration::from_millis(1));
    }
    exit(6);
}
