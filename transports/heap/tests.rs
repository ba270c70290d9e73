//! The heap of this test process, and maps of it as peers have them.
//!
//! Longer than other files: a process has one heap, and its first functions make it and look at it for all tests.

use super::space::Space;
use super::*;
use crate::copy::copy;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::alloc::{GlobalAlloc, Layout};
use tickwire_components::limits::{HEAP_ALIGN, HEAP_BLOCK_MIN, HEAP_BYTES_MAX, HEAP_BYTES_MIN};
use tickwire_components::{Pieces, Span};

fn on() {
    assert_eq!(open(), Ok(()));
}

/// A small heap of a test's own.
struct Own {
    space: Space,
    blocks: Blocks,
}

impl Own {
    fn new() -> Self {
        let space = space::make().expect("a heap");
        let mut blocks = Blocks::empty();
        blocks.begin(space.base, 4 << 20);
        Own { space, blocks }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.space.give_up();
    }
}

/// Bytes of memory that a file has.
fn memory_of(file: impl AsFd) -> u64 {
    rustix::fs::fstat(file).expect("a file").st_blocks as u64 * 512
}

fn copied(from: Span) -> Vec<u8> {
    let mut bytes = vec![0; from.len()];
    // SAFETY: local bytes that outlive the copy, and bytes of a heap that is mapped.
    #[expect(unsafe_code, reason = "lends local bytes")]
    unsafe {
        copy(Span::new(bytes.as_mut_ptr(), bytes.len()), from);
    }
    bytes
}

#[test]
#[expect(unsafe_code, reason = "an allocator's contract")]
fn blocks_are_apart_aligned_and_used_again() {
    let mut own = Own::new();
    let mut live: Vec<(*mut u8, Layout, u8)> = Vec::new();
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for round in 0..20_000 {
        // SAFETY: the layouts are those that the blocks were made with, and the bytes are within them.
        unsafe {
            if live.len() < 40 && random(2) == 0 {
                let layout = Layout::from_size_align(1 + random(60_000), 1 << random(8)).expect("a layout");
                let block = own.blocks.alloc(layout);
                let offset = block.addr().wrapping_sub(own.space.base.addr());
                assert!(offset + layout.size() <= 4 << 20 && block.addr().is_multiple_of(layout.align()));
                block.write_bytes(round as u8, layout.size());
                live.push((block, layout, round as u8));
            } else if !live.is_empty() {
                let (block, layout, byte) = live.swap_remove(random(live.len()));
                assert!([0, layout.size() / 2, layout.size() - 1].iter().all(|&at| *block.add(at) == byte));
                let bytes = 1 + random(60_000);
                if random(4) == 0
                    && let Some(resized) = own.blocks.resize(block, layout, bytes)
                {
                    assert!([0, bytes.min(layout.size()) - 1].iter().all(|&at| *resized.add(at) == byte));
                    resized.write_bytes(byte, bytes);
                    live.push((resized, Layout::from_size_align(bytes, layout.align()).expect("a layout"), byte));
                } else {
                    own.blocks.dealloc(block, layout);
                }
            }
        }
        assert_eq!(own.blocks.used(), live.iter().map(|(_, layout, _)| layout.size()).sum::<usize>());
    }
    for (block, layout, _) in live {
        // SAFETY: as above.
        unsafe { own.blocks.dealloc(block, layout) };
    }
    assert_eq!(own.blocks.used(), 0);
    let all = Layout::from_size_align(3 << 20, 64).expect("a layout");
    assert!(!own.blocks.alloc(all).is_null(), "free blocks become one again");
    assert!(own.blocks.alloc(all).is_null(), "it is full");
}

#[test]
fn a_buffer_is_zeroed_aligned_and_readable_in_a_peers_map() {
    on();
    let offer = offer().expect("on");
    let file = offer.file.try_clone_to_owned().expect("a descriptor");
    let map = PeerHeap::receive(&file, offer.base, offer.bytes).expect("fits").expect("room");
    for length in [1, 100, 5000, 100_000, 40 << 20] {
        let mut buffer = HeapBuffer::new(length).expect("room");
        assert!(buffer.len() == length && buffer.iter().all(|&byte| byte == 0), "{length}");
        assert!(buffer.as_ptr().addr().is_multiple_of(HEAP_ALIGN));
        buffer[length - 1] = 9;
        let address = buffer.piece(0).start().expose_provenance() as u64;
        let found = map.find(address, length as u64).expect("in the heap");
        assert_eq!(copied(found.part(length - 1, 1)), [9]);
        buffer.fill(1);
    }
    assert!(HeapBuffer::new(0).expect("nothing").is_empty());
    let full = HeapBuffer::new(1 << 50).expect_err("no room");
    assert!(
        matches!(full, HeapError::Full { asked, .. } if asked == 1 << 50) && full.to_string().contains("free some")
    );
    let local = [0u8; 64];
    assert!(map.find(local.as_ptr().expose_provenance() as u64, 64).is_none(), "not in the heap");
}

#[test]
fn whatever_a_peer_says_nothing_outside_of_its_map_is_found() {
    on();
    let offer = offer().expect("on");
    let file = offer.file.try_clone_to_owned().expect("a descriptor");
    let (base, bytes) = (1u64 << 40, 1u64 << 20);
    let map = PeerHeap::receive(&file, base, bytes).expect("fits").expect("room");
    let found = |address: u64, length: u64| map.find(address, length).map(|span| span.len());
    assert_eq!(found(base, bytes), Some(bytes as usize));
    assert_eq!(found(base + bytes, 0), Some(0));
    assert_eq!(found(base + bytes - 1, 1), Some(1));
    for (address, length) in [
        (base - 1, 1),
        (base - 1, 2),
        (base - 1, bytes),
        (0, 1),
        (0, u64::MAX),
        (base, bytes + 1),
        (base + 1, bytes),
        (base + bytes, 1),
        (base + bytes + 1, 0),
        (base + 8, u64::MAX),
        (base + 8, u64::MAX - base - 7),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (u64::MAX - 3, 8),
    ] {
        assert_eq!(found(address, length), None, "{length} bytes at {address:#x}");
    }
}

#[test]
fn a_heap_that_cannot_be_trusted_is_refused_by_its_fault() {
    on();
    let offer = offer().expect("on");
    let heap = offer.file.try_clone_to_owned().expect("a descriptor");
    let refused = |file: &OwnedFd, base: u64, bytes: u64, words: &str| {
        let reason = PeerHeap::receive(file, base, bytes).expect_err("refused");
        assert!(reason.contains(words), "{reason}");
    };
    refused(&heap, 4096, 0, "cannot be");
    refused(&heap, 4097, 4096, "cannot be");
    refused(&heap, 4096, HEAP_BYTES_MAX as u64 + 1, "cannot be");
    refused(&heap, u64::MAX - 4095, 8192, "cannot be");
    refused(&heap, 4096, offer.bytes + 1, &format!("of {} bytes where", offer.bytes));
    let open = rustix::fs::memfd_create("unsealed", MemfdFlags::ALLOW_SEALING).expect("a file");
    rustix::fs::ftruncate(&open, 1 << 20).expect("a size");
    refused(&open, 4096, 1 << 20, "not sealed");
    rustix::fs::fcntl_add_seals(&open, SealFlags::GROW).expect("sealed");
    refused(&open, 4096, 1 << 20, "not sealed");
    rustix::fs::fcntl_add_seals(&open, SealFlags::SHRINK).expect("sealed");
    assert!(PeerHeap::receive(&open, 4096, 1 << 20).is_ok());
    let (read, _write) = rustix::pipe::pipe().expect("a pipe");
    refused(&read, 4096, 4096, "no file in memory");
    let program = rustix::fs::open("/proc/self/exe", OFlags::RDONLY, Mode::empty()).expect("a file");
    refused(&program, 4096, 4096, "");
}

/// This process, as a peer has it.
fn descriptor_of(pid: rustix::process::Pid) -> OwnedFd {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("it lives")
}

#[test]
#[expect(unsafe_code, reason = "writes to a map")]
fn who_may_write_the_owners_memory_maps_its_heap_for_writing() {
    on();
    let offer = offer().expect("on");
    let file = offer.file.try_clone_to_owned().expect("a descriptor");
    let map = PeerHeap::receive(&file, offer.base, offer.bytes).expect("fits").expect("room");
    let buffer = HeapBuffer::new(10_000).expect("room");
    let address = buffer.piece(0).start().expose_provenance() as u64;
    assert!(map.find_writable(address, 8).is_none(), "nobody has asked for it");
    assert!(!map.is_writable(&file), "what is passed is only read");
    let own = rustix::process::getpid();
    assert!(map.may_write(own.as_raw_pid().cast_unsigned(), &descriptor_of(own)));
    let found = map.find_writable(address, 10_000).expect("in the heap");
    assert_ne!(found.start(), buffer.piece(0).start(), "another map of it");
    // SAFETY: within the map, and the buffer is not referred to meanwhile.
    unsafe { found.start().add(9_999).write_volatile(7) };
    assert_eq!((buffer[9_998], buffer[9_999]), (0, 7));
    for (address, length) in [(offer.base - 1, 1), (offer.base + offer.bytes, 1), (offer.base + 8, u64::MAX - 7)] {
        assert!(map.find_writable(address, length).is_none(), "{length} bytes at {address:#x}");
    }
}

#[test]
fn a_process_that_does_not_have_the_heap_gives_no_descriptor_of_it() {
    on();
    let offer = offer().expect("on");
    let file = offer.file.try_clone_to_owned().expect("a descriptor");
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
    // Until it has called `exec` it has this process's descriptors.
    let start = std::time::Instant::now();
    let program = format!("/proc/{}/comm", child.id());
    while std::fs::read_to_string(&program).is_ok_and(|name| name.trim() != "sleep") {
        assert!(start.elapsed().as_secs() < 20, "it does not start");
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    let process = descriptor_of(pid);
    let receive = || PeerHeap::receive(&file, offer.base, offer.bytes).expect("fits").expect("room");
    let map = receive();
    assert!(!map.may_write(child.id(), &process));
    // The number is that of a process that has the heap, and the process is another one.
    let mistaken = receive();
    assert!(!mistaken.may_write(std::process::id(), &process));
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    let ended = receive();
    assert!(!ended.may_write(child.id(), &process));
    assert!([map, mistaken, ended].iter().all(|map| map.find_writable(offer.base, 8).is_none()));
}

#[test]
#[expect(unsafe_code, reason = "tries to map")]
fn what_peers_are_passed_can_neither_be_written_nor_cut() {
    on();
    let offer = offer().expect("on");
    let (both, bytes) = (ProtFlags::READ | ProtFlags::WRITE, offer.bytes as usize);
    // SAFETY: a new mapping, if there is one.
    let mapped = unsafe { rustix::mm::mmap(null_mut(), bytes, both, MapFlags::SHARED, offer.file, 0) };
    assert_eq!(mapped.expect_err("not for writing"), rustix::io::Errno::ACCESS);
    assert!(rustix::fs::ftruncate(offer.file, 0).is_err());
    let stat = rustix::fs::fstat(offer.file).expect("a file");
    assert_eq!((stat.st_mode & 0o777, stat.st_size as u64), (0o400, offer.bytes));
    let seals = rustix::fs::fcntl_get_seals(offer.file).expect("seals");
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
    let flags = rustix::io::fcntl_getfd(offer.file).expect("flags");
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn freed_memory_goes_back_to_the_system_but_for_some() {
    on();
    let offer = offer().expect("on");
    let before = memory_of(offer.file);
    let buffers: Vec<HeapBuffer> = (0..6)
        .map(|_| {
            let mut buffer = HeapBuffer::new(24 << 20).expect("room");
            buffer.fill(1);
            buffer
        })
        .collect();
    let most = memory_of(offer.file);
    assert!(most >= 6 * (24 << 20), "{before} {most}");
    drop(buffers);
    let after = memory_of(offer.file);
    // Other tests have blocks of 40 MiB at most.
    assert!(after <= before + (HEAP_KEPT_BYTES + (48 << 20)) as u64, "{before} {most} {after}");
}

#[test]
#[expect(unsafe_code, reason = "an allocator's contract")]
fn the_allocator_takes_long_blocks_from_the_heap_and_moves_what_grows_into_it() {
    let layout = |bytes| Layout::from_size_align(bytes, 8).expect("a layout");
    let short = HEAP_BLOCK_MIN - 8;
    // SAFETY: each block goes back with the layout that it has.
    unsafe {
        let block = SharedHeap.alloc(layout(short));
        assert!(!HEAP.owns(block));
        block.write_bytes(5, short);
        let block = SharedHeap.realloc(block, layout(short), 50_000);
        assert!(HEAP.owns(block) && (0..short).all(|at| *block.add(at) == 5));
        block.write_bytes(6, 50_000);
        let block = SharedHeap.realloc(block, layout(50_000), 3 << 20);
        assert!(HEAP.owns(block) && (0..50_000).all(|at| *block.add(at) == 6));
        let block = SharedHeap.realloc(block, layout(3 << 20), 40);
        assert!(HEAP.owns(block) && (0..40).all(|at| *block.add(at) == 6), "shrunk in its place");
        SharedHeap.dealloc(block, layout(40));
        let zeros = SharedHeap.alloc_zeroed(layout(50_000));
        assert!(HEAP.owns(zeros) && (0..50_000).all(|at| *zeros.add(at) == 0));
        SharedHeap.dealloc(zeros, layout(50_000));
        // More than there is: the system's, if it has it.
        let huge = layout(HEAP.bytes.load(Ordering::Relaxed) + 1);
        let overflowed = report().expect("on").overflowed;
        let block = SharedHeap.alloc(huge);
        assert!(!HEAP.owns(block) && report().expect("on").overflowed > overflowed);
        if !block.is_null() {
            SharedHeap.dealloc(block, huge);
        }
    }
}

#[test]
#[expect(unsafe_code, reason = "forks")]
fn a_child_has_a_view_of_its_own_and_no_heap() {
    on();
    let mut buffer = HeapBuffer::new(100_000).expect("room");
    buffer.fill(3);
    // SAFETY: the child makes no call that a child of a process with threads may not, and ends by `_exit`.
    let status = unsafe {
        match libc::fork() {
            0 => {
                let seen = buffer.iter().all(|&byte| byte == 3);
                buffer.fill(4);
                let written = buffer.iter().all(|&byte| byte == 4);
                let none = matches!(HeapBuffer::new(8), Err(HeapError::Forked)) && offer().is_none();
                drop(buffer);
                libc::_exit(i32::from(!(seen && written && none)))
            }
            child => {
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            }
        }
    };
    assert_eq!(status, 0);
    assert!(buffer.iter().all(|&byte| byte == 3), "the child wrote into its own view");
}

/// How a process ends in which the heap was open before the other thread had seen it open.
const MISSED: i32 = 77;

/// Forks while another thread opens the heap: for a process of its own, since a heap is opened once.
#[test]
#[ignore = "is run by another test, in a process of its own"]
#[expect(unsafe_code, reason = "forks")]
fn fork_while_it_opens() {
    let opener = std::thread::spawn(open);
    while HEAP.state() == State::Untried {
        std::hint::spin_loop();
    }
    if HEAP.state() != State::Opening {
        std::process::exit(MISSED);
    }
    // SAFETY: the child makes no call that a child of a process with threads may not, and ends by `_exit`.
    let child = unsafe {
        match libc::fork() {
            0 => libc::_exit(i32::from(open() != Err(HeapError::Forked))),
            child => child,
        }
    };
    let (mut status, mut ended) = (-1, 0);
    let bound = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while ended == 0 && std::time::Instant::now() < bound {
        // SAFETY: asks after the own child, which nobody else waits for.
        ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        std::thread::yield_now();
    }
    if ended == 0 {
        // SAFETY: the own child, which has not been waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        panic!("the child waits for a thread that it does not have");
    }
    assert_eq!((ended, status), (child, 0));
    assert_eq!(opener.join().expect("it opens"), Ok(()));
}

#[test]
fn a_child_that_is_made_while_the_heap_opens_does_not_wait_for_it() {
    let program = std::env::current_exe().expect("the test itself");
    let args = ["--exact", "heap::tests::fork_while_it_opens", "--ignored", "--test-threads=1"];
    for _ in 0..200 {
        let output = std::process::Command::new(&program).args(args).output().expect("it starts");
        if output.status.code() != Some(MISSED) {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
    }
    panic!("no process of 200 was forked in time");
}

#[test]
#[expect(unsafe_code, reason = "forks")]
fn a_heap_is_no_longer_than_files_may_be_and_nobody_dies_of_it() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let bound = |most: u64| setrlimit(Resource::Fsize, Rlimit { current: Some(most), maximum: None }).is_ok();
    // In a child, so that no other test has the bound. It makes heaps as a program without one does, within an allocator.
    // SAFETY: the child makes no call that a child of a process with threads may not, and ends by `_exit`.
    let status = unsafe {
        match libc::fork() {
            0 => {
                let shorter = bound((8 << 20) + 5) && possible() == Ok(8 << 20);
                let most = HEAP_BYTES_MIN as u64 - 1;
                let none = bound(most) && possible() == Err(HeapError::FileSize { most });
                libc::_exit(i32::from(!(shorter && none)))
            }
            child => {
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            }
        }
    };
    assert_eq!(status, 0, "SIGXFSZ is {}", libc::SIGXFSZ);
    let words = HeapError::FileSize { most: 4096 }.to_string();
    assert!(words.contains("4096 bytes") && words.contains("ulimit -f"), "{words}");
}

#[test]
fn sizes_are_read_and_wrong_ones_are_not() {
    let ends = [HEAP_BYTES_MIN, 5_000_000_000, HEAP_BYTES_MAX];
    assert!(ends.iter().all(|&bytes| space::bytes_in(bytes.to_string().as_bytes()) == Some(bytes)));
    for wrong in ["", "0", "1048575", "1099511627777", "16G", "-1", "99999999999999999999999"] {
        assert_eq!(space::bytes_in(wrong.as_bytes()), None, "{wrong}");
    }
    assert_eq!(space::bytes_in(b"\xFF"), None);
    assert!(possible().is_ok_and(|bytes| bytes >= HEAP_BYTES_MIN));
    assert!(HeapError::Off.to_string().contains("shared_heap(true)"));
    let words = [HeapError::Overcommit, HeapError::Bytes, HeapError::Forked].map(|error| error.to_string());
    assert!(words.iter().all(|words| words.contains(": ")), "{words:?}");
}
