//! An exchange that reports no ends of ranks, as those of many launchers.

use tickwire::bootstrap::{BootstrapError, Exchange};

/// As the other exchange, but its events are not passed on.
pub(crate) struct Silent(pub(crate) Box<dyn Exchange>);

impl Exchange for Silent {
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn size(&self) -> u32 {
        self.0.size()
    }

    fn job(&self) -> &str {
        self.0.job()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        self.0.put(key, value)
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        self.0.fence()
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        self.0.get(rank, key)
    }

    fn finish(&mut self) {
        self.0.finish();
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }
}
