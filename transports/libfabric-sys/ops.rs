//! The functions that libfabric's headers define inline: calls through the tables of an object.
//!
//! A table always has the slots of the declarations, since the library is at least as new as they are; a slot that a
//! provider has left empty answers `-FI_ENOSYS`, as the providers' own stubs do.

use crate::bindings::*;
use libc::iovec;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

/// What an empty slot answers.
trait Absent {
    const ABSENT: Self;
}

impl Absent for c_int {
    const ABSENT: Self = -FI_ENOSYS;
}

impl Absent for isize {
    const ABSENT: Self = -(FI_ENOSYS as isize);
}

impl Absent for u64 {
    const ABSENT: Self = 0;
}

impl Absent for *const c_char {
    const ABSENT: Self = std::ptr::null();
}

macro_rules! forward {
    ($($page:literal: $object:ident: *mut $type:ty, $table:ident {
        $($slot:ident: $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*
    })*) => { $($(
        #[doc = concat!("See ", $page, ".")]
        ///
        /// # Safety
        /// As the man page says; the object is open and has this kind of operations.
        #[inline(always)]
        #[expect(clippy::allow_attributes, reason = "how many arguments there are is libfabric's choice")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($object: *mut $type, $($argument: $kind),*) -> $result {
            // SAFETY: by this function's contract the object and its table can be read, and the arguments are fit.
            unsafe {
                match (*(*$object).$table).$slot {
                    Some(slot) => slot($object, $($argument),*),
                    None => <$result as Absent>::ABSENT,
                }
            }
        }
    )*)* };
}

forward! {
    "fi_msg(3)": ep: *mut fid_ep, msg {
        recv: fi_recv(buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t, context: *mut c_void) -> isize;
        recvv: fi_recvv(iov: *const iovec, desc: *mut *mut c_void, count: usize, src_addr: fi_addr_t, context: *mut c_void) -> isize;
        recvmsg: fi_recvmsg(msg: *const fi_msg, flags: u64) -> isize;
        send: fi_send(buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t, context: *mut c_void) -> isize;
        sendv: fi_sendv(iov: *const iovec, desc: *mut *mut c_void, count: usize, dest_addr: fi_addr_t, context: *mut c_void) -> isize;
        sendmsg: fi_sendmsg(msg: *const fi_msg, flags: u64) -> isize;
        inject: fi_inject(buf: *const c_void, len: usize, dest_addr: fi_addr_t) -> isize;
        senddata: fi_senddata(buf: *const c_void, len: usize, desc: *mut c_void, data: u64, dest_addr: fi_addr_t, context: *mut c_void) -> isize;
        injectdata: fi_injectdata(buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t) -> isize;
    }
    "fi_tagged(3)": ep: *mut fid_ep, tagged {
        recv: fi_trecv(buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t, tag: u64, ignore: u64, context: *mut c_void) -> isize;
        recvv: fi_trecvv(iov: *const iovec, desc: *mut *mut c_void, count: usize, src_addr: fi_addr_t, tag: u64, ignore: u64, context: *mut c_void) -> isize;
        recvmsg: fi_trecvmsg(msg: *const fi_msg_tagged, flags: u64) -> isize;
        send: fi_tsend(buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t, tag: u64, context: *mut c_void) -> isize;
        sendv: fi_tsendv(iov: *const iovec, desc: *mut *mut c_void, count: usize, dest_addr: fi_addr_t, tag: u64, context: *mut c_void) -> isize;
        sendmsg: fi_tsendmsg(msg: *const fi_msg_tagged, flags: u64) -> isize;
        inject: fi_tinject(buf: *const c_void, len: usize, dest_addr: fi_addr_t, tag: u64) -> isize;
        senddata: fi_tsenddata(buf: *const c_void, len: usize, desc: *mut c_void, data: u64, dest_addr: fi_addr_t, tag: u64, context: *mut c_void) -> isize;
        injectdata: fi_tinjectdata(buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t, tag: u64) -> isize;
    }
    "fi_rma(3)": ep: *mut fid_ep, rma {
        read: fi_read(buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void) -> isize;
        readv: fi_readv(iov: *const iovec, desc: *mut *mut c_void, count: usize, src_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void) -> isize;
        readmsg: fi_readmsg(msg: *const fi_msg_rma, flags: u64) -> isize;
        write: fi_write(buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void) -> isize;
        writev: fi_writev(iov: *const iovec, desc: *mut *mut c_void, count: usize, dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void) -> isize;
        writemsg: fi_writemsg(msg: *const fi_msg_rma, flags: u64) -> isize;
        inject: fi_inject_write(buf: *const c_void, len: usize, dest_addr: fi_addr_t, addr: u64, key: u64) -> isize;
        writedata: fi_writedata(buf: *const c_void, len: usize, desc: *mut c_void, data: u64, dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void) -> isize;
        injectdata: fi_inject_writedata(buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t, addr: u64, key: u64) -> isize;
    }
    "fi_atomic(3)": ep: *mut fid_ep, atomic {
        write: fi_atomic(buf: *const c_void, count: usize, desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void) -> isize;
        writemsg: fi_atomicmsg(msg: *const fi_msg_atomic, flags: u64) -> isize;
        inject: fi_inject_atomic(buf: *const c_void, count: usize, dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op) -> isize;
        readwrite: fi_fetch_atomic(buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void) -> isize;
        readwritemsg: fi_fetch_atomicmsg(msg: *const fi_msg_atomic, resultv: *mut fi_ioc, result_desc: *mut *mut c_void, result_count: usize, flags: u64) -> isize;
        compwrite: fi_compare_atomic(buf: *const c_void, count: usize, desc: *mut c_void, compare: *const c_void, compare_desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void) -> isize;
        compwritemsg: fi_compare_atomicmsg(msg: *const fi_msg_atomic, comparev: *const fi_ioc, compare_desc: *mut *mut c_void, compare_count: usize, resultv: *mut fi_ioc, result_desc: *mut *mut c_void, result_count: usize, flags: u64) -> isize;
        writevalid: fi_atomicvalid(datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int;
        readwritevalid: fi_fetch_atomicvalid(datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int;
        compwritevalid: fi_compare_atomicvalid(datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int;
    }
    "fi_cq(3)": cq: *mut fid_cq, ops {
        read: fi_cq_read(buf: *mut c_void, count: usize) -> isize;
        readfrom: fi_cq_readfrom(buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t) -> isize;
        readerr: fi_cq_readerr(buf: *mut fi_cq_err_entry, flags: u64) -> isize;
        sread: fi_cq_sread(buf: *mut c_void, count: usize, cond: *const c_void, timeout: c_int) -> isize;
        signal: fi_cq_signal() -> c_int;
        strerror: fi_cq_strerror(prov_errno: c_int, err_data: *const c_void, buf: *mut c_char, len: usize) -> *const c_char;
    }
    "fi_cntr(3)": cntr: *mut fid_cntr, ops {
        read: fi_cntr_read() -> u64;
        readerr: fi_cntr_readerr() -> u64;
        wait: fi_cntr_wait(threshold: u64, timeout: c_int) -> c_int;
    }
    "fi_fabric(3), fi_poll(3)": fabric: *mut fid_fabric, ops {
        domain: fi_domain(info: *mut fi_info, dom: *mut *mut fid_domain, context: *mut c_void) -> c_int;
        trywait: fi_trywait(fids: *mut *mut fid, count: c_int) -> c_int;
    }
    "fi_domain(3), fi_cq(3), fi_av(3), fi_endpoint(3), fi_cntr(3), fi_atomic(3)": domain: *mut fid_domain, ops {
        av_open: fi_av_open(attr: *mut fi_av_attr, av: *mut *mut fid_av, context: *mut c_void) -> c_int;
        cq_open: fi_cq_open(attr: *mut fi_cq_attr, cq: *mut *mut fid_cq, context: *mut c_void) -> c_int;
        endpoint: fi_endpoint(info: *mut fi_info, ep: *mut *mut fid_ep, context: *mut c_void) -> c_int;
        scalable_ep: fi_scalable_ep(info: *mut fi_info, sep: *mut *mut fid_ep, context: *mut c_void) -> c_int;
        cntr_open: fi_cntr_open(attr: *mut fi_cntr_attr, cntr: *mut *mut fid_cntr, context: *mut c_void) -> c_int;
        query_atomic: fi_query_atomic(datatype: fi_datatype, op: fi_op, attr: *mut fi_atomic_attr, flags: u64) -> c_int;
    }
    "fi_av(3)": av: *mut fid_av, ops {
        insert: fi_av_insert(addr: *const c_void, count: usize, fi_addr: *mut fi_addr_t, flags: u64, context: *mut c_void) -> c_int;
        remove: fi_av_remove(fi_addr: *mut fi_addr_t, count: usize, flags: u64) -> c_int;
        lookup: fi_av_lookup(fi_addr: fi_addr_t, addr: *mut c_void, addrlen: *mut usize) -> c_int;
        straddr: fi_av_straddr(addr: *const c_void, buf: *mut c_char, len: *mut usize) -> *const c_char;
    }
    "fi_endpoint(3), of a scalable one": ep: *mut fid_ep, ops {
        tx_ctx: fi_tx_context(index: c_int, attr: *mut fi_tx_attr, tx_ep: *mut *mut fid_ep, context: *mut c_void) -> c_int;
        rx_ctx: fi_rx_context(index: c_int, attr: *mut fi_rx_attr, rx_ep: *mut *mut fid_ep, context: *mut c_void) -> c_int;
    }
}

/// See fi_close(3).
///
/// # Safety
/// An object that is open, that no other open object uses, and that nobody uses afterwards.
#[inline(always)]
pub unsafe fn fi_close(fid: *mut fid) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { (*(*fid).ops).close.map_or(c_int::ABSENT, |close| close(fid)) }
}

/// See fi_control(3).
///
/// # Safety
/// An open object, and the argument that the command takes.
#[inline(always)]
pub unsafe fn fi_control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { (*(*fid).ops).control.map_or(c_int::ABSENT, |control| control(fid, command, argument)) }
}

/// See fi_ep_bind in fi_endpoint(3).
///
/// # Safety
/// Two open objects of one domain.
#[inline(always)]
pub unsafe fn fi_ep_bind(ep: *mut fid_ep, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { (*(*ep).fid.ops).bind.map_or(c_int::ABSENT, |bind| bind(&raw mut (*ep).fid, other, flags)) }
}

/// See fi_mr_bind in fi_mr(3).
///
/// # Safety
/// As [`fi_ep_bind`].
#[inline(always)]
pub unsafe fn fi_mr_bind(mr: *mut fid_mr, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { (*(*mr).fid.ops).bind.map_or(c_int::ABSENT, |bind| bind(&raw mut (*mr).fid, other, flags)) }
}

/// See fi_enable in fi_endpoint(3).
///
/// # Safety
/// An open endpoint.
#[inline(always)]
pub unsafe fn fi_enable(ep: *mut fid_ep) -> c_int {
    // SAFETY: by this function's contract; the command takes no argument.
    unsafe { fi_control(&raw mut (*ep).fid, FI_ENABLE as c_int, null_mut()) }
}

/// See fi_mr_enable in fi_mr(3).
///
/// # Safety
/// An open memory region.
#[inline(always)]
pub unsafe fn fi_mr_enable(mr: *mut fid_mr) -> c_int {
    // SAFETY: by this function's contract; the command takes no argument.
    unsafe { fi_control(&raw mut (*mr).fid, FI_ENABLE as c_int, null_mut()) }
}

/// The descriptor that operations on local memory take. See fi_mr(3).
///
/// # Safety
/// An open memory region.
#[inline(always)]
pub unsafe fn fi_mr_desc(mr: *mut fid_mr) -> *mut c_void {
    // SAFETY: by this function's contract.
    unsafe { (*mr).mem_desc }
}

/// The key that a peer names a region by. See fi_mr(3).
///
/// # Safety
/// An open memory region.
#[inline(always)]
pub unsafe fn fi_mr_key(mr: *mut fid_mr) -> u64 {
    // SAFETY: by this function's contract.
    unsafe { (*mr).key }
}

/// See fi_mr(3).
///
/// # Safety
/// An open domain; memory that outlives the region.
#[inline(always)]
pub unsafe fn fi_mr_regattr(
    domain: *mut fid_domain,
    attr: *const fi_mr_attr,
    flags: u64,
    mr: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { (*(*domain).mr).regattr.map_or(c_int::ABSENT, |reg| reg(&raw mut (*domain).fid, attr, flags, mr)) }
}

/// See fi_mr(3).
///
/// # Safety
/// As [`fi_mr_regattr`].
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "libfabric's choice")]
pub unsafe fn fi_mr_reg(
    domain: *mut fid_domain,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        let fid = &raw mut (*domain).fid;
        let reg = (*(*domain).mr).reg;
        reg.map_or(c_int::ABSENT, |reg| reg(fid, buf, len, access, offset, requested_key, flags, mr, context))
    }
}

/// See fi_cm(3).
///
/// # Safety
/// An open endpoint; `len` says how many bytes may be written at `addr`.
#[inline(always)]
pub unsafe fn fi_getname(ep: *mut fid_ep, addr: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { (*(*ep).cm).getname.map_or(c_int::ABSENT, |getname| getname(&raw mut (*ep).fid, addr, len)) }
}

/// See fi_cm(3).
///
/// # Safety
/// An open endpoint that is not enabled; `len` bytes can be read at `addr`, and are an address of its provider.
#[inline(always)]
pub unsafe fn fi_setname(ep: *mut fid_ep, addr: *mut c_void, len: usize) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { (*(*ep).cm).setname.map_or(c_int::ABSENT, |setname| setname(&raw mut (*ep).fid, addr, len)) }
}

/// See fi_cancel in fi_endpoint(3).
///
/// # Safety
/// An open endpoint.
#[inline(always)]
pub unsafe fn fi_cancel(ep: *mut fid_ep, context: *mut c_void) -> isize {
    // SAFETY: by this function's contract.
    unsafe { (*(*ep).ops).cancel.map_or(isize::ABSENT, |cancel| cancel(&raw mut (*ep).fid, context)) }
}

/// See fi_endpoint(3).
///
/// # Safety
/// An open endpoint, and a value of the option's type.
#[inline(always)]
pub unsafe fn fi_setopt(ep: *mut fid_ep, level: c_int, name: c_int, value: *const c_void, len: usize) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        let setopt = (*(*ep).ops).setopt;
        setopt.map_or(c_int::ABSENT, |setopt| setopt(&raw mut (*ep).fid, level, name, value, len))
    }
}

/// See fi_endpoint(3).
///
/// # Safety
/// An open endpoint, and room for a value of the option's type.
#[inline(always)]
pub unsafe fn fi_getopt(ep: *mut fid_ep, level: c_int, name: c_int, value: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        let getopt = (*(*ep).ops).getopt;
        getopt.map_or(c_int::ABSENT, |getopt| getopt(&raw mut (*ep).fid, level, name, value, len))
    }
}

/// See fi_scalable_ep_bind in fi_endpoint(3).
///
/// # Safety
/// Two open objects of one domain, the first a scalable endpoint.
#[inline(always)]
pub unsafe fn fi_scalable_ep_bind(ep: *mut fid_ep, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: by this function's contract; it is the same slot.
    unsafe { fi_ep_bind(ep, other, flags) }
}
