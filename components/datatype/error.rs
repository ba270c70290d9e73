//! Why a datatype cannot be.

use crate::limits::DATATYPE_DEPTH_MAX;
use thiserror::Error;

/// Why a datatype, or a buffer of one, cannot be.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DatatypeError {
    /// Too large to be addressed.
    #[error("the layout reaches further than 2^60 bytes: no buffer is so large")]
    Overflow,
    /// Too many levels.
    #[error("the layout has {0} levels of loops and lists: at most {DATATYPE_DEPTH_MAX} are possible")]
    Deep(u32),
    /// The lists that describe an array are not of one length, or empty.
    #[error("sizes, subsizes and starts of an array have {0}, {1} and {2} entries: give one for each dimension")]
    Dimensions(usize, usize, usize),
    /// A part of an array that is not within it.
    #[error("dimension {dimension} has size {size}: a part of {subsize} from {start} on is empty or not within it")]
    Subarray {
        /// Which dimension, from 0.
        dimension: usize,
        /// Elements that it has.
        size: usize,
        /// Elements of the part.
        subsize: usize,
        /// The first of these.
        start: usize,
    },
    /// The buffer is too small.
    #[error(
        "the elements lie at bytes {first} to {end} of a buffer of {length}: lend a larger one, or move the origin"
    )]
    Bounds {
        /// First byte, from the start of the buffer.
        first: i128,
        /// The byte behind the last.
        end: i128,
        /// Bytes of the buffer.
        length: usize,
    },
    /// There is no memory for a copy of the elements.
    #[error("the packed elements have {bytes} bytes, and there is no memory for them: pack fewer at a time")]
    Memory {
        /// How many.
        bytes: usize,
    },
}
