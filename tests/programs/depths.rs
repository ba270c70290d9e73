//! Deep matching queues, for the bench `matching`.
//! `tests-depths posted|unexpected start|insert|match|scattered N [auto|lists|index]`
//!
//! Makes a queue of N entries with different tags and prints `insert NS`. Then takes all entries out, in their order or
//! in a scattered order, and prints `match NS`. Both figures are ns for each entry. Lines `bytes NAME B` give the
//! storage for each entry. The program exits at once after the step that it was asked for, so that a count of its
//! instructions covers only the queue.

use std::process::exit;
use std::time::Instant;
use tickwire::internals::components::limits::Limits;
use tickwire::internals::components::{Car, Held, Large, Node, Request};
use tickwire::testing::rows;
use tickwire::{Bootstrap, Engine, Rank, Tag};

const USAGE: &str = "tests-depths posted|unexpected start|insert|match|scattered N [auto|lists|index]";
/// Bytes of bevy's change ticks for a component.
const TICKS: usize = 8;

/// The numbers below `count` in an order without locality.
fn scattered(count: u32) -> impl Iterator<Item = u32> {
    let mask = count.next_power_of_two() - 1;
    // Multiplication by an odd number permutes the numbers below a power of two.
    (0..=mask).map(move |n| n.wrapping_mul(0x9E37_79B1).wrapping_add(7) & mask).filter(move |&n| n < count)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, until, count, rest @ ..] = &words[..] else { return Err(USAGE.into()) };
    let count: u32 = count.parse()?;
    let matching = rest.first().map_or("auto", String::as_str).parse()?;
    let limits = Limits { matching, ..Limits::default() };
    // All rows exist from the start, since spawning rows is no part of matching.
    let mut engine = Engine::builder().limits(limits).initial_rows(count as usize + 64).build(Bootstrap::solo())?;
    let (me, world) = (engine.rank(), engine.comm_world());
    // The first message makes the connection to oneself.
    engine.send(b"", me, Tag(count), world)?;
    engine.recv(&mut [0u8; 0], me, Tag(count), world)?;
    let mut posted = Vec::with_capacity(count as usize);
    let ns = |start: Instant| start.elapsed().as_nanos() as f64 / f64::from(count);

    if until == "start" {
        exit(0);
    }
    let start = Instant::now();
    for tag in 0..count {
        match kind.as_str() {
            "posted" => posted.push(engine.irecv(Vec::<u8>::new(), me, Tag(tag), world)?),
            "unexpected" => send(&mut engine, me, tag)?,
            _ => return Err(USAGE.into()),
        }
    }
    println!("insert {:.1}", ns(start));
    storage(&mut engine, kind, count);
    if until != "insert" {
        let tags: Vec<u32> = if until == "match" { (0..count).collect() } else { scattered(count).collect() };
        let start = Instant::now();
        for tag in tags {
            match kind.as_str() {
                "posted" => send(&mut engine, me, tag)?,
                _ => posted.push(engine.irecv(Vec::<u8>::new(), me, Tag(tag), world)?),
            }
            engine.tick();
        }
        println!("match {:.1}", ns(start));
        if !engine.test_all(&posted)? {
            return Err("a message has not met its receive".into());
        }
        storage(&mut engine, kind, count);
    }
    exit(0)
}

/// Sends a message to oneself. After the tick it has arrived.
fn send(engine: &mut Engine, me: Rank, tag: u32) -> Result<(), tickwire::OperationError> {
    let world = engine.comm_world();
    engine.send(b"", me, Tag(tag), world)?;
    engine.tick();
    Ok(())
}

fn storage(engine: &mut Engine, kind: &str, count: u32) {
    let progress = rows(engine).progress;
    let each = |bytes: usize| bytes as f64 / f64::from(count);
    match kind {
        "posted" => {
            let row =
                size_of::<Car>() + size_of::<Large>() + size_of::<Node>() + size_of::<Request>() + size_of::<Held>();
            println!("bytes row {}", row + 4 * TICKS);
            println!("bytes index {:.1}", each(progress.posted.bytes()));
        }
        _ => {
            let (slab, index) = progress.unexpected.storage();
            println!("bytes slab {:.1}", each(slab));
            println!("bytes index {:.1}", each(index));
        }
    }
}
