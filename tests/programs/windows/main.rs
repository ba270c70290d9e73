//! A rank of the tests of windows in processes: `tests-windows mutexes ROUNDS`, or `tests-windows WAY KIND DIRECTORY`, in which the last rank
//! is killed. Panics if something is wrong, so that its launcher sees it fail.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod deaths;
mod kit;

use kit::PATIENCE;
use std::path::Path;
use tickwire::{Bootstrap, Engine};
use tickwire_tests::mutexes::{elements, hammer};
use tickwire_tests::one_sided::{KINDS, Parts};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut engine = Engine::builder().build(Bootstrap::from_env().unwrap()).unwrap();
    match args[0].as_str() {
        "mutexes" => mutexes(&mut engine, args[1].parse().unwrap()),
        way => deaths::death(&mut engine, way, &args[1], Path::new(&args[2])),
    }
    engine.finalize(PATIENCE).unwrap();
}

fn mutexes(engine: &mut Engine, rounds: usize) {
    let world = engine.comm_world();
    for kind in KINDS {
        let parts = Parts::make(engine, kind, elements(rounds), world).unwrap();
        hammer(engine, &parts, world, rounds).unwrap();
        engine.win_free(parts.window).unwrap();
    }
}
