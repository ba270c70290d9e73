//! A rank in the tests over shared memory. Its first argument says what it does. It panics if something is wrong, so
//! that its launcher sees a failure.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod bounds;
mod cut_short;
mod deaths;
mod flood;
mod kit;
mod messages;
mod networks;

use bounds::{file_size, memory, no_descriptors};
use cut_short::{death_of_a_receiver, death_of_a_sender, stopped_sender};
use deaths::{computes, death, stranger};
use flood::flood;
use kit::{DEAD_LINK_MS, PATIENCE};
use messages::{lengths, staging, storm};
use networks::{devices, hosts, unlike, unlike_ring};
use std::path::Path;
use tickwire::internals::components::limits::Limits;
use tickwire::internals::transports::ofi::Choice;
use tickwire::{Bootstrap, Engine};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // In the test of a death, messages go in pieces. Only then they are in the middle of a transfer for long enough.
    let read_min = if args[0] == "death" { usize::MAX } else { Limits::default().read_min };
    let connect_ms_max = (args[0] == "computes").then(|| args[2].parse().ok()).flatten();
    let bootstrap = Bootstrap::from_env().unwrap();
    let ring_bytes = match args[0].as_str() {
        "unlike" => unlike_ring(&std::env::var("TICKWIRE_RANK").unwrap()),
        _ => Limits::default().ring_bytes,
    };
    let limits = Limits { ring_bytes, read_min, connect_ms_max, dead_link_ms_max: DEAD_LINK_MS, ..Limits::default() };
    let builder = Engine::builder().limits(limits);
    let builder = match args[0].as_str() {
        "devices" => builder.ofi(Choice { include: vec![args[2].clone()], devices: 2, ..Choice::default() }),
        _ => builder,
    };
    let mut engine = builder.build(bootstrap).unwrap();
    let place = Path::new(&args[1]);
    if engine.rank().0 == 0 {
        std::fs::write(place.join("job"), std::env::var("TICKWIRE_JOB").unwrap()).unwrap();
    }
    match args[0].as_str() {
        "lengths" => lengths(&mut engine),
        "storm" => storm(&mut engine, args[2].parse().unwrap(), args[3].parse().unwrap()),
        "staging" => staging(&mut engine),
        "death" => death(&mut engine, place),
        "death-of-a-sender" => death_of_a_sender(&mut engine, place),
        "death-of-a-receiver" => death_of_a_receiver(&mut engine, place),
        "stopped-sender" => stopped_sender(&mut engine),
        "hosts" => hosts(&mut engine, place),
        "no-descriptors" => no_descriptors(&mut engine, place),
        "devices" => devices(&mut engine, &args[2]),
        "unlike" => unlike(&mut engine),
        "computes" => computes(&mut engine, place, connect_ms_max.is_some()),
        "stranger" => return stranger(engine, place, &args[2]),
        "memory" => memory(&mut engine, place, args[2].parse().unwrap()),
        "file-size" => file_size(&mut engine, place),
        "flood" => flood(&mut engine, place, args[2].parse().unwrap(), args[3] == "last"),
        other => panic!("no such test: {other}"),
    }
    engine.finalize(PATIENCE).unwrap();
}
