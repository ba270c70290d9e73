//! Loading: only seven functions have symbols, everything else is reached through tables.

use crate::{fi_fabric_attr, fi_info, fid_fabric};
use std::ffi::{CStr, c_char, c_int, c_void};
use thiserror::Error;

/// The functions that the library exports. It stays loaded for good: providers have threads of their own.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "the functions of the man pages, by their names there without fi_")]
pub struct Api {
    pub getinfo: unsafe extern "C" fn(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int,
    pub freeinfo: unsafe extern "C" fn(*mut fi_info),
    pub dupinfo: unsafe extern "C" fn(*const fi_info) -> *mut fi_info,
    pub fabric: unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, context: *mut c_void) -> c_int,
    pub version: unsafe extern "C" fn() -> u32,
    pub strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    pub tostr: unsafe extern "C" fn(*const c_void, kind: c_int) -> *mut c_char,
}

/// Why the library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not there, or something that it needs is not.
    #[error("{0}")]
    Missing(String),
    /// It lacks a function.
    #[error("it has no {name}@{version}: it is not libfabric, or older than 1.3")]
    Symbol {
        /// The function.
        name: String,
        /// The version of its interface.
        version: String,
    },
}

/// Loads a library by its file name, as `dlopen` finds it.
///
/// Each function is asked for in the version that the declarations are of: a later one describes longer structures.
///
/// # Errors
/// What is missing.
#[expect(clippy::missing_transmute_annotations, reason = "the types are those of the fields")]
pub fn load(file: &CStr) -> Result<Api, LoadError> {
    // SAFETY: a string that ends; the library's initialisers are trusted as any library's that is linked.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: `dlerror` gives null or a string that is valid until the thread's next call of its kind.
        let words = unsafe {
            let words = libc::dlerror();
            if words.is_null() { c"unknown".into() } else { CStr::from_ptr(words).to_owned() }
        };
        return Err(LoadError::Missing(words.to_string_lossy().into_owned()));
    }
    let symbol = |name: &CStr, version: &CStr| {
        // SAFETY: an open library and two strings that end.
        let found = unsafe { libc::dlvsym(library, name.as_ptr(), version.as_ptr()) };
        let words = |text: &CStr| text.to_string_lossy().into_owned();
        if found.is_null() { Err(LoadError::Symbol { name: words(name), version: words(version) }) } else { Ok(found) }
    };
    // SAFETY: in this version of the interface, each symbol is a function of the type that the field has.
    unsafe {
        use std::mem::transmute;
        Ok(Api {
            getinfo: transmute(symbol(c"fi_getinfo", c"FABRIC_1.3")?),
            freeinfo: transmute(symbol(c"fi_freeinfo", c"FABRIC_1.3")?),
            dupinfo: transmute(symbol(c"fi_dupinfo", c"FABRIC_1.3")?),
            fabric: transmute(symbol(c"fi_fabric", c"FABRIC_1.1")?),
            version: transmute(symbol(c"fi_version", c"FABRIC_1.0")?),
            strerror: transmute(symbol(c"fi_strerror", c"FABRIC_1.0")?),
            tostr: transmute(symbol(c"fi_tostr", c"FABRIC_1.0")?),
        })
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named() {
        let Err(LoadError::Missing(words)) = load(c"libfabric-of-nobody.so.1") else { panic!() };
        assert!(words.contains("libfabric-of-nobody.so.1"), "{words}");
    }

    #[test]
    fn another_library_lacks_the_functions() {
        let Err(LoadError::Symbol { name, version }) = load(c"libc.so.6") else { panic!() };
        assert_eq!((&*name, &*version), ("fi_getinfo", "FABRIC_1.3"));
    }
}
