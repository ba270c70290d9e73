//! Reading a peer's memory with one copy (cross-memory attach, process_vm_readv(2)): what a large message is received by.
//!
//! Only reads, only from the process that the control socket's credentials name, and only while its descriptor says that
//! it lives, before and after: a number that another process has got meanwhile fools nobody. Whether the kernel allows it
//! (ptrace scope, containers, users) is found out when a connection opens.

use super::Shm;
use super::Stage;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use tickwire_components::Span;

/// An address that no process has anything at: the first page is never mapped.
const NOWHERE: u64 = 16;

/// Reads as much of `into` as there is at `address` in process `pid`.
#[expect(unsafe_code, reason = "no crate that is used here has this call")]
fn read_once(pid: u32, address: u64, into: Span) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: into.start().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: into.len() };
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    // SAFETY: the local run is valid for writes by the promise of `Span::new`; the kernel checks the remote one and writes
    // nothing else.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

/// Whether this process may read the memory of another one.
pub(super) fn allowed(pid: u32) -> bool {
    let mut byte = [0];
    // SAFETY: a local byte that outlives the call.
    #[expect(unsafe_code, reason = "lends a local byte")]
    let span = unsafe { Span::new(byte.as_mut_ptr(), 1) };
    // Permission is checked first: only who may read learns that there is nothing.
    read_once(pid, NOWHERE, span) == Err(Errno::FAULT)
}

/// Whether a process has not ended.
fn lives(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

impl Shm {
    /// See [`crate::Transport::reads`].
    pub(super) fn may_read(&self, link: u32) -> bool {
        matches!(self.table.get(link as usize).map(|peer| &peer.stage), Some(Stage::Open(line)) if line.readable())
    }

    /// See [`crate::Transport::read`].
    pub(super) fn read_memory(&mut self, link: u32, address: u64, into: Span) -> Result<(), String> {
        let stage = self.table.get(link as usize).map(|peer| &peer.stage);
        let Some(Stage::Open(line)) = stage else { return Err("the connection is not open".into()) };
        let Some((pid, process)) = line.process() else { return Err("the process cannot be named for sure".into()) };
        let gone = || format!("process {pid} has ended");
        if !lives(process) {
            return Err(gone());
        }
        let mut done = 0;
        while done < into.len() {
            match read_once(pid, address.wrapping_add(done as u64), into.part(done, usize::MAX)) {
                Ok(0) => return Err(format!("process {pid} has no memory at {address:#x}")),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(format!("the memory of process {pid} cannot be read: {error}")),
            }
        }
        if !lives(process) {
            return Err(gone());
        }
        match self.links.stands(link) {
            true => Ok(()),
            false => Err("the sender has given the message up".into()),
        }
    }
}
