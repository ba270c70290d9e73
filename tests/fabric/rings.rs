//! Short frames that are written into rings of their receivers by remote writes.

use crate::kit::{chosen, run_where};
use tickwire::internals::transports::ofi::{Choice, ENV_RINGS};
use tickwire::launch::RankStatus;
use tickwire_tests::cases;
use tickwire_tests::needs::has_libfabric;

#[test]
fn all_cases_with_rings() {
    if !has_libfabric() {
        return;
    }
    for provider in ["tcp;ofi_rxm", "net", "sockets", "shm"] {
        let choice = Choice { include: vec![provider.into()], rings: 8, ..Choice::default() };
        cases::all(&mut chosen(2, &choice));
        // Each of three procs has a ring for one peer only.
        let choice = Choice { rings: 1, ..choice };
        cases::all(&mut chosen(3, &choice));
    }
}

#[test]
fn processes_with_rings_send_everything_and_are_waited_for() {
    if !has_libfabric() {
        return;
    }
    for provider in ["tcp;ofi_rxm", "net", "sockets", "shm"] {
        let outcome = run_where(provider, 3, "storm", &["3", "30"], [ENV_RINGS, "8"]);
        assert_eq!(outcome.code(), 0, "{provider}: {outcome:?}");
    }
    for provider in ["tcp;ofi_rxm", "net", "sockets"] {
        let outcome = run_where(provider, 2, "computes", &["none"], [ENV_RINGS, "8"]);
        assert_eq!(outcome.code(), 0, "{provider}: {outcome:?}");
    }
}

#[test]
fn a_killed_process_with_rings_is_noticed_and_the_others_go_on() {
    if !has_libfabric() {
        return;
    }
    for provider in ["tcp;ofi_rxm", "net", "sockets"] {
        let outcome = run_where(provider, 3, "death", &[], [ENV_RINGS, "8"]);
        assert_eq!(outcome.first_failure, Some((2, RankStatus::Killed(9))), "{provider}: {outcome:?}");
        assert!(outcome.statuses[..2].iter().all(|status| status.is_success()), "{provider}: {outcome:?}");
    }
}
