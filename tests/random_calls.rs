//! Random programs of collective operations, and the serial model that they are checked against. They have all operations
//! in all forms, on several communicators with topologies, with elements of several types, packed and not, short and long.

mod block;
mod buffers;
mod calls;
mod items;
mod memory;
mod neighbours;
mod packed;
pub mod play;
pub mod program;
mod runs;
mod serial;
