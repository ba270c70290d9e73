//! The transport over libfabric (Open Fabrics Interfaces). It reaches procs of other hosts, over any network that libfabric supports.
//!
//! The library is loaded at run time ([`Library`]), so the same program runs with it and without it. [`Choice`] lists what its providers
//! offer and selects from that. Libfabric objects are owned, and each keeps alive those that it was opened from ([`Domain`]).
//!
//! [`Ofi`] is the transport. In *message mode* the engine matches, and the fabric only carries frames (`frame`) between reliable-datagram
//! endpoints (`port`). In *tagged mode* ([`Choice::tags`], [`ENV_TAG_MODE`]) the provider matches the application's messages with receives
//! (`matching`, [`tags`]); everything else is sent in frames. With `auto`, providers whose matching is known to be wrong stay in message
//! mode, and [`Ofi::who_matches`] says so. With such a provider, a mode that was chosen by name is refused. The other parts are
//!
//! - a **card** for each proc (`card`), exchanged through the bootstrap: its fabric address, the address of its control socket, a secret;
//! - a **control connection** for each link (`control`): TCP, for the handshake, which refuses peers that do not fit, and for detecting the
//!   end of a peer. Its socket reports at once that a process has ended, and within a configured time that a host or network has failed:
//!   kernels answer each other, however long a peer computes. Making and ending connections works the same for all media (`connections`);
//!   `medium` has what this one adds;
//! - **order and origin** of frames are not left to providers: each frame carries the token that its receiver has given for the link, and
//!   its number;
//! - **long messages** without frames (`direct`), over providers that can be lent the application's memory;
//! - a **registration cache** (`registry`) for all of these, where a provider requires memory to be registered;
//! - **one-sided operations** (`rma`), over endpoints of their own, which are opened on first use;
//! - **rings** that peers write short frames into (`ring`), if the user asks for them;
//! - a **pace** (`pace`): polling a fabric is expensive, so an idle endpoint is polled rarely.

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
mod hints;
mod info;
mod interfaces;
mod jam;
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
pub use hints::{MR_MODE, message_hints, one_sided_hints, tagged_hints};
pub use info::{Hints, Info};
pub use libfabric_sys as sys;
pub use library::{ENV_LIBRARY, Library};
pub use region::MemoryRegion;
pub use transport::Ofi;
pub use watchers::{ask, hear_all};
