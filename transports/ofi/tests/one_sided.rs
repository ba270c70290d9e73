//! One-sided operations between endpoints of one process.

mod atomics;
mod beside;
mod contexts;
mod ending;
mod killed;
pub(super) mod kit;
mod moving;
mod own;
mod refused;
mod registering;
