//! The libfabric library, as it was found on this machine.

use super::error::{OfiError, advice};
use libfabric_sys as sys;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// The variable that names the library's file, if that is not the system's `libfabric.so.1`.
pub const ENV_LIBRARY: &str = "TICKWIRE_OFI_LIBRARY";

/// The library, which stays loaded.
#[derive(Clone, Copy)]
pub struct Library {
    api: sys::Api,
    version: u32,
}

impl Library {
    /// The library of this process. The first call loads it from the file that the environment names.
    ///
    /// # Errors
    /// [`OfiError::Missing`], [`OfiError::Old`].
    pub fn get() -> Result<Library, OfiError> {
        static LOADED: OnceLock<Result<Library, OfiError>> = OnceLock::new();
        LOADED
            .get_or_init(|| {
                let file = std::env::var(ENV_LIBRARY).unwrap_or_else(|_| "libfabric.so.1".into());
                Library::open(&file)
            })
            .clone()
    }

    /// Loads a library by its file's name.
    ///
    /// # Errors
    /// [`OfiError::Missing`], [`OfiError::Old`].
    pub fn open(file: &str) -> Result<Library, OfiError> {
        let missing = |reason: String| OfiError::Missing { reason };
        let name = CString::new(file).map_err(|_| missing("its name has a zero byte".into()))?;
        let api = sys::load(&name).map_err(|error| missing(format!("{file}: {error}")))?;
        // SAFETY: it takes nothing.
        #[expect(unsafe_code, reason = "FFI")]
        let version = unsafe { (api.version)() };
        check(version)?;
        Ok(Library { api, version })
    }

    /// Its version: major, minor.
    pub fn version(&self) -> (u32, u32) {
        parts(self.version)
    }

    /// An error in words; `code` is positive.
    pub fn words(&self, code: i32) -> String {
        // SAFETY: any number is allowed; the answer is a string that stays, copied before another call.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            let words = (self.api.strerror)(code);
            if words.is_null() { "unknown error".into() } else { CStr::from_ptr(words).to_string_lossy().into_owned() }
        }
    }

    pub(super) fn api(&self) -> &sys::Api {
        &self.api
    }
}

/// The major and the minor part of a version as libfabric returns it.
fn parts(version: u32) -> (u32, u32) {
    (version >> 16, version & 0xFFFF)
}

/// Checks that a library of this version has all that the declarations have.
///
/// # Errors
/// [`OfiError::Old`].
fn check(version: u32) -> Result<(), OfiError> {
    let (major, minor) = parts(version);
    if version < sys::API_VERSION { Err(OfiError::Old(major, minor)) } else { Ok(()) }
}

impl OfiError {
    /// The error of a call that returned `code`, which is negative.
    #[cold]
    pub(super) fn call(library: &Library, call: &'static str, provider: &str, code: i64) -> Self {
        let code = code.unsigned_abs().min(i32::MAX as u64) as i32;
        let words = library.words(code);
        OfiError::Call { call, provider: provider.to_owned(), code, words, advice: advice(call, code) }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_older_than_the_declarations_is_refused() {
        let version = |major: u32, minor: u32| major << 16 | minor;
        for (major, minor) in [(1, 16), (1, 0), (0, 99), (0, 0)] {
            assert_eq!(check(version(major, minor)), Err(OfiError::Old(major, minor)));
        }
        for (major, minor) in [(1, 17), (1, 18), (1, 1000), (2, 0)] {
            assert_eq!(check(version(major, minor)), Ok(()));
        }
        let words = OfiError::Old(1, 16).to_string();
        assert_eq!(words, "libfabric is version 1.16: install 1.17 or later");
        // The words name the version that is checked.
        assert_eq!(parts(sys::API_VERSION), (1, 17));
    }

    #[test]
    fn a_library_that_is_not_there_says_what_to_install() {
        let words = Library::open("/no/such/libfabric.so.1").map(drop).unwrap_err().to_string();
        assert!(words.contains("/no/such/libfabric.so.1") && words.contains("apt-get install libfabric1"), "{words}");
        assert!(words.contains(ENV_LIBRARY), "{words}");
        assert!(matches!(Library::open("a\0b"), Err(OfiError::Missing { .. })));
        assert!(matches!(Library::open("libc.so.6"), Err(OfiError::Missing { .. })));
    }
}
