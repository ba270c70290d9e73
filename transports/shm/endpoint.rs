//! The endpoint: what one proc keeps of shared memory.

use super::deaths::Deaths;
use super::own::Own;
use crate::Capabilities;
use crate::connections::{self, Connections, Spare};
use crate::rings::links::Links;
use rustix::fd::OwnedFd;

/// A connection that this process asks for.
pub(super) type Call = connections::Call<Shm>;
/// An open connection.
pub(super) type Line = connections::Line<Shm>;

/// One proc's endpoint for shared memory. See [`crate::shm`].
pub struct Shm {
    pub(super) own: Own,
    pub(super) capabilities: Capabilities,
    pub(super) connections: Connections<Shm>,
    pub(super) links: Links,
    /// See [`Spare`].
    pub(super) spare: Spare,
    pub(super) read: BytesRead,
    /// Calls of the kernel that have read or written peers' memory.
    pub(super) kernel_calls: u64,
    /// Whether the next read is timed.
    pub(super) timing: bool,
    pub(super) deaths: Deaths,
    /// Files of this process's shared runs that are still to be passed, by key.
    pub(super) passing: Vec<(u64, OwnedFd)>,
}

/// How many bytes an endpoint has read out of its peers' memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BytesRead {
    /// Bytes read out of their shared heaps.
    pub heap: u64,
    /// Bytes read by the kernel.
    pub attach: u64,
    /// Bytes staged by their senders.
    pub staged: u64,
}
