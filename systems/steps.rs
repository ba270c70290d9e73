//! Steps: what is done to one row. Protocols are made of them.

pub mod activate;
pub(crate) mod answer;
pub mod arguments;
pub mod chain;
pub(crate) mod check;
pub mod credit;
pub(crate) mod dismiss;
pub mod finish;
pub mod matching;
pub mod noting;
pub(crate) mod offer;
pub(crate) mod offer_counts;
pub(crate) mod place;
pub mod posted;
pub mod posting;
pub mod provider;
pub mod registering;
pub mod send;
pub mod signatures;
pub(crate) mod streams;
pub mod supply;
pub mod unexpected;
