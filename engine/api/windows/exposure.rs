//! Exposure epochs that are posted.

use crate::api::request::Request;

/// An exposure epoch: the window, and what each origin sends once it has completed its part.
pub(crate) struct Exposure {
    pub(super) handle: u32,
    pub(super) completions: Vec<Request<Box<[u8; 0]>>>,
}
