//! Communicators: calls that all members make together, over engines in one process, and the effect on their
//! messages.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
#![allow(clippy::needless_range_loop, reason = "a rank names an engine and what is known of it alike")]

mod failures;
mod freeing;
mod ids;
mod kit;
mod local;
mod making;
mod messages;
mod notify;
mod processes;
