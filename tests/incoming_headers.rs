//! The fuzz target `headers` without a fuzzer: the committed corpus, changes of it, and random inputs. What a fuzzer
//! finds is added to the corpus.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

use std::path::Path;
use tickwire::components::CarState;
use tickwire::components::limits::WALK_MAX;
use tickwire::testing::SplitMix;
use tickwire_tests::headers::{Reached, headers};

/// Inputs of each kind.
const INPUTS: u64 = 4000;
/// Bytes of a random input at most.
const BYTES_MAX: u64 = 600;

/// Runs an input; one that fails is printed as a line that makes it a file.
fn run(name: &str, input: &[u8]) -> Reached {
    std::panic::catch_unwind(|| headers(input)).unwrap_or_else(|panic| {
        let bytes: String = input.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        eprintln!("{name} fails; to keep it: printf '{bytes}' > tests/fuzz/corpus/headers/NAME");
        std::panic::resume_unwind(panic)
    })
}

/// The corpus, by name.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/headers");
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.map(|path| (path.file_name().unwrap().display().to_string(), std::fs::read(path).unwrap())).collect();
    files.sort();
    files
}

fn seed() -> u64 {
    match std::env::var("TICKWIRE_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64,
    }
}

#[test]
fn the_corpus_leads_to_every_state() {
    let mut all = Reached::default();
    for (name, input) in corpus() {
        let reached = run(&name, &input);
        all.states |= reached.states;
        all.failed = all.failed.max(reached.failed);
        all.unexpected = all.unexpected.max(reached.unexpected);
    }
    use CarState::{Done, Offered, Posted, Queued, Receiving, Sending};
    for state in [Posted, Queued, Offered, Sending, Receiving, Done] {
        assert!(all.has(state), "no CAR was ever {state:?}");
    }
    assert!(all.failed == 2 && all.unexpected > WALK_MAX, "{all:?}");
}

#[test]
fn changes_of_the_corpus() {
    let (files, seed) = (corpus(), seed());
    let mut random = SplitMix::new(seed);
    for number in 0..INPUTS {
        let mut pick = || files[random.below(files.len() as u64) as usize].1.clone();
        let (mut input, other) = (pick(), pick());
        for _ in 0..=random.below(4) {
            let place = random.below(input.len() as u64 + 1) as usize;
            match random.below(4) {
                0 => input.truncate(place),
                1 => input.insert(place, random.next_u64() as u8),
                2 => drop(input.splice(place..place, other.iter().copied())),
                _ => input.iter_mut().skip(place).take(1).for_each(|byte| *byte = random.next_u64() as u8),
            }
        }
        run(&format!("change {number} of TICKWIRE_TEST_SEED={seed}"), &input);
    }
}

#[test]
fn random_inputs() {
    let seed = seed();
    let mut random = SplitMix::new(seed);
    for number in 0..INPUTS {
        let length = random.below(BYTES_MAX);
        // Small numbers are commands and arguments that mean something; others make headers of arbitrary words.
        let most = [16, 64, 256][random.below(3) as usize];
        let input: Vec<u8> = (0..length).map(|_| random.below(most) as u8).collect();
        run(&format!("input {number} of TICKWIRE_TEST_SEED={seed}"), &input);
    }
}
