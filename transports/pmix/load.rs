//! Loading: the library is looked for beside the launcher first, so that both are of one version.

use crate::PmixError;
use crate::bindings::Api;
use std::ffi::{CStr, CString, c_void};

/// The file of the library, as the dynamic loader finds it.
const FILE: &str = "libpmix.so.2";
/// Where it may be below the launcher's own prefix.
const FOLDERS: [&str; 4] = ["lib", "lib64", "lib/openmpi", "lib/pmix"];

/// How many processes above this one may be the launcher's server: a shell or two may stand between.
const ABOVE: usize = 4;

/// Files to try: the one that is asked for alone, or that of the launcher's server, those below its prefix, and the system's.
pub(crate) fn files(asked: Option<&str>, prefix: Option<&str>) -> Vec<String> {
    if let Some(asked) = asked {
        return vec![asked.to_owned()];
    }
    let below = prefix.into_iter().flat_map(|prefix| FOLDERS.map(|folder| format!("{prefix}/{folder}/{FILE}")));
    let near = of_server().into_iter().chain(below).filter(|file| std::path::Path::new(file).exists());
    near.chain([FILE.to_owned()]).collect()
}

/// The library that a process above this one has loaded: of the server's version, which others need not understand in full.
fn of_server() -> Option<String> {
    let mut process = "self".to_owned();
    for _ in 0..ABOVE {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().clone_into(&mut process);
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let files = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
        if let Some(file) = files.map(str::to_owned).find(|file| file.contains("/libpmix.so.2")) {
            return Some(file);
        }
    }
    None
}

/// Loads the first of these files that can be; for good, because the library has threads of its own.
pub(crate) fn load(files: &[String]) -> Result<(Api, String), PmixError> {
    let mut missing = String::new();
    for file in files {
        match open(file) {
            Ok(library) => return symbols(library, file).map(|api| (api, file.clone())),
            Err(words) => missing = words,
        }
    }
    Err(PmixError::Missing(missing))
}

fn open(file: &str) -> Result<*mut c_void, String> {
    let name = CString::new(file).map_err(|_| format!("{file:?} has a zero byte"))?;
    // SAFETY: a string that ends; the library's initialisers are trusted as any library's that is linked. Its plugins want its symbols.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: `dlerror` gives null or a string that is valid until the thread's next call of its kind.
    let words = unsafe {
        let words = libc::dlerror();
        if words.is_null() { c"unknown".into() } else { CStr::from_ptr(words).to_owned() }
    };
    Err(words.to_string_lossy().into_owned())
}

#[expect(clippy::missing_transmute_annotations, reason = "the types are those of the fields")]
fn symbols(library: *mut c_void, file: &str) -> Result<Api, PmixError> {
    let symbol = |name: &CStr| {
        // SAFETY: an open library and a string that ends.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        let name = name.to_string_lossy().into_owned();
        if found.is_null() { Err(PmixError::Symbol { file: file.to_owned(), name }) } else { Ok(found) }
    };
    // SAFETY: in all versions of the standard, each symbol is a function of the type that the field has.
    unsafe {
        use std::mem::transmute;
        Ok(Api {
            init: transmute(symbol(c"PMIx_Init")?),
            finalize: transmute(symbol(c"PMIx_Finalize")?),
            put: transmute(symbol(c"PMIx_Put")?),
            commit: transmute(symbol(c"PMIx_Commit")?),
            fence_nb: transmute(symbol(c"PMIx_Fence_nb")?),
            get_nb: transmute(symbol(c"PMIx_Get_nb")?),
            abort: transmute(symbol(c"PMIx_Abort")?),
            error_string: transmute(symbol(c"PMIx_Error_string")?),
            get_version: transmute(symbol(c"PMIx_Get_version")?),
        })
    }
}
