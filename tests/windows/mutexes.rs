//! Counters, locks and queues made of one-sided operations, in threads and in processes. See
//! [`tickwire_tests::mutexes`].

use crate::kit::{ALL, SHARED, each_rank};
use std::process::Command;
use tickwire_tests::binaries::binary;
use tickwire_tests::mutexes::{elements, hammer};
use tickwire_tests::needs::has_libfabric;
use tickwire_tests::one_sided::{KINDS, Parts};

#[test]
fn threads_lose_nothing() {
    for over in ALL {
        for (size, rounds) in [(2, 40), (4, 20), (8, 6)] {
            let rounds = if SHARED.contains(&over) { 2 * rounds } else { rounds };
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

/// Ranks with odd numbers have only a fabric. All others have shared memory as well.
const MIXED: &str = r#"
    [ $((TICKWIRE_RANK % 2)) = 0 ] && shm=,shm
    export TICKWIRE_TRANSPORTS="loopback$shm,ofi:tcp;ofi_rxm"
    exec "$@"
"#;

#[test]
fn processes_lose_nothing() {
    for (ranks, rounds) in [("2", "200"), ("5", "40"), ("16", "6")] {
        run(ranks, &[env!("CARGO_BIN_EXE_tests-windows"), "mutexes", rounds]);
    }
}

#[test]
fn processes_lose_nothing_where_only_some_share_memory() {
    if !has_libfabric() {
        return;
    }
    for (ranks, rounds) in [("2", "20"), ("4", "4"), ("16", "1")] {
        run(ranks, &["sh", "-c", MIXED, "sh", env!("CARGO_BIN_EXE_tests-windows"), "mixed", rounds]);
    }
}

fn run(ranks: &str, program: &[&str]) {
    let mut job = Command::new(binary("tickwire"));
    let output = job.args(["run", "-n", ranks, "--timeout", "120", "--"]).args(program).output().unwrap();
    assert!(output.status.success(), "{ranks} ranks: {}", String::from_utf8_lossy(&output.stderr));
}
