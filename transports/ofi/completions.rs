//! Completion queues.

use super::{Domain, OfiError};
use libfabric_sys as sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

/// The completion format of all queues here. `op_context` is the context that the operation was posted with. For a completed send, no other
/// field is reliable. `data` is valid where `flags` has `FI_REMOTE_CQ_DATA`.
pub type Completion = sys::fi_cq_tagged_entry;

/// A completion queue. Clones are the same one.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Handle>);

struct Handle {
    raw: NonNull<sys::fid_cq>,
    domain: Domain,
    /// The file descriptor to sleep on, which stays open as long as the queue.
    wait_fd: Option<i32>,
}

// SAFETY: as the domain, by the contract of `Domain::open`.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for Handle {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Sync for Handle {}

/// An empty completion, to fill arrays with.
pub fn no_completion() -> Completion {
    Completion { op_context: null_mut(), flags: 0, len: 0, buf: null_mut(), data: 0, tag: 0 }
}

/// An operation that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The context that the operation was posted with.
    pub context: *mut c_void,
    /// The kind of operation, if the provider reports it: `FI_SEND`, `FI_RECV` …
    pub flags: u64,
    /// The error's number, positive: `FI_ETRUNC`, `FI_ECANCELED` …
    pub code: i32,
    /// Bytes that did not fit.
    pub left: usize,
    /// The error in the provider's words.
    pub words: String,
}

/// Why reading a queue gave no completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// An operation has failed. Reading again returns the completions that follow.
    Failed(Failure),
    /// The queue cannot be read at all.
    Broken(OfiError),
}

impl CompletionQueue {
    /// Opens a queue with room for `size` completions (0 for the provider's choice). With `sleeps` it has a file descriptor to sleep on, if
    /// the provider supports that.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub fn open(domain: &Domain, size: usize, sleeps: bool) -> Result<Self, OfiError> {
        if sleeps && let Ok(raw) = open_raw(domain, size, sys::FI_WAIT_FD) {
            let mut queue = Handle { raw, domain: domain.clone(), wait_fd: None };
            queue.wait_fd = queue.ask_wait_fd();
            if queue.wait_fd.is_some() {
                return Ok(CompletionQueue(Arc::new(queue)));
            }
        }
        let raw = open_raw(domain, size, sys::FI_WAIT_NONE)?;
        Ok(CompletionQueue(Arc::new(Handle { raw, domain: domain.clone(), wait_fd: None })))
    }

    /// Reads completions, and progresses the provider; 0 if there are none.
    ///
    /// # Errors
    /// [`ReadError::Failed`] for the first failed operation, once the completions before it have been read.
    #[inline]
    pub fn read(&self, into: &mut [Completion]) -> Result<usize, ReadError> {
        // SAFETY: an open queue of this format, and room for so many entries.
        #[expect(unsafe_code, reason = "FFI")]
        let count = unsafe { sys::ops::fi_cq_read(self.as_ptr(), into.as_mut_ptr().cast(), into.len()) };
        if count >= 0 { Ok(count as usize) } else { self.unread(count as i64) }
    }

    /// As [`CompletionQueue::read`], and also returns the senders' numbers, for endpoints that were opened with `FI_SOURCE`. A number is
    /// `FI_ADDR_NOTAVAIL` for a peer that is not in the address vector. With `udp;ofi_rxd` the numbers are wrong.
    ///
    /// # Errors
    /// As [`CompletionQueue::read`].
    pub fn read_from(&self, into: &mut [Completion], sources: &mut [sys::fi_addr_t]) -> Result<usize, ReadError> {
        let most = into.len().min(sources.len());
        // SAFETY: an open queue of this format, and room for so many entries and numbers.
        #[expect(unsafe_code, reason = "FFI")]
        let count =
            unsafe { sys::ops::fi_cq_readfrom(self.as_ptr(), into.as_mut_ptr().cast(), most, sources.as_mut_ptr()) };
        if count >= 0 { Ok(count as usize) } else { self.unread(count as i64) }
    }

    #[inline]
    fn unread(&self, code: i64) -> Result<usize, ReadError> {
        if code == -i64::from(sys::FI_EAGAIN) { Ok(0) } else { Err(self.why(code)) }
    }

    #[cold]
    fn why(&self, code: i64) -> ReadError {
        let broken = |call, code| ReadError::Broken(self.0.domain.error(call, code));
        if code != -i64::from(sys::FI_EAVAIL) {
            return broken("fi_cq_read", code);
        }
        // SAFETY: integers and pointers, for which zero is a value.
        #[expect(unsafe_code, reason = "FFI")]
        let mut entry: sys::fi_cq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY: an open queue, and an entry as the version that was asked for has it.
        #[expect(unsafe_code, reason = "FFI")]
        let count = unsafe { sys::ops::fi_cq_readerr(self.as_ptr(), &raw mut entry, 0) };
        if count < 0 {
            return broken("fi_cq_readerr", count as i64);
        }
        // Some providers report the error as a negative number.
        let code = entry.err.saturating_abs();
        let words = self.words(&entry, code);
        ReadError::Failed(Failure { context: entry.op_context, flags: entry.flags, code, left: entry.olen, words })
    }

    fn words(&self, entry: &sys::fi_cq_err_entry, code: i32) -> String {
        let general = self.0.domain.info().library().words(code);
        let mut buffer = [0; 128];
        // SAFETY: an open queue, its own error data, and a buffer of the length that is given.
        #[expect(unsafe_code, reason = "FFI")]
        let own = unsafe {
            let (buf, len) = (buffer.as_mut_ptr(), buffer.len());
            let words = sys::ops::fi_cq_strerror(self.as_ptr(), entry.prov_errno, entry.err_data, buf, len);
            if words.is_null() { String::new() } else { CStr::from_ptr(words).to_string_lossy().into_owned() }
        };
        if own.is_empty() || own == general || entry.prov_errno == 0 { general } else { format!("{general}: {own}") }
    }

    /// As [`CompletionQueue::read`], but waits for up to `ms` milliseconds if there are no completions.
    ///
    /// # Errors
    /// As [`CompletionQueue::read`].
    pub fn wait_read(&self, into: &mut [Completion], ms: i32) -> Result<usize, ReadError> {
        let (start, room) = (into.as_mut_ptr().cast(), into.len());
        // SAFETY: an open queue of this format that was opened for waiting, and room for so many entries.
        #[expect(unsafe_code, reason = "FFI")]
        let count = unsafe { sys::ops::fi_cq_sread(self.as_ptr(), start, room, null(), ms) };
        match count {
            0.. => Ok(count as usize),
            // `udp;ofi_rxd` reports a timeout so. A signal that the program handles ends the wait, too.
            over if [sys::FI_ETIMEDOUT, sys::FI_EINTR].iter().any(|&code| over == -(code as isize)) => Ok(0),
            code => self.unread(code as i64),
        }
    }

    /// Whether the file descriptor to sleep on is readable; `false` if there is none.
    pub fn is_ringing(&self) -> bool {
        let Some(fd) = self.wait_fd() else { return false };
        let mut asked = [PollFd::new(&fd, PollFlags::IN)];
        poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// The file descriptor to sleep on, once [`CompletionQueue::may_sleep`] allows that; `None` if the provider has none.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: open as long as the queue, which the borrow keeps.
        #[expect(unsafe_code, reason = "a descriptor of libfabric's")]
        self.0.wait_fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether the process may sleep on the descriptor now: `false` if there is something to read. Progresses the provider.
    pub fn may_sleep(&self) -> bool {
        self.0.wait_fd.is_none() || {
            // SAFETY: an open fabric and one open queue of it.
            #[expect(unsafe_code, reason = "FFI")]
            let code = unsafe {
                let mut fids = [&raw mut (*self.as_ptr()).fid];
                sys::ops::fi_trywait(self.0.domain.fabric().as_ptr(), fids.as_mut_ptr(), 1)
            };
            code == 0
        }
    }

    pub(super) fn as_ptr(&self) -> *mut sys::fid_cq {
        self.0.raw.as_ptr()
    }
}

fn open_raw(domain: &Domain, size: usize, wait: sys::fi_wait_obj) -> Result<NonNull<sys::fid_cq>, OfiError> {
    let mut raw = null_mut();
    let mut attr = sys::fi_cq_attr {
        size,
        flags: 0,
        format: sys::FI_CQ_FORMAT_TAGGED,
        wait_obj: wait,
        signaling_vector: 0,
        wait_cond: sys::FI_CQ_COND_NONE,
        wait_set: null_mut(),
    };
    // SAFETY: an open domain and its own attributes.
    #[expect(unsafe_code, reason = "FFI")]
    let code = unsafe { sys::ops::fi_cq_open(domain.as_ptr(), &raw mut attr, &raw mut raw, null_mut()) };
    domain.opened("fi_cq_open", code, raw)
}

impl Handle {
    fn ask_wait_fd(&self) -> Option<i32> {
        let mut fd = MaybeUninit::new(-1i32);
        // SAFETY: an open queue with a descriptor, and room for one.
        #[expect(unsafe_code, reason = "FFI")]
        let (code, fd) = unsafe {
            let fid = &raw mut (*self.raw.as_ptr()).fid;
            let code = sys::ops::fi_control(fid, sys::FI_GETWAIT as i32, fd.as_mut_ptr().cast());
            (code, fd.assume_init())
        };
        (code == 0 && fd >= 0).then_some(fd)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: open; the endpoints that use it keep it.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            self.domain.close(&raw mut (*self.raw.as_ptr()).fid);
        }
    }
}
