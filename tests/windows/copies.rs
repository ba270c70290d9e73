//! Created windows of which there are copies in shared memory. [`crate::kit::Over::SomeCopied`] runs most other tests over such
//! windows, too.

use std::time::Duration;
use tickwire::launch::Job;

/// Longer than any wait on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn where_there_is_no_memory_for_a_copy_the_buffer_is_the_part() {
    let job = Job::new(3).program(env!("CARGO_BIN_EXE_tests-windows")).args(["bounded"]);
    let outcome = job.tag_output(true).timeout(TIMEOUT).run().unwrap();
    assert!(outcome.statuses.iter().all(|status| status.is_success()), "{outcome:?}");
}
