//! Exposure epochs that are posted.

use crate::api::request::Request;
use tickwire_components::Rank;

/// For each origin the message that it sends once it has completed its epoch.
pub(super) type Completions = Vec<(Rank, Request<Box<[u8; 0]>>)>;

/// An exposure epoch of a window.
pub(crate) struct Exposure {
    pub(super) handle: u32,
    pub(super) completions: Completions,
}
