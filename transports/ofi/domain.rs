//! Fabric and domain, which all other libfabric objects are opened from.
//!
//! Every object keeps alive those that it needs. So in whatever order they are dropped, they are closed in the order that libfabric
//! requires: endpoints, memory regions, completion queues, address vectors, domain, fabric.

use super::{Info, Library, OfiError};
use libfabric_sys as sys;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// An open fabric. Clones are the same one.
#[derive(Clone)]
pub struct Fabric(Arc<FabricHandle>);

struct FabricHandle {
    raw: NonNull<sys::fid_fabric>,
}

/// An open domain, with the candidate that it was opened from. Clones are the same one.
#[derive(Clone)]
pub struct Domain(Arc<DomainHandle>);

struct DomainHandle {
    raw: NonNull<sys::fid_domain>,
    info: Info,
    // Dropped after the domain has been closed.
    fabric: Fabric,
}

// SAFETY: calls on a fabric are safe from any thread (`FI_THREAD_DOMAIN`).
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for FabricHandle {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Sync for FabricHandle {}
// SAFETY: one thread at a time uses a domain and what was opened from it, by the contract of `Domain::open`.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for DomainHandle {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Sync for DomainHandle {}

impl Fabric {
    /// Opens a candidate's fabric.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub fn open(info: &Info) -> Result<Fabric, OfiError> {
        let library = *info.library();
        let mut raw = null_mut();
        // SAFETY: a whole candidate; the call only reads its attributes.
        #[expect(unsafe_code, reason = "FFI")]
        let code = unsafe { (library.api().fabric)(info.raw().fabric_attr, &raw mut raw, null_mut()) };
        let raw = opened(&library, "fi_fabric", info.provider(), code, raw)?;
        Ok(Fabric(Arc::new(FabricHandle { raw })))
    }

    pub(super) fn as_ptr(&self) -> *mut sys::fid_fabric {
        self.0.raw.as_ptr()
    }
}

impl Drop for FabricHandle {
    fn drop(&mut self) {
        // SAFETY: open, and domains keep it, so none is left.
        #[expect(unsafe_code, reason = "FFI")]
        closed(unsafe { sys::ops::fi_close(&raw mut (*self.raw.as_ptr()).fid) });
    }
}

impl Domain {
    /// Opens a candidate's domain.
    ///
    /// # Safety
    /// The domain and all that is opened from it are used, and dropped, by one thread at a time.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    #[expect(unsafe_code, reason = "FFI")]
    pub unsafe fn open(fabric: &Fabric, info: Info) -> Result<Domain, OfiError> {
        let mut raw = null_mut();
        // SAFETY: an open fabric and the candidate that it was opened from.
        let code = unsafe { sys::ops::fi_domain(fabric.as_ptr(), info.as_ptr(), &raw mut raw, null_mut()) };
        let raw = opened(info.library(), "fi_domain", info.provider(), code, raw)?;
        Ok(Domain(Arc::new(DomainHandle { raw, info, fabric: fabric.clone() })))
    }

    /// The candidate that it was opened from.
    pub fn info(&self) -> &Info {
        &self.0.info
    }

    /// Its fabric.
    pub fn fabric(&self) -> &Fabric {
        &self.0.fabric
    }

    pub(super) fn as_ptr(&self) -> *mut sys::fid_domain {
        self.0.raw.as_ptr()
    }

    /// The error of a failed call on an object of this domain.
    #[cold]
    pub fn error(&self, call: &'static str, code: i64) -> OfiError {
        OfiError::call(self.info().library(), call, self.info().provider(), code)
    }

    /// Checks the result of a call that opens an object of this domain.
    pub(super) fn opened<T>(&self, call: &'static str, code: i32, raw: *mut T) -> Result<NonNull<T>, OfiError> {
        opened(self.info().library(), call, self.info().provider(), code, raw)
    }

    /// Closes an object of this domain.
    ///
    /// # Safety
    /// Open, and nobody uses it afterwards.
    #[expect(unsafe_code, reason = "FFI")]
    pub(super) unsafe fn close(&self, fid: *mut sys::fid) {
        // SAFETY: by this function's contract.
        closed(unsafe { sys::ops::fi_close(fid) });
    }
}

/// If the provider refuses to close an object, the object is leaked: `tcp;ofi_rxm` sometimes refuses that for a domain whose last
/// connection is still ending.
fn closed(code: i32) {
    #[cfg(test)]
    REFUSED.set(REFUSED.get() + u32::from(code != 0));
    let _ = code;
}

#[cfg(test)]
thread_local! {
    /// Objects that could not be closed by this thread.
    pub(super) static REFUSED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

impl Drop for DomainHandle {
    fn drop(&mut self) {
        // SAFETY: open, and all that was opened from it keeps it, so nothing is left.
        #[expect(unsafe_code, reason = "FFI")]
        closed(unsafe { sys::ops::fi_close(&raw mut (*self.raw.as_ptr()).fid) });
    }
}

fn opened<T>(
    library: &Library,
    call: &'static str,
    provider: &str,
    code: i32,
    raw: *mut T,
) -> Result<NonNull<T>, OfiError> {
    match NonNull::new(raw) {
        Some(raw) if code >= 0 => Ok(raw),
        _ => Err(OfiError::call(library, call, provider, code.into())),
    }
}
