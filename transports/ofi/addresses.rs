//! Address vectors: peers' addresses as providers know them.

use super::{Domain, OfiError};
use libfabric_sys as sys;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// An address vector. Clones are the same one.
#[derive(Clone)]
pub struct AddressVector(Arc<Handle>);

struct Handle {
    raw: NonNull<sys::fid_av>,
    domain: Domain,
}

// SAFETY: as the domain, by the contract of `Domain::open`.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for Handle {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Sync for Handle {}

impl AddressVector {
    /// Opens an address vector for about `count` peers.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub fn open(domain: &Domain, count: usize) -> Result<Self, OfiError> {
        Self::open_scalable(domain, count, 0)
    }

    /// Opens an address vector for peers with scalable endpoints: `context_bits` bits of a peer's number select the context.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub(super) fn open_scalable(domain: &Domain, count: usize, context_bits: u32) -> Result<Self, OfiError> {
        let mut raw = null_mut();
        // SAFETY: integers and pointers, for which zero is a value: the defaults.
        #[expect(unsafe_code, reason = "FFI")]
        let mut attr: sys::fi_av_attr = unsafe { std::mem::zeroed() };
        attr.type_ = sys::FI_AV_TABLE;
        attr.count = count;
        attr.rx_ctx_bits = context_bits as i32;
        // SAFETY: an open domain and its own attributes.
        #[expect(unsafe_code, reason = "FFI")]
        let code = unsafe { sys::ops::fi_av_open(domain.as_ptr(), &raw mut attr, &raw mut raw, null_mut()) };
        let raw = domain.opened("fi_av_open", code, raw)?;
        Ok(AddressVector(Arc::new(Handle { raw, domain: domain.clone() })))
    }

    /// Enters a peer's address, as [`super::Endpoint::name`] returned it at the peer. Returns the peer's number in this vector.
    ///
    /// # Errors
    /// [`OfiError::Call`], also if the bytes are no address of this provider.
    pub fn insert(&self, address: &[u8]) -> Result<sys::fi_addr_t, OfiError> {
        let domain = &self.0.domain;
        let mut number = sys::FI_ADDR_NOTAVAIL;
        let invalid = || domain.error("fi_av_insert", -i64::from(sys::FI_EINVAL));
        // A provider reads as many bytes as its format has.
        let due = domain.info().raw().src_addrlen;
        // If the address is a name, it reads up to the terminating zero byte.
        let is_name = domain.info().raw().addr_format == sys::FI_ADDR_STR;
        let is_short = is_socket(domain.info().raw().addr_format) && address.len() < socket_bytes(address);
        if address.is_empty() || due != 0 && address.len() < due || is_name && !address.contains(&0) || is_short {
            return Err(invalid());
        }
        // SAFETY: an address of the length that the provider's own have.
        #[expect(unsafe_code, reason = "FFI")]
        let count = unsafe {
            sys::ops::fi_av_insert(self.as_ptr(), address.as_ptr().cast(), 1, &raw mut number, 0, null_mut())
        };
        match count {
            1 if number != sys::FI_ADDR_NOTAVAIL => Ok(number),
            code if code < 0 => Err(domain.error("fi_av_insert", code.into())),
            _ => Err(invalid()),
        }
    }

    /// Removes a peer.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub fn remove(&self, number: sys::fi_addr_t) -> Result<(), OfiError> {
        let mut number = number;
        // SAFETY: one number of this vector's.
        #[expect(unsafe_code, reason = "FFI")]
        let code = unsafe { sys::ops::fi_av_remove(self.as_ptr(), &raw mut number, 1, 0) };
        if code < 0 { Err(self.0.domain.error("fi_av_remove", code.into())) } else { Ok(()) }
    }

    pub(super) fn as_ptr(&self) -> *mut sys::fid_av {
        self.0.raw.as_ptr()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: open; the endpoints that use it keep it.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            self.domain.close(&raw mut (*self.raw.as_ptr()).fid);
        }
    }
}
/// Whether addresses of a format are those of sockets.
fn is_socket(format: u32) -> bool {
    [sys::FI_SOCKADDR, sys::FI_SOCKADDR_IN, sys::FI_SOCKADDR_IN6, sys::FI_SOCKADDR_IB].contains(&format)
}

/// Bytes that a provider reads of a socket's address: those of the family that stands in its first two bytes. Of an unknown family,
/// more than any address has.
fn socket_bytes(address: &[u8]) -> usize {
    /// Bytes of `struct sockaddr_ib` and its family. The C library has neither.
    const INFINIBAND: (u16, usize) = (27, 48);
    let family = address.first_chunk().map_or(0, |family| u16::from_ne_bytes(*family));
    match i32::from(family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ if family == INFINIBAND.0 => INFINIBAND.1,
        _ => usize::MAX,
    }
}
