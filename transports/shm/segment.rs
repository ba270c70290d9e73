//! Segments: files of shared memory that are made without a name, allocated before they are mapped, and freed with their last user.
//!
//! A segment is a `memfd`, sealed against shrinking and growing. It has no name and no directory, a killed process leaves nothing behind,
//! and no peer can shrink it under the processes that map it. A process that is passed one checks the seals, the size and that it is
//! allocated, before mapping it.
//!
//! If a process cannot make one (old kernels, system call filters), a segment is an unnamed file (`O_TMPFILE`) in the configured directory.
//! If the file system has no such files, it is made under the name `tickwire.<job>.<proc>.<pid>.<n>` and locked until the name is removed,
//! directly after mapping: peers get the descriptor, not the name. A process that dies in between leaves a file that nobody locks, and the
//! next [`sweep`] removes it. The lock is `flock`, which belongs to the open file like an OFD lock: another open of the same file by the
//! same process does not hold it. Such files cannot be sealed, so only processes that cannot make better ones accept them.
//!
//! A segment is allocated as a whole (`fallocate`) before it is mapped, so that a lack of memory shows there and never as SIGBUS. Limits
//! that the kernel enforces by a signal are checked first: the file size limit (SIGXFSZ), and memory that is nearly used up, of the machine
//! or of the process's memory cgroup, where the kernel ends a process. See [`super::room`].

use super::error::ShmError;
use super::room::Room;
use crate::heap::TMPFS_MAGIC;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FallocateFlags, FileType, FlockOperation, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::ffi::c_void;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tickwire_components::limits::{PAGE_BYTES, SEGMENT_NAME_TRIES, SEGMENTS_SWEPT_MAX};

/// A mapping of a whole segment.
#[derive(Debug)]
pub(super) struct Map {
    base: NonNull<u8>,
    bytes: usize,
    /// Counts its bytes, if this process has made it.
    _share: Option<Share>,
}

/// Bytes that are counted in a sum as long as this lives.
#[derive(Debug)]
pub(super) struct Share {
    bytes: u64,
    sum: Arc<AtomicU64>,
}

impl Share {
    pub(super) fn of(sum: &Arc<AtomicU64>, bytes: usize) -> Self {
        sum.fetch_add(bytes as u64, Ordering::Relaxed);
        Share { bytes: bytes as u64, sum: sum.clone() }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

// SAFETY: plain shared memory, accessed through atomics and raw copies only.
#[expect(unsafe_code, reason = "owns a mapping")]
unsafe impl Send for Map {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "owns a mapping")]
unsafe impl Sync for Map {}

impl Map {
    #[expect(unsafe_code, reason = "a mapping is raw memory")]
    pub(super) fn new(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        // SAFETY: a new mapping at an address of the kernel's choice; `bytes` are allocated in the file.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)?
        };
        NonNull::new(base.cast()).map(|base| Map { base, bytes, _share: None }).ok_or(Errno::NOMEM)
    }

    /// Maps all pages now. If the kernel cannot, each is mapped when it is first used.
    #[expect(unsafe_code, reason = "a mapping is raw memory")]
    pub(super) fn populate(&self) {
        // SAFETY: the mapping is there; the advice changes none of its bytes.
        let _ = unsafe {
            rustix::mm::madvise(self.base.as_ptr().cast(), self.bytes, rustix::mm::Advice::LinuxPopulateWrite)
        };
    }

    /// The first byte, at the start of a page.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Map {
    #[expect(unsafe_code, reason = "a mapping is raw memory")]
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; views keep the map alive.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.bytes) };
    }
}

/// The kind of files that segments are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Files {
    /// Sealed files in memory (`memfd`).
    #[default]
    Memory,
    /// Unnamed files in the directory.
    Unnamed,
    /// Files in the directory whose names are removed at once.
    #[cfg_attr(not(test), expect(dead_code, reason = "made where there are none without a name; asked for by tests"))]
    Named,
}

impl Files {
    /// The best kind that this process can make.
    pub(super) fn possible() -> Self {
        match memfd() {
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::INVAL) => Files::Unnamed,
            _ => Files::Memory,
        }
    }
}

/// Where and how to make segments.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The kind of files.
    pub(super) files: Files,
    /// The directory, for kinds of files that need one.
    pub(super) directory: &'a Path,
    /// The job.
    pub(super) job: &'a str,
    /// The own proc number.
    pub(super) me: u32,
    /// Whether there is memory.
    pub(super) room: &'a Room,
    /// Bytes of all segments that were made.
    pub(super) made: &'a Arc<AtomicU64>,
}

/// Bytes of a page. Asks libc, since rustix reads the auxiliary vector itself, which crashes under valgrind.
#[expect(unsafe_code, reason = "a call of the C library")]
fn page_bytes() -> usize {
    // SAFETY: a question without side effects.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(PAGE_BYTES)
}

/// Makes a segment of `bytes` zero bytes and maps it.
pub(super) fn create(place: Place<'_>, bytes: usize) -> Result<(OwnedFd, Map), ShmError> {
    place.room.take(bytes)?;
    let share = Share::of(place.made, bytes.next_multiple_of(page_bytes()));
    let (file, mut map) = match place.files {
        Files::Memory => create_sealed(bytes).map_err(|source| place.room.failure(bytes, source)),
        _ => create_file(place, bytes).map_err(|source| failure(place.directory, bytes, source)),
    }?;
    map._share = Some(share);
    Ok((file, map))
}

fn memfd() -> Result<OwnedFd, Errno> {
    const NAME: &std::ffi::CStr = c"tickwire-rings";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        // A kernel before 6.3.
        Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
        made => made,
    }
}

fn create_sealed(bytes: usize) -> Result<(OwnedFd, Map), Errno> {
    let (file, map) = allocate(memfd()?, bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok((file, map))
}

fn create_file(place: Place<'_>, bytes: usize) -> Result<(OwnedFd, Map), Errno> {
    if place.files == Files::Unnamed {
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(place.directory, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return allocate(file, bytes),
            // A file system without unnamed files, or a kernel without them.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
            Err(source) => return Err(source),
        }
    }
    let (file, path) = create_named(place)?;
    let allocated = allocate(file, bytes);
    // A sweep may have removed it: between creation and lock nobody holds the file.
    let _ = rustix::fs::unlink(&path);
    allocated
}

fn create_named(place: Place<'_>) -> Result<(OwnedFd, std::path::PathBuf), Errno> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    for _ in 0..SEGMENT_NAME_TRIES {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = place.directory.join(format!("tickwire.{}.{}.{pid}.{n}", place.job, place.me));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                // Fails only while a sweep checks the file. The sweep then removes the name, which is just as good.
                let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
                return Ok((file, path));
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST)
}

fn allocate(file: OwnedFd, bytes: usize) -> Result<(OwnedFd, Map), Errno> {
    loop {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    let map = Map::new(&file, bytes)?;
    Ok((file, map))
}

/// Maps a segment that a peer has passed, if it is a file of exactly `bytes` that is allocated, and sealed where this process makes such
/// files itself.
pub(super) fn receive(file: OwnedFd, bytes: usize, files: Files) -> Result<Map, String> {
    check(&file, bytes, files)?;
    Map::new(&file, bytes).map_err(|e| format!("a segment of {bytes} bytes of the peer cannot be mapped: {e}"))
}

/// The length of a file that a peer has passed.
pub(super) fn length(file: &OwnedFd) -> Result<usize, String> {
    let stat = rustix::fs::fstat(file).map_err(|e| format!("the peer passed a segment that cannot be read: {e}"))?;
    usize::try_from(stat.st_size).map_err(|_| format!("the peer passed a segment of {} bytes", stat.st_size))
}

/// Checks that a file which a peer has passed is a segment as described at [`receive`].
pub(super) fn check(file: &OwnedFd, bytes: usize, files: Files) -> Result<(), String> {
    let stat = rustix::fs::fstat(file).map_err(|e| format!("the peer passed a segment that cannot be read: {e}"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("the peer passed something other than a file as a segment".into());
    }
    let is_sealed = rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    if files == Files::Memory && !is_sealed {
        return Err(
            "the peer passed a segment that is not sealed against shrinking: let all procs of the job make a memfd \
                    (memfd_create), or none"
                .into(),
        );
    }
    // Huge pages can run out after a file was mapped. Its owner could punch a hole into it, and the next access would end this process.
    let kind = rustix::fs::fstatfs(file).map_err(|e| format!("the peer passed a segment that cannot be read: {e}"))?;
    if files == Files::Memory && kind.f_type as u64 != TMPFS_MAGIC {
        return Err("the peer passed a segment that is no file in memory of usual pages".into());
    }
    if u64::try_from(stat.st_size) != Ok(bytes as u64) {
        return Err(format!("the peer passed a segment of {} bytes where {bytes} are due", stat.st_size));
    }
    // Blocks are of 512 bytes; a file with holes could raise SIGBUS once the file system is full.
    if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) < bytes as u64 {
        return Err("the peer passed a segment that is not allocated".into());
    }
    Ok(())
}

/// Removes this user's segments that nobody holds. Returns how many. Other files are left alone.
pub(super) fn sweep(directory: &Path) -> usize {
    let uid = rustix::process::geteuid().as_raw();
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let mut swept = 0;
    for entry in entries.take(SEGMENTS_SWEPT_MAX).flatten() {
        if !entry.file_name().to_str().is_some_and(is_ours) {
            continue;
        }
        let path = entry.path();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let Ok(file) = rustix::fs::openat(CWD, &path, flags, Mode::empty()) else { continue };
        let Ok(stat) = rustix::fs::fstat(&file) else { continue };
        let ours = stat.st_uid == uid && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if ours
            && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && rustix::fs::unlink(&path).is_ok()
        {
            swept += 1;
        }
    }
    swept
}

/// Whether a name is `tickwire.<job>.<proc>.<pid>.<n>`.
fn is_ours(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("tickwire.") else { return false };
    let mut parts = rest.rsplitn(4, '.');
    let numbers = parts.by_ref().take(3).filter(|part| part.parse::<u32>().is_ok()).count();
    numbers == 3 && parts.next().is_some_and(|job| !job.is_empty())
}

/// The error that says which limit a file in a directory has hit, and what to do.
fn failure(directory: &Path, bytes: usize, source: Errno) -> ShmError {
    let directory = directory.to_owned();
    match source {
        Errno::NOSPC | Errno::DQUOT | Errno::NOMEM | Errno::FBIG => {
            let free = rustix::fs::statvfs(&directory).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize));
            ShmError::Full { directory, bytes, free, source }
        }
        Errno::MFILE | Errno::NFILE => ShmError::Descriptors { source },
        source => ShmError::Directory { directory, source },
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
