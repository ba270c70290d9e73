//! Candidates (`struct fi_info`): what providers offer for given hints. Each is owned.

use super::interfaces::host_address;
use super::{Library, OfiError};
use libfabric_sys as sys;
use std::ffi::{CStr, CString, c_char};
use std::net::{IpAddr, SocketAddr};
use std::ptr::{NonNull, null, null_mut};

/// The request for candidates. See fi_getinfo(3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hints {
    /// Capabilities: `FI_MSG`, `FI_TAGGED` …
    pub caps: u64,
    /// The ways to register memory that the caller supports, `FI_MR_LOCAL` …; neither basic nor scalable.
    pub mr_mode: u64,
    /// The order that messages to one peer must keep: `FI_ORDER_SAS`.
    pub msg_order: u64,
    /// What a completion means by default: `FI_DELIVERY_COMPLETE`, or 0 for the provider's choice.
    pub completes: u64,
    /// Contexts of a scalable endpoint; 0 for an ordinary endpoint.
    pub contexts: usize,
    /// Whether a thread of the provider may make progress.
    pub automatic: bool,
    /// One provider only, by its exact name.
    pub provider: Option<String>,
}

/// One candidate as libfabric offers it. See fi_getinfo(3).
pub struct Info {
    library: Library,
    raw: NonNull<sys::fi_info>,
}

// SAFETY: a structure in memory that only its owner has; whoever shares it only reads.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for Info {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Sync for Info {}

impl Info {
    /// All candidates that fit the hints, in libfabric's order, the fastest first. Empty if there are none.
    ///
    /// # Errors
    /// [`OfiError::Call`] for anything else.
    pub fn list(library: &Library, hints: &Hints) -> Result<Vec<Info>, OfiError> {
        let asked = Info::empty(library)?;
        asked.set(hints)?;
        let mut first = null_mut();
        // SAFETY: hints as the version has them; the list that comes back is freed below.
        #[expect(unsafe_code, reason = "FFI")]
        let code =
            unsafe { (library.api().getinfo)(sys::API_VERSION, null(), null(), 0, asked.raw.as_ptr(), &raw mut first) };
        if code == -(sys::FI_ENODATA) {
            return Ok(Vec::new());
        }
        if code < 0 {
            let provider = hints.provider.as_deref().unwrap_or("any");
            return Err(OfiError::call(library, "fi_getinfo", provider, code.into()));
        }
        let mut found = Vec::new();
        let mut at = first;
        // SAFETY: a list of libfabric's, whole until it is freed; each entry is copied.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            while let Some(entry) = at.as_ref() {
                if let Some(raw) = NonNull::new((library.api().dupinfo)(entry)) {
                    found.push(Info { library: *library, raw });
                }
                at = entry.next;
            }
            (library.api().freeinfo)(first);
        }
        Ok(found)
    }

    fn empty(library: &Library) -> Result<Info, OfiError> {
        // SAFETY: nothing to copy makes an empty one.
        #[expect(unsafe_code, reason = "FFI")]
        let raw = unsafe { (library.api().dupinfo)(null()) };
        let none = || OfiError::call(library, "fi_allocinfo", "any", -i64::from(sys::FI_ENOMEM));
        Ok(Info { library: *library, raw: NonNull::new(raw).ok_or_else(none)? })
    }

    /// Writes hints into an empty candidate.
    fn set(&self, hints: &Hints) -> Result<(), OfiError> {
        let name = hints.provider.as_deref().map(CString::new).transpose();
        let name = name.map_err(|_| OfiError::Unknown {
            name: hints.provider.clone().unwrap_or_default(),
            found: "its name has a zero byte".into(),
        })?;
        // SAFETY: an own structure whose parts libfabric has allocated; the name is freed with it, by `free`.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            let info = &mut *self.raw.as_ptr();
            info.caps = hints.caps;
            // Every operation has a context of 64 B that stays until it completes.
            info.mode = sys::FI_CONTEXT | sys::FI_CONTEXT2;
            (*info.ep_attr).type_ = sys::FI_EP_RDM;
            (*info.domain_attr).mr_mode = hints.mr_mode as _;
            (*info.domain_attr).threading = sys::FI_THREAD_DOMAIN;
            // Ticks make progress. A provider's thread would take processor time from them.
            let progress = if hints.automatic { sys::FI_PROGRESS_AUTO } else { sys::FI_PROGRESS_MANUAL };
            (*info.domain_attr).control_progress = progress;
            (*info.domain_attr).data_progress = progress;
            (*info.ep_attr).tx_ctx_cnt = hints.contexts;
            (*info.ep_attr).rx_ctx_cnt = hints.contexts;
            (*info.domain_attr).resource_mgmt = sys::FI_RM_ENABLED;
            (*info.domain_attr).av_type = sys::FI_AV_TABLE;
            (*info.tx_attr).msg_order = hints.msg_order;
            (*info.rx_attr).msg_order = hints.msg_order;
            (*info.tx_attr).op_flags = hints.completes;
            if let Some(name) = &name {
                (*info.fabric_attr).prov_name = libc::strdup(name.as_ptr());
            }
        }
        Ok(())
    }

    /// The provider's exact name, with the layers above it: `tcp;ofi_rxm`.
    pub fn provider(&self) -> &str {
        // SAFETY: the attributes are there, and stay with `self`.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            text((*self.raw().fabric_attr).prov_name)
        }
    }

    /// The fabric: a network, a device's name.
    pub fn fabric(&self) -> &str {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            text((*self.raw().fabric_attr).name)
        }
    }

    /// The domain, which is the network interface or device for most providers.
    pub fn domain(&self) -> &str {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            text((*self.raw().domain_attr).name)
        }
    }

    /// The whole structure, to read.
    pub fn raw(&self) -> &sys::fi_info {
        // SAFETY: owned by `self`; nobody writes while it is shared.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            self.raw.as_ref()
        }
    }

    /// The attributes of its domain.
    pub fn domain_attr(&self) -> &sys::fi_domain_attr {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            &*self.raw().domain_attr
        }
    }

    /// The attributes of its endpoints.
    pub fn ep_attr(&self) -> &sys::fi_ep_attr {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            &*self.raw().ep_attr
        }
    }

    /// The attributes of its transmit contexts.
    pub fn tx_attr(&self) -> &sys::fi_tx_attr {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            &*self.raw().tx_attr
        }
    }

    /// The attributes of its receive contexts.
    pub fn rx_attr(&self) -> &sys::fi_rx_attr {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            &*self.raw().rx_attr
        }
    }

    /// The address that an endpoint of this candidate would have, in the provider's format; empty if it is not known yet.
    pub fn source(&self) -> &[u8] {
        let info = self.raw();
        if info.src_addr.is_null() {
            return &[];
        }
        // SAFETY: the provider says how long its address is.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            std::slice::from_raw_parts(info.src_addr.cast(), info.src_addrlen)
        }
    }

    /// The Internet address in [`Info::source`], if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host_address().map(|address| address.ip())
    }

    /// As [`Info::ip`], with its scope and without a port.
    pub(super) fn host_address(&self) -> Option<SocketAddr> {
        let format = self.raw().addr_format;
        let is_named = [sys::FI_SOCKADDR, sys::FI_SOCKADDR_IN, sys::FI_SOCKADDR_IN6].contains(&format);
        is_named.then(|| host_address(self.source())).flatten()
    }

    /// A copy whose transmit or receive attributes may be changed before something is opened from it.
    ///
    /// # Errors
    /// [`OfiError::Call`] if there is no memory.
    pub fn copy(&self) -> Result<Info, OfiError> {
        // SAFETY: a whole structure.
        #[expect(unsafe_code, reason = "FFI")]
        let raw = unsafe { (self.library.api().dupinfo)(self.raw.as_ptr()) };
        let none = || OfiError::call(&self.library, "fi_dupinfo", self.provider(), -i64::from(sys::FI_ENOMEM));
        Ok(Info { library: self.library, raw: NonNull::new(raw).ok_or_else(none)? })
    }

    /// Removes CQ data from the candidate, before objects are opened from it.
    pub(super) fn forget_data(&mut self) {
        // SAFETY: owned by `self`, and borrowed as a whole.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            (*(*self.raw.as_ptr()).domain_attr).cq_data_size = 0;
        }
    }

    /// Whether the provider requires local memory to be registered (`FI_MR_LOCAL`).
    pub fn is_told_of_local_memory(&self) -> bool {
        self.domain_attr().mr_mode as u64 & sys::FI_MR_LOCAL != 0
    }

    /// Makes the candidate require local memory to be registered (`FI_MR_LOCAL`).
    pub(super) fn tell_of_local_memory(&mut self) {
        self.force_mr_mode(self.domain_attr().mr_mode as u64 | sys::FI_MR_LOCAL);
    }

    /// Sets the candidate's `mr_mode`.
    pub(super) fn force_mr_mode(&mut self, mr_mode: u64) {
        // SAFETY: owned by `self`, and borrowed as a whole.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            (*(*self.raw.as_ptr()).domain_attr).mr_mode = mr_mode as _;
        }
    }

    /// The version of libfabric's interface that the provider speaks.
    pub(super) fn api_version(&self) -> u32 {
        // SAFETY: the attributes are there, and stay with `self`.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            (*self.raw().fabric_attr).api_version
        }
    }

    /// The structure, to open objects from.
    pub(super) fn as_ptr(&self) -> *mut sys::fi_info {
        self.raw.as_ptr()
    }

    /// The library that the candidate comes from.
    pub fn library(&self) -> &Library {
        &self.library
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: from libfabric, freed once. It frees the names with `free`, which the hints' name fits.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            (self.library.api().freeinfo)(self.raw.as_ptr());
        }
    }
}

impl std::fmt::Debug for Info {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.provider(), self.domain())
    }
}

/// A string from libfabric; empty if there is none or it is not UTF-8.
///
/// # Safety
/// Null, or a string that lives as long as the answer is used.
#[expect(unsafe_code, reason = "FFI")]
pub(super) unsafe fn text<'a>(words: *const c_char) -> &'a str {
    if words.is_null() {
        return "";
    }
    // SAFETY: by this function's contract.
    unsafe { CStr::from_ptr(words) }.to_str().unwrap_or("")
}
