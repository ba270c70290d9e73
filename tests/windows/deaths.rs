//! Members of a window are killed. `programs/windows/deaths.rs` has what the ranks do.

use std::time::Duration;
use tickwire::launch::{Job, OnFailure, RankStatus};
use tickwire_tests::one_sided::{COPIED, HEAP, KINDS};
use tickwire_tests::scratch::Directory;

/// Longer than any wait on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(100);

/// Kills the last of three ranks in this way, for each kind of window. The others must end well.
fn killed(way: &str) {
    // Attached windows differ from created ones only if the target's engine is needed. Copies differ from allocated
    // windows only in their making.
    let only = [("attached", "target"), ("attached", "silent-target"), (COPIED, "target"), (COPIED, "allocate")];
    let differs = |kind| only.iter().all(|(of, _)| *of != kind) || only.contains(&(kind, way));
    for kind in KINDS.into_iter().chain([HEAP, COPIED]).filter(|kind| differs(kind)) {
        let place = Directory::new(&format!("windows-{way}-{kind}"));
        let job = Job::new(3).program(env!("CARGO_BIN_EXE_tests-windows")).args([way, kind]).args([place.as_os_str()]);
        let outcome = job.on_failure(OnFailure::Continue).tag_output(true).timeout(TIMEOUT).run().unwrap();
        assert_eq!(outcome.statuses[2], RankStatus::Killed(9), "{way}, {kind}: {outcome:?}");
        assert!(outcome.statuses[..2].iter().all(|status| status.is_success()), "{way}, {kind}: {outcome:?}");
    }
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
fn who_needs_a_dead_target_is_told() {
    killed("target");
    killed("silent-target");
}

#[test]
fn calls_of_all_members_end_when_one_has_died() {
    for way in ["fence", "free", "allocate", "epochs"] {
        killed(way);
    }
}
