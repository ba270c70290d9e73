//! Memory that procs of this host share: how it is made and passed over the control socket, and how the kernel reads and writes memory that
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
use smallvec::SmallVec;
use std::sync::Arc;
use tickwire_components::Span;
use tickwire_components::limits::{KERNEL_RUNS_A_CALL, KERNEL_RUNS_INLINE, POPULATED_MAX, SHARED_PASSED};

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
            // There is no room at the moment, or no memory in the kernel. The peer waits for the run, so it is tried again.
            Err(Errno::AGAIN | Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => Ok(false),
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
        // SAFETY: by the same contract.
        unsafe { self.fetch_runs(link, &[(address, into)]) }
    }

    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn store(&mut self, link: u32, address: u64, from: Span) -> bool {
        // SAFETY: by the same contract.
        unsafe { self.store_runs(link, &[(address, from)]) }
    }

    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn fetch_runs(&mut self, link: u32, runs: &[(u64, Span)]) -> bool {
        let Some(line) = self.connections.line_mut(link) else { return false };
        for some in runs.chunks(KERNEL_RUNS_A_CALL) {
            let reads: SmallVec<[_; KERNEL_RUNS_INLINE]> =
                some.iter().map(|&(address, into)| MemoryRead { address, into }).collect();
            if attach(&mut self.deaths, &mut self.kernel_calls, line, &reads).is_err() {
                return false;
            }
        }
        let bytes = runs.iter().map(|(_, into)| into.len() as u64).sum();
        self.read.attach += bytes;
        self.links.read_directly(link, bytes);
        true
    }

    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn store_runs(&mut self, link: u32, runs: &[(u64, Span)]) -> bool {
        let Some(line) = self.connections.line_mut(link) else { return false };
        let Some((pid, process, watched)) = line.readable_process() else { return false };
        let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
        // Another process may have got the process id of one that has ended.
        if !self.deaths.lives(process, watched) {
            return false;
        }
        let calls = &mut self.kernel_calls;
        // SAFETY: by the same contract.
        let stored = runs.chunks(KERNEL_RUNS_A_CALL).all(|some| unsafe { write_together(pid, calls, some) });
        stored && self.deaths.lives(process, watched)
    }

    fn wake(&mut self, link: u32) {
        self.links.wake(link);
    }
}

/// Has the kernel write runs into the memory of process `pid`, each to its address, and counts its calls. Whether all were written.
///
/// # Safety
/// The runs are valid for reads.
#[expect(unsafe_code, reason = "no crate that is used here has this call")]
unsafe fn write_together(pid: libc::pid_t, calls: &mut u64, runs: &[(u64, Span)]) -> bool {
    if let [(address, from)] = *runs {
        // SAFETY: by the same contract.
        return unsafe { write(pid, calls, address, from) };
    }
    *calls += 1;
    let iovecs = |&(address, from): &(u64, Span)| {
        let place = std::ptr::without_provenance_mut(address as usize);
        let iov_len = from.len();
        (libc::iovec { iov_base: from.start().cast(), iov_len }, libc::iovec { iov_base: place, iov_len })
    };
    type Iovecs = SmallVec<[libc::iovec; KERNEL_RUNS_INLINE]>;
    let (local, remote): (Iovecs, Iovecs) = runs.iter().map(iovecs).unzip();
    let [local_count, remote_count] = [&local, &remote].map(|runs| runs.len() as libc::c_ulong);
    // SAFETY: the local runs are valid by this function's contract; the kernel checks the remote ones.
    let written =
        unsafe { libc::process_vm_writev(pid, local.as_ptr(), local_count, remote.as_ptr(), remote_count, 0) };
    let mut left = match usize::try_from(written) {
        Ok(written) => written,
        Err(_) if last_error() == Errno::INTR => 0,
        Err(_) => return false,
    };
    // The kernel may have stopped anywhere. Write the rest run by run.
    runs.iter().all(|&(address, from)| {
        let done = left.min(from.len());
        left -= done;
        // SAFETY: as above.
        unsafe { write(pid, calls, address.wrapping_add(done as u64), from.part(done, usize::MAX)) }
    })
}

/// As [`write_together`], for one run.
///
/// # Safety
/// The run is valid for reads.
#[expect(unsafe_code, reason = "no crate that is used here has this call")]
unsafe fn write(pid: libc::pid_t, calls: &mut u64, address: u64, from: Span) -> bool {
    let mut done = 0;
    while done < from.len() {
        *calls += 1;
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
    /// Handles a shared run that a peer has passed, or the news that it has none.
    ///
    /// # Errors
    /// Why the run is invalid, in words.
    pub(super) fn hear_shared(&mut self, link: u32, key: u64, passed: Vec<OwnedFd>) -> Result<(), String> {
        let files = self.own.files;
        let Some(line) = self.connections.line_mut(link) else { return Ok(()) };
        let run = match <[OwnedFd; 1]>::try_from(passed) {
            Ok([file]) => {
                // The maker chooses the length of a run. Its user checks it.
                let bytes = segment::length(&file)?;
                segment::check(&file, bytes, files)?;
                // If this process may map no more memory, it does without the run.
                Map::new(&file, bytes).ok().map(|map| run_of(map, bytes))
            }
            // The peer has none, or there was no free descriptor number here.
            Err(_) => None,
        };
        let shared = &mut line.more.shared;
        shared.retain(|(of, _)| *of != key);
        if shared.len() == SHARED_PASSED {
            // Rather the news that there is none than a run: nobody may ask for it any more.
            shared.remove(shared.iter().position(|(_, run)| run.is_none()).unwrap_or(0));
        }
        shared.push((key, run));
        Ok(())
    }
}
