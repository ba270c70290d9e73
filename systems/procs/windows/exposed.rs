//! The memory that this proc has attached or exposed, and how peers learn of it.

use std::any::Any;
use tickwire_components::{RegionAccess, Row};
use tickwire_transports::RemoteKey;
use tickwire_transports::windows::Part;

/// The fabric's key of registered memory, and the fabric's endpoint.
pub type Registered = (u8, RemoteKey);

/// A buffer that is attached to a window.
pub struct AttachedRun {
    /// Its memory. The displacement of its first byte is that byte's address.
    pub part: Part,
    /// Its number in the directory, if it is listed there.
    pub number: Option<u32>,
    /// Tells it from the other runs that are attached to the window.
    pub serial: u64,
    /// The buffer.
    pub buffer: Box<dyn Any + Send + Sync>,
}

/// An exposed region.
pub struct ExposedRegion {
    /// Its number.
    pub number: u32,
    /// Its memory.
    pub part: Part,
    /// What others may do with it.
    pub access: RegionAccess,
    /// Key and endpoint of the fabric that does puts and gets.
    pub moves: Option<Registered>,
    /// Key and endpoint of the fabric that does all updates, which may be the same one.
    pub updates: Option<Registered>,
    /// The buffer.
    pub buffer: Box<dyn Any + Send + Sync>,
}

impl ExposedRegion {
    /// What may be done with the region by other ways than the fabric that does updates. Two ways to update it would not be atomic to each
    /// other.
    pub fn here(&self) -> RegionAccess {
        if self.updates.is_some() { self.access.without(RegionAccess::UPDATE) } else { self.access }
    }
}

/// How peers on this host learn of the regions of this proc: see [`Part::listed`].
#[derive(Default)]
pub struct Directory {
    /// It was made, or making it has failed.
    pub is_made: bool,
    /// The endpoint over which it is passed to peers, if it is in shared memory.
    pub endpoint: Option<u8>,
    /// The VCs whose peers have it.
    pub given: Vec<Row>,
}
