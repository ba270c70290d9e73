//! Counters, locks and queues that are built of one-sided operations, by threads and by processes. See [`tickwire_tests::mutexes`].

use crate::kit::{ALL, Over, each_rank};
use std::process::Command;
use tickwire_tests::binaries::binary;
use tickwire_tests::mutexes::{elements, hammer};
use tickwire_tests::one_sided::{KINDS, Parts};

#[test]
fn threads_lose_nothing() {
    for over in ALL {
        for (size, rounds) in [(2, 40), (4, 20), (8, 6)] {
            let rounds = if over == Over::Shm { 2 * rounds } else { rounds };
            each_rank(size, over, |engine, _, world| {
                for kind in KINDS {
                    let parts = Parts::make(engine, kind, elements(rounds), world).unwrap();
                    hammer(engine, &parts, world, rounds).unwrap();
                    engine.win_free(parts.window).unwrap();
                }
            });
        }
    }
}

#[test]
fn processes_lose_nothing() {
    for (ranks, rounds) in [("2", "200"), ("5", "40"), ("16", "6")] {
        let mut job = Command::new(binary("tickwire"));
        job.args([
            "run",
            "-n",
            ranks,
            "--timeout",
            "120",
            "--",
            env!("CARGO_BIN_EXE_tests-windows"),
            "mutexes",
            rounds,
        ]);
        let output = job.output().unwrap();
        assert!(output.status.success(), "{ranks} ranks: {}", String::from_utf8_lossy(&output.stderr));
    }
}
