//! Endpoints: where operations are posted.

use super::choice::is_named;
use super::{AddressVector, CompletionQueue, Domain, Info, OfiError, segments};
use libfabric_sys as sys;
use std::ffi::{CString, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use tickwire_components::Span;

/// The most bytes of an address that [`Endpoint::name`] returns. Addresses of known providers have up to 64.
pub const NAME_BYTES_MAX: usize = 160;

/// Why an operation was not posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No room now (`FI_EAGAIN`): try again after completions have been read.
    Again,
    /// The operation is impossible.
    Failed(OfiError),
}

impl Refused {
    /// Interprets the non-zero return code of a call that posts an operation.
    #[cold]
    pub(super) fn new(domain: &Domain, call: &'static str, code: isize) -> Self {
        if code == -(sys::FI_EAGAIN as isize) {
            return Refused::Again;
        }
        Refused::Failed(domain.error(call, code as i64))
    }
}

/// An enabled endpoint (`FI_EP_RDM`). Clones are the same one.
#[derive(Clone)]
pub struct Endpoint(Arc<Handle>);

struct Handle {
    raw: NonNull<sys::fid_ep>,
    domain: Domain,
    /// Kept until the endpoint is closed.
    _bound: (AddressVector, CompletionQueue, CompletionQueue),
}

// SAFETY: as the domain, by the contract of `Domain::open`.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for Handle {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Sync for Handle {}

impl Endpoint {
    /// Opens, binds and enables an endpoint. `info` is the domain's candidate, or a copy with other context attributes. Completions of
    /// sends and RMA go to `sent`, those of receives to `received`, which may be the same queue.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub fn open(
        domain: &Domain,
        info: &Info,
        addresses: &AddressVector,
        sent: &CompletionQueue,
        received: &CompletionQueue,
    ) -> Result<Self, OfiError> {
        let mut raw = null_mut();
        // SAFETY: an open domain and a candidate of it.
        #[expect(unsafe_code, reason = "FFI")]
        let code = unsafe { sys::ops::fi_endpoint(domain.as_ptr(), info.as_ptr(), &raw mut raw, null_mut()) };
        let raw = domain.opened("fi_endpoint", code, raw)?;
        let bound = (addresses.clone(), sent.clone(), received.clone());
        let endpoint = Endpoint(Arc::new(Handle { raw, domain: domain.clone(), _bound: bound }));
        if is_named(info.provider(), "shm") {
            endpoint.name_segment()?;
        }
        // SAFETY: open objects of one domain.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            let av = &raw mut (*addresses.as_ptr()).fid;
            endpoint.bind(av, 0)?;
            let (sent, received) = (sent.as_ptr(), received.as_ptr());
            if sent == received {
                endpoint.bind(&raw mut (*sent).fid, sys::FI_TRANSMIT | sys::FI_RECV)?;
            } else {
                endpoint.bind(&raw mut (*sent).fid, sys::FI_TRANSMIT)?;
                endpoint.bind(&raw mut (*received).fid, sys::FI_RECV)?;
            }
            let code = sys::ops::fi_enable(raw.as_ptr());
            if code < 0 {
                return Err(domain.error("fi_enable", code.into()));
            }
        }
        Ok(endpoint)
    }

    /// # Safety
    /// An open object of the endpoint's domain.
    #[expect(unsafe_code, reason = "FFI")]
    unsafe fn bind(&self, other: *mut sys::fid, flags: u64) -> Result<(), OfiError> {
        // SAFETY: by this function's contract.
        let code = unsafe { sys::ops::fi_ep_bind(self.as_ptr(), other, flags) };
        if code < 0 { Err(self.0.domain.error("fi_ep_bind", code.into())) } else { Ok(()) }
    }

    /// Gives the endpoint a name that no other process has. See [`segments`].
    fn name_segment(&self) -> Result<(), OfiError> {
        segments::sweep();
        let Some(address) = segments::address().and_then(|address| CString::new(address).ok()) else { return Ok(()) };
        let bytes = address.as_bytes_with_nul();
        // SAFETY: an endpoint that is not enabled, and an address as the provider writes it, which it copies.
        #[expect(unsafe_code, reason = "FFI")]
        let code = unsafe { sys::ops::fi_setname(self.as_ptr(), bytes.as_ptr().cast_mut().cast(), bytes.len()) };
        if code < 0 { Err(self.0.domain.error("fi_setname", code.into())) } else { Ok(()) }
    }

    /// The endpoint's address, for peers' address vectors.
    ///
    /// # Errors
    /// [`OfiError::Call`], also for an address of more than [`NAME_BYTES_MAX`] bytes.
    pub fn name(&self) -> Result<Vec<u8>, OfiError> {
        // SAFETY: an enabled endpoint.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            name_of(&self.0.domain, self.as_ptr())
        }
    }

    /// The endpoint's domain.
    pub fn domain(&self) -> &Domain {
        &self.0.domain
    }

    /// Posts a send (`fi_send`).
    ///
    /// # Safety
    /// The bytes stay as they are, and the context where it is and in no other use, until the operation has completed or the
    /// endpoint is closed; the descriptor is that of a region with the bytes, where one is needed.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline]
    #[expect(unsafe_code, reason = "FFI")]
    pub unsafe fn send(
        &self,
        bytes: Span,
        descriptor: *mut c_void,
        to: sys::fi_addr_t,
        context: *mut c_void,
    ) -> Result<(), Refused> {
        // SAFETY: by this function's contract.
        let code =
            unsafe { sys::ops::fi_send(self.as_ptr(), bytes.start().cast(), bytes.len(), descriptor, to, context) };
        self.posted("fi_send", code)
    }

    /// Sends bytes, at most the provider's `inject_size`, that may be reused at once (`fi_inject`). There is no completion.
    ///
    /// # Safety
    /// The bytes can be read.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline(always)]
    #[expect(unsafe_code, reason = "FFI")]
    pub unsafe fn inject(&self, bytes: Span, to: sys::fi_addr_t) -> Result<(), Refused> {
        // SAFETY: by this function's contract.
        let code = unsafe { sys::ops::fi_inject(self.as_ptr(), bytes.start().cast(), bytes.len(), to) };
        self.posted("fi_inject", code)
    }

    /// Posts a receive from any sender (`fi_recvmsg`), with flags such as `FI_MULTI_RECV`.
    ///
    /// # Safety
    /// The memory is the provider's, and the context where it is and in no other use, until the operation has completed (with
    /// `FI_MULTI_RECV` in its flags, for such a one) or the endpoint is closed; the descriptor as for [`Endpoint::send`].
    ///
    /// # Errors
    /// [`Refused`].
    #[expect(unsafe_code, reason = "FFI")]
    pub unsafe fn receive(
        &self,
        into: Span,
        descriptor: *mut c_void,
        flags: u64,
        context: *mut c_void,
    ) -> Result<(), Refused> {
        let iov = libc::iovec { iov_base: into.start().cast(), iov_len: into.len() };
        let mut descriptor = descriptor;
        let message = sys::fi_msg {
            msg_iov: &raw const iov,
            desc: &raw mut descriptor,
            iov_count: 1,
            addr: sys::FI_ADDR_UNSPEC,
            context,
            data: 0,
        };
        // SAFETY: by this function's contract; the list of runs is copied by the call.
        let code = unsafe { sys::ops::fi_recvmsg(self.as_ptr(), &raw const message, flags) };
        self.posted("fi_recvmsg", code)
    }

    /// Sets the free space, in bytes, below which a receive with `FI_MULTI_RECV` is complete.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub fn set_least_room(&self, bytes: usize) -> Result<(), OfiError> {
        let (level, name) = (sys::FI_OPT_ENDPOINT as i32, sys::FI_OPT_MIN_MULTI_RECV as i32);
        // SAFETY: an open endpoint; the option's value is a `size_t`.
        #[expect(unsafe_code, reason = "FFI")]
        let code = unsafe {
            let value = (&raw const bytes).cast();
            sys::ops::fi_setopt(self.as_ptr(), level, name, value, size_of_val(&bytes))
        };
        if code < 0 { Err(self.0.domain.error("fi_setopt", code.into())) } else { Ok(()) }
    }

    /// Asks the provider to cancel a receive. It then completes with `FI_ECANCELED`, unless it completes in another way first.
    ///
    /// # Safety
    /// The context of an operation of this endpoint that may be under way.
    #[expect(unsafe_code, reason = "FFI")]
    pub unsafe fn cancel(&self, context: *mut c_void) {
        // SAFETY: an open endpoint, and a context by this function's contract.
        let _ = unsafe { sys::ops::fi_cancel(self.as_ptr(), context) };
    }

    /// What the return of a function that posts means.
    #[inline]
    pub fn posted(&self, call: &'static str, code: isize) -> Result<(), Refused> {
        if code == 0 { Ok(()) } else { Err(Refused::new(&self.0.domain, call, code)) }
    }

    /// The endpoint, for operations that have no method here: tagged, RMA, atomics.
    pub fn as_ptr(&self) -> *mut sys::fid_ep {
        self.0.raw.as_ptr()
    }

    pub(super) fn fid(&self) -> *mut sys::fid {
        // SAFETY: the place of a field, nothing is read.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            &raw mut (*self.as_ptr()).fid
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: open; regions that are bound to it keep it.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            self.domain.close(&raw mut (*self.raw.as_ptr()).fid);
        }
    }
}

/// The address of an endpoint.
///
/// # Safety
/// An enabled endpoint of the domain, or a scalable one.
#[expect(unsafe_code, reason = "FFI")]
pub(super) unsafe fn name_of(domain: &Domain, endpoint: *mut sys::fid_ep) -> Result<Vec<u8>, OfiError> {
    let mut name = vec![0u8; NAME_BYTES_MAX];
    let mut length = name.len();
    // SAFETY: by this function's contract, and room for as many bytes as it is told.
    let code = unsafe { sys::ops::fi_getname(endpoint, name.as_mut_ptr().cast(), &raw mut length) };
    if code < 0 || length > name.len() {
        let code = if code < 0 { code } else { -(sys::FI_ENOSPC) };
        return Err(domain.error("fi_getname", code.into()));
    }
    name.truncate(length);
    Ok(name)
}
