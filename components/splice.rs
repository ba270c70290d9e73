//! Parts of messages that their receivers ask to have spliced to them.

use crate::Row;

/// A part of an offered message that its receiver has asked for: the pages of it go into a pipe, piece by piece, as long as
/// nobody has got it otherwise. Those of a VC stand in the order in which their pieces go.
///
/// Written by Match and Deliver (added) and by Transfer (moved on, removed).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Splice {
    /// The VC: row of the proc.
    pub vc: Row,
    /// The message: the CAR row of its send.
    pub car: Row,
    /// Number of the next piece.
    pub piece: u32,
    /// Passes in which there was no room for it.
    pub waited: u32,
    /// Where in the message the next piece starts, bytes.
    pub offset: u64,
    /// Bytes that are left of the part.
    pub length: u64,
}
