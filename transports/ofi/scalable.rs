//! Scalable endpoints: one address with several contexts, each with its own queue.

use super::endpoint::name_of;
use super::{AddressVector, CompletionQueue, Domain, Info, OfiError};
use libfabric_sys as sys;
use std::ptr::{NonNull, null_mut};

/// An enabled scalable endpoint, with one context per queue in each direction.
pub(super) struct ScalableEndpoint {
    raw: NonNull<sys::fid_ep>,
    /// The transmit contexts by number, followed by the receive contexts.
    contexts: Vec<NonNull<sys::fid_ep>>,
    count: usize,
    domain: Domain,
    /// Kept until the endpoint is closed.
    _bound: (AddressVector, Vec<CompletionQueue>),
}

// SAFETY: as the domain, by the contract of `Domain::open`.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for ScalableEndpoint {}

/// How many bits of an address select one of `count` contexts.
pub(super) fn context_bits(count: usize) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

/// The address of one context of a peer whose endpoint is scalable. See fi_rx_addr in fi_av(3).
pub(super) fn context_address(peer: sys::fi_addr_t, context: usize, bits: u32) -> sys::fi_addr_t {
    if bits == 0 { peer } else { (context as u64) << (64 - bits) | peer }
}

impl ScalableEndpoint {
    /// Opens, binds and enables an endpoint, and a pair of contexts for each queue. `info` must have been requested with that many
    /// contexts.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub(super) fn open(
        domain: &Domain,
        info: &Info,
        addresses: &AddressVector,
        queues: &[CompletionQueue],
    ) -> Result<Self, OfiError> {
        let mut raw = null_mut();
        // SAFETY: an open domain and a candidate of it.
        #[expect(unsafe_code, reason = "FFI")]
        let code = unsafe { sys::ops::fi_scalable_ep(domain.as_ptr(), info.as_ptr(), &raw mut raw, null_mut()) };
        let raw = domain.opened("fi_scalable_ep", code, raw)?;
        let bound = (addresses.clone(), queues.to_vec());
        let mut endpoint =
            ScalableEndpoint { raw, contexts: Vec::new(), count: queues.len(), domain: domain.clone(), _bound: bound };
        // SAFETY: open objects of one domain.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            let code = sys::ops::fi_scalable_ep_bind(raw.as_ptr(), &raw mut (*addresses.as_ptr()).fid, 0);
            endpoint.check("fi_scalable_ep_bind", code)?;
            for direction in [sys::FI_TRANSMIT, sys::FI_RECV] {
                for (index, queue) in queues.iter().enumerate() {
                    endpoint.add(direction, index, queue)?;
                }
            }
            endpoint.check("fi_enable", sys::ops::fi_enable(raw.as_ptr()))?;
        }
        Ok(endpoint)
    }

    /// Opens and enables a context.
    fn add(&mut self, direction: u64, index: usize, queue: &CompletionQueue) -> Result<(), OfiError> {
        let (mut raw, index) = (null_mut(), index as i32);
        // SAFETY: an open scalable endpoint and an open queue of one domain; without attributes a context has the endpoint's.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            let (call, code) = if direction == sys::FI_TRANSMIT {
                let code = sys::ops::fi_tx_context(self.raw.as_ptr(), index, null_mut(), &raw mut raw, null_mut());
                ("fi_tx_context", code)
            } else {
                let code = sys::ops::fi_rx_context(self.raw.as_ptr(), index, null_mut(), &raw mut raw, null_mut());
                ("fi_rx_context", code)
            };
            let raw = self.domain.opened(call, code, raw)?;
            self.contexts.push(raw);
            let code = sys::ops::fi_ep_bind(raw.as_ptr(), &raw mut (*queue.as_ptr()).fid, direction);
            self.check("fi_ep_bind", code)?;
            self.check("fi_enable", sys::ops::fi_enable(raw.as_ptr()))
        }
    }

    fn check(&self, call: &'static str, code: i32) -> Result<(), OfiError> {
        if code < 0 { Err(self.domain.error(call, code.into())) } else { Ok(()) }
    }

    /// The endpoint's address, for peers' address vectors.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub(super) fn name(&self) -> Result<Vec<u8>, OfiError> {
        // SAFETY: an enabled endpoint.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            name_of(&self.domain, self.raw.as_ptr())
        }
    }

    /// The transmit context with this number.
    pub(super) fn transmit(&self, index: usize) -> *mut sys::fid_ep {
        assert!(index < self.count, "a context of the endpoint");
        self.contexts[index].as_ptr()
    }
}

impl Drop for ScalableEndpoint {
    fn drop(&mut self) {
        let all = self.contexts.iter().chain(std::iter::once(&self.raw));
        for raw in all {
            // SAFETY: open, and contexts are closed before their endpoint.
            #[expect(unsafe_code, reason = "FFI")]
            unsafe {
                self.domain.close(&raw mut (*raw.as_ptr()).fid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_context_is_in_the_highest_bits_of_an_address() {
        assert_eq!([1, 2, 3, 4, 5].map(context_bits), [0, 1, 2, 2, 3]);
        assert_eq!(context_address(5, 0, 0), 5);
        assert_eq!(context_address(5, 3, 2), 3 << 62 | 5);
    }
}
