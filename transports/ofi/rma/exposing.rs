//! Exposing memory to peers.

use super::Rma;
use super::exposed::Exposed;
use super::operation::{OF_RING, What};
use crate::ofi::registry::{Place, Remote};
use crate::remote::{Channel, Issued, RemoteAccess, RemoteKey, RemoteRun};
use libfabric_sys as sys;
use tickwire_components::limits::RMA_SLOT_BYTES;
use tickwire_components::{Access, Span};

/// A run for atomic operations starts at a multiple of this.
const ATOMIC_ALIGN: usize = 8;

impl Rma {
    /// See [`crate::OneSided::register_exposed`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "memory that peers use")]
    pub(super) unsafe fn expose(&mut self, run: Span, access: RemoteAccess) -> Result<RemoteKey, String> {
        self.check()?;
        if run.is_empty() {
            return Ok(RemoteKey { key: 0, base: 0, length: 0, access });
        }
        if access.covers(RemoteAccess::ATOMIC) && !(run.start() as usize).is_multiple_of(ATOMIC_ALIGN) {
            return Err(format!("memory for atomic operations starts at a multiple of {ATOMIC_ALIGN} bytes: align it"));
        }
        let mut flags = 0;
        if access.covers(RemoteAccess::READ) || access.covers(RemoteAccess::ATOMIC) {
            flags |= sys::FI_REMOTE_READ;
        }
        if access.covers(RemoteAccess::WRITE) || access.covers(RemoteAccess::ATOMIC) {
            flags |= sys::FI_REMOTE_WRITE;
        }
        // SAFETY: by this function's contract the run stays until it is withdrawn, which closes the region.
        let region = unsafe { self.registry.remote(self.place(0), run, flags)? };
        let base = if self.memory.virtual_addresses { run.start() as u64 } else { 0 };
        let key = RemoteKey { key: region.key(), base, length: run.len() as u64, access };
        if key.key == sys::FI_KEY_NOTAVAIL {
            return Err(format!("provider {} gives no key that fits into 8 bytes", self.provider()));
        }
        let fills = if access == RemoteAccess::READ { Access::SEND } else { Access::SEND | Access::RECEIVE };
        let (registry, kept) = (self.registry.clone(), self.registry.keep(run, fills));
        self.exposed.push(Exposed { key, registry, kept, ended_before: self.ended, _region: region });
        Ok(key)
    }

    /// Exposes memory of the endpoint's own, which a peer may write. Returns its region, and the address of its first byte as peers name
    /// it.
    ///
    /// # Errors
    /// Why this is not possible, in words.
    ///
    /// # Safety
    /// The memory stays until the region is dropped.
    #[expect(unsafe_code, reason = "memory that peers use")]
    pub(in crate::ofi) unsafe fn expose_ring(&mut self, run: Span) -> Result<(Remote, u64), String> {
        self.check()?;
        // SAFETY: by this function's contract.
        let region = unsafe { self.registry.remote(self.place(0), run, sys::FI_REMOTE_WRITE)? };
        self.has_rings = true;
        Ok((region, if self.memory.virtual_addresses { run.start() as u64 } else { 0 }))
    }

    /// Writes bytes of the endpoint's own into a peer's ring. `false` if that is not possible now. The bytes are copied and may be reused
    /// at once.
    pub(in crate::ofi) fn write_ring(&mut self, link: u32, to: RemoteRun, bytes: Span) -> bool {
        debug_assert!(bytes.len() <= RMA_SLOT_BYTES, "what is short is copied");
        let channel = Channel { link, context: 0 };
        // SAFETY: short runs are copied within the call.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let issued = unsafe { self.issue(channel, to, What::Put, bytes, OF_RING) };
        matches!(issued, Ok(Issued::Taken(_)))
    }

    /// See [`crate::OneSided::withdraw_exposed`].
    pub(super) fn withdraw(&mut self, key: &RemoteKey) {
        self.exposed.retain(|exposed| exposed.key != *key);
    }

    /// The domain, and where needed the endpoint, with which regions for a context's operations are registered.
    pub(super) fn place(&self, context: usize) -> Place<'_> {
        let endpoint = self.endpoints.as_ref().filter(|_| self.memory.endpoint);
        let endpoint = endpoint.and_then(|endpoints| endpoints.bound(context));
        Place { domain: &self.domain, endpoint, key_mask: self.memory.key_mask }
    }
}
