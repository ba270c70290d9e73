//! One-sided operations over libfabric: the provider writes, reads and updates the memory that peers expose.
//!
//! They use endpoints of their own, so the endpoint for messages stays as it is. They also use a domain of their own, whose memory is
//! registered as these endpoints require ([`memory_mode`]). All of it is opened when the first run is exposed, when the first operation is
//! asked for, or when a peer says that it has opened its own. Two procs tell each other their addresses over the control connection of
//! their link.
//!
//! - **Contexts** ([`context`]) have one completion queue each. They are the contexts of one scalable endpoint where the provider supports
//!   that, and otherwise one endpoint each.
//! - **Operations** ([`posting`]) are cut into pieces of at most the length that the provider takes. A write is complete when the target's
//!   memory holds it (`FI_DELIVERY_COMPLETE`). Each write asks for that by itself, because `net` of libfabric 1.17 ignores it as a default.
//!   Injected writes (`fi_inject_write`) have no completion and are not used; the bytes of short writes are copied instead.
//! - **Local memory** is lent only to providers that give it back with an error when a peer has gone ([`LENT`]). With other providers, all
//!   bytes go through memory of the endpoint's own. Where local memory must be registered (`FI_MR_LOCAL`), short operations use that memory
//!   too, and a long operation has its local run registered ([`super::registry`]).
//! - **Progress** ([`progressing`]) is made with every poll for messages, at targets too, as long as these endpoints are open.
//! - **The end of a link** ([`peers`]) fails its operations. If a provider does not give back the memory lent to them within a bounded
//!   time, its endpoints are closed.

mod asking;
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
mod withdrawal;
mod withdrawing;

use self::context::{Context, Endpoints};
use self::exposed::Exposed;
pub(super) use self::memory_mode::MemoryMode;
use self::operation::Operation;
pub(crate) use self::peer::Introduction;
use self::peer::Peer;
use self::withdrawal::{OwedAnswer, Withdrawal};
use super::choice::is_named;
use super::registry::{OfDomain, Registry};
use super::{AddressVector, Domain};
use crate::remote::{AtomicWidths, FailedOperation};
use libfabric_sys as sys;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Providers, or layers of them, that complete all operations with an error when a peer has gone (measured with libfabric 1.17). `shm` and
/// `ofi_rxd` never complete them.
const LENT: [&str; 3] = ["ofi_rxm", "net", "sockets"];
/// Layers that do not check whether a key is still registered: a peer can still write memory that was withdrawn (libfabric 1.17).
const UNCHECKED: [&str; 2] = ["shm", "ofi_rxd"];

/// Whether a provider that registers memory like this refuses the keys of regions that are closed. `tcp;ofi_rxm`, `net` and `sockets` do
/// (measured with libfabric 1.17). A key that may be given again could be that of other memory.
fn refuses_stale_keys(provider: &str, memory: MemoryMode) -> bool {
    !memory.may_repeat_keys() && !UNCHECKED.iter().any(|layer| is_named(provider, layer))
}

/// The layer whose endpoints are left open after a peer has gone, since closing one then sometimes crashes (libfabric 1.17). Nothing
/// touches the memory that was lent to such an endpoint, since nobody progresses it any more.
const LEFT_OPEN: &str = "ofi_rxm";

/// The provider whose endpoints map each other's memory, and read it when they are polled. Engines of one process share these maps, and one
/// that has written a ring crashes in its next poll if the owner's endpoint was closed meanwhile (libfabric 1.17). So such endpoints are
/// left open.
const MAPPED: &str = "shm";

/// Providers whose own thread really makes progress when they report `FI_PROGRESS_AUTO` (measured with libfabric 1.17). `net` reports it
/// and has no such thread.
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
    /// For tests: the `mr_mode` bits offered to the provider instead of the usual ones, and the bits that its answer is then forced to
    /// contain.
    #[cfg(test)]
    pub(super) mr_mode: Option<(u64, u64)>,
}

/// What an endpoint for messages keeps for one-sided operations.
pub(super) struct RmaState {
    pub(super) config: RmaConfig,
    /// How memory is registered for one-sided operations, if the provider offers them. Empty until that was first checked.
    pub(super) offered: OnceCell<Option<MemoryMode>>,
}

impl RmaState {
    pub(super) fn new(config: RmaConfig) -> Self {
        RmaState { config, offered: OnceCell::new() }
    }
}

/// The endpoints for one-sided operations, and the operations in flight. See the module.
pub(super) struct Rma {
    // Closed in this order: the memory that the provider may touch until then comes last.
    exposed: Vec<Exposed>,
    /// Withdrawals that peers have not all answered, and how many there were so far.
    withdrawals: Vec<Withdrawal>,
    withdrawals_made: u32,
    /// Answers that peers wait for.
    owed: Vec<OwedAnswer>,
    /// How many peers have ended, or have given up their endpoints, that knew the address of this process.
    ended: u64,
    of_domain: OfDomain,
    registry: Registry,
    endpoints: Option<Endpoints>,
    addresses: AddressVector,
    contexts: Vec<Context>,
    domain: Domain,
    memory: MemoryMode,
    /// The fabric address of this process.
    name: Vec<u8>,
    /// How many bits of a peer's number select one of its contexts.
    context_bits: u32,
    atomics: AtomicWidths,
    /// Local memory of callers may be lent to the provider.
    lends: bool,
    /// The provider makes progress in a thread of its own.
    automatic: bool,
    /// The most bytes of a piece.
    piece_max: usize,
    /// The entries of the address vector.
    known: Vec<(Vec<u8>, sys::fi_addr_t)>,
    /// Peers by link; this process itself comes first.
    peers: Vec<Peer>,
    operations: Vec<Operation>,
    free_operations: Vec<u32>,
    failed: VecDeque<FailedOperation>,
    /// Links on which a write into the peer's ring has failed, and why.
    pub(super) rings_failed: Vec<(u32, String)>,
    /// How many operations of ended links the provider still has, and since when there have been any.
    ending: u32,
    ending_since: Option<Instant>,
    ending_time: Duration,
    /// A peer has said that its operations wait for this process.
    reached: bool,
    /// Successive polls without a completion.
    vain: u32,
    /// The peers with operations in flight are to be told that this process waits.
    tells: bool,
    /// The provider has had no room for an operation since the targets were last told.
    refused: bool,
    /// A peer has disappeared without closing its connection, or an operation has failed.
    disturbed: bool,
    /// Peers write rings of this process.
    has_rings: bool,
    /// Why the endpoints are unusable, if they are.
    broken: Option<String>,
    /// The peers have yet to be told of that.
    untold: bool,
}

// SAFETY: slots, contexts and endpoints are its own; the rest is as `Domain::open` says.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for Rma {}

impl Rma {
    fn provider(&self) -> &str {
        self.domain.info().provider()
    }

    /// Whether operations of this process are in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.free_operations.len() < self.operations.len()
    }

    /// Whether peers may be using memory of this process, in a way that progresses only while this process polls.
    pub(super) fn is_exposing(&self) -> bool {
        !self.exposed.is_empty() && !self.automatic
    }

    /// How many operations in flight have had their local run registered.
    #[cfg(test)]
    pub(super) fn registered(&self) -> usize {
        self.operations.iter().filter(|operation| operation.is_registered()).count()
    }

    /// How long a provider may keep operations of a link that has ended.
    #[cfg(test)]
    pub(super) fn end_within(&mut self, time: Duration) {
        self.ending_time = time;
    }

    /// The number of endpoints, and how many bits of a peer's number select one of its contexts.
    #[cfg(test)]
    pub(super) fn shape(&self) -> (usize, u32) {
        let count = match &self.endpoints {
            Some(Endpoints::Plain(endpoints)) => endpoints.len(),
            Some(Endpoints::Scalable(_)) => 1,
            None => 0,
        };
        (count, self.context_bits)
    }

    /// A peer has disappeared without closing its connection.
    pub(super) fn disturb(&mut self) {
        self.disturbed = true;
    }

    /// Cuts operations into pieces of at most `bytes` bytes.
    #[cfg(test)]
    pub(super) fn cut(&mut self, bytes: usize) {
        self.piece_max = bytes;
    }

    /// Closes everything. Afterwards the provider touches no memory any more.
    fn shut(&mut self) {
        self.exposed.clear();
        self.of_domain.close();
        let (endpoints, contexts) = (self.endpoints.take(), std::mem::take(&mut self.contexts));
        let is_mapped = self.has_rings && is_named(self.provider(), MAPPED);
        if is_mapped || self.disturbed && is_named(self.provider(), LEFT_OPEN) {
            std::mem::forget((endpoints, contexts));
            return;
        }
        // Slots are freed after the endpoints are closed. A region that is bound to an endpoint keeps it open.
        drop(endpoints);
        self.operations.iter_mut().for_each(|operation| operation.region = None);
        drop(contexts);
    }
}

impl Drop for Rma {
    fn drop(&mut self) {
        self.shut();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_may_give_a_key_again_does_not_refuse_stale_ones() {
        let mode = |mr_mode: u64, key_bytes| MemoryMode::new(mr_mode, key_bytes, sys::version(1, 17)).unwrap();
        let [basic, chosen] = [u64::from(sys::FI_MR_BASIC), sys::FI_MR_PROV_KEY];
        for provider in ["verbs;ofi_rxm", "efa", "a provider of tomorrow", "tcp;ofi_rxm", "net", "sockets", "shm"] {
            for mr_mode in [basic, chosen, chosen | sys::FI_MR_LOCAL] {
                assert!(!refuses_stale_keys(provider, mode(mr_mode, 8)), "{provider} {mr_mode:#x}");
            }
            assert!(!refuses_stale_keys(provider, mode(0, 2)), "{provider}: there are few keys");
        }
        let own = mode(u64::from(sys::FI_MR_SCALABLE), 8);
        for (provider, refuses) in
            [("a provider of tomorrow", true), ("net", true), ("shm", false), ("udp;ofi_rxd", false)]
        {
            assert_eq!(refuses_stale_keys(provider, own), refuses, "{provider}");
        }
    }
}
