//! The bookkeeping for a run of memory that peers may use.

use crate::ofi::registry::{Registry, Remote};
use crate::remote::RemoteKey;

/// A run that peers may use. Until it is withdrawn, the registry also counts its memory as kept, so that regions for local operations on it
/// can be reused.
pub(super) struct Exposed {
    pub(super) key: RemoteKey,
    pub(super) registry: Registry,
    pub(super) kept: u64,
    /// How many peers that knew the address of this process had ended before.
    pub(super) ended_before: u64,
    pub(super) _region: Remote,
}

impl Drop for Exposed {
    fn drop(&mut self) {
        self.registry.drop_kept(self.kept);
    }
}
