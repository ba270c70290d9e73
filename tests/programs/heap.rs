//! A rank whose whole heap its peers can read. Its first argument says what it does. It panics if something is wrong,
//! so that its launcher sees a failure.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use rustix::process::{Signal, getpid, kill_process};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tickwire::internals::components::limits::MAPPED_MIN;
use tickwire::{Bootstrap, Engine, Rank, RequestError, SharedHeap, Tag};
use tickwire_tests::cases::content;

#[global_allocator]
static HEAP: SharedHeap = SharedHeap;

/// Longer than any wait on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Length of the message whose sender dies, bytes. Reading it takes many passes.
const LARGE: usize = 64 << 20;
/// Bytes outside of any heap.
static ELSEWHERE: [u8; 200_000] = [7; 200_000];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // The kernel reads nothing here. So a message outside of a shared heap comes in pieces.
    let builder = Engine::builder().cross_memory_attach(false);
    let mut engine = builder.build(Bootstrap::from_env().unwrap()).unwrap();
    let place = Path::new(&args[1]);
    if engine.rank().0 == 0 {
        std::fs::write(place.join("job"), std::env::var("TICKWIRE_JOB").unwrap()).unwrap();
    }
    match args[0].as_str() {
        "heap" => heap(&mut engine),
        "heap-fallback" => fallback(&mut engine),
        "heap-death" => death(&mut engine, place),
        other => panic!("no such test: {other}"),
    }
    engine.finalize(PATIENCE).unwrap();
}

/// How many maps of shared heaps this process has that are read-only, or that are not.
fn maps(readable_only: bool) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("tickwire-heap") && line.contains(" r--s ") == readable_only).count()
}

/// Passes messages out of the heap in both directions, then other messages, with a child process in between.
fn heap(engine: &mut Engine) {
    let (world, me, peer) = (engine.comm_world(), engine.rank(), Rank(1 - engine.rank().0));
    let lengths = [
        1023,
        1024,
        2047,
        2048,
        4096,
        8193,
        8200,
        16 << 10,
        65_537,
        100_000,
        1 << 20,
        (1 << 20) + 1,
        5_000_001,
        16 << 20,
    ];
    let mut due = 0;
    for round in 0..2u64 {
        for (number, length) in lengths.into_iter().enumerate() {
            let name = round * 100 + number as u64;
            let mut buffer = vec![0u8; length];
            for turn in [Rank(0), Rank(1)] {
                if me == turn {
                    // Once the send is done, the sender may change its buffer.
                    let mut message = content(name, length);
                    engine.send(&message, peer, Tag(1), world).unwrap();
                    message.fill(0xEE);
                    message[length / 2..].copy_from_slice(&content(name + 50, length - length / 2));
                    engine.send(&message[length / 2..], peer, Tag(2), world).unwrap();
                    continue;
                }
                buffer.fill(0);
                let status = engine.recv(&mut buffer, peer, Tag(1), world).unwrap();
                assert!(status.length == length && buffer == content(name, length), "{length} bytes are intact");
                let half = length - length / 2;
                engine.recv(&mut buffer, peer, Tag(2), world).unwrap();
                assert!(buffer[..half] == content(name + 50, half), "{half} bytes are intact");
                due += [length, half].iter().filter(|&&length| length >= MAPPED_MIN).sum::<usize>() as u64;
            }
            let read = engine.bytes_read();
            assert_eq!((read.heap, read.attach), (due, 0), "read, neither in pieces nor by the kernel");
        }
        if round == 0 {
            threads();
            child();
        }
    }
    assert_eq!((maps(false), maps(true)), (1, 1));
    // A message outside of the heap comes in pieces.
    let mut buffer = vec![0u8; ELSEWHERE.len()];
    if me == Rank(0) {
        engine.send(&ELSEWHERE, peer, Tag(3), world).unwrap();
    } else {
        engine.recv(&mut buffer, peer, Tag(3), world).unwrap();
        assert!(buffer == ELSEWHERE);
    }
    assert_eq!(engine.bytes_read().heap, due);
    let report = engine.heap_report().unwrap();
    assert!(report.used >= buffer.len() && report.reserved > report.used && report.overflowed == 0, "{report:?}");
}

/// Several threads allocate at the same time, and free what others have allocated.
fn threads() {
    let (sender, receiver) = std::sync::mpsc::channel::<(u8, Vec<u8>)>();
    std::thread::scope(|scope| {
        for number in 0..4u8 {
            let sender = sender.clone();
            scope.spawn(move || {
                let mut kept = Vec::new();
                for round in 0..500usize {
                    let mut bytes = vec![number; 1 + round * 7919 % 60_000];
                    bytes.extend_from_slice(&[number; 500]);
                    if round % 2 == 0 {
                        kept.push(bytes)
                    } else {
                        sender.send((number, bytes)).unwrap()
                    }
                    if kept.len() > 20 {
                        assert!(kept.swap_remove(round % 20).iter().all(|&byte| byte == number));
                    }
                }
                assert!(kept.iter().flatten().all(|&byte| byte == number));
            });
        }
        drop(sender);
        for (number, bytes) in receiver {
            assert!(bytes.iter().all(|&byte| byte == number));
        }
    });
}

/// If the heap is too small or cannot be made, the program goes on. Messages outside of the heap come in pieces.
fn fallback(engine: &mut Engine) {
    let (world, me, peer) = (engine.comm_world(), engine.rank(), Rank(1 - engine.rank().0));
    let messages: Vec<Vec<u8>> = (0..8).map(|name| content(name, 600_000)).collect();
    for message in &messages {
        if me == Rank(0) {
            engine.send(message, peer, Tag(1), world).unwrap();
            engine.recv(&mut [0u8; 0], peer, Tag(2), world).unwrap();
        } else {
            let mut buffer = vec![0u8; message.len()];
            engine.recv(&mut buffer, peer, Tag(1), world).unwrap();
            assert!(buffer == *message);
            engine.send(b"", peer, Tag(2), world).unwrap();
        }
    }
    let (none, read) = (maps(false) + maps(true) == 0, engine.bytes_read().heap);
    assert!(read <= 600_000 && (read == 0 || !none), "of 4.8 MB: {read}");
    match engine.heap_report() {
        Some(report) => assert!(!none && report.reserved == 1 << 20 && report.overflowed > 0, "{report:?}"),
        None => assert!(none),
    }
}

/// A child runs code between fork and exec. It reads its parent's memory and allocates, and the parent does not
/// notice.
fn child() {
    let (message, mut copies) = (content(7, 300_000), vec![content(7, 300_000); 3]);
    let expected = message.clone();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "exit 5"]).env("TICKWIRE_CHILD", "1");
    let check = move || {
        let more = vec![expected.clone(); 3];
        copies.iter_mut().for_each(|copy| copy.reverse());
        copies.push(expected.clone());
        let intact = more.iter().all(|copy| *copy == expected) && copies[3] == expected && copies[0] != expected;
        if intact { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
    };
    // SAFETY: this process has one thread.
    #[expect(unsafe_code, reason = "runs in the child")]
    let status = unsafe { command.pre_exec(check).status() };
    assert_eq!(status.unwrap().code(), Some(5));
    assert!(message == content(7, 300_000));
}

/// Rank 1 is killed while rank 0 reads its message.
fn death(engine: &mut Engine, place: &Path) {
    let (world, peer) = (engine.comm_world(), Rank(1 - engine.rank().0));
    let begun = place.join("begun");
    let end = Instant::now() + PATIENCE;
    if engine.rank() == Rank(1) {
        let open = engine.isend(content(1, LARGE), peer, Tag(1), world).unwrap();
        while !begun.exists() {
            engine.tick();
            assert!(Instant::now() < end);
        }
        let _ = kill_process(getpid(), Signal::KILL);
        unreachable!("{open:?}");
    }
    let request = engine.irecv(vec![0u8; LARGE], peer, Tag(1), world).unwrap();
    while engine.bytes_read().heap == 0 {
        engine.tick();
        assert!(Instant::now() < end);
    }
    assert!(engine.bytes_read().heap < LARGE as u64, "one tick reads a part");
    std::fs::write(begun, "").unwrap();
    // Rank 0 goes on reading only when rank 1 is surely dead: then its listening socket is gone.
    let job = std::env::var("TICKWIRE_JOB").unwrap();
    let name = format!("@tickwire-{job}-1");
    while std::fs::read_to_string("/proc/net/unix").unwrap().lines().any(|line| line.ends_with(&name)) {
        std::thread::yield_now();
        assert!(Instant::now() < end);
    }
    match engine.wait_for(&request, PATIENCE) {
        // The heap of rank 1 may outlive it.
        Ok(_) => assert!(engine.take(request).unwrap().0 == content(1, LARGE)),
        Err(error) => assert!(matches!(&error, RequestError::PeerFailed { proc, .. } if proc.0 == 1), "{error}"),
    }
}
