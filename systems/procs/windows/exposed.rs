//! What this proc has exposed, and how peers come to know it.

use std::any::Any;
use tickwire_components::{RegionAccess, Row};
use tickwire_transports::RemoteKey;
use tickwire_transports::windows::Part;

/// What a fabric calls memory that it knows, and the endpoint that does.
pub type Registered = (u8, RemoteKey);

/// An exposed region.
pub struct ExposedRegion {
    /// Its number.
    pub number: u32,
    /// Its memory.
    pub part: Part,
    /// What others may do with it.
    pub access: RegionAccess,
    /// What the fabric calls it that puts and gets, and the endpoint that does.
    pub moves: Option<Registered>,
    /// The same, of the fabric that does all of its updates, which may be the same one.
    pub updates: Option<Registered>,
    /// The buffer.
    pub buffer: Box<dyn Any + Send + Sync>,
}

impl ExposedRegion {
    /// What may be done with it otherwise than by the fabric that does updates: two ways to update it would not be atomic to each other.
    pub fn here(&self) -> RegionAccess {
        if self.updates.is_some() { self.access.without(RegionAccess::UPDATE) } else { self.access }
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
