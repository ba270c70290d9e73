//! Random programs of collective operations, and the serial model that they are checked against. They have all operations
//! in all forms, on several communicators, with elements of several types, short and long.

mod block;
mod buffers;
mod calls;
mod items;
pub mod play;
pub mod program;
mod serial;
