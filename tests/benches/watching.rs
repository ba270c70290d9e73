//! The cost of observation. Two threads exchange messages of 8 B: without observation, with a ring in memory, with a
//! trace file, and with a receipt for every message. These ways run in turn, and the best round of each one counts.
//!
//! `cargo bench -p tickwire-tests --bench watching`. With `--test` it only checks that it runs. With `--features tracy`
//! it also measures with a Tracy profiler. The profiler is another process and counts what it is told.

#[cfg(feature = "tracy")]
#[path = "../tracy/server.rs"]
#[expect(dead_code, reason = "what it has heard is for the tests")]
mod server;

use std::cell::RefCell;
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tickwire::internals::traces::{Ring, TraceFile, tracy};
use tickwire::testing::Cluster;
use tickwire::{Builder, Comm, Engine, Rank, Request, Tag};

/// Rounds of each way. The best one counts.
const ROUNDS: usize = 15;
/// Round trips in a round.
const TURNS: usize = 20_000;
/// Messages in one direction before an answer.
const WINDOW: usize = 64;
const TAG: Tag = Tag(1);
/// The longest wait for a profiler, and the longest wait of a profiler.
const PATIENCE: Duration = Duration::from_secs(100);
/// The last Tracy message of a round.
const LAST: &str = "that is all of this round";

/// The observer.
#[derive(Clone, Copy, PartialEq)]
enum Watched {
    Nobody,
    Ring,
    File,
    Receipts,
    Tracy,
}

fn main() {
    if let Some(status) = with_port() {
        std::process::exit(status);
    }
    let test = std::env::args().any(|word| word == "--test");
    let (rounds, turns) = if test { (1, 2 * WINDOW) } else { (ROUNDS, TURNS) };
    let ways = [
        ("nobody", Watched::Nobody),
        ("a ring", Watched::Ring),
        ("a file", Watched::File),
        ("receipts", Watched::Receipts),
        ("Tracy", Watched::Tracy),
    ];
    let ways = if cfg!(feature = "tracy") { &ways[..] } else { &ways[..4] };
    let mut best = vec![(f64::MAX, 0.0f64); ways.len()];
    for _ in 0..rounds {
        for ((_, watched), (latency, rate)) in ways.iter().zip(&mut best) {
            let (to_and_fro, each) = measure(*watched, turns);
            (*latency, *rate) = (latency.min(to_and_fro / 2.0), rate.max(1e3 / each));
        }
    }
    if test {
        return;
    }
    println!("{:<10}{:>14}{:>8}{:>12}{:>8}", "watched by", "latency", "", "rate", "");
    for ((name, _), (latency, rate)) in ways.iter().zip(&best) {
        let (of_latency, of_rate) = (latency / best[0].0, rate / best[0].1);
        println!("{name:<10}{latency:>11.0} ns{of_latency:>7.2}x{rate:>10.2}/us{of_rate:>7.2}x");
    }
}

/// Returns the time of a round trip, and the time of one of many messages in one direction, ns.
fn measure(watched: Watched, turns: usize) -> (f64, f64) {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let path = || tickwire_tests::scratch::path(&format!("watching-{}", FILES.fetch_add(1, Ordering::Relaxed)));
    let paths = [path(), path()];
    let next = AtomicU32::new(0);
    let watch = |builder: Builder| match watched {
        Watched::Nobody | Watched::Receipts | Watched::Tracy => builder,
        Watched::Ring => builder.trace(Ring::new(10_000)),
        Watched::File => {
            let path = &paths[next.fetch_add(1, Ordering::Relaxed) as usize % 2];
            builder.trace(TraceFile::create_part(path).expect("there is room"))
        }
    };
    let profiler = (watched == Watched::Tracy).then(profiler);
    let mut cluster = Cluster::loopback_with(2, watch);
    let mut engines = std::mem::take(&mut cluster.engines).into_iter();
    let (Some(first), Some(second)) = (engines.next(), engines.next()) else { panic!("two engines were asked for") };
    let receipts = watched == Watched::Receipts;
    let found = std::thread::scope(|threads| {
        let other = threads.spawn(move || run(second, Rank(0), receipts, turns));
        let found = run(first, Rank(1), receipts, turns);
        other.join().expect("both sides end");
        found
    });
    paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
    if let Some(mut profiler) = profiler {
        tracy::message(0, LAST);
        assert!(profiler.wait().expect("it is a child").success(), "the profiler has heard all");
    }
    found
}

/// Picks a port for the Tracy client. The client reads its port when the process starts, so this program runs itself
/// again with the port in its environment. Returns the exit status of that run, or of this process if it is the
/// profiler. Returns `None` in the process that measures.
fn with_port() -> Option<i32> {
    #[cfg(feature = "tracy")]
    {
        if let Some(port) = std::env::args().skip_while(|word| word != "--profiler").nth(1) {
            server::Server::connect(port.parse().expect("a port"), PATIENCE).listen(LAST, PATIENCE);
            return Some(0);
        }
        if std::env::var_os("TRACY_PORT").is_none() {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
            let port = listener.local_addr().expect("it is bound").port();
            drop(listener);
            let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
            command.args(std::env::args_os().skip(1)).env("TRACY_PORT", port.to_string());
            return Some(command.status().expect("it starts").code().unwrap_or(1));
        }
    }
    None
}

/// Starts a profiler, and waits until it is connected to this process.
fn profiler() -> Child {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    let port = std::env::var("TRACY_PORT").expect("the first one has set it");
    let child = command.args(["--profiler", &port]).spawn().expect("it starts");
    let until = Instant::now() + PATIENCE;
    while !tracy::connected() {
        assert!(Instant::now() < until, "the profiler does not connect");
        std::thread::yield_now();
    }
    child
}

/// Runs one side. The side whose peer is rank 1 begins.
fn run(mut engine: Engine, peer: Rank, receipts: bool, turns: usize) -> (f64, f64) {
    let world = engine.comm_world();
    let side = Side { buffers: RefCell::default(), peer, world, receipts };
    side.turns(&mut engine, turns / 10);
    let start = Instant::now();
    side.turns(&mut engine, turns);
    let to_and_fro = start.elapsed().as_secs_f64() * 1e9 / turns as f64;
    let windows = turns / WINDOW;
    let start = Instant::now();
    (0..windows).for_each(|_| side.window(&mut engine));
    let each = start.elapsed().as_secs_f64() * 1e9 / (windows * WINDOW) as f64;
    engine.finalize(Duration::from_secs(10)).expect("both sides end");
    (to_and_fro, each)
}

struct Side {
    /// Buffers of 8 B that no operation uses now.
    buffers: RefCell<Vec<Vec<u8>>>,
    peer: Rank,
    world: Comm,
    receipts: bool,
}

impl Side {
    fn buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_else(|| vec![0u8; 8])
    }

    fn end(&self, engine: &mut Engine, request: Request<Vec<u8>>) {
        engine.wait(&request).expect("it is delivered");
        let (buffer, _) = engine.take(request).expect("it was waited for");
        self.buffers.borrow_mut().push(buffer);
    }

    fn send(&self, engine: &mut Engine) -> Request<Vec<u8>> {
        let sent = match self.receipts {
            true => engine.receipted().isend(self.buffer(), self.peer, TAG, self.world),
            false => engine.isend(self.buffer(), self.peer, TAG, self.world),
        };
        sent.expect("the peer is there")
    }

    fn receive(&self, engine: &mut Engine) -> Request<Vec<u8>> {
        let posted = match self.receipts {
            true => engine.receipted().irecv(self.buffer(), self.peer, TAG, self.world),
            false => engine.irecv(self.buffer(), self.peer, TAG, self.world),
        };
        posted.expect("the peer is there")
    }

    fn turns(&self, engine: &mut Engine, turns: usize) {
        for _ in 0..turns {
            let receive = self.receive(engine);
            if self.peer == Rank(1) {
                let send = self.send(engine);
                self.end(engine, receive);
                self.end(engine, send);
            } else {
                self.end(engine, receive);
                let send = self.send(engine);
                self.end(engine, send);
            }
        }
    }

    /// Passes a window of messages from the side that begins, and an answer back.
    fn window(&self, engine: &mut Engine) {
        if self.peer == Rank(1) {
            let sends: Vec<_> = (0..WINDOW).map(|_| self.send(engine)).collect();
            sends.into_iter().for_each(|send| self.end(engine, send));
            let answer = self.receive(engine);
            self.end(engine, answer);
        } else {
            let receives: Vec<_> = (0..WINDOW).map(|_| self.receive(engine)).collect();
            receives.into_iter().for_each(|receive| self.end(engine, receive));
            let answer = self.send(engine);
            self.end(engine, answer);
        }
    }
}
