//! Limits of splicing: see [`Outlet`](super::outlet::Outlet).

use tickwire_components::limits::{EAGER_MAX, PAGE_BYTES, READ_BYTES_A_TURN, READS_A_CALL};

/// Bytes of a piece of a message that is spliced: with the pages that its ends share, as many as a pipe of [`PIPE_BYTES`] takes.
pub(crate) const SPLICE_BYTES: usize = PIPE_BYTES - PAGE_BYTES;
/// Shortest run that a peer may ask to have spliced: what is shorter is sent with its envelope, or read for less than a
/// question costs.
pub(crate) const SPLICE_MIN: usize = EAGER_MAX + 1;
/// Pieces that one look puts into pipes for a connection at most: as much as a turn reads.
pub(crate) const SPLICED_A_LOOK: usize = READ_BYTES_A_TURN.div_ceil(SPLICE_BYTES);
/// Questions of a connection that are kept at most: more than several calls of its reader ask.
pub(crate) const QUESTIONS_MAX: usize = 4 * READS_A_CALL;
/// Looks in vain after which a piece without room is given up: 2 ms and more, far longer than a reader takes that is at it.
/// One that was stopped reads the rest itself.
pub(crate) const QUESTION_LOOKS_MAX: u32 = 20_000;
/// Bytes of a pipe, in pages of 4 KiB: twice as many as a pipe has unless asked to. Pieces of 32 KiB cost a fifth of the
/// bandwidth, of 252 KiB a quarter of that with pages of zeros.
pub(crate) const PIPE_BYTES: usize = 128 << 10;
