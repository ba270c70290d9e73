//! One-sided operations over libfabric: what peers expose is written, read and changed by the provider.
//!
//! They have endpoints of their own beside the one for messages, which stays as it is, and a domain of their own, whose memory
//! is registered as these endpoints want it ([`memory_mode`]). All of it is opened when the first run is exposed, the
//! first operation is asked for, or a peer says that it has opened its own. Two procs tell each other their addresses over the control
//! connection of their link.
//!
//! - **Contexts** ([`context`]) have a queue each: those of one scalable endpoint where the provider has them, else endpoints.
//! - **Operations** ([`posting`]) go in pieces of at most what the provider takes. A write is complete when the target's memory
//!   holds it (`FI_DELIVERY_COMPLETE`). That is asked for with each one: `net` of libfabric 1.17 ignores it as a default. What a
//!   provider injects (`fi_inject_write`) has no completion and is not used; short writes are copied instead.
//! - **Local memory** is lent only to providers that give it back with an error when a peer has gone ([`LENT`]); what others send
//!   or fetch goes through memory of the endpoint's own. Where local memory must be registered (`FI_MR_LOCAL`), short
//!   operations go through such memory too, and a long one has its run registered ([`super::registry`]).
//! - **Progress** ([`progressing`]) is made by every look at the messages, also at a target, as long as these endpoints are open.
//! - **The end of a link** ([`peers`]) fails its operations. A provider that has memory of theirs and does not give it back within a
//!   bounded time is closed.

mod calls;
mod context;
mod counts;
mod exposed;
mod exposing;
mod facet;
mod memory_mode;
mod opening;
mod operation;
mod peer;
mod peers;
mod posting;
mod progressing;
mod sleeping;

use self::context::{Context, Endpoints};
use self::exposed::Exposed;
pub(super) use self::memory_mode::MemoryMode;
use self::operation::Operation;
pub(crate) use self::peer::Introduction;
use self::peer::Peer;
use super::choice::is_named;
use super::registry::{OfDomain, Registry};
use super::{AddressVector, Domain};
use crate::remote::{AtomicWidths, FailedOperation};
use libfabric_sys as sys;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Providers, or layers of them, that complete all operations with an error when a peer has gone (measured with libfabric 1.17).
/// `shm` and `ofi_rxd` keep them for ever.
const LENT: [&str; 3] = ["ofi_rxm", "net", "sockets"];
/// Layers that do not look whether a key is still known: what was withdrawn can be written (libfabric 1.17).
const UNCHECKED: [&str; 2] = ["shm", "ofi_rxd"];

/// Whether a provider refuses keys that were withdrawn.
pub(super) fn checks_keys(provider: &str) -> bool {
    !UNCHECKED.iter().any(|layer| is_named(provider, layer))
}

/// The layer whose endpoints are left open after a peer has gone: closing one then crashes now and then (libfabric 1.17). Nothing
/// touches memory that was lent to it, since nobody progresses it.
const LEFT_OPEN: &str = "ofi_rxm";

/// Providers that do have a thread which makes progress when they say so (measured with libfabric 1.17); `net` says so and has none.
const THREADED: [&str; 1] = ["sockets"];

/// How one-sided operations are to be opened.
#[derive(Clone, Debug)]
pub(super) struct RmaConfig {
    /// Contexts; 0 for no one-sided operations.
    pub(super) contexts: usize,
    /// See [`super::Choice::has_thread`].
    pub(super) automatic: bool,
    /// How long a provider may keep operations of a link that has ended.
    pub(super) ending_time: Duration,
    /// Another way to register memory than is offered to the provider, and what it is told to ask for besides.
    #[cfg(test)]
    pub(super) mr_mode: Option<(u64, u64)>,
}

/// The endpoints for one-sided operations, and what is under way. See the module.
pub(super) struct Rma {
    // Closed in this order; what the provider may touch until then comes last.
    exposed: Vec<Exposed>,
    of_domain: OfDomain,
    registry: Registry,
    endpoints: Option<Endpoints>,
    addresses: AddressVector,
    contexts: Vec<Context>,
    domain: Domain,
    memory: MemoryMode,
    /// The own address.
    name: Vec<u8>,
    /// Bits of a peer's number that say which of its contexts is meant.
    context_bits: u32,
    atomics: AtomicWidths,
    /// Local memory of callers may be lent to the provider.
    lends: bool,
    /// A thread of the provider's makes progress.
    automatic: bool,
    /// Bytes of a piece at most.
    piece_max: usize,
    /// Addresses that the address vector has.
    known: Vec<(Vec<u8>, sys::fi_addr_t)>,
    /// By link, the own proc first.
    peers: Vec<Peer>,
    operations: Vec<Operation>,
    free_operations: Vec<u32>,
    failed: VecDeque<FailedOperation>,
    /// Links with a write into a ring that has failed, and why.
    pub(super) rings_failed: Vec<(u32, String)>,
    /// Operations of links that have ended which the provider still has, and since when there are some.
    ending: u32,
    ending_since: Option<Instant>,
    ending_time: Duration,
    /// A peer has said that it waits.
    reached: bool,
    /// Looks in vain since something was complete.
    vain: u32,
    /// Peers are to be told that this side waits.
    tells: bool,
    /// The provider has had no room for an operation since targets were told last.
    refused: bool,
    /// A peer has gone without a word, or an operation has failed.
    disturbed: bool,
    /// Why nothing goes any more.
    broken: Option<String>,
}

// SAFETY: slots, contexts and endpoints are its own; the rest is as `Domain::open` says.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for Rma {}

impl Rma {
    fn provider(&self) -> &str {
        self.domain.info().provider()
    }

    /// Whether operations of this side are under way.
    pub(super) fn is_busy(&self) -> bool {
        self.free_operations.len() < self.operations.len()
    }

    /// Whether peers may be using memory of this process, and get on with it only while somebody asks.
    pub(super) fn is_exposing(&self) -> bool {
        !self.exposed.is_empty() && !self.automatic
    }

    /// Operations under way whose local run has been registered for them.
    #[cfg(test)]
    pub(super) fn registered(&self) -> usize {
        self.operations.iter().filter(|operation| operation.is_registered()).count()
    }

    /// How long a provider may keep operations of a link that has ended.
    #[cfg(test)]
    pub(super) fn end_within(&mut self, time: Duration) {
        self.ending_time = time;
    }

    /// A peer has gone without a word.
    pub(super) fn disturb(&mut self) {
        self.disturbed = true;
    }

    /// Cuts operations into pieces of so many bytes.
    #[cfg(test)]
    pub(super) fn cut(&mut self, bytes: usize) {
        self.piece_max = bytes;
    }

    /// Closes everything: the provider touches nothing any more.
    fn shut(&mut self) {
        self.exposed.clear();
        self.of_domain.close();
        let (endpoints, contexts) = (self.endpoints.take(), std::mem::take(&mut self.contexts));
        if self.disturbed && is_named(self.provider(), LEFT_OPEN) {
            std::mem::forget((endpoints, contexts));
            return;
        }
        // Slots are freed after the endpoints are closed.
        drop(endpoints);
        drop(contexts);
    }
}

impl Drop for Rma {
    fn drop(&mut self) {
        self.shut();
    }
}
