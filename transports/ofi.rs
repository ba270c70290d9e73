//! libfabric (Open Fabrics Interfaces): procs of other hosts, over whatever network there is.
//!
//! The library is loaded at run time ([`Library`]), so that one program runs with it and without it. What its providers offer
//! is listed and chosen from ([`Choice`]); objects are owned, and keep what they were opened from ([`Domain`]).

mod addresses;
mod choice;
mod completions;
mod domain;
mod endpoint;
mod error;
mod info;
mod library;
mod region;
#[cfg(all(test, not(miri)))]
mod wrapper_tests;

pub use addresses::AddressVector;
pub use choice::{Candidate, Choice, ENV_EXCLUDE, ENV_INCLUDE, ENV_INTERFACE, Verdict};
pub use completions::{Completion, CompletionQueue, Failure, ReadError, no_completion};
pub use domain::{Domain, Fabric};
pub use endpoint::{Endpoint, NAME_BYTES_MAX, Refused};
pub use error::OfiError;
pub use info::{Hints, Info};
pub use libfabric_sys as sys;
pub use library::{ENV_LIBRARY, Library};
pub use region::MemoryRegion;

/// Ways to register memory that are handled here: all but those that need notices about pages or arrivals.
pub const MR_MODE: u64 =
    sys::FI_MR_LOCAL | sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY | sys::FI_MR_ENDPOINT;

/// What message mode asks for: reliable datagrams whose order is kept.
pub fn message_hints() -> Hints {
    Hints { caps: sys::FI_MSG, mr_mode: MR_MODE, msg_order: sys::FI_ORDER_SAS, provider: None }
}
