//! The transports of tickwire, which carry frames from one proc to another.
//!
//! A [`Transport`] knows links and frames. It knows nothing of the world, of matching or of the generic CAR. The state that it keeps for
//! each CAR is its [`Transport::RowState`], which the engine turns into a column. Loopback, shared memory and libfabric are variants of
//! [`AnyTransport`], so that the message path makes no virtual call for them. Any other transport is boxed in its last variant.

mod any;
pub mod boards;
mod capabilities;
mod connections;
pub mod copy;
mod facets;
mod frames;
pub mod handshake;
pub mod heap;
mod hints;
mod loopback;
pub mod ofi;
mod processes;
mod remote;
pub mod rings;
pub mod shared;
pub mod shm;
pub mod sim;
mod take;
#[cfg(test)]
mod testing;
mod transport;
mod watching;
pub mod windows;
#[cfg(all(test, not(miri)))]
mod wrapper_tests;
mod wrapping;

pub use any::{AnyTransport, Outside};
pub use capabilities::{Capabilities, Mapped, Reach, TagLimits};
pub use facets::{
    CreditWindows, Direct, Lending, Matching, Memory, OneSided, Question, Registering, SharedMemory, Watcher,
    WatcherDoor, Watchers,
};
pub use frames::{Frame, LinkEvent, MemoryRead, Peeked, ReceiveEnvelope, Sent, Traffic};
pub use heap::{HeapBuffer, HeapError, SharedHeap};
pub use loopback::{Hub, Loopback};
pub use ofi::{Ofi, OfiConfig, OfiError};
pub use processes::{Peer, peer_of};
pub use remote::{
    AtomicOperation, AtomicWidths, AtomicWord, Channel, FailedOperation, Issued, RemoteAccess, RemoteKey, RemoteRun,
    Settled,
};
pub use shm::{Shm, ShmConfig, ShmError};
pub use take::{Other, Take};
pub use transport::Transport;
