//! The libfabric calls that post operations.

use super::operation::What::{Fetch, Get, Put, Swap};
use super::operation::{Operation, Place};
use crate::remote::{AtomicOperation, AtomicWord};
use libfabric_sys as sys;
use std::ffi::c_void;
use tickwire_components::Span;

/// What a write's completion must mean: the target's memory holds the bytes.
const DELIVERED: u64 = sys::FI_COMPLETION | sys::FI_DELIVERY_COMPLETE;
/// Byte offsets in the slot of an atomic operation: of the compare operand and of the result. The other operand is at offset 0.
pub(super) const EXPECTED_AT: usize = 8;
pub(super) const RESULT_AT: usize = 16;
const WORD_BYTES: usize = 8;

/// Posts a piece. Returns the name of the libfabric call and its return code.
pub(super) fn post(
    endpoint: *mut sys::fid_ep,
    operation: &Operation,
    place: &Place,
    address: u64,
    context: *mut c_void,
) -> (&'static str, isize) {
    let (run, mut descriptor) = (place.run, place.descriptor);
    let (start, to, key) = (run.start().cast::<c_void>(), operation.to, operation.key);
    let part = |at| run.part(at, WORD_BYTES).start().cast::<c_void>();
    // SAFETY: an open endpoint; run and context are the provider's until the piece is complete, or the endpoint is closed: the slot is
    // taken, and the caller lends its run. What the call is given besides is copied by it.
    #[expect(unsafe_code, reason = "FFI")]
    unsafe {
        match operation.what {
            Put => {
                let iov = libc::iovec { iov_base: start, iov_len: run.len() };
                let target = sys::fi_rma_iov { addr: address, len: run.len(), key };
                let message = sys::fi_msg_rma {
                    msg_iov: &raw const iov,
                    desc: &raw mut descriptor,
                    iov_count: 1,
                    addr: to,
                    rma_iov: &raw const target,
                    rma_iov_count: 1,
                    context,
                    data: 0,
                };
                ("fi_writemsg", sys::ops::fi_writemsg(endpoint, &raw const message, DELIVERED))
            }
            Get => ("fi_read", sys::ops::fi_read(endpoint, start, run.len(), descriptor, to, address, key, context)),
            Fetch(how, word) => {
                let (result, kind, how) = (part(RESULT_AT), datatype(word), fetching(how));
                let code = sys::ops::fi_fetch_atomic(
                    endpoint, start, 1, descriptor, result, descriptor, to, address, key, kind, how, context,
                );
                ("fi_fetch_atomic", code)
            }
            Swap(_, word) => {
                let (expected, result) = (part(EXPECTED_AT), part(RESULT_AT));
                let (kind, how) = (datatype(word), sys::FI_CSWAP);
                let code = sys::ops::fi_compare_atomic(
                    endpoint, start, 1, descriptor, expected, descriptor, result, descriptor, to, address, key, kind,
                    how, context,
                );
                ("fi_compare_atomic", code)
            }
        }
    }
}

/// Writes an operand into a slot.
pub(super) fn write(slot: Span, at: usize, word: AtomicWord) {
    let place = slot.part(at, WORD_BYTES).start();
    // SAFETY: an own, aligned place of eight bytes, which no operation uses.
    #[expect(unsafe_code, reason = "memory that a provider is given")]
    unsafe {
        match word {
            AtomicWord::Four(value) => place.cast::<u32>().write(value),
            AtomicWord::Eight(value) => place.cast::<u64>().write(value),
        }
    }
}

fn datatype(word: AtomicWord) -> sys::fi_datatype {
    match word {
        AtomicWord::Four(_) => sys::FI_UINT32,
        AtomicWord::Eight(_) => sys::FI_UINT64,
    }
}

fn fetching(operation: AtomicOperation) -> sys::fi_op {
    match operation {
        AtomicOperation::Sum => sys::FI_SUM,
        AtomicOperation::And => sys::FI_BAND,
        AtomicOperation::Or => sys::FI_BOR,
        AtomicOperation::Xor => sys::FI_BXOR,
        AtomicOperation::Replace => sys::FI_ATOMIC_WRITE,
        AtomicOperation::Read => sys::FI_ATOMIC_READ,
    }
}
