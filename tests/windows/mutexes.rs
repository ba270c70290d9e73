//! Counters, locks and queues made of one-sided operations, in threads and in processes. See
//! [`tickwire_tests::mutexes`].

use crate::kit::{ALL, SHARED, each_rank};
use std::process::Command;
use tickwire::{ENV_ROUTES, ENV_TRANSPORTS};
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

#[test]
fn processes_lose_no_update_by_a_fabric() {
    if !has_libfabric() {
        return;
    }
    // All else goes over shared memory in the first job, and over the fabric in the second.
    for (transports, routes) in
        [("loopback,shm,ofi:tcp;ofi_rxm", "messages=shm atomics=ofi"), ("loopback,ofi:sockets", "atomics=ofi")]
    {
        let variables = [(ENV_TRANSPORTS, transports), (ENV_ROUTES, routes)];
        run_with("4", &[env!("CARGO_BIN_EXE_tests-windows"), "counting", "25"], &variables);
    }
}

fn run(ranks: &str, program: &[&str]) {
    run_with(ranks, program, &[]);
}

/// As [`run`], with environment variables.
pub(crate) fn run_with(ranks: &str, program: &[&str], variables: &[(&str, &str)]) {
    let mut job = Command::new(binary("tickwire"));
    job.envs(variables.iter().copied());
    let output = job.args(["run", "-n", ranks, "--timeout", "120", "--"]).args(program).output().unwrap();
    assert!(output.status.success(), "{ranks} ranks, {variables:?}: {}", String::from_utf8_lossy(&output.stderr));
}
