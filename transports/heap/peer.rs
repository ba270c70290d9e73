//! The heap of a peer, as this process maps it.

use rustix::fd::OwnedFd;
use rustix::fs::SealFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::NonNull;
use tickwire_components::Span;
use tickwire_components::limits::HEAP_BYTES_MAX;

/// File systems whose files have seals and whose pages do not run out before memory does.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A mapping of a peer's heap, for reading. The peer writes there whenever it likes, so nothing is read but by raw copies.
#[derive(Debug)]
pub struct PeerHeap {
    base: NonNull<u8>,
    bytes: usize,
    /// Where it starts in the peer, by its own word.
    theirs: u64,
    file: (u64, u64),
}

// SAFETY: memory that is only read, by raw copies.
#[expect(unsafe_code, reason = "owns a mapping")]
unsafe impl Send for PeerHeap {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "owns a mapping")]
unsafe impl Sync for PeerHeap {}

impl PeerHeap {
    /// Maps what a peer has passed as its heap, `bytes` long and at `theirs` in its memory by its own word. `None` where
    /// there is no room for the map: messages then go another way.
    ///
    /// # Errors
    /// What about it cannot be, in words.
    pub fn receive(passed: &OwnedFd, theirs: u64, bytes: u64) -> Result<Option<Self>, String> {
        if bytes == 0 || bytes > HEAP_BYTES_MAX as u64 || theirs.checked_add(bytes).is_none() {
            return Err(format!("the peer names a shared heap of {bytes} bytes at {theirs:#x}, which cannot be"));
        }
        let unknown = |error| format!("the peer passed a shared heap that cannot be looked at: {error}");
        // A file of another kind may be cut, or may have no memory for a page when it is read.
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
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice, for reading, of a file that cannot become shorter.
        #[expect(unsafe_code, reason = "a mapping is raw memory")]
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, flags, passed, 0) };
        let Some(base) = base.ok().and_then(|base| NonNull::new(base.cast::<u8>())) else { return Ok(None) };
        // SAFETY: the new mapping. Children do not need it; where they get it nevertheless, it harms nobody.
        #[expect(unsafe_code, reason = "a mapping is raw memory")]
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontFork) };
        Ok(Some(PeerHeap { base, bytes, theirs, file: identity(&stat) }))
    }

    /// Whether this is a map of a file that another proc of the same process has passed, to be used as that one says.
    pub fn is(&self, passed: &OwnedFd, theirs: u64, bytes: u64) -> bool {
        self.theirs == theirs
            && self.bytes as u64 == bytes
            && rustix::fs::fstat(passed).is_ok_and(|stat| identity(&stat) == self.file)
    }

    /// Where `length` bytes are that the peer has at `address`; `None` if they are not all in its heap. Whatever the peer
    /// says, they are within the map.
    #[inline]
    pub fn find(&self, address: u64, length: u64) -> Option<Span> {
        let first = address.checked_sub(self.theirs)?;
        let end = first.checked_add(length)?;
        // SAFETY: within the map, which lives as long as `self`; whoever uses the span only reads.
        #[expect(unsafe_code, reason = "a place in a mapping")]
        (end <= self.bytes as u64)
            .then(|| unsafe { Span::new(self.base.as_ptr().add(first as usize), length as usize) })
    }
}

fn identity(stat: &rustix::fs::Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

impl Drop for PeerHeap {
    fn drop(&mut self) {
        // SAFETY: mapped in `receive` with this length; spans of it do not outlive the call that asked for them.
        #[expect(unsafe_code, reason = "a mapping is raw memory")]
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
