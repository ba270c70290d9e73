//! A rank under `tickwire run`. It takes part in
//! - a storm of collective operations, `tests-storm SEED BATCHES`, or of blocks, `tests-storm blocks SEED BATCHES`,
//! - a random program of collective operations, `tests-storm program PLACE SEED`,
//! - sums whose bits it prints, `tests-storm bits PLACE`, or
//! - a long operation whose last rank is killed, `tests-storm killed STAGE cells|kernel|messages|blocks`.

mod killed;
mod places;

use killed::killed;
use places::Place;
use proptest::strategy::{Just, Strategy, ValueTree};
use std::error::Error;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tickwire::{Bootstrap, Engine};
use tickwire_tests::block_storm::block_storm;
use tickwire_tests::model::program::runner;
use tickwire_tests::random_calls::play::play;
use tickwire_tests::random_calls::program::programs_of;
use tickwire_tests::storm::storm;
use tickwire_tests::sums::hash_of_sums;

/// Longest time for the last messages at the end.
const END: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["killed", stage, way] => killed(stage, way),
        ["bits", place] => bits(place.parse()?),
        ["program", place, seed] => program(place.parse()?, seed.parse()?),
        ["blocks", seed, batches] | [seed, batches] => {
            let mut engine = Engine::builder().build(Bootstrap::from_env()?)?;
            let weather: fn(&mut Engine, u64, u32) = if words[0] == "blocks" { block_storm } else { storm };
            weather(&mut engine, seed.parse()?, batches.parse()?);
            engine.finalize(END)?;
            Ok(())
        }
        _ => {
            Err("tests-storm SEED BATCHES, blocks SEED BATCHES, program PLACE SEED, bits PLACE, or killed STAGE WAY"
                .into())
        }
    }
}

/// Computes sums of floats by all reducing operations in all forms. The first rank prints a hash of each rank's bits.
fn bits(place: Place) -> Result<(), Box<dyn Error>> {
    let mut engine = place.builder().build(Bootstrap::from_env()?)?;
    let world = engine.comm_world();
    let own = hash_of_sums(&mut engine, world);
    let mut hashes = vec![0; engine.size() as usize];
    engine.allgather(&[own], &mut hashes, world)?;
    place.check(&engine);
    if engine.rank().0 == 0 {
        println!("{hashes:x?}");
    }
    engine.finalize(END)?;
    Ok(())
}

/// Runs the random program of a seed. All ranks draw the same one.
fn program(place: Place, seed: u64) -> Result<(), Box<dyn Error>> {
    let mut engine = place.builder().build(Bootstrap::from_env()?)?;
    let drawn = programs_of(Just(engine.size())).new_tree(&mut runner(seed)).map_err(|why| why.to_string())?;
    let rank = engine.rank().0;
    play(&mut engine, rank, place == Place::Heap, &drawn.current(), &AtomicUsize::new(0));
    engine.finalize(END)?;
    Ok(())
}
