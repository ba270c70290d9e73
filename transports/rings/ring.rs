//! A byte ring with one writer and one reader, in memory that two processes may share.
//!
//! A frame is a header and its payload, padded to whole cache lines, and never wraps. The first word of a header is never 0; the word after
//! the last frame always is. So the reader polls one word, and a small message costs the transfer of one cache line. The writer first
//! clears the word behind the new frame, then writes the frame, its first word last. The reader publishes only now and then how far it has
//! read, and only after the bytes were used.
//!
//! The reader trusts nothing: a header is copied once, its length checked against the ring before anything is read.
//! The writer checks what the reader has published in the same way. The two ends are generic over the memory, so
//! that loom can drive them.
//!
//! A ring may continue in a larger one: the writer's last word in the old one is a mark, and the next frame stands at the same position of
//! the new one, which the reader has been passed before. Positions continue, so a release covers old and new ring alike. The words beside
//! the data stay where they are.

mod access;
mod fill;
mod reader;
mod writer;

pub(super) use access::{BESIDE_HEADER, LINE};
pub use access::{Corrupt, RingMemory};
pub(crate) use reader::is_of_read;
pub use reader::{Peeked, Reader};
pub use writer::Writer;
