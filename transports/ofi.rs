//! libfabric (Open Fabrics Interfaces): procs of other hosts, over whatever network there is.
//!
//! The library is loaded at run time ([`Library`]), so that one program runs with it and without it. What its providers offer
//! is listed and chosen from ([`Choice`]); objects are owned, and keep what they were opened from ([`Domain`]).
//!
//! [`Ofi`] is the transport. In *message mode* the engine matches, and the fabric only carries frames (`frame`) between
//! endpoints for reliable datagrams (`port`). In *tagged mode* ([`Choice::tags`], [`ENV_TAG_MODE`]) the provider pairs the
//! application's messages with receives (`matching`, [`tags`]); all else goes in frames. Providers that are known to do that
//! wrongly stay in message mode with `auto`, and [`Ofi::who_matches`] says so; a mode that is asked for by name is refused there.
//! Beside it there is
//!
//! - a **card** for each proc (`card`), which goes through the bootstrap: its fabric address, where it listens, a secret;
//! - a **control connection** for each link (`control`): TCP, for the handshake, which refuses what does not fit, and for
//!   the end of a peer. Its socket tells of a process that has ended at once, and of a host or network that is gone within a
//!   configured time: kernels answer each other, however long a peer computes. How connections are made and end is the
//!   same for all media (`connections`); what only this one needs for that is in `medium`;
//! - **order and origin** of frames are not left to providers: each frame shows the token that its receiver has given for
//!   the link, and its number;
//! - **long messages** without frames (`direct`), over providers that can be given the application's memory;
//! - **what is registered** with domains, where a provider wants to know memory (`registry`): one cache for all of the above and below;
//! - **one-sided operations** (`rma`), by endpoints of their own, which are opened when somebody asks for them;
//! - **rings** that peers write short frames into (`ring`), where they are asked for;
//! - a **pace** (`pace`), since asking a fabric is dear: what is idle is asked rarely.

mod addresses;
mod ask;
mod bare;
mod calling;
mod card;
mod choice;
mod completions;
mod config;
mod control;
mod direct;
mod domain;
mod ending;
mod endpoint;
mod error;
mod frame;
mod info;
mod library;
mod losses;
mod matching;
mod medium;
mod mode;
mod multi;
mod own;
mod pace;
mod port;
mod region;
mod registry;
mod ring;
mod rma;
mod scalable;
mod segments;
mod slab;
pub mod tags;
#[cfg(all(test, not(miri)))]
mod tests;
mod transport;
mod watchers;
#[cfg(all(test, not(miri)))]
mod wrapper_tests;

pub use addresses::AddressVector;
pub use bare::{Bare, BareMemory};
pub use choice::{
    Candidate, Choice, ENV_CONTEXTS, ENV_EXCLUDE, ENV_INCLUDE, ENV_INTERFACE, ENV_POLL, ENV_REGISTER, ENV_RINGS,
    ENV_TAG_MODE, ENV_THREAD, ENV_WITHOUT_DATA, Verdict,
};
pub use completions::{Completion, CompletionQueue, Failure, ReadError, no_completion};
pub use config::OfiConfig;
pub use domain::{Domain, Fabric};
pub use endpoint::{Endpoint, NAME_BYTES_MAX, Refused};
pub use error::OfiError;
pub use info::{Hints, Info};
pub use libfabric_sys as sys;
pub use library::{ENV_LIBRARY, Library};
pub use region::MemoryRegion;
pub use transport::Ofi;
pub use watchers::{ask, hear_all};

/// Ways to register memory that are handled here: all but those that need callbacks about pages or arrivals.
pub const MR_MODE: u64 =
    sys::FI_MR_LOCAL | sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY | sys::FI_MR_ENDPOINT;

/// What tagged mode asks for beside; a provider need not have directed receives.
pub fn tagged_hints(provider: &str, directed: bool) -> Hints {
    let directed = if directed { sys::FI_DIRECTED_RECV } else { 0 };
    let caps = sys::FI_MSG | sys::FI_TAGGED | sys::FI_SOURCE | directed;
    Hints { caps, provider: Some(provider.to_owned()), ..message_hints() }
}

/// What message mode asks for: reliable datagrams whose order is kept.
pub fn message_hints() -> Hints {
    Hints {
        caps: sys::FI_MSG,
        mr_mode: MR_MODE,
        msg_order: sys::FI_ORDER_SAS,
        completes: 0,
        contexts: 0,
        automatic: false,
        provider: None,
    }
}

/// What one-sided operations ask for; with `atomic`, atomic ones among them. A completed write is in the peer's memory.
pub fn one_sided_hints(provider: &str, atomic: bool) -> Hints {
    let atomic = if atomic { sys::FI_ATOMIC } else { 0 };
    Hints {
        caps: sys::FI_RMA | atomic,
        msg_order: 0,
        completes: sys::FI_DELIVERY_COMPLETE,
        provider: Some(provider.to_owned()),
        ..message_hints()
    }
}
