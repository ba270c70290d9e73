//! Processes of one host. Some pairs of them cannot share memory, and use a fabric.

use tickwire::ENV_TRANSPORTS;
use tickwire::launch::{Job, OnFailure};
use tickwire_tests::needs::has_libfabric;
use tickwire_tests::scratch::Directory;

#[test]
fn ranks_that_refuse_each_other_over_shared_memory_take_the_fabric() {
    if has_libfabric() {
        for provider in ["tcp;ofi_rxm", "sockets"] {
            let place = Directory::new(&format!("routes-{provider}"));
            let job = Job::new(4).program(env!("CARGO_BIN_EXE_tests-rank")).args(["unlike"]).args([place.as_os_str()]);
            let job = job.env(ENV_TRANSPORTS, format!("loopback,shm,ofi:{provider}"));
            let outcome = job.on_failure(OnFailure::Continue).tag_output(true).run().unwrap();
            assert_eq!(outcome.code(), 0, "{provider}: {outcome:?}");
        }
    }
}
