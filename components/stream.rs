//! Messages that arrive in parts without having been asked for: longer than a frame, short enough for the credit there is.

use crate::Row;

/// Where the parts of a message go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// Into the segments of a receive: its CAR.
    Receive(Row),
    /// Into a temporary, until a receive takes the message over: its entry among the unexpected.
    Temporary(Row),
    /// Nowhere: nobody can receive it any more.
    Nobody,
}

/// A message of which a part has arrived. A VC has one at a time, since the parts of a message come one after another.
///
/// Written by Match (begun, counted, taken over, over) and where a VC or a communicator ends.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The VC: row of the proc.
    pub vc: Row,
    /// See [`Destination`].
    pub to: Destination,
    /// Bytes that have arrived.
    pub seen: u64,
    /// Bytes of the message.
    pub length: u64,
}
