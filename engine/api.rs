//! What an application calls.

pub(crate) mod attached;
pub(crate) mod buffered;
pub(crate) mod builder;
pub(crate) mod cancel;
pub(crate) mod collectives;
pub(crate) mod communicators;
pub(crate) mod error;
#[cfg(feature = "dump")]
pub mod jobs;
pub(crate) mod loans;
pub(crate) mod notify;
pub(crate) mod p2p;
pub(crate) mod persistent;
pub(crate) mod probe;
pub(crate) mod procs;
pub(crate) mod pull;
pub(crate) mod receipt;
pub(crate) mod registered;
pub(crate) mod request;
pub(crate) mod scope;
pub(crate) mod send_modes;
pub(crate) mod send_options;
pub(crate) mod several;
pub(crate) mod shared_heap;
pub(crate) mod slots;
pub(crate) mod submit;
