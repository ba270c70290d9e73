//! The rings of a link, into which its sides write short frames. See [`crate::ofi::ring`].

use crate::ofi::registry::Remote;
use crate::ofi::ring::RingMemory;
use crate::remote::RemoteKey;

/// Both rings of a link: that of this process, which the peer writes, and the peer's.
pub(super) struct Ring {
    // The region is closed before its memory is freed.
    pub(super) _region: Remote,
    pub(super) memory: RingMemory,
    /// The peer's ring, once the peer has announced it.
    pub(super) theirs: Option<RemoteKey>,
    /// How many frames were written to the peer's ring, and up to which number the peer has room.
    pub(super) written: u64,
    pub(super) limit: u64,
    /// `taken`: how many frames were taken out of this process's ring. `told`: the count that the peer was last told. `counter`: how often
    /// the peer was told.
    pub(super) taken: u64,
    pub(super) told: u64,
    pub(super) counter: u64,
}
