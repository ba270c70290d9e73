//! Many operations at once, of all kinds, on several communicators: in threads over loopback, and in processes.

use crate::kit::in_threads;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;
use tickwire::launch::{Job, OnFailure, RankStatus};
use tickwire_tests::binaries::binary;
use tickwire_tests::storm::storm;
use tickwire_tests::sums::hash_of_sums;

#[test]
fn threads_weather_storms() {
    for (seed, size) in [(1, 1), (2, 2), (3, 3), (4, 6), (5, 8)] {
        in_threads(size, |engine, _, _| storm(engine, seed, 150));
    }
}

#[test]
fn processes_weather_storms() {
    for (seed, ranks, batches) in [("6", "2", "300"), ("7", "5", "100"), ("8", "16", "20")] {
        let mut job = Command::new(binary("tickwire"));
        job.args(["run", "-n", ranks, "--timeout", "120", "--", env!("CARGO_BIN_EXE_tests-storm"), seed, batches]);
        let output = job.output().unwrap();
        assert!(output.status.success(), "{ranks} ranks: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Over a fabric, all operations use messages.
#[test]
fn processes_weather_storms_over_a_fabric() {
    for (seed, ranks, batches, transports) in
        [("9", "3", "60", "loopback,ofi:tcp;ofi_rxm"), ("10", "2", "60", "loopback,ofi:sockets")]
    {
        let mut job = Command::new(binary("tickwire"));
        job.args(["run", "-n", ranks, "--timeout", "120", "--", env!("CARGO_BIN_EXE_tests-storm"), seed, batches]);
        let output = job.env("TICKWIRE_TRANSPORTS", transports).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{ranks} ranks over {transports}: {words}");
    }
}

/// The standard output of a job of storm programs under `tickwire run`, which must succeed.
fn run(ranks: u32, args: &[&str]) -> String {
    let mut job = Command::new(binary("tickwire"));
    job.args(["run", "-n", &ranks.to_string(), "--timeout", "120", "--", env!("CARGO_BIN_EXE_tests-storm")]).args(args);
    let output = job.output().unwrap();
    assert!(output.status.success(), "{ranks} ranks, {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Sums of floats that depend on the order of their operands, by all reducing operations in all forms, have the same bits
/// wherever the ranks are.
#[test]
fn sums_of_processes_have_the_same_bits_wherever_the_ranks_are() {
    for ranks in [2, 3, 5] {
        let hashes = Mutex::new(vec![0; ranks as usize]);
        in_threads(ranks, |engine, rank, world| {
            let hash = hash_of_sums(engine, world);
            hashes.lock().unwrap()[rank as usize] = hash;
        });
        let expected = format!("{:x?}", hashes.into_inner().unwrap());
        for place in ["boards", "messages", "fabric", "mixed"] {
            assert_eq!(run(ranks, &["bits", place]).trim(), expected, "{ranks} ranks, {place}");
        }
    }
}

/// As the [random programs](crate::random) of ranks in threads, but each rank is a process.
#[test]
fn processes_run_random_programs() {
    for (ranks, seeds) in [(2, 0..3), (5, 0..2), (16, 0..1)] {
        for seed in seeds {
            for place in ["boards", "heap", "messages"] {
                run(ranks, &["program", place, &seed.to_string()]);
            }
        }
    }
    for (ranks, place) in [(2, "fabric"), (5, "mixed"), (5, "fabric")] {
        run(ranks, &["program", place, "9"]);
    }
}

/// A process is killed in a long operation: over boards, through cells and by copies of the kernel, by messages, and in a
/// chain of blocks. The others get an error in time, and can still communicate.
#[test]
fn a_process_that_is_killed_in_a_long_operation_fails_it_and_the_others_go_on() {
    for way in ["cells", "kernel", "messages", "blocks"] {
        for stage in ["start", "posted", "0", "1000", "20000", "60000", "end"] {
            // By messages, a moment between two others shows nothing new.
            if matches!((way, stage), ("messages" | "blocks", "posted" | "1000" | "60000")) {
                continue;
            }
            let job = Job::new(3).program(env!("CARGO_BIN_EXE_tests-storm")).args(["killed", stage, way]);
            let outcome =
                job.on_failure(OnFailure::Continue).tag_output(true).timeout(Duration::from_secs(60)).run().unwrap();
            assert_eq!(outcome.statuses[2], RankStatus::Killed(9), "{stage}, {way}: {outcome:?}");
            assert!(outcome.statuses[..2].iter().all(|status| status.is_success()), "{stage}, {way}: {outcome:?}");
        }
    }
}
