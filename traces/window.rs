//! A mapping of the beginning of a file: what is stored there is in the file at once, even if the process dies.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use tickwire_components::check_file_bytes;

/// The mapped words of a file.
#[derive(Debug)]
pub(crate) struct Window {
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are atomics that the window owns.
#[expect(unsafe_code, reason = "owns a mapping")]
unsafe impl Send for Window {}

impl Window {
    /// Gives the file room for `count` words, and maps them.
    ///
    /// The blocks are allocated before they are mapped. So a full file system is an error here, and not a signal (SIGBUS) at a later
    /// store.
    ///
    /// # Errors
    /// If there is no room, or the file system cannot map files.
    pub(crate) fn map(file: &File, count: usize) -> io::Result<Self> {
        reserve(file, count * 8)?;
        Ok(Window { words: map(file, count * 8)?, count })
    }

    /// The words.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: as many words as were mapped, valid as long as the window, and accessed as atomics only.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for Window {
    #[expect(unsafe_code, reason = "gives back what `map` has taken")]
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, which nobody else has. It cannot fail: it is whole.
        let _ = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), self.count * 8) };
    }
}

/// Makes the file long enough, and allocates its blocks.
fn reserve(file: &File, bytes: usize) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    use std::os::unix::fs::FileExt;
    let length = file.metadata()?.len();
    check_file_bytes(bytes as u64).map_err(|long| io::Error::new(io::ErrorKind::FileTooLarge, long))?;
    match rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, bytes as u64)) {
        // If the file system cannot preallocate blocks, writing zeros allocates them.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            file.write_all_at(&vec![0; bytes.saturating_sub(length as usize)], length)
        }
        other => Ok(other?),
    }
}

#[expect(unsafe_code, reason = "a mapping is raw memory")]
fn map(file: &File, bytes: usize) -> io::Result<NonNull<AtomicU64>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; the file was made as long, and is this process's own: who
    // shortens it could as well end the process.
    let base = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
    // One call in place of a page fault for each page. Kernels before 5.14 do not know it, and the faults come later.
    //
    // SAFETY: the mapping of just before, which keeps its content.
    let _ = unsafe { madvise(base, bytes, Advice::LinuxPopulateWrite) };
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
