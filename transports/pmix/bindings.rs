//! Declarations: the few types and functions of the PMIx standard (versions 2 to 5) that a client needs, as `pmix_common.h` and `pmix.h`
//! have them. The standard keeps their layout.

#![expect(non_camel_case_types, reason = "the names of the standard")]

use std::ffi::{c_char, c_int, c_void};

pub(crate) type pmix_status_t = c_int;

pub(crate) const PMIX_SUCCESS: pmix_status_t = 0;
pub(crate) const PMIX_ERR_NOT_FOUND: pmix_status_t = -46;
/// The call is done, and its callback will not be called.
pub(crate) const PMIX_OPERATION_SUCCEEDED: pmix_status_t = -157;

/// All processes of a namespace.
pub(crate) const PMIX_RANK_WILDCARD: u32 = u32::MAX - 1;
/// A value is for all processes of the job.
pub(crate) const PMIX_GLOBAL: u8 = 3;

// Types of values.
pub(crate) const PMIX_BOOL: u16 = 1;
pub(crate) const PMIX_STRING: u16 = 3;
pub(crate) const PMIX_SIZE: u16 = 4;
pub(crate) const PMIX_INT: u16 = 6;
pub(crate) const PMIX_UINT: u16 = 11;
pub(crate) const PMIX_UINT16: u16 = 13;
pub(crate) const PMIX_UINT32: u16 = 14;
pub(crate) const PMIX_UINT64: u16 = 15;
pub(crate) const PMIX_BYTE_OBJECT: u16 = 27;
pub(crate) const PMIX_PROC_RANK: u16 = 40;

/// Characters of a namespace, with the zero at its end.
pub(crate) const NAMESPACE: usize = 256;
/// Characters of a key, with the zero at its end.
pub(crate) const KEY: usize = 512;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct pmix_proc_t {
    pub(crate) nspace: [c_char; NAMESPACE],
    pub(crate) rank: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct pmix_byte_object_t {
    pub(crate) bytes: *mut c_char,
    pub(crate) size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union pmix_data_t {
    pub(crate) flag: bool,
    pub(crate) string: *mut c_char,
    pub(crate) size: usize,
    pub(crate) int: c_int,
    pub(crate) uint16: u16,
    pub(crate) uint32: u32,
    pub(crate) uint64: u64,
    pub(crate) bo: pmix_byte_object_t,
    /// The widest one, `pmix_envar_t`: two pointers and a character.
    pub(crate) widest: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct pmix_value_t {
    pub(crate) kind: u16,
    pub(crate) data: pmix_data_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct pmix_info_t {
    pub(crate) key: [c_char; KEY],
    pub(crate) flags: u32,
    pub(crate) value: pmix_value_t,
}

// What the headers give on the machines that tickwire runs on.
const _: () = assert!(size_of::<pmix_proc_t>() == 260);
const _: () = assert!(size_of::<pmix_value_t>() == 32 && align_of::<pmix_value_t>() == 8);
const _: () = assert!(size_of::<pmix_info_t>() == 552 && std::mem::offset_of!(pmix_info_t, value) == 520);

pub(crate) type pmix_op_cbfunc_t = unsafe extern "C" fn(pmix_status_t, *mut c_void);
pub(crate) type pmix_value_cbfunc_t = unsafe extern "C" fn(pmix_status_t, *mut pmix_value_t, *mut c_void);

/// The functions, by their names in the standard without `PMIx_`.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    pub(crate) init: unsafe extern "C" fn(*mut pmix_proc_t, *mut pmix_info_t, usize) -> pmix_status_t,
    pub(crate) finalize: unsafe extern "C" fn(*const pmix_info_t, usize) -> pmix_status_t,
    pub(crate) put: unsafe extern "C" fn(u8, *const c_char, *mut pmix_value_t) -> pmix_status_t,
    pub(crate) commit: unsafe extern "C" fn() -> pmix_status_t,
    pub(crate) fence_nb: unsafe extern "C" fn(
        *const pmix_proc_t,
        usize,
        *const pmix_info_t,
        usize,
        pmix_op_cbfunc_t,
        *mut c_void,
    ) -> pmix_status_t,
    pub(crate) get_nb: unsafe extern "C" fn(
        *const pmix_proc_t,
        *const c_char,
        *const pmix_info_t,
        usize,
        pmix_value_cbfunc_t,
        *mut c_void,
    ) -> pmix_status_t,
    pub(crate) abort: unsafe extern "C" fn(c_int, *const c_char, *mut pmix_proc_t, usize) -> pmix_status_t,
    pub(crate) error_string: unsafe extern "C" fn(pmix_status_t) -> *const c_char,
    pub(crate) get_version: unsafe extern "C" fn() -> *const c_char,
}
