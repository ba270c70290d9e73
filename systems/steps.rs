//! Steps: what is done to one row. Protocols are made of them.

pub(crate) mod check;
pub mod finish;
pub mod matching;
pub(crate) mod place;
pub mod posting;
pub mod registering;
pub mod send;
pub mod supply;
pub mod unexpected;
