//! Messages that arrive in parts without having been asked for: longer than a frame, short enough for the credit there is.

use crate::{Destination, Row};

/// A message of which a part has arrived. A VC has one at a time, since the parts of a message come one after another.
///
/// Written by Match (begun, counted, taken over, over) and where a VC or a communicator ends.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The VC: row of the proc.
    pub vc: Row,
    /// Where its parts go: to a receive, to an entry among the unexpected, or nowhere.
    pub to: Destination,
    /// Bytes that have arrived.
    pub seen: u64,
    /// Bytes of the message.
    pub length: u64,
}
