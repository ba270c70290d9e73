//! Limits of splicing: see [`Outlet`](super::outlet::Outlet).

use tickwire_components::limits::{EAGER_MAX, PAGE_BYTES, READ_BYTES_A_TURN, READS_A_CALL};

/// Bytes of a spliced piece: as many as fit into a pipe of [`PIPE_BYTES`], whose first and last page may be used in part only.
pub(crate) const SPLICE_BYTES: usize = PIPE_BYTES - PAGE_BYTES;
/// The shortest run that a peer may ask to have spliced. A shorter message is sent with its envelope, or reading it costs less than a
/// question.
pub(crate) const SPLICE_MIN: usize = EAGER_MAX + 1;
/// The most pieces that one call puts into the pipes of a connection: as many bytes as one turn reads.
pub(crate) const SPLICED_A_LOOK: usize = READ_BYTES_A_TURN.div_ceil(SPLICE_BYTES);
/// The most questions of a connection that are kept: more than the reader asks in several calls.
pub(crate) const QUESTIONS_MAX: usize = 4 * READS_A_CALL;
/// Calls without room after which a piece is given up. They take 2 ms or more, far longer than a reader at work needs. A reader that was
/// stopped reads the rest itself.
pub(crate) const QUESTION_LOOKS_MAX: u32 = 20_000;
/// Bytes of a pipe, in pages of 4 KiB: twice the kernel's default. Pieces of 32 KiB cost a fifth of the bandwidth; with pages of zeros,
/// pieces of 252 KiB cost a quarter of it.
pub(crate) const PIPE_BYTES: usize = 128 << 10;
