//! The file of the heap and its place in the address space. Nothing here allocates: it runs within an allocator.

use super::error::{ENV_SHARED_HEAP_BYTES, HeapError};
use rustix::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::CStr;
use std::io::Write;
use tickwire_components::limits::{HEAP_BYTES, HEAP_BYTES_MAX, HEAP_BYTES_MIN};
use tickwire_components::{check_file_bytes, file_bytes_max};

/// The name of the file, which only shows in `/proc`.
pub(super) const NAME: &CStr = c"tickwire-heap";

/// The result of [`make`]: kept for the life of the process, or [discarded](Space::give_up).
pub(super) struct Space {
    /// The first byte, at the start of a page.
    pub(super) base: *mut u8,
    /// Whole pages.
    pub(super) bytes: usize,
    /// Its file, for reading.
    pub(super) file: RawFd,
    /// Its file, for writing. It is passed to nobody. A peer that may write this process's memory can take it, as it could write there
    /// anyway, and then updates the heap directly.
    writable: RawFd,
}

/// Makes the file and maps it.
pub(super) fn make() -> Result<Space, HeapError> {
    if promises_memory() {
        return Err(HeapError::Overcommit);
    }
    let page = rustix::param::page_size();
    let bytes = wanted_bytes()?.next_multiple_of(page);
    check_file_bytes(bytes as u64).map_err(|long| HeapError::FileSize { most: long.most })?;
    let (file, readable) = make_file(bytes).map_err(HeapError::System)?;
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
    // SAFETY: a new mapping at an address of the kernel's choice.
    #[expect(unsafe_code, reason = "a mapping is raw memory")]
    let mapped = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, &file, 0) };
    let base = mapped.map_err(HeapError::System)?;
    let space = Space { base: base.cast(), bytes, file: readable.into_raw_fd(), writable: file.into_raw_fd() };
    // SAFETY: the new mapping, which nobody uses yet.
    #[expect(unsafe_code, reason = "a mapping is raw memory")]
    match unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxDontFork) } {
        Ok(()) => Ok(space),
        Err(error) => {
            space.give_up();
            Err(HeapError::System(error))
        }
    }
}

impl Space {
    /// Undoes [`make`].
    pub(super) fn give_up(&self) {
        // SAFETY: mapped and opened by `make`, and no block was ever given out.
        #[expect(unsafe_code, reason = "a mapping and a descriptor are raw")]
        unsafe {
            let _ = rustix::mm::munmap(self.base.cast(), self.bytes);
            rustix::io::close(self.file);
            rustix::io::close(self.writable);
        }
    }
}

/// A sealed file of `bytes` bytes, and a read-only descriptor of it.
fn make_file(bytes: usize) -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match rustix::fs::memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        // A kernel before 6.3.
        Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags)?,
        made => made?,
    };
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let mut path = [0u8; 64];
    let mut rest = &mut path[..];
    write!(rest, "/proc/self/fd/{}\0", file.as_raw_fd()).map_err(|_| Errno::NAMETOOLONG)?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?;
    let readable = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fchmod(&file, Mode::RUSR)?;
    Ok((file, readable))
}

/// The configured size, or the default one.
fn wanted_bytes() -> Result<usize, HeapError> {
    let mut name = [0u8; ENV_SHARED_HEAP_BYTES.len() + 1];
    name[..ENV_SHARED_HEAP_BYTES.len()].copy_from_slice(ENV_SHARED_HEAP_BYTES.as_bytes());
    // SAFETY: the name ends with a zero byte. The value is read at once; a thread that changes the environment meanwhile
    // does so by an unsafe call of its own.
    #[expect(unsafe_code, reason = "the standard library's call allocates")]
    let value = unsafe {
        let value = libc::getenv(name.as_ptr().cast());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    };
    match value {
        Some(value) => bytes_in(value.to_bytes()).ok_or(HeapError::Bytes),
        None => {
            let system = rustix::system::sysinfo();
            let memory = (system.totalram as usize).saturating_mul(system.mem_unit.max(1) as usize);
            // One page less if the bound is no whole number of pages.
            let file = file_bytes_max().min(HEAP_BYTES as u64) as usize / rustix::param::page_size();
            Ok(HEAP_BYTES.min(memory / 2).min(file * rustix::param::page_size()).max(HEAP_BYTES_MIN))
        }
    }
}

/// A number of bytes in the environment.
pub(super) fn bytes_in(value: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(value).ok()?;
    text.parse::<usize>().ok().filter(|bytes| (HEAP_BYTES_MIN..=HEAP_BYTES_MAX).contains(bytes))
}

/// Whether the kernel commits memory before it is used.
fn promises_memory() -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(c"/proc/sys/vm/overcommit_memory", flags, Mode::empty()) else { return false };
    let mut mode = [0u8; 1];
    matches!(rustix::io::read(&file, &mut mode), Ok(1)) && mode == *b"2"
}

/// The whole pages within a run: their offset and length in bytes.
fn pages_of(run: *mut u8, bytes: usize) -> (usize, usize) {
    let page = rustix::param::page_size();
    let first = run.addr().next_multiple_of(page) - run.addr();
    (first, bytes.saturating_sub(first) / page * page)
}

/// Returns the memory of the whole pages of a run to the system; they then read as zeros. `false` if that failed.
///
/// # Safety
/// The run is the heap's, and nobody uses its bytes.
#[expect(unsafe_code, reason = "discards memory")]
pub(super) unsafe fn give_back(run: *mut u8, bytes: usize) -> bool {
    let (first, whole) = pages_of(run, bytes);
    if whole == 0 {
        return true;
    }
    // SAFETY: whole pages within the run, whose bytes nobody needs.
    unsafe { rustix::mm::madvise(run.add(first).cast(), whole, Advice::LinuxRemove).is_ok() }
}

/// Clears the bytes of a run that [`give_back`] leaves: those outside whole pages.
///
/// # Safety
/// As [`give_back`].
#[expect(unsafe_code, reason = "clears memory")]
pub(super) unsafe fn clear_edges(run: *mut u8, bytes: usize) {
    let (first, whole) = pages_of(run, bytes);
    let first = first.min(bytes);
    // SAFETY: both parts are within the run.
    unsafe {
        run.write_bytes(0, first);
        run.add(first + whole).write_bytes(0, bytes - first - whole);
    }
}

/// Has a function called first in every child that `fork` makes.
pub(super) fn after_fork(child: extern "C" fn()) {
    // SAFETY: a function of this program; it allocates nothing.
    #[expect(unsafe_code, reason = "no crate that is used here has this call")]
    let _ = unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// In a child, which does not inherit the heap's mapping: maps the same bytes of the file privately, at the same address.
pub(super) fn make_private(base: *mut u8, bytes: usize, file: RawFd) {
    let (protection, flags) =
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED);
    // SAFETY: the child has nothing there, since the parent's mapping is not inherited; the file is as long.
    #[expect(unsafe_code, reason = "a mapping is raw memory")]
    unsafe {
        let file = rustix::fd::BorrowedFd::borrow_raw(file);
        let _ = rustix::mm::mmap(base.cast(), bytes, protection, flags, file, 0);
    }
}
