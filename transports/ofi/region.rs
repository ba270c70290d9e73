//! Memory regions.

use super::{Domain, Endpoint, OfiError};
use libfabric_sys as sys;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use tickwire_components::Span;

/// Memory that is registered with a domain. Clones are the same region.
#[derive(Clone)]
pub struct MemoryRegion(Arc<Handle>);

struct Handle {
    raw: NonNull<sys::fid_mr>,
    /// The endpoint that it is bound to, if the provider requires that. The endpoint is closed after the region.
    endpoint: Option<Endpoint>,
    domain: Domain,
}

// SAFETY: as the domain, by the contract of `Domain::open`.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for Handle {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Sync for Handle {}

impl MemoryRegion {
    /// Registers a run of memory for `access` (`FI_SEND`, `FI_RECV`, `FI_READ`, `FI_WRITE`, `FI_REMOTE_READ`, `FI_REMOTE_WRITE`), under
    /// `key` unless the provider chooses keys. With `FI_MR_ENDPOINT` in the mode, the region is bound to `endpoint`.
    ///
    /// # Safety
    /// The memory stays allocated until the last clone is dropped.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    #[expect(unsafe_code, reason = "FFI")]
    pub unsafe fn register(
        domain: &Domain,
        span: Span,
        access: u64,
        key: u64,
        endpoint: Option<&Endpoint>,
    ) -> Result<Self, OfiError> {
        let bound = u64::from(domain.info().domain_attr().mr_mode.unsigned_abs()) & sys::FI_MR_ENDPOINT != 0;
        let mut raw = null_mut();
        // SAFETY: an open domain, and memory by this function's contract.
        let code = unsafe {
            let (start, len) = (span.start().cast(), span.len());
            sys::ops::fi_mr_reg(domain.as_ptr(), start, len, access, 0, key, 0, &raw mut raw, null_mut())
        };
        let raw = domain.opened("fi_mr_reg", code, raw)?;
        let endpoint = endpoint.filter(|_| bound).cloned();
        let region = Handle { raw, endpoint, domain: domain.clone() };
        if let Some(endpoint) = &region.endpoint {
            // SAFETY: a new region and an open endpoint of its domain.
            let code = unsafe { sys::ops::fi_mr_bind(raw.as_ptr(), endpoint.fid(), 0) };
            if code < 0 {
                return Err(domain.error("fi_mr_bind", code.into()));
            }
            // SAFETY: a bound region.
            let code = unsafe { sys::ops::fi_mr_enable(raw.as_ptr()) };
            if code < 0 {
                return Err(domain.error("fi_mr_enable", code.into()));
            }
        }
        Ok(MemoryRegion(Arc::new(region)))
    }

    /// The descriptor for operations on this memory.
    pub fn descriptor(&self) -> *mut c_void {
        // SAFETY: open.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            sys::ops::fi_mr_desc(self.0.raw.as_ptr())
        }
    }

    /// The key by which peers name the memory.
    pub fn key(&self) -> u64 {
        // SAFETY: open.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            sys::ops::fi_mr_key(self.0.raw.as_ptr())
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: open; whoever has operations under way on it keeps it.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            self.domain.close(&raw mut (*self.raw.as_ptr()).fid);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
