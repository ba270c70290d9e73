//! Memory that peers may use.

use super::Rma;
use crate::ofi::own::random;
use crate::ofi::{MemoryRegion, OfiError};
use crate::remote::{RemoteAccess, RemoteKey};
use libfabric_sys as sys;
use tickwire_components::Span;

/// Where a run for atomic operations starts: at a multiple of this.
const ATOMIC_ALIGN: usize = 8;
/// Keys that are tried for a run before it is given up: one that is in use already is as good as impossible.
const KEYS: usize = 8;

/// A run that peers may use.
pub(super) struct Exposed {
    key: RemoteKey,
    run: Span,
    region: MemoryRegion,
}

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
        if self.memory.local {
            flags |= sys::FI_READ | sys::FI_WRITE;
        }
        // SAFETY: by this function's contract the run stays until it is withdrawn, which closes the region.
        let region = unsafe { self.register(run, flags, 0)? };
        let base = if self.memory.virtual_addresses { run.start() as u64 } else { 0 };
        let key = RemoteKey { key: region.key(), base, length: run.len() as u64, access };
        if key.key == sys::FI_KEY_NOTAVAIL {
            return Err(format!("provider {} gives no key that fits into 8 bytes", self.provider()));
        }
        self.exposed.push(Exposed { key, run, region });
        Ok(key)
    }

    /// See [`crate::OneSided::withdraw_exposed`].
    pub(super) fn withdraw(&mut self, key: &RemoteKey) {
        self.exposed.retain(|exposed| exposed.key != *key);
    }

    /// Registers memory, under a key that nobody guesses where the provider does not choose it: who knows the key of a run can write it.
    ///
    /// # Safety
    /// The memory stays until the region is closed.
    #[expect(unsafe_code, reason = "FFI")]
    pub(super) unsafe fn register(&self, run: Span, flags: u64, context: usize) -> Result<MemoryRegion, String> {
        let endpoint = self.endpoints.as_ref().and_then(|endpoints| endpoints.bound(context));
        for _ in 0..KEYS {
            let key = new_key(self.memory.key_mask)?;
            // SAFETY: by this function's contract.
            match unsafe { MemoryRegion::register(&self.domain, run, flags, key, endpoint) } {
                Ok(region) => return Ok(region),
                Err(OfiError::Call { code, .. }) if code == sys::FI_ENOKEY as i32 => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(format!("provider {} takes no key: withdraw some runs", self.provider()))
    }

    /// A region with a run of local memory, if it is within an exposed one.
    pub(super) fn region_with(&self, run: Span) -> Option<MemoryRegion> {
        let start = run.start() as usize;
        let has = |exposed: &&Exposed| {
            let behind = start.checked_sub(exposed.run.start() as usize);
            behind.is_some_and(|behind| behind + run.len() <= exposed.run.len())
        };
        self.exposed.iter().find(has).map(|exposed| exposed.region.clone())
    }
}

/// A key that nobody guesses, within a mask.
pub(super) fn new_key(mask: u64) -> Result<u64, String> {
    let key = random().map_err(|error| format!("no random numbers ({error})"))? & mask;
    Ok(if key == sys::FI_KEY_NOTAVAIL { 1 } else { key })
}
