//! The connections of a transport over rings: one row per peer, with a ring in each direction.
//!
//! - **Rows.** A connection is opened with the [`Ends`] that both sides have agreed upon. See `table`.
//! - **Writing.** A frame goes into the ring to the peer. If the peer does not watch that ring, the writer sets a bit in the peer's inbox,
//!   and rings the peer's doorbell if the peer sleeps.
//! - **Reading.** The reader polls a few rings directly: it watches them. It finds all others by their bits in its own inbox. See
//!   `reading` and `watching`.
//! - **Questions.** A peer may ask for bytes of a message beside the rings. The questions are answered here and not handed to the engine.
//!   See `outlets`.
//! - **Growing.** A ring that is too small for its traffic continues in a larger one. See `growth` and `places`.

mod ends;
mod growth;
mod outlets;
mod places;
mod reading;
mod row;
mod table;
mod watching;

pub use ends::{Ends, InboxView, Need, ring, silence};
pub use places::Passed;
pub use table::Links;
