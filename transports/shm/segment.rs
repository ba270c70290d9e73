//! Files of shared memory: made without a name, allocated before they are mapped, gone with their last user.
//!
//! A segment is an unnamed file (`O_TMPFILE`) in the configured directory, so a process that is killed leaves nothing
//! behind. Where the file system has no unnamed files, it is made under the name `tickwire.<job>.<proc>.<pid>.<n>`
//! and held by a lock until the name is removed, directly after it was mapped: peers get the descriptor, not the
//! name. A process that dies in between leaves a file that nobody holds, and the next [`sweep`] removes it. The lock
//! is `flock`, which belongs to the open file like an OFD lock: another open of the same file by the same process
//! does not hold it.
//!
//! A file in a tmpfs is allocated as a whole (`fallocate`) before it is mapped: a full file system is an error, never
//! a SIGBUS. Sealed `memfd`s are no better base: they are neither limited nor reported by `/dev/shm`. So a peer that
//! truncates its own segment can kill those that map it; peers are processes of one user, which can do that anyway.

use super::ShmError;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::c_void;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names that one sweep looks at, at most.
const SWEEP_LOOKS: usize = 1 << 16;
/// Names that are tried for a segment before giving up.
const NAMES: u32 = 64;

/// A mapping of a whole segment.
#[derive(Debug)]
pub(super) struct Map {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain shared memory, accessed through atomics and raw copies only.
#[expect(unsafe_code, reason = "owns a mapping")]
unsafe impl Send for Map {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "owns a mapping")]
unsafe impl Sync for Map {}

impl Map {
    #[expect(unsafe_code, reason = "a mapping is raw memory")]
    fn new(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        // SAFETY: a new mapping at an address of the kernel's choice; `bytes` are allocated in the file.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)?
        };
        NonNull::new(base.cast()).map(|base| Map { base, bytes }).ok_or(Errno::NOMEM)
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

/// Where and how to make segments.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The directory.
    pub(super) directory: &'a Path,
    /// The job.
    pub(super) job: &'a str,
    /// The own proc number.
    pub(super) me: u32,
    /// Uses a name even where unnamed files are possible.
    pub(super) named: bool,
}

/// Makes a segment of `bytes` zero bytes and maps it.
pub(super) fn create(place: Place<'_>, bytes: usize) -> Result<(OwnedFd, Map), ShmError> {
    let failed = |source| failure(place.directory, bytes, source);
    if !place.named {
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(place.directory, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return allocate(file, bytes).map_err(failed),
            // A file system without unnamed files, or a kernel without them.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
            Err(source) => return Err(failed(source)),
        }
    }
    let (file, path) = create_named(place).map_err(failed)?;
    let allocated = allocate(file, bytes);
    // A sweep may have been faster: between creation and lock nobody holds the file.
    let _ = rustix::fs::unlink(&path);
    allocated.map_err(failed)
}

fn create_named(place: Place<'_>) -> Result<(OwnedFd, std::path::PathBuf), Errno> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    for _ in 0..NAMES {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = place.directory.join(format!("tickwire.{}.{}.{pid}.{n}", place.job, place.me));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                // Fails only while a sweep looks at it, which then removes the name: as good as held.
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

/// Maps a segment that a peer has passed, if it is a file of exactly `bytes`.
pub(super) fn receive(file: OwnedFd, bytes: usize) -> Result<Map, String> {
    let stat = rustix::fs::fstat(&file).map_err(|e| format!("the peer passed a segment that cannot be read: {e}"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("the peer passed something other than a file as a segment".into());
    }
    if u64::try_from(stat.st_size) != Ok(bytes as u64) {
        return Err(format!("the peer passed a segment of {} bytes where {bytes} are due", stat.st_size));
    }
    // Blocks are of 512 bytes; a file with holes could raise SIGBUS once the file system is full.
    if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) < bytes as u64 {
        return Err("the peer passed a segment that is not allocated".into());
    }
    Map::new(&file, bytes).map_err(|e| format!("a segment of {bytes} bytes of the peer cannot be mapped: {e}"))
}

/// Removes segments of this user that nobody holds; returns how many. Files that are not ours are left alone.
pub(super) fn sweep(directory: &Path) -> usize {
    let uid = rustix::process::getuid().as_raw();
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let mut swept = 0;
    for entry in entries.take(SWEEP_LOOKS).flatten() {
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

/// Says which limit a segment ran into, and what to do.
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
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A directory in /dev/shm of its own, removed at the end.
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        pub(crate) fn new(name: &str) -> Self {
            let path = Path::new("/dev/shm").join(format!("scratch-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a scratch directory");
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn place(directory: &Path, named: bool) -> Place<'_> {
        Place { directory, job: "a.job", me: 3, named }
    }

    #[test]
    fn a_segment_has_no_name_and_the_bytes_that_were_asked_for() {
        let scratch = Scratch::new("create");
        for named in [false, true] {
            let (file, map) = create(place(&scratch.0, named), 8192).expect("a segment");
            assert_eq!(fs::read_dir(&scratch.0).expect("readable").count(), 0, "named: {named}");
            let stat = rustix::fs::fstat(&file).expect("a file");
            assert_eq!((stat.st_size, stat.st_mode & 0o777, stat.st_nlink), (8192, 0o600, 0));
            assert!(map.base().as_ptr().addr().is_multiple_of(4096));
            let again = receive(file, 8192).expect("mapped again");
            // SAFETY: both maps have 8192 bytes.
            #[expect(unsafe_code, reason = "a look at shared memory")]
            unsafe {
                assert_eq!(map.base().as_ptr().add(8191).read(), 0);
                map.base().as_ptr().add(8191).write(7);
                assert_eq!(again.base().as_ptr().add(8191).read(), 7);
            }
        }
    }

    #[test]
    fn a_full_file_system_is_reported_with_the_bytes() {
        let scratch = Scratch::new("full");
        for named in [false, true] {
            let bytes = 1 << 60;
            let error = create(place(&scratch.0, named), bytes).expect_err("no room");
            assert!(matches!(&error, ShmError::Full { bytes: b, .. } if *b == bytes), "{error}");
            let text = error.to_string();
            assert!(text.contains(&bytes.to_string()) && text.contains("remount"), "{text}");
            assert_eq!(fs::read_dir(&scratch.0).expect("readable").count(), 0);
        }
        let nowhere = create(place(Path::new("/no/such/place"), false), 4096).expect_err("no directory");
        assert!(matches!(nowhere, ShmError::Directory { .. }), "{nowhere}");
    }

    #[test]
    fn a_passed_segment_is_checked_before_it_is_mapped() {
        let scratch = Scratch::new("receive");
        let (file, _map) = create(place(&scratch.0, false), 4096).expect("a segment");
        let error = receive(file, 8192).expect_err("too short");
        assert!(error.contains("4096 bytes where 8192"), "{error}");
        let (read, _write) = rustix::pipe::pipe().expect("a pipe");
        assert!(receive(read, 4096).is_err());
        let path = scratch.0.join("holes");
        let file = fs::File::options().read(true).write(true).create_new(true).open(path).expect("a file");
        file.set_len(4096).expect("sparse");
        assert!(receive(file.into(), 4096).expect_err("sparse").contains("not allocated"));
    }

    #[test]
    fn a_sweep_removes_what_is_ours_and_nobody_holds() {
        let scratch = Scratch::new("sweep");
        for name in ["tickwire.a.0.1.2", "tickwire.a.b.c.0.1.2", "tickwire.held.0.1.2"] {
            fs::write(scratch.0.join(name), b"x").expect("written");
        }
        let others = ["tickwire.a.0.1", "tickwire.a.0.1.x", "tickwire..0.1.2", "tickwired.a.0.1.2", "else"];
        for name in others {
            fs::write(scratch.0.join(name), b"x").expect("written");
        }
        fs::create_dir(scratch.0.join("tickwire.dir.0.1.2")).expect("a directory");
        let held = fs::File::open(scratch.0.join("tickwire.held.0.1.2")).expect("open");
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).expect("locked");
        assert_eq!(sweep(&scratch.0), 2);
        let left = |name: &str| scratch.0.join(name).exists();
        assert!(!left("tickwire.a.0.1.2") && !left("tickwire.a.b.c.0.1.2"));
        assert!(left("tickwire.held.0.1.2") && left("tickwire.dir.0.1.2"));
        assert!(others.iter().all(|name| left(name)));
        drop(held);
        assert_eq!(sweep(&scratch.0), 1);
        assert_eq!(sweep(Path::new("/no/such/place")), 0);
    }
}
