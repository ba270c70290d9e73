//! Memory that procs of this host share: how it is made and passed over the control socket, and how the kernel reads and writes what
//! is not shared.

use super::reading::{attach, last_error};
use super::segment::{self, Map};
use super::{Line, Shm};
use crate::handshake::Packet;
use crate::heap::PeerHeap;
use crate::shared::SharedRun;
use crate::{MemoryRead, SharedMemory};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use tickwire_components::Span;
use tickwire_components::limits::SHARED_PASSED;

/// Longest run whose pages are all mapped at once: a board is, since each of its pages would cost a fault in one operation or another.
const POPULATED_MAX: usize = 4 << 20;

/// A run that is mapped whole.
fn run_of(map: Map, bytes: usize) -> SharedRun {
    if bytes <= POPULATED_MAX {
        map.populate();
    }
    let start = map.base();
    // SAFETY: a mapping of this length, allocated, aligned to a page, and kept by the run.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    unsafe {
        SharedRun::new(start, bytes, Arc::new(map))
    }
}

impl SharedMemory for Shm {
    fn has_boards(&self) -> bool {
        true
    }

    fn make(&mut self, key: u64, bytes: usize, _beside: Span) -> Result<SharedRun, String> {
        let (file, map) = segment::create(self.own.place(), bytes).map_err(|error| error.to_string())?;
        self.stop_giving(key);
        self.passing.push((key, file));
        Ok(run_of(map, bytes))
    }

    fn give(&mut self, link: u32, key: u64) -> Result<bool, String> {
        let line = self.connections.line(link).ok_or("the connection is not open")?;
        let file = self.passing.iter().find(|(of, _)| *of == key).map(|(_, file)| file.as_fd());
        match line.pass(&Packet::Shared(key), file.as_slice()) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::TOOMANYREFS) => Ok(false),
            Err(error) => Err(format!("nothing can be passed over the connection: {error}")),
        }
    }

    fn stop_giving(&mut self, key: u64) {
        self.passing.retain(|(of, _)| *of != key);
    }

    fn take(&mut self, link: u32, key: u64) -> Option<Option<SharedRun>> {
        let line = self.connections.line_mut(link)?;
        let place = line.more.shared.iter().position(|(of, _)| *of == key)?;
        Some(line.more.shared.swap_remove(place).1)
    }

    fn heap_of(&self, link: u32) -> Option<Arc<PeerHeap>> {
        self.connections.line(link)?.heap().cloned()
    }

    fn writable_heap(&mut self, link: u32) -> Option<&Arc<PeerHeap>> {
        self.connections.line_mut(link)?.writable_heap()
    }

    fn fetches(&self, link: u32) -> bool {
        self.connections.line(link).is_some_and(Line::readable)
    }

    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn fetch(&mut self, link: u32, address: u64, into: Span) -> bool {
        let Some(line) = self.connections.line_mut(link) else { return false };
        let fetched = attach(&mut self.deaths, line, &[MemoryRead { address, into }]).is_ok();
        if fetched {
            self.read.attach += into.len() as u64;
            self.links.read_directly(link, into.len() as u64);
        }
        fetched
    }

    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn store(&mut self, link: u32, address: u64, from: Span) -> bool {
        let Some(line) = self.connections.line_mut(link) else { return false };
        let Some((pid, process, watched)) = line.readable_process() else { return false };
        // SAFETY: by the same contract.
        let stored = unsafe { write(pid, address, from) };
        stored && self.deaths.lives(process, watched)
    }

    fn wake(&mut self, link: u32) {
        self.links.wake(link);
    }
}

/// Has the kernel write a run into the memory of process `pid`; whether all of it was.
///
/// # Safety
/// The run is valid for reads.
#[expect(unsafe_code, reason = "no crate that is used here has this call")]
unsafe fn write(pid: u32, address: u64, from: Span) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    let mut done = 0;
    while done < from.len() {
        let rest = from.part(done, usize::MAX);
        let place = std::ptr::without_provenance_mut((address as usize).wrapping_add(done));
        let local = libc::iovec { iov_base: rest.start().cast(), iov_len: rest.len() };
        let remote = libc::iovec { iov_base: place, iov_len: rest.len() };
        // SAFETY: the local run is valid by this function's contract; the kernel checks the remote one.
        let written = unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(written) {
            Ok(0) => return false,
            Ok(written) => done += written,
            Err(_) if last_error() == Errno::INTR => {}
            Err(_) => return false,
        }
    }
    true
}

impl Shm {
    /// A peer has passed a shared run, or has none.
    ///
    /// # Errors
    /// What about it cannot be, in words.
    pub(super) fn hear_shared(&mut self, link: u32, key: u64, passed: Vec<OwnedFd>) -> Result<(), String> {
        let files = self.own.files;
        let Some(line) = self.connections.line_mut(link) else { return Ok(()) };
        let run = match <[OwnedFd; 1]>::try_from(passed) {
            Ok([file]) => {
                // A run is as long as its maker has made it, which its user checks.
                let bytes = segment::length(&file)?;
                Some(run_of(segment::receive(file, bytes, files)?, bytes))
            }
            // It has none, or there was no number for it here.
            Err(_) => None,
        };
        let shared = &mut line.more.shared;
        shared.retain(|(of, _)| *of != key);
        if shared.len() == SHARED_PASSED {
            shared.remove(0);
        }
        shared.push((key, run));
        Ok(())
    }
}
