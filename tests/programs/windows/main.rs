//! A rank in the tests of windows in processes. It panics if something is wrong, so that its launcher sees a failure.
//! - `tests-windows mutexes ROUNDS`
//! - `tests-windows mixed ROUNDS`: ranks with odd numbers share no memory with others
//! - `tests-windows counting ROUNDS`: a fabric does all updates of exposed memory
//! - `tests-windows layouts SEED ROUNDS [heap]`: exposed memory is moved with random datatypes
//! - `tests-windows hosts DIRECTORY`
//! - `tests-windows bounded`: files of the ranks may not be long, so some windows can have no copies in shared memory
//! - `tests-windows many DIRECTORY`: all ranks but two are killed
//! - `tests-windows WAY KIND DIRECTORY`: the last rank is killed
//! - `tests-windows region-WAY KIND DIRECTORY`: the last rank is killed, and exposed memory is used instead of a window

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod bounded;
mod deaths;
mod hosts;
mod kit;
mod many;
mod region_deaths;
mod silent;

use kit::PATIENCE;
use silent::Silent;
use std::path::Path;
use tickwire::{AtomicsDomain, Bootstrap, Engine, Limits, Rank, WindowReach};
use tickwire_tests::layouts;
use tickwire_tests::mutexes::{count_exposed, elements, hammer};
use tickwire_tests::one_sided::{COPIED, HEAP, KINDS, Parts};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has_heap = ["mutexes", "mixed"].iter().any(|word| args[0] == *word) || args.iter().any(|arg| arg == HEAP);
    let bootstrap = Bootstrap::from_env().unwrap();
    let copies = match args[0].as_str() {
        "mutexes" | "mixed" | "hosts" => has_copies(bootstrap.rank()),
        way => way == "bounded" || args.get(1).is_some_and(|kind| kind == COPIED),
    };
    let window_copy_max = if copies { Limits::default().window_copy_max } else { 0 };
    let limits = Limits { window_copy_max, ..Limits::default() };
    // The launcher does not report the end of a rank that others have to ask about. A wait sleeps at once, as it soon does
    // where ranks share processors.
    let (bootstrap, limits) = match args[0].as_str() {
        "region-stranger" => {
            (Bootstrap::custom(Silent(bootstrap.into_exchange())), Limits { spins: 0, yields: 0, ..limits })
        }
        _ => (bootstrap, limits),
    };
    let mut engine = Engine::builder().shared_heap(has_heap).limits(limits).build(bootstrap).unwrap();
    match args[0].as_str() {
        "mutexes" => mutexes(&mut engine, args[1].parse().unwrap(), |_| true),
        "mixed" => mutexes(&mut engine, args[1].parse().unwrap(), |rank| rank % 2 == 0),
        "counting" => counting(&mut engine, args[1].parse().unwrap()),
        "layouts" => {
            let (seed, rounds, world) = (args[1].parse().unwrap(), args[2].parse().unwrap(), engine.comm_world());
            layouts::play(&mut engine, world, seed, rounds).unwrap();
        }
        "bounded" => bounded::bounded(&mut engine),
        "many" => many::many(&mut engine, Path::new(&args[1])),
        "hosts" => hosts::hosts(&mut engine, Path::new(&args[1])),
        way => {
            let (kind, place) = (args[1].as_str(), Path::new(&args[2]));
            match way.strip_prefix("region-") {
                Some(way) => region_deaths::death(&mut engine, way, kind, place),
                None => deaths::death(&mut engine, way, kind, place),
            }
        }
    }
    engine.finalize(PATIENCE).unwrap();
}

/// Hammers windows of all kinds, and exposed memory. Ranks that `share` reach each other by memory.
fn mutexes(engine: &mut Engine, rounds: usize, share: fn(u32) -> bool) {
    let (world, me) = (engine.comm_world(), engine.rank().0);
    for kind in KINDS.into_iter().chain([HEAP]) {
        let parts = Parts::make(engine, kind, elements(rounds), world).unwrap();
        for other in (0..engine.size()).filter(|&other| other != me) {
            let near = share(me) && share(other);
            check_reach(engine, &parts, kind, other, near);
        }
        hammer(engine, &parts, world, rounds).unwrap();
        engine.win_free(parts.window).unwrap();
    }
    for owner in 0..2 {
        let key = count_exposed(engine, Rank(owner), world, 10 * rounds).unwrap();
        let reach = engine.region_reach(&key).unwrap();
        let expected: &[WindowReach] = match () {
            () if owner == me => &[WindowReach::Memory],
            () if share(me) && share(owner) => &[WindowReach::Kernel],
            () => &[WindowReach::Fabric, WindowReach::Engine],
        };
        assert!(expected.contains(&reach), "exposed by rank {owner}: {reach:?}");
        engine.barrier(world).unwrap();
    }
}

/// All ranks count in exposed memory of two of them. The fabric does that.
fn counting(engine: &mut Engine, rounds: usize) {
    let world = engine.comm_world();
    for owner in [Rank(0), Rank(3)] {
        let key = count_exposed(engine, owner, world, rounds).unwrap();
        assert_eq!(key.domain(), AtomicsDomain::Fabric);
    }
}

/// Whether a rank keeps copies of created windows, where ranks differ in that.
fn has_copies(rank: u32) -> bool {
    (rank / 2).is_multiple_of(2)
}

/// Checks how this rank reaches the part of another rank.
fn check_reach(engine: &mut Engine, parts: &Parts, kind: &str, other: u32, near: bool) {
    let reach = engine.win_reach(Rank(other), parts.window).unwrap();
    let expected: &[WindowReach] = match kind {
        "allocated" | HEAP if near => &[WindowReach::Memory],
        "created" if near && has_copies(other) => &[WindowReach::Memory],
        _ if near => &[WindowReach::Kernel],
        _ => &[WindowReach::Fabric, WindowReach::Engine],
    };
    assert!(expected.contains(&reach), "{kind}, rank {other}, near: {near}: {reach:?}");
}
