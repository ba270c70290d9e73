//! What a test needs of the machine. If it is missing, the test is skipped and says so. Under CI the test fails.

use tickwire::internals::transports::ofi::Library;

/// Whether libfabric can be loaded.
pub fn has_libfabric() -> bool {
    is_there(Library::get().map(drop))
}

/// Whether something could be made or loaded. If not, prints why the test is skipped.
pub fn is_there(made: Result<(), impl std::fmt::Display>) -> bool {
    if let Err(why) = &made {
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("SKIPPED: {why}");
    }
    made.is_ok()
}
