//! Two hosts, and a network between them that is cut.

use crate::namespaces::Hosts;
use std::time::{Duration, Instant};
use tickwire::ENV_TRANSPORTS;
use tickwire::internals::transports::ofi::ENV_TAG_MODE;
use tickwire::launch::{Job, OnFailure};
use tickwire_tests::clocks::monotonic_ms;
use tickwire_tests::needs::has_libfabric;
use tickwire_tests::scratch::Directory;

/// Length of the first outage. It is shorter than the time after which a peer counts as dead.
const MOMENT: Duration = Duration::from_millis(600);

/// Longest time of the ranks for one step. It is longer than their own waits, so that they report first what is
/// missing.
const PATIENCE: Duration = Duration::from_secs(90);

/// Runs four ranks on two hosts. The cable between the hosts is cut for a moment, then until all ranks have noticed,
/// and is mended again. The ranks run `hosts` of the program `tests-rank`.
fn two_hosts(provider: &str, mode: &str) {
    if !has_libfabric() {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let place = Directory::new(&format!("hosts-{provider}-{mode}"));
    let [a, b] = &hosts.0;
    let script =
        format!("if [ $TICKWIRE_RANK -lt 2 ]; then host={a}; else host={b}; fi; exec ip netns exec $host \"$@\"");
    let job = Job::new(4).program("sh").args(["-c", &script, "sh", env!("CARGO_BIN_EXE_tests-rank"), "hosts"]);
    let transports = format!("loopback,shm,ofi:{provider}");
    let job = job.args([place.as_os_str()]).env(ENV_TRANSPORTS, transports).env(ENV_TAG_MODE, mode);
    let job = job.on_failure(OnFailure::Continue).tag_output(true);
    let outcome = std::thread::scope(|scope| {
        let job = scope.spawn(move || job.run().unwrap());
        // The ranks are other processes. This polls their files until all ranks have come this far, or the job has
        // ended.
        let until = |what: &str| {
            let all_say = || (0..4).all(|rank| place.join(format!("{what}-{rank}")).exists());
            let start = Instant::now();
            while !all_say() && !job.is_finished() {
                assert!(start.elapsed() < PATIENCE, "no rank says \"{what}\", and none ends");
                // The loop sleeps, since spinning would take a processor from the ranks.
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        until("away");
        hosts.cable("down");
        // This test needs an outage of this length. There is no event to wait for.
        std::thread::sleep(MOMENT);
        hosts.cable("up");
        std::fs::write(place.join("back"), []).unwrap();
        until("ready");
        std::fs::write(place.join("cut"), monotonic_ms().to_string()).unwrap();
        hosts.cable("down");
        until("noticed");
        hosts.cable("up");
        std::fs::write(place.join("back-again"), []).unwrap();
        job.join().unwrap()
    });
    assert_eq!(outcome.code(), 0, "{provider}, {mode}: {outcome:?}");
}

#[test]
fn two_hosts_use_shared_memory_inside_and_the_network_between_until_it_is_cut() {
    two_hosts("tcp;ofi_rxm", "message");
}

#[test]
fn two_hosts_whose_provider_matches_bear_a_moment_without_a_network_and_not_more() {
    two_hosts("tcp;ofi_rxm", "auto");
}

#[test]
fn two_hosts_whose_messages_go_straight_from_memory_to_memory_have_it_back_when_the_network_is_cut() {
    two_hosts("net", "message");
}
