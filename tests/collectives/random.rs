//! Random programs of collective operations against a serial model. They have all operations in all forms, on several
//! communicators, with elements of several types, short and long, in all places where ranks can run.
//!
//! A program follows from a seed. A program that fails is made smaller and is printed. `TICKWIRE_SEEDS=N` or
//! `FIRST..END` selects the seeds, and `TICKWIRE_PLACE=Boards` selects the place.

mod places;

use places::{Place, run};
use proptest::strategy::Strategy;
use proptest::test_runner::TestError;
use std::time::Instant;
use tickwire_tests::faults::runner::seeds;
use tickwire_tests::model::program::runner;
use tickwire_tests::random_calls::program::programs;

/// Number of seeds for each place, unless the environment selects others.
const SEEDS: u64 = 16;

/// Runs the programs of all selected seeds at these places in turn.
fn check(places: &[Place]) {
    let ((first, end), start) = (seeds(SEEDS), Instant::now());
    let asked = std::env::var("TICKWIRE_PLACE").ok();
    let is_named = |place: &Place, asked: &String| *asked == format!("{place:?}");
    if let Some(asked) = &asked {
        let (threads, clusters) = (Place::THREADS, Place::CLUSTERS);
        let is_one = threads.iter().chain(&clusters).any(|place| is_named(place, asked));
        assert!(is_one, "TICKWIRE_PLACE={asked} is none of {threads:?} and {clusters:?}");
    }
    let is_asked = |place: Place, seed: u64| match &asked {
        Some(asked) => is_named(&place, asked),
        None => seed.is_multiple_of(place.one_of()),
    };
    for seed in first..end {
        for (number, &place) in (0..).zip(places).filter(|(_, place)| is_asked(**place, seed)) {
            // Each place gets other programs.
            let mut runner = runner(seed << 8 | number);
            let tree = programs().new_tree(&mut runner).unwrap();
            let outcome = runner.run_one(tree, |program| {
                run(place, &program, seed);
                Ok(())
            });
            match outcome {
                Ok(_) => {}
                Err(TestError::Fail(why, program)) => {
                    panic!("TICKWIRE_PLACE={place:?} TICKWIRE_SEEDS={seed}..{}: {why}\n{program:?}", seed + 1)
                }
                Err(error) => panic!("{place:?}, seed {seed}: {error}"),
            }
        }
    }
    println!("seeds {first}..{end} at {} places in {:?}", places.len(), start.elapsed());
}

#[test]
fn programs_of_ranks_in_threads_do_what_a_serial_one_would() {
    check(&Place::THREADS);
}

#[test]
fn programs_of_engines_in_turn_do_what_a_serial_one_would() {
    check(&Place::CLUSTERS);
}
