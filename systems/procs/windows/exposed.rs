//! What this proc has exposed, and how peers come to know it.

use std::any::Any;
use tickwire_components::{RegionAccess, Row};
use tickwire_transports::RemoteKey;
use tickwire_transports::windows::Part;

/// An exposed region.
pub struct ExposedRegion {
    /// Its number.
    pub number: u32,
    /// Its memory.
    pub part: Part,
    /// What others may do with it.
    pub access: RegionAccess,
    /// What fabrics call it, and the endpoint of each: of the one that puts and gets, and of the one that does updates.
    pub fabrics: Vec<(u8, RemoteKey)>,
    /// All updates are done by a fabric.
    pub updated_by_fabric: bool,
    /// The buffer.
    pub buffer: Box<dyn Any + Send + Sync>,
}

impl ExposedRegion {
    /// What may be done with it otherwise than by the fabric that does updates: two ways to update it would not be atomic to each other.
    pub fn here(&self) -> RegionAccess {
        if self.updated_by_fabric { self.access.without(RegionAccess::UPDATE) } else { self.access }
    }
}

/// How peers of this host come to know the regions of this proc: see [`Part::listed`].
#[derive(Default)]
pub struct Directory {
    /// It was made, or cannot be.
    pub is_made: bool,
    /// The endpoint over which it is passed to peers, if it is shared.
    pub endpoint: Option<u8>,
    /// The VCs whose peers have it.
    pub given: Vec<Row>,
}
