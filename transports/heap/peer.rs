//! The heap of a peer, as this process maps it: for reading, and for writing where the kernel lets it write the peer's memory anyhow.

use super::space::NAME;
use rustix::fd::{AsFd, OwnedFd, RawFd};
use rustix::fs::{OFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::OnceLock;
use tickwire_components::Span;
use tickwire_components::limits::{HEAP_BYTES_MAX, HEAP_DESCRIPTORS_MAX};

/// The file system whose files have seals, and whose pages do not run out before memory does.
pub(crate) const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A peer's heap. The peer may write there at any time, so it is read by raw copies only.
#[derive(Debug)]
pub struct PeerHeap {
    /// For reading.
    map: HeapMap,
    /// For writing too, once requested; `None` if it is not possible.
    writable: OnceLock<Option<HeapMap>>,
    /// Its address in the peer's memory, as the peer reports it.
    theirs: u64,
    file: (u64, u64),
}

/// A mapping of a whole heap.
#[derive(Debug)]
struct HeapMap {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: memory that is touched by raw copies and atomics only.
#[expect(unsafe_code, reason = "owns a mapping")]
unsafe impl Send for HeapMap {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "owns a mapping")]
unsafe impl Sync for HeapMap {}

impl HeapMap {
    /// Maps a file that cannot become shorter than `bytes` bytes; `None` if there is no room for the map.
    fn new(file: &OwnedFd, bytes: usize, protection: ProtFlags) -> Option<HeapMap> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        #[expect(unsafe_code, reason = "a mapping is raw memory")]
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) };
        let base = NonNull::new(base.ok()?.cast::<u8>())?;
        // SAFETY: the new mapping. Child processes do not need it. If the kernel refuses the advice, they inherit it, and no harm is done.
        #[expect(unsafe_code, reason = "a mapping is raw memory")]
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontFork) };
        Some(HeapMap { base, bytes })
    }

    /// `length` bytes from an offset on; `None` if they are not all within the map.
    #[inline]
    fn part(&self, first: u64, length: u64) -> Option<Span> {
        let end = first.checked_add(length)?;
        // SAFETY: within the map, which lives as long as `self`.
        #[expect(unsafe_code, reason = "a place in a mapping")]
        (end <= self.bytes as u64)
            .then(|| unsafe { Span::new(self.base.as_ptr().add(first as usize), length as usize) })
    }
}

impl Drop for HeapMap {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; whoever uses a place in it keeps the heap.
        #[expect(unsafe_code, reason = "a mapping is raw memory")]
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl PeerHeap {
    /// Maps, for reading, the file that a peer has passed as its heap. The peer says that it is `bytes` long and at `theirs` in its memory.
    /// `None` if there is no room for the map: messages then go another way.
    ///
    /// # Errors
    /// Why the file is invalid, in words.
    pub fn receive(passed: &OwnedFd, theirs: u64, bytes: u64) -> Result<Option<Self>, String> {
        // Both maps begin at a page boundary, so alignment is the same in the peer and here.
        let is_page = theirs.is_multiple_of(rustix::param::page_size() as u64);
        if bytes == 0 || bytes > HEAP_BYTES_MAX as u64 || theirs.checked_add(bytes).is_none() || !is_page {
            return Err(format!("the peer names a shared heap of {bytes} bytes at {theirs:#x}, which cannot be"));
        }
        let unknown = |error| format!("the peer passed a shared heap that cannot be looked at: {error}");
        // Another kind of file could shrink, or lack memory for a page when it is read.
        if rustix::fs::fstatfs(passed).map_err(unknown)?.f_type as u64 != TMPFS_MAGIC {
            return Err("the peer passed a shared heap that is no file in memory".into());
        }
        let seals = rustix::fs::fcntl_get_seals(passed).map_err(unknown)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err("the peer passed a shared heap that is not sealed against shrinking".into());
        }
        let stat = rustix::fs::fstat(passed).map_err(unknown)?;
        if u64::try_from(stat.st_size).unwrap_or(0) < bytes {
            return Err(format!("the peer passed a shared heap of {} bytes where {bytes} are due", stat.st_size));
        }
        let bytes = bytes as usize;
        let map = HeapMap::new(passed, bytes, ProtFlags::READ);
        Ok(map.map(|map| PeerHeap { map, writable: OnceLock::new(), theirs, file: identity(&stat) }))
    }

    /// Whether this is a map of the same file, with the same address and length, passed by another proc of the same process.
    pub fn is(&self, passed: &OwnedFd, theirs: u64, bytes: u64) -> bool {
        self.theirs == theirs
            && self.map.bytes as u64 == bytes
            && rustix::fs::fstat(passed).is_ok_and(|stat| identity(&stat) == self.file)
    }

    /// The `length` bytes that the peer has at `address`, for reading; `None` if they are not all in its heap. Whatever the peer says, they
    /// are within the map.
    #[inline]
    pub fn find(&self, address: u64, length: u64) -> Option<Span> {
        self.map.part(address.checked_sub(self.theirs)?, length)
    }

    /// As [`PeerHeap::find`], for writing and updating. Only for memory that the peer has offered for that, and only while the heap is
    /// kept.
    #[inline]
    pub fn find_writable(&self, address: u64, length: u64) -> Option<Span> {
        self.writable.get()?.as_ref()?.part(address.checked_sub(self.theirs)?, length)
    }

    /// Whether it is mapped for writing too. The first call maps it, if the kernel gives this process the peer's own descriptor: it does so
    /// if this process may also write the peer's memory (`pidfd_getfd` requires the same as `process_vm_writev`). `process` is a descriptor
    /// of process `pid`, which the peer runs in.
    #[inline]
    pub fn may_write(&self, pid: u32, process: &OwnedFd) -> bool {
        self.writable.get_or_init(|| self.map_for_writing(pid, process)).is_some()
    }

    #[cold]
    fn map_for_writing(&self, pid: u32, process: &OwnedFd) -> Option<HeapMap> {
        let name = NAME.to_str().ok()?;
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        for descriptor in descriptors.take(HEAP_DESCRIPTORS_MAX).flatten() {
            // Leave other files alone: they may belong to a server that does not answer.
            let is_called = |link: PathBuf| link.to_str().is_some_and(|link| link.contains(name));
            if !std::fs::read_link(descriptor.path()).is_ok_and(is_called) {
                continue;
            }
            if let Some(number) = descriptor.file_name().to_str().and_then(|number| number.parse::<RawFd>().ok())
                && let Ok(file) = pidfd_getfd(process.as_fd(), number, PidfdGetfdFlags::empty())
                && self.is_writable(&file)
            {
                return HeapMap::new(&file, self.map.bytes, ProtFlags::READ | ProtFlags::WRITE);
            }
        }
        None
    }

    /// Whether a descriptor is that of the heap, whose length and seals are known, and writable.
    pub(super) fn is_writable(&self, file: &OwnedFd) -> bool {
        rustix::fs::fstat(file).is_ok_and(|stat| identity(&stat) == self.file)
            && rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
    }
}

fn identity(stat: &rustix::fs::Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
