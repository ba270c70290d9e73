//! tickwire (essay to come)

pub mod bootstrap;
mod builder;
mod core;
mod executor;
mod finalize;
pub mod launch;
mod p2p;
mod request;
mod scope;
mod slots;
mod submit;
mod wait;

pub use crate::builder::{Builder, ENV_TRANSPORTS, Tick};
pub use crate::core::Engine;
pub use crate::request::{Failed, OperationError, Rejected, Request, Test, Waitable};
pub use crate::scope::{IntoSource, IntoTag, Scope};
pub use crate::slots::SlotInfo;
pub use crate::submit::{Submitted, Submitter};
pub use bootstrap::Bootstrap;
pub use tickwire_components as components;
pub use tickwire_components::{
    BuildError, Comm, FinalizeError, PostError, ProcId, Rank, RequestError, RequestId, Source, Status, Tag, TagFilter,
    Work, limits::Limits,
};
pub use tickwire_systems as systems;
pub use tickwire_systems::ProgressSystems;
pub use tickwire_traces as traces;
pub use tickwire_transports as transports;
