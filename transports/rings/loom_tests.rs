//! Models that loom runs under every order of accesses that the memory model allows.
//!
//! `RUSTFLAGS="--cfg tickwire_loom" cargo test -p tickwire-transports --lib loom`. One-sided fences are not modelled:
//! a system call orders them. The models take the way of a kernel without them, where each writer fences.

mod frames;
mod kit;
mod staging;
mod waking;
mod window;
