//! Jobs of processes over libfabric: storms, stopped ranks and killed ranks.

use crate::kit::{PROVIDERS, run};
use tickwire::launch::RankStatus;
use tickwire_tests::needs::has_libfabric;

#[test]
fn processes_send_everything_to_everyone() {
    if has_libfabric() {
        for provider in PROVIDERS {
            let outcome = run(provider, 3, "storm", &["3", "30"]);
            assert_eq!(outcome.code(), 0, "{provider}: {outcome:?}");
        }
    }
}

#[test]
fn a_rank_that_is_stopped_or_computes_is_waited_for_and_one_that_was_given_up_is_told() {
    if has_libfabric() {
        for provider in ["tcp;ofi_rxm", "net", "sockets"] {
            for limit in ["none", "300"] {
                let outcome = run(provider, 2, "computes", &[limit]);
                assert_eq!(outcome.code(), 0, "{provider}, {limit}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_killed_process_is_noticed_and_the_others_go_on() {
    if has_libfabric() {
        for provider in PROVIDERS {
            let outcome = run(provider, 3, "death", &[]);
            assert_eq!(outcome.first_failure, Some((2, RankStatus::Killed(9))), "{provider}: {outcome:?}");
            assert!(outcome.statuses[..2].iter().all(|status| status.is_success()), "{provider}: {outcome:?}");
        }
    }
}

#[test]
fn a_process_that_is_killed_amid_long_messages_leaves_nobody_waiting_and_no_memory_in_use() {
    if has_libfabric() {
        // A message that the sender has handed over belongs to the kernel here. So it arrives although the sender has
        // died.
        for test in ["death-of-a-sender", "death-of-a-receiver"] {
            for _ in 0..3 {
                let outcome = run("net", 2, test, &[]);
                assert_eq!(outcome.statuses[1], RankStatus::Killed(9), "{test}: {outcome:?}");
                assert!(outcome.statuses[0].is_success(), "{test}: {outcome:?}");
            }
        }
    }
}
