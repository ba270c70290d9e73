//! Keys of exposed memory with arbitrary content, as a message might bring them.

use crate::kit::{ALL, FABRICS, Over, each_rank};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tickwire::testing::SplitMix;
use tickwire_tests::input::Input;
use tickwire_tests::keys::{keys, use_any_keys};

/// Bytes of input for a round, on average.
const ROUND: usize = 16;
/// Number of random inputs of the fuzz target.
const INPUTS: u64 = 100;
/// Length limit of a random input, bytes.
const BYTES_MAX: u64 = 600;

fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut random = SplitMix::new(seed);
    (0..count).map(|_| random.next_u64() as u8).collect()
}

/// Uses about so many arbitrary keys on both of two ranks.
fn use_keys(over: Over, rounds: usize) {
    let by_fabric = matches!(over, Over::Fabric(_));
    each_rank(2, over, |engine, rank, _| {
        let bytes = random_bytes(u64::from(rank) + 1, rounds * ROUND);
        let used = use_any_keys(engine, by_fabric, &mut Input(&bytes));
        assert!(by_fabric || used.written.min(used.swapped) > used.rounds / 30, "{over:?}: {used:?}");
    });
}

#[test]
fn keys_of_any_content_write_only_what_is_exposed_for_that() {
    for over in ALL {
        use_keys(over, 600);
    }
}

#[test]
fn keys_of_any_content_write_over_a_fabric_only_what_is_exposed_for_that() {
    for over in FABRICS {
        use_keys(over, 200);
    }
}

/// Runs the fuzz target `keys` without a fuzzer: on the committed corpus, and on random inputs.
#[test]
fn inputs_of_the_fuzz_target_reach_only_what_is_exposed() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/keys");
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        run(&path.display().to_string(), &std::fs::read(&path).unwrap());
    }
    let seed = match std::env::var("TICKWIRE_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
    };
    let mut random = SplitMix::new(seed);
    for number in 0..INPUTS {
        let length = random.below(BYTES_MAX) as usize;
        run(&format!("input {number} of TICKWIRE_TEST_SEED={seed}"), &random_bytes(random.next_u64(), length));
    }
}

/// Runs an input. If it fails, prints it as a command line that writes it to a file.
fn run(name: &str, input: &[u8]) {
    std::panic::catch_unwind(|| keys(input)).unwrap_or_else(|panic| {
        let bytes: String = input.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        eprintln!("{name} fails; to keep it: printf '{bytes}' > tests/fuzz/corpus/keys/NAME");
        std::panic::resume_unwind(panic)
    });
}
