//! Reading a peer's memory with one copy (cross-memory attach, process_vm_readv(2)): what a large message is received by.
//!
//! Only reads, only from the process that the control socket's credentials name, and only while it lives: its descriptor,
//! opened when the connection was, is asked after each read. It names this one process and none that has got its number
//! later, and a process does not come back, so what lives after the read has lived before it, and the answer after one read
//! is the answer before the next. Whether the kernel allows reading (ptrace scope, containers, users) is found out when a
//! connection opens.

use super::Shm;
use super::Stage;
use rustix::fd::{AsRawFd, OwnedFd};
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

/// Whether a process has not ended. With poll(2) itself: the call that takes a `timespec` is 12 % slower.
#[expect(unsafe_code, reason = "no crate that is used here has this call")]
fn lives(process: &OwnedFd) -> bool {
    let mut polled = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which is local.
    unsafe { libc::poll(&raw mut polled, 1, 0) == 0 }
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
            return Err(format!("process {pid} has ended"));
        }
        match self.links.stands(link) {
            true => Ok(()),
            false => Err("the sender has given the message up".into()),
        }
    }
}
