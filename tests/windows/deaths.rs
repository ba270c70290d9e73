//! Members of a window are killed. `programs/windows/deaths.rs` has what the ranks do. Those that use
//! exposed memory are in `programs/windows/region_deaths.rs`.

use std::time::Duration;
use tickwire::ENV_TRANSPORTS;
use tickwire::launch::{Job, OnFailure, RankStatus};
use tickwire_tests::needs::has_libfabric;
use tickwire_tests::one_sided::{COPIED, HEAP, KINDS};
use tickwire_tests::scratch::Directory;

/// Longer than any wait on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(100);

/// Signals that kill a rank: SIGKILL, and SIGSYS at a call of the kernel.
const KILL: i32 = 9;
const SYS: i32 = 31;

/// Kills the last of three ranks in this way, for each kind of window. The others must end well.
fn killed(way: &str) {
    // Attached windows differ from created ones if the target's engine is needed, and at updates, whose lock is that of
    // a directory. Copies differ from allocated windows only in their making.
    let only = [
        ("attached", "target"),
        ("attached", "silent-target"),
        ("attached", "updating"),
        (COPIED, "target"),
        (COPIED, "allocate"),
    ];
    let differs = |kind| only.iter().all(|(of, _)| *of != kind) || only.contains(&(kind, way));
    for kind in KINDS.into_iter().chain([HEAP, COPIED]).filter(|kind| differs(kind)) {
        dies(way, kind, KILL, None);
    }
}

/// Kills the last of three ranks, which share no memory, in each of these ways. The others must end well.
fn killed_over_a_fabric(ways: &[&str]) {
    if !has_libfabric() {
        return;
    }
    for way in ways {
        dies(way, KINDS[0], KILL, Some("loopback,ofi:tcp;ofi_rxm"));
    }
}

/// Plays three ranks, the last of which dies by a signal. The others must end well. `transports` replaces the usual ones.
fn dies(way: &str, kind: &str, signal: i32, transports: Option<&str>) {
    let place = Directory::new(&format!("windows-{way}-{kind}-{}", transports.unwrap_or_default().len()));
    let job = Job::new(3).program(env!("CARGO_BIN_EXE_tests-windows")).args([way, kind]).args([place.as_os_str()]);
    let job = match transports {
        Some(names) => job.env(ENV_TRANSPORTS, names),
        None => job,
    };
    let outcome = job.on_failure(OnFailure::Continue).tag_output(true).timeout(TIMEOUT).run().unwrap();
    let [survivors @ .., doomed] = &outcome.statuses[..] else { panic!("{outcome:?}") };
    assert_eq!(*doomed, RankStatus::Killed(signal), "{way}, {kind}, {transports:?}: {outcome:?}");
    assert!(survivors.iter().all(|status| status.is_success()), "{way}, {kind}, {transports:?}: {outcome:?}");
}

#[test]
fn who_wants_a_lock_that_a_dead_member_holds_is_told() {
    killed("alone");
    killed("sharing");
}

#[test]
fn updates_go_on_past_a_member_that_died_at_one() {
    killed("updating");
}

#[test]
fn updates_go_on_past_a_member_that_died_with_the_lock_for_them() {
    for kind in ["created", "attached"] {
        dies("mid-update-peer", kind, SYS, None);
        dies("mid-update-owner", kind, SYS, None);
    }
}

#[test]
fn who_needs_a_dead_target_is_told() {
    killed("target");
    killed("silent-target");
}

#[test]
fn who_goes_on_with_a_dead_target_learns_of_it_without_ticks_and_is_told_again_and_again() {
    for way in ["noticed-by-flushes", "noticed-by-unlocks", "noticed-before-complete"] {
        killed(way);
    }
}

#[test]
fn calls_of_all_members_end_when_one_has_died() {
    for way in ["fence", "fence-middle", "free", "in-free", "around-free", "allocate"] {
        killed(way);
    }
}

#[test]
fn epochs_of_a_group_end_when_one_of_its_targets_or_origins_has_died() {
    killed("epochs");
    killed("posted");
}

#[test]
fn who_wants_a_lock_that_a_dead_member_holds_is_told_over_a_fabric() {
    killed_over_a_fabric(&["alone", "sharing"]);
}

#[test]
fn who_needs_a_dead_target_is_told_over_a_fabric() {
    killed_over_a_fabric(&["target", "silent-target"]);
}

#[test]
fn who_goes_on_with_a_dead_target_over_a_fabric_is_told_again_and_again() {
    killed_over_a_fabric(&["noticed-by-flushes", "noticed-by-unlocks", "noticed-before-complete"]);
}

#[test]
fn who_is_the_first_to_need_a_dead_target_over_a_fabric_is_told_that_it_is_dead() {
    killed_over_a_fabric(&["lost-target-put", "lost-target-get", "lost-target-flush"]);
}

#[test]
fn calls_of_all_members_over_a_fabric_end_when_one_has_died() {
    killed_over_a_fabric(&["fence", "fence-middle", "free", "in-free"]);
}

#[test]
fn epochs_of_a_group_over_a_fabric_end_when_one_of_its_targets_or_origins_has_died() {
    killed_over_a_fabric(&["epochs", "posted"]);
}

/// Memory of a region that only the kernel reaches from elsewhere.
const PLAIN: &str = "plain";

#[test]
fn who_needs_a_directory_whose_lock_a_dead_member_holds_goes_past_it() {
    for way in ["region-peer-first", "region-owner-first", "region-withdrawal-first"] {
        dies(way, PLAIN, SYS, None);
    }
}

#[test]
fn who_never_met_the_dead_holder_of_a_lock_asks_whether_it_lives() {
    dies("region-stranger", PLAIN, SYS, None);
}

#[test]
fn a_region_stays_in_use_when_one_of_its_users_dies_at_any_moment() {
    for kind in [PLAIN, HEAP] {
        dies("region-updates", kind, KILL, None);
    }
}

#[test]
fn who_needs_a_region_of_a_dead_owner_is_told() {
    for kind in [PLAIN, HEAP] {
        dies("region-owner", kind, KILL, None);
    }
}

#[test]
fn memory_that_the_kernel_cannot_reach_any_more_is_an_error() {
    for what in ["moves", "updates"] {
        dies("region-lost-owner", what, SYS, None);
    }
}
