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

const ALL: [Files; 3] = [Files::Memory, Files::Unnamed, Files::Named];

fn create(directory: &Path, files: Files, bytes: usize) -> Result<(OwnedFd, Map), ShmError> {
    let (room, made) = (Room::default(), Arc::default());
    super::create(Place { files, directory, job: "a.job", me: 3, room: &room, made: &made }, bytes)
}

#[test]
fn a_segment_has_no_name_and_the_bytes_that_were_asked_for() {
    let scratch = Scratch::new("create");
    for files in ALL {
        let (file, map) = create(&scratch.0, files, 8192).expect("a segment");
        assert_eq!(fs::read_dir(&scratch.0).expect("readable").count(), 0, "{files:?}");
        let stat = rustix::fs::fstat(&file).expect("a file");
        assert_eq!((stat.st_size, stat.st_nlink), (8192, 0));
        assert!(files == Files::Memory || stat.st_mode & 0o777 == 0o600);
        assert!(map.base().as_ptr().addr().is_multiple_of(4096));
        let again = receive(file, 8192, files).expect("mapped again");
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
    for files in ALL {
        let bytes = 1 << 60;
        let error = create(&scratch.0, files, bytes).expect_err("no room");
        assert!(matches!(&error, ShmError::Memory { bytes: b, .. } if *b == bytes), "{error}");
        assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        assert_eq!(fs::read_dir(&scratch.0).expect("readable").count(), 0);
    }
    // What the look at the memory could not know.
    let full = failure(&scratch.0, 4097, Errno::NOSPC);
    assert!(matches!(&full, ShmError::Full { bytes: 4097, .. }), "{full}");
    assert!(full.to_string().contains("4097") && full.to_string().contains("remount"), "{full}");
    let nowhere = create(Path::new("/no/such/place"), Files::Unnamed, 4096).expect_err("no directory");
    assert!(matches!(nowhere, ShmError::Directory { .. }), "{nowhere}");
    create(Path::new("/no/such/place"), Files::Memory, 4096).expect("memory is in no directory");
}

#[test]
fn what_was_made_counts_in_whole_pages_until_it_is_gone() {
    let (room, made) = (Room::default(), Arc::default());
    let place = Place { files: Files::Memory, directory: Path::new("/"), job: "a", me: 0, room: &room, made: &made };
    let (_, map) = super::create(place, 4097).expect("a segment");
    let pages = 4097usize.next_multiple_of(page_bytes()) as u64;
    assert_eq!(made.load(Ordering::Relaxed), pages);
    super::create(place, 1 << 60).expect_err("no room");
    assert_eq!(made.load(Ordering::Relaxed), pages);
    drop(map);
    assert_eq!(made.load(Ordering::Relaxed), 0);
}

#[test]
fn a_passed_segment_is_checked_before_it_is_mapped() {
    let scratch = Scratch::new("receive");
    for files in ALL {
        let (file, _map) = create(&scratch.0, files, 4096).expect("a segment");
        let error = receive(file, 8192, files).expect_err("too short");
        assert!(error.contains("4096 bytes where 8192"), "{error}");
    }
    let (read, _write) = rustix::pipe::pipe().expect("a pipe");
    assert!(receive(read, 4096, Files::Memory).is_err());
    // What its maker could cut is taken by those only that can make nothing better.
    let (file, _map) = create(&scratch.0, Files::Unnamed, 4096).expect("a segment");
    let error = receive(file.try_clone().expect("a descriptor"), 4096, Files::Memory).expect_err("not sealed");
    assert!(error.contains("not sealed"), "{error}");
    receive(file, 4096, Files::Named).expect("as its own");
    let (unsealed, _map) = allocate(memfd().expect("a file"), 4096).expect("memory");
    assert!(receive(unsealed, 4096, Files::Memory).expect_err("not sealed").contains("not sealed"));
    let sparse = memfd().expect("a file");
    rustix::fs::ftruncate(&sparse, 4096).expect("long");
    rustix::fs::fcntl_add_seals(&sparse, SealFlags::SHRINK).expect("sealed");
    assert!(receive(sparse, 4096, Files::Memory).expect_err("sparse").contains("not allocated"));
    let path = scratch.0.join("holes");
    let file = fs::File::options().read(true).write(true).create_new(true).open(path).expect("a file");
    file.set_len(4096).expect("sparse");
    assert!(receive(file.into(), 4096, Files::Named).expect_err("sparse").contains("not allocated"));
}

#[test]
fn nobody_can_cut_a_segment() {
    let (file, _map) = create(Path::new("/"), Files::Memory, 8192).expect("a segment");
    for bytes in [0, 4096, 8191, 8193] {
        assert_eq!(rustix::fs::ftruncate(&file, bytes), Err(Errno::PERM), "{bytes}");
    }
    assert_eq!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE), Err(Errno::PERM));
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
