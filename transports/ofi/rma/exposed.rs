//! A run that peers may use, as this side keeps it.

use crate::ofi::registry::{Registry, Remote};
use crate::remote::RemoteKey;

/// A run that peers may use. Until it is withdrawn, it also stays as it is for operations of this side.
pub(super) struct Exposed {
    pub(super) key: RemoteKey,
    pub(super) registry: Registry,
    pub(super) kept: u64,
    pub(super) _region: Remote,
}

impl Drop for Exposed {
    fn drop(&mut self) {
        self.registry.drop_kept(self.kept);
    }
}
