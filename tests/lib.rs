//! Tests that need more than one system, and the code that they share.

#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod agreements;
pub mod answers;
pub mod binaries;
pub mod block_storm;
#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod cases;
pub mod clocks;
#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod crowds;
#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod ends;
pub mod exchanges;
#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod faults;
#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod headers;
pub mod input;
#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod keys;
#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod layouts;
#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod model;
pub mod mutexes;
pub mod needs;
pub mod one_sided;
#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod random_calls;
#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod scratch;
pub mod storm;
#[allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
pub mod sums;
pub mod survivors;
pub mod systems;
