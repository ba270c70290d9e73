//! Eager messages in several frames: longer than a frame, but within the sender's credit.

use crate::{Destination, Row};

/// An eager message of which some frames have arrived. A VC has at most one, since the frames of a message follow each other.
///
/// Written by Match, which adds it, counts its bytes, redirects it to a receive, and removes it. Also removed where a VC or a
/// communicator ends.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The VC: row of the proc.
    pub vc: Row,
    /// Where its bytes go: to a receive, to an unexpected entry, or nowhere.
    pub to: Destination,
    /// Bytes that have arrived.
    pub seen: u64,
    /// Bytes of the message.
    pub length: u64,
}
