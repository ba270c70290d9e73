//! The rings of a link, into which its sides write short frames. See [`crate::ofi::ring`].

use crate::ofi::registry::Remote;
use crate::ofi::ring::RingMemory;
use crate::remote::RemoteKey;

/// Both rings of a link: the own one, which the peer writes, and the peer's.
pub(super) struct Ring {
    // The region is closed before its memory is freed.
    pub(super) _region: Remote,
    pub(super) memory: RingMemory,
    /// The peer's, once it is known.
    pub(super) theirs: Option<RemoteKey>,
    /// Frames that were written, and up to which the peer has room.
    pub(super) written: u64,
    pub(super) limit: u64,
    /// Frames that were taken out; as many as the peer was told of, and how often it was told.
    pub(super) taken: u64,
    pub(super) told: u64,
    pub(super) counter: u64,
}
