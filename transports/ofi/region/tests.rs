//! Regions that are bound to an endpoint. No provider here asks for that, so functions of this file register in the provider's place.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

use super::*;
use crate::ofi::wrapper_tests::library;
use crate::ofi::{AddressVector, Choice, CompletionQueue, Fabric, message_hints};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;

thread_local! {
    /// The calls so far, in order.
    static CALLS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    /// The call that fails.
    static FAILING: Cell<&'static str> = const { Cell::new("") };
    /// The functions of new regions.
    static OF_REGIONS: Cell<*mut sys::fi_ops> = const { Cell::new(null_mut()) };
    /// The endpoint that regions are to be bound to.
    static ENDPOINT: Cell<*mut sys::fid> = const { Cell::new(null_mut()) };
    /// The provider's own functions of the endpoint.
    static OF_ENDPOINT: Cell<*mut sys::fi_ops> = const { Cell::new(null_mut()) };
}

/// Notes a call; its result.
fn called(name: &'static str) -> c_int {
    CALLS.with_borrow_mut(|calls| calls.push(name));
    if FAILING.get() == name { -sys::FI_EINVAL } else { 0 }
}

/// The calls since this was last asked.
fn calls() -> Vec<&'static str> {
    CALLS.take()
}

#[expect(unsafe_code, reason = "a function of libfabric's")]
unsafe extern "C" fn register(
    _domain: *mut sys::fid,
    _start: *const c_void,
    _length: usize,
    _access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    region: *mut *mut sys::fid_mr,
    context: *mut c_void,
) -> c_int {
    let code = called("register");
    if code == 0 {
        let fid = sys::fid { fclass: 0, context, ops: OF_REGIONS.get() };
        // SAFETY: the caller has room for the result.
        unsafe {
            *region = Box::into_raw(Box::new(sys::fid_mr { fid, mem_desc: null_mut(), key }));
        }
    }
    code
}

#[expect(unsafe_code, reason = "a function of libfabric's")]
unsafe extern "C" fn bind(_region: *mut sys::fid, to: *mut sys::fid, flags: u64) -> c_int {
    called(if to == ENDPOINT.get() && flags == 0 { "bind" } else { "bind to something else" })
}

#[expect(unsafe_code, reason = "a function of libfabric's")]
unsafe extern "C" fn control(_region: *mut sys::fid, command: c_int, _argument: *mut c_void) -> c_int {
    called(if command == sys::FI_ENABLE as c_int { "enable" } else { "something else" })
}

#[expect(unsafe_code, reason = "a function of libfabric's")]
unsafe extern "C" fn close(region: *mut sys::fid) -> c_int {
    // SAFETY: `register` has made it, and a region begins with this field.
    drop(unsafe { Box::from_raw(region.cast::<sys::fid_mr>()) });
    called("close")
}

#[expect(unsafe_code, reason = "a function of libfabric's")]
unsafe extern "C" fn close_endpoint(endpoint: *mut sys::fid) -> c_int {
    called("close the endpoint");
    // SAFETY: an open endpoint, with the table that the provider knows.
    unsafe {
        (*endpoint).ops = OF_ENDPOINT.get();
        sys::ops::fi_close(endpoint)
    }
}

/// The tables of the functions above.
struct Tables {
    of_domain: sys::fi_ops_mr,
    of_regions: sys::fi_ops,
    of_endpoint: sys::fi_ops,
}

/// Runs a part of a test with a domain whose regions are made by `register`, and with an endpoint of the domain. `bound` says whether
/// regions must be bound to endpoints. All that the part leaves is closed afterwards.
#[expect(unsafe_code, reason = "tables of functions")]
fn with_domain(bound: bool, part: impl FnOnce(&Domain, Endpoint)) {
    let Some(library) = library() else { return };
    let choice = Choice { include: vec!["tcp;ofi_rxm".into()], ..Choice::default() };
    let found = choice.take(choice.candidates(&library, &message_hints()).unwrap()).unwrap();
    let info = found.into_iter().next().unwrap();
    let fabric = Fabric::open(&info).unwrap();
    // SAFETY: all of it stays in this thread.
    let domain = unsafe { Domain::open(&fabric, info).unwrap() };
    let addresses = AddressVector::open(&domain, 1).unwrap();
    let queue = CompletionQueue::open(&domain, 8, false).unwrap();
    let endpoint = Endpoint::open(&domain, domain.info(), &addresses, &queue, &queue).unwrap();
    let (raw, fid) = (domain.as_ptr(), endpoint.fid());
    // SAFETY: open objects of this thread, and whole tables, which are kept until the objects are closed or have their own tables again.
    unsafe {
        let (own, of_regions) = ((*raw).mr, (*fid).ops);
        let mut tables = Tables { of_domain: *own, of_regions: *of_regions, of_endpoint: *of_regions };
        tables.of_domain.reg = Some(register);
        tables.of_regions.bind = Some(bind);
        tables.of_regions.control = Some(control);
        tables.of_regions.close = Some(close);
        tables.of_endpoint.close = Some(close_endpoint);
        OF_REGIONS.set(&raw mut tables.of_regions);
        OF_ENDPOINT.set((*fid).ops);
        ENDPOINT.set(fid);
        ((*raw).mr, (*fid).ops) = (&raw mut tables.of_domain, &raw mut tables.of_endpoint);
        let mr_mode = &raw mut (*(*domain.info().as_ptr()).domain_attr).mr_mode;
        let modes = *mr_mode as u64 & !sys::FI_MR_ENDPOINT;
        *mr_mode = if bound { modes | sys::FI_MR_ENDPOINT } else { modes } as c_int;
        part(&domain, endpoint);
        *mr_mode = modes as c_int;
        (*raw).mr = own;
    }
    assert_eq!(calls(), [""; 0], "the part has looked at all calls");
}

/// Registers a few bytes that nobody uses.
#[expect(unsafe_code, reason = "FFI")]
fn registered(domain: &Domain, endpoint: Option<&Endpoint>) -> Result<MemoryRegion, OfiError> {
    static BYTES: [u8; 64] = [0; 64];
    // SAFETY: bytes that stay, and that nobody writes: nothing is really registered.
    unsafe {
        let span = Span::new(BYTES.as_ptr().cast_mut(), BYTES.len());
        MemoryRegion::register(domain, span, sys::FI_REMOTE_READ, 77, endpoint)
    }
}

#[test]
fn a_region_is_bound_and_enabled_and_closed_before_its_endpoint() {
    with_domain(true, |domain, endpoint| {
        let region = registered(domain, Some(&endpoint)).unwrap();
        assert_eq!(calls(), ["register", "bind", "enable"]);
        assert_eq!((region.key(), region.descriptor()), (77, null_mut()));
        let same = region.clone();
        drop((endpoint, region));
        assert_eq!(calls(), [""; 0], "a clone is left, and keeps the endpoint");
        drop(same);
        assert_eq!(calls(), ["close", "close the endpoint"]);
    });
}

#[test]
fn a_region_that_cannot_be_bound_or_enabled_is_closed_again() {
    let all = [("register", "fi_mr_reg"), ("bind", "fi_mr_bind"), ("enable", "fi_mr_enable")];
    for (failing, name) in all {
        with_domain(true, |domain, endpoint| {
            FAILING.set(failing);
            let error = registered(domain, Some(&endpoint)).map(drop).unwrap_err();
            FAILING.set("");
            assert!(matches!(&error, OfiError::Call { call, code: sys::FI_EINVAL, .. } if *call == name), "{error}");
            let expected: &[_] = match failing {
                "register" => &["register"],
                "bind" => &["register", "bind", "close"],
                _ => &["register", "bind", "enable", "close"],
            };
            assert_eq!(calls(), expected);
            // What failed keeps nothing, and the next region can be made.
            let region = registered(domain, Some(&endpoint)).unwrap();
            assert_eq!(calls(), ["register", "bind", "enable"]);
            drop(region);
            drop(endpoint);
            assert_eq!(calls(), ["close", "close the endpoint"]);
        });
    }
}

#[test]
fn a_region_is_not_bound_where_nobody_asks_for_it() {
    // The provider does not ask for it, or the caller has no endpoint.
    for bound in [false, true] {
        with_domain(bound, |domain, endpoint| {
            let region = registered(domain, Some(&endpoint).filter(|_| !bound)).unwrap();
            assert_eq!(calls(), ["register"]);
            drop(endpoint);
            assert_eq!(calls(), ["close the endpoint"], "the region does not keep it");
            drop(region);
            assert_eq!(calls(), ["close"]);
        });
    }
}
