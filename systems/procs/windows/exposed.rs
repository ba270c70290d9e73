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
    /// What a fabric calls it, and the endpoint that does.
    pub fabric: Option<(u8, RemoteKey)>,
    /// The buffer.
    pub buffer: Box<dyn Any + Send + Sync>,
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
