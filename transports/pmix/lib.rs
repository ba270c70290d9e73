//! A client of PMIx, the interface by which launchers such as prterun, mpirun of Open MPI and `srun --mpi=pmix` tell the processes of a job of
//! each other. The library `libpmix.so.2` is loaded at run time: nothing of it is needed to build.
//!
//! Declarations and loading are of this crate alone, as those of libfabric are of theirs. What it offers is safe: [`Client`]. All waits
//! are bounded, which the library's own blocking calls are not: the calls with callbacks are used, and the start and the end are called on
//! a thread of their own.

mod bindings;
mod calls;
mod load;

use bindings::{Api, pmix_proc_t};
use bindings::{PMIX_BYTE_OBJECT, PMIX_GLOBAL, PMIX_RANK_WILDCARD, PMIX_SUCCESS};
use bindings::{pmix_byte_object_t, pmix_data_t, pmix_value_t};
use calls::{bounded, fence, get, info};
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{null, null_mut};
use std::time::Duration;
use thiserror::Error;

pub use calls::Value;

/// The number of processes of the job.
pub const JOB_SIZE: &str = "pmix.job.size";
/// Which process is on which node, in the notation of PMI-1.
pub const ANL_MAP: &str = "pmix.anlmap";
/// The number of the node of a process.
pub const NODE_ID: &str = "pmix.nodeid";
/// The name of the node of a process.
pub const HOST_NAME: &str = "pmix.hname";

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PmixError {
    /// The library is not there, or something that it needs is not.
    #[error("libpmix.so.2 cannot be loaded ({0})")]
    Missing(String),
    /// It lacks a function.
    #[error("{file} has no {name}: it is not PMIx, or older than version 2")]
    Symbol {
        /// The library's file.
        file: String,
        /// The function.
        name: String,
    },
    /// A call failed.
    #[error("{call} says {words} ({code})")]
    Call {
        /// The function.
        call: &'static str,
        /// The library's name of the error.
        words: String,
        /// Its number.
        code: i32,
    },
    /// A call had no answer in time.
    #[error("{call} had no answer")]
    Timeout {
        /// The function.
        call: &'static str,
    },
    /// A word that cannot be passed.
    #[error("`{0}` is too long, or has a zero byte")]
    Word(String),
}

/// This process as a client of the launcher. There is one at most in a process.
pub struct Client {
    api: Api,
    me: pmix_proc_t,
    file: String,
}

impl Client {
    /// Loads the library and connects to the launcher's server. `asked` is the library's file, where it is not to be looked for; `prefix`
    /// where the launcher is installed.
    ///
    /// # Errors
    /// The library cannot be loaded, or the server not be reached in time.
    pub fn connect(asked: Option<&str>, prefix: Option<&str>, patience: Duration) -> Result<Self, PmixError> {
        let (api, file) = load::load(&load::files(asked, prefix))?;
        let init = api.init;
        let called = bounded(patience, move || {
            let mut me = pmix_proc_t { nspace: [0; bindings::NAMESPACE], rank: 0 };
            // SAFETY: the place for the own name, and no directives.
            let status = unsafe { init(&raw mut me, null_mut(), 0) };
            (me, status)
        });
        let (me, status) = called.ok_or(PmixError::Timeout { call: "PMIx_Init" })?;
        let client = Self { api, me, file };
        client.check("PMIx_Init", status)?;
        Ok(client)
    }

    /// The library's words for its version.
    pub fn version(&self) -> String {
        // SAFETY: it takes nothing.
        text(unsafe { (self.api.get_version)() })
    }

    /// The library's file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The job: a name that no other job of this launcher has.
    pub fn namespace(&self) -> String {
        let characters = self.me.nspace.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
        String::from_utf8(characters).unwrap_or_default()
    }

    /// The number of this process in its job.
    pub fn rank(&self) -> u32 {
        self.me.rank
    }

    /// Gives bytes a key. Others see them after the next [`fence`](Self::fence) of all.
    ///
    /// # Errors
    /// The library refuses.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<(), PmixError> {
        let name = word(key)?;
        let bo = pmix_byte_object_t { bytes: bytes.as_ptr().cast_mut().cast::<c_char>(), size: bytes.len() };
        let mut value = pmix_value_t { kind: PMIX_BYTE_OBJECT, data: pmix_data_t { bo } };
        // SAFETY: a string that ends and a value that describes `bytes`; the library copies both and writes to neither.
        let status = unsafe { (self.api.put)(PMIX_GLOBAL, name.as_ptr(), &raw mut value) };
        self.check("PMIx_Put", status)?;
        // SAFETY: it takes nothing.
        let status = unsafe { (self.api.commit)() };
        self.check("PMIx_Commit", status)
    }

    /// Returns when all processes of the job have called it. `collect`: what they have put travels with it, so that it is here afterwards.
    ///
    /// # Errors
    /// The library refuses, or a process does not come in time.
    pub fn fence(&self, collect: bool, patience: Duration) -> Result<(), PmixError> {
        let status = fence(&self.api, vec![info("pmix.collect", collect)], patience);
        status.ok_or(PmixError::Timeout { call: "PMIx_Fence" }).and_then(|status| self.check("PMIx_Fence", status))
    }

    /// What the launcher says of a process; of the job, if `rank` is `None`. `Ok(None)`: it says nothing of this kind.
    ///
    /// # Errors
    /// The library refuses, or does not answer in time.
    pub fn info(&self, rank: Option<u32>, key: &str, patience: Duration) -> Result<Option<Value>, PmixError> {
        // It is here since the start, or nowhere: the server is not asked.
        self.look_up(rank, key, vec![info("pmix.optional", true)], patience)
    }

    /// What a process has put before a fence. `Ok(None)`: it has put nothing; a server that waits for it is waited for.
    ///
    /// # Errors
    /// The library refuses, or does not answer in time.
    pub fn get(&self, rank: u32, key: &str, patience: Duration) -> Result<Option<Value>, PmixError> {
        self.look_up(Some(rank), key, Vec::new(), patience)
    }

    fn look_up(
        &self,
        rank: Option<u32>,
        key: &str,
        infos: Vec<bindings::pmix_info_t>,
        patience: Duration,
    ) -> Result<Option<Value>, PmixError> {
        let of = pmix_proc_t { rank: rank.unwrap_or(PMIX_RANK_WILDCARD), ..self.me };
        let answer = get(&self.api, of, word(key)?, infos, patience);
        match answer.ok_or(PmixError::Timeout { call: "PMIx_Get" })? {
            Ok(value) => Ok(Some(value)),
            Err(bindings::PMIX_ERR_NOT_FOUND) => Ok(None),
            Err(status) => self.check("PMIx_Get", status).map(|()| None),
        }
    }

    /// Asks for the end of the whole job with an exit status. Returns in any case after `patience`.
    pub fn abort(&self, code: i32, words: &'static CStr, patience: Duration) {
        let abort = self.api.abort;
        // SAFETY: a string that ends and stays; no processes are named, which stands for all.
        let _ = bounded(patience, move || unsafe { abort(code as c_int, words.as_ptr(), null_mut(), 0) });
    }

    /// Takes leave of the server.
    ///
    /// # Errors
    /// The library refuses, or is not back in time.
    pub fn finalize(&self, patience: Duration) -> Result<(), PmixError> {
        let finalize = self.api.finalize;
        // SAFETY: no directives.
        let status = bounded(patience, move || unsafe { finalize(null(), 0) });
        self.check("PMIx_Finalize", status.ok_or(PmixError::Timeout { call: "PMIx_Finalize" })?)
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), PmixError> {
        if status == PMIX_SUCCESS {
            return Ok(());
        }
        // SAFETY: any number is allowed; the answer is a string that stays.
        let words = text(unsafe { (self.api.error_string)(status) });
        Err(PmixError::Call { call, words, code: status })
    }
}

fn text(words: *const c_char) -> String {
    if words.is_null() {
        return "unknown".into();
    }
    // SAFETY: the library's strings end, and are copied before another call.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}

fn word(word: &str) -> Result<CString, PmixError> {
    let fits = word.len() < bindings::KEY;
    CString::new(word).ok().filter(|_| fits).ok_or_else(|| PmixError::Word(word.to_owned()))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(20);

    #[test]
    fn a_call_that_does_not_come_back_is_given_up() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let hangs = move || ended.recv_timeout(BOUND).is_ok();
        assert_eq!(bounded(Duration::from_millis(1), hangs), None);
        drop(end);
        assert_eq!(bounded(BOUND, || 7), Some(7));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = Client::connect(Some("libpmix-of-nobody.so.2"), None, BOUND).map(drop).unwrap_err();
        assert!(error.to_string().contains("libpmix-of-nobody.so.2"), "{error}");
        let error = Client::connect(Some("a\0b"), None, BOUND).map(drop).unwrap_err();
        assert!(error.to_string().contains("zero byte"), "{error}");
    }

    #[test]
    fn another_library_lacks_the_functions() {
        let error = Client::connect(Some("libc.so.6"), Some("/no/such/prefix"), BOUND).map(drop).unwrap_err();
        assert!(error.to_string().starts_with("libc.so.6 has no PMIx_Init"), "{error}");
    }

    #[test]
    fn the_library_is_looked_for_beside_the_launcher_first() {
        assert_eq!(load::files(None, Some("/no/such/prefix")), ["libpmix.so.2"]);
        assert_eq!(load::files(Some("/a/b.so"), Some("/")), ["/a/b.so"]);
    }

    #[test]
    fn keys_fit_or_are_refused() {
        assert!(word(&"k".repeat(511)).is_ok() && word(&"k".repeat(512)).is_err() && word("a\0").is_err());
    }
}
