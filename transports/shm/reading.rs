//! Reading a peer's memory with one copy, which is how large messages are received.
//!
//! If the message is in the peer's shared heap, it is copied out of this process's map of the heap, without a system call. Its address is
//! checked against what the peer said about its heap when the connection was made, and against the map. The map stays valid after the peer
//! has died. If the peer has withdrawn the message meanwhile, that is detected after the copy.
//!
//! Otherwise the kernel reads it (cross-memory attach, process_vm_readv(2)): only from the process that the control socket's credentials
//! name, and only while it runs. [`super::deaths`] checks that after each read by the process's descriptor, which was opened with the
//! connection. The descriptor names this one process and none that gets its id later. A process that runs after a read was also running
//! before it, so the check after one read serves as the check before the next. Whether the kernel allows reading (ptrace scope, containers,
//! users) is found out when a connection opens.

use super::deaths::Deaths;
use super::{BytesRead, Line, Shm};
use crate::MemoryRead;
use crate::copy;
use crate::handshake::Greeting;
use crate::heap::PeerHeap;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::Arc;
use tickwire_components::Span;
use tickwire_components::limits::READS_A_CALL;

/// An address at which no process has memory: the first page is never mapped.
const NOWHERE: u64 = 16;

/// A read in the form that the kernel takes: the local run, and the remote run.
fn runs(read: &MemoryRead) -> (libc::iovec, libc::iovec) {
    let (start, iov_len) = (std::ptr::without_provenance_mut(read.address as usize), read.into.len());
    (libc::iovec { iov_base: read.into.start().cast(), iov_len }, libc::iovec { iov_base: start, iov_len })
}

/// Has the kernel read the memory of process `pid`, in order, as far as it is there. Returns how many bytes were read.
///
/// # Safety
/// The local runs come from [`runs`].
#[expect(unsafe_code, reason = "no crate that is used here has this call")]
unsafe fn read_once(pid: u32, into: &[libc::iovec], from: &[libc::iovec]) -> Result<usize, Errno> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    let [into_count, from_count] = [into, from].map(|runs| runs.len() as libc::c_ulong);
    // SAFETY: the local runs are valid for writes by the promise of `Span::new`; the kernel checks the remote ones and writes
    // nothing else.
    let read = unsafe { libc::process_vm_readv(pid, into.as_ptr(), into_count, from.as_ptr(), from_count, 0) };
    usize::try_from(read).map_err(|_| last_error())
}

/// The error of the last system call.
pub(super) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// One read.
fn read_one(pid: u32, read: &MemoryRead) -> Result<usize, Errno> {
    let (into, from) = runs(read);
    // SAFETY: what it is read into is of `runs`.
    #[expect(unsafe_code, reason = "no crate that is used here has this call")]
    unsafe {
        read_once(pid, &[into], &[from])
    }
}

/// Does several reads in one call, if all of them succeed. A call costs as much as reading another 30 KiB.
fn read_together(pid: u32, reads: &[MemoryRead]) -> bool {
    let (into, from): (SmallVec<[_; READS_A_CALL]>, SmallVec<[_; READS_A_CALL]>) = reads.iter().map(runs).unzip();
    // SAFETY: what they are read into is of `runs`.
    #[expect(unsafe_code, reason = "no crate that is used here has this call")]
    let read = unsafe { read_once(pid, &into, &from) };
    read == Ok(length(reads))
}

/// Whether this process may read another one's memory.
pub(super) fn allowed(pid: u32) -> bool {
    let mut byte = [0];
    // SAFETY: a local byte that outlives the call.
    #[expect(unsafe_code, reason = "lends a local byte")]
    let span = unsafe { Span::new(byte.as_mut_ptr(), 1) };
    // The kernel checks permission first: only a process that may read learns that nothing is there.
    read_one(pid, &MemoryRead { address: NOWHERE, into: span }) == Err(Errno::FAULT)
}

impl Shm {
    /// How many bytes it has read out of its peers' memory.
    pub fn bytes_read(&self) -> BytesRead {
        self.read
    }

    /// How many calls of the kernel it has made to read or write its peers' memory.
    pub fn kernel_calls(&self) -> u64 {
        self.kernel_calls
    }

    /// See [`crate::Memory::reads`].
    pub(super) fn may_read(&self, link: u32, address: u64, length: u64) -> bool {
        self.connections
            .line(link)
            .is_some_and(|line| line.readable() || line.heap().is_some_and(|heap| heap.find(address, length).is_some()))
    }

    /// See [`crate::Memory::read`].
    pub(super) fn read_memory(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String> {
        let asked = self.ask(link, reads);
        self.read_asked(link, reads, asked)
    }

    /// Does reads of which the peer was asked to stage the first `asked`.
    pub(super) fn read_asked(&mut self, link: u32, reads: &[MemoryRead], asked: usize) -> Result<(), String> {
        let staged = if asked > 0 { self.take_staged(link, &reads[..asked]) } else { 0 };
        self.read.staged += staged as u64;
        match staged {
            0 => self.read_rest(link, reads)?,
            _ => self.read_rest(link, &rest_of(reads, staged))?,
        }
        self.note_cost(link, reads, asked > 0);
        if !self.links.stands(link) {
            return Err("the sender has given the message up".into());
        }
        self.links.read_directly(link, length(reads) as u64);
        Ok(())
    }

    /// See [`crate::Transport::read_at_once`].
    pub(super) fn read_one_now(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool {
        let bytes = into.len() as u64;
        let Some(line) = self.connections.line_mut(link) else {
            return false;
        };
        if let Some(from) = line.heap().and_then(|heap| heap.find(address, bytes)) {
            // SAFETY: as `Transport::read_at_once` says, and the heap is mapped as long as the connection is there.
            #[expect(unsafe_code, reason = "bytes of another process")]
            unsafe {
                copy::copy_long(into, from);
            }
            self.read.heap += bytes;
        } else if alone && line.more.staged.is_quiet(into.len(), self.own.config.staging) {
            if attach(&mut self.deaths, &mut self.kernel_calls, line, &[MemoryRead { address, into }]).is_err() {
                return false;
            }
            self.read.attach += bytes;
        } else {
            return false;
        }
        let stands = self.links.stands(link);
        if stands {
            self.links.read_directly(link, bytes);
        }
        stands
    }

    fn read_rest(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String> {
        let Some(line) = self.connections.line_mut(link) else {
            return Err("the connection is not open".into());
        };
        let mut rest = reads;
        while !rest.is_empty() {
            let in_heap = |read: &MemoryRead| line.heap()?.find(read.address, read.into.len() as u64);
            if let Some(from) = in_heap(&rest[0]) {
                // SAFETY: as `Memory::read` says, and the heap is mapped as long as the connection is there.
                #[expect(unsafe_code, reason = "bytes of another process")]
                let copied = unsafe { copy::copy(rest[0].into, from) };
                self.read.heap += copied as u64;
                rest = &rest[1..];
                continue;
            }
            let elsewhere = 1 + rest[1..].iter().take_while(|read| in_heap(read).is_none()).count();
            attach(&mut self.deaths, &mut self.kernel_calls, line, &rest[..elsewhere])?;
            self.read.attach += length(&rest[..elsewhere]) as u64;
            rest = &rest[elsewhere..];
        }
        Ok(())
    }

    /// Maps the shared heap that a peer has passed, if any, and removes it from `passed`.
    pub(super) fn take_heap(
        &self,
        theirs: &Greeting,
        passed: &mut Vec<OwnedFd>,
    ) -> Result<Option<Arc<PeerHeap>>, String> {
        let (base, bytes) = (theirs.heap_base, theirs.heap_bytes);
        if bytes == 0 {
            return Ok(None);
        }
        let file = passed.pop().ok_or("the peer names a shared heap and has passed none")?;
        // Procs of one process share one heap, which is mapped once.
        let mut known = self.connections.lines().filter_map(Line::heap);
        if let Some(known) = known.find(|heap| heap.is(&file, base, bytes)) {
            return Ok(Some(known.clone()));
        }
        Ok(PeerHeap::receive(&file, base, bytes)?.map(Arc::new))
    }
}

/// The rest of some reads, after the first `done` bytes.
fn rest_of(reads: &[MemoryRead], mut done: usize) -> SmallVec<[MemoryRead; READS_A_CALL]> {
    let mut rest = SmallVec::new();
    for &MemoryRead { address, into } in reads {
        let there = done.min(into.len());
        done -= there;
        if there < into.len() {
            rest.push(MemoryRead { address: address.wrapping_add(there as u64), into: into.part(there, usize::MAX) });
        }
    }
    rest
}

/// The total length of some reads.
pub(super) fn length(reads: &[MemoryRead]) -> usize {
    reads.iter().map(|read| read.into.len()).sum()
}

/// Has the kernel read a peer's memory, and counts its calls.
pub(super) fn attach(
    deaths: &mut Deaths,
    calls: &mut u64,
    line: &mut Line,
    reads: &[MemoryRead],
) -> Result<(), String> {
    let Some((pid, process, watched)) = line.readable_process() else {
        return Err("the process's memory may not be read".into());
    };
    // Single reads show which one fails.
    *calls += u64::from(reads.len() > 1);
    if reads.len() == 1 || !read_together(pid, reads) {
        reads.iter().try_for_each(|read| attach_one(pid, calls, *read))?;
    }
    if !deaths.lives(process, watched) {
        return Err(format!("process {pid} has ended"));
    }
    Ok(())
}

fn attach_one(pid: u32, calls: &mut u64, MemoryRead { address, into }: MemoryRead) -> Result<(), String> {
    let mut done = 0;
    while done < into.len() {
        *calls += 1;
        let rest = MemoryRead { address: address.wrapping_add(done as u64), into: into.part(done, usize::MAX) };
        match read_one(pid, &rest) {
            Ok(0) => return Err(format!("process {pid} has no memory at {address:#x}")),
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(format!("the memory of process {pid} cannot be read: {error}")),
        }
    }
    Ok(())
}
