//! Bindings to libfabric (Open Fabrics Interfaces), loaded at run time: nothing of it is needed to build.
//!
//! Declarations only. `bindings.rs` is what libfabric 1.17 declares, read out of its headers by the script `regenerate`
//! in this folder; [`ops`] has the functions that the headers define inline, which call through the tables of an object;
//! [`load`] finds the few that the library exports. Contracts are those of the man pages, fi_getinfo(3) and the others.
//!
//! Names and types are C's. Words of flags are `u64`, error numbers of errno.h `i32`, those of libfabric itself `u32`.

#[expect(missing_docs, non_camel_case_types, clippy::all, unsafe_op_in_unsafe_fn, reason = "generated")]
mod bindings;
mod load;
pub mod ops;

pub use bindings::*;
pub use load::{Api, LoadError, load};

/// No address: a receive from anybody.
pub const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;
/// Where an address that an insertion refused would be.
pub const FI_ADDR_NOTAVAIL: fi_addr_t = u64::MAX;
/// Where a key would be that the provider has yet to give.
pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;

/// A version as the functions take it.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// The version that these declarations are of, to be asked for: structures are laid out as this version has them.
pub const API_VERSION: u32 = version(FI_MAJOR_VERSION as u32, FI_MINOR_VERSION as u32);

// The inlines find an object behind its first field.
const _: () = assert!(std::mem::offset_of!(fid_ep, fid) == 0);
const _: () = assert!(API_VERSION == version(1, 17));
