//! Jobs of real processes over shared memory. In some of them a rank is killed.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use tickwire::internals::components::Pieces;
use tickwire::internals::components::limits::MAPPED_MIN;
use tickwire::internals::transports::heap::ENV_SHARED_HEAP_BYTES;
use tickwire::launch::{Job, JobOutcome, OnFailure, RankStatus};
use tickwire::testing::{Cluster, ROWS};
use tickwire::{Datatype, ENV_STAGING, Engine, HeapBuffer, HeapError, Rank, Tag, Typed};
use tickwire_tests::binaries::binary;
use tickwire_tests::cases::{BOUND, content};
use tickwire_tests::scratch::{self, Directory};

/// Runs a job of `tests-rank` programs, and checks that it leaves nothing in /dev/shm.
fn run(ranks: u32, test: &str, args: &[&str]) -> JobOutcome {
    run_program(env!("CARGO_BIN_EXE_tests-rank"), ranks, test, args, None)
}

/// As [`run`], for another program, and with an environment variable.
fn run_program(program: &str, ranks: u32, test: &str, args: &[&str], variable: Option<(&str, &str)>) -> JobOutcome {
    let value = variable.map_or("", |(_, value)| value);
    let place = Directory::new(&format!("shm-{test}-{ranks}-{}-{value}", args.join("-")));
    let job = Job::new(ranks).program(program).args([test]).args([place.as_os_str()]);
    let job = match variable {
        Some((name, value)) => job.env(name, value),
        None => job,
    };
    let outcome = job.args(args).on_failure(OnFailure::Continue).tag_output(true).run().unwrap();
    let name = std::fs::read_to_string(place.join("job")).unwrap();
    let left: Vec<_> = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|entry| entry.to_string_lossy().contains(&name)), "left in /dev/shm: {left:?}");
    outcome
}

/// A process with a limit on the size of its files. [`a_bound_of_file_sizes_ends_nobody`] starts it.
#[test]
#[ignore = "sets a bound for its whole process: another test starts it in one of its own"]
fn under_a_bound_of_file_sizes() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let path = scratch::path("bound");
    let file = tickwire::internals::traces::TraceFile::create(&path).unwrap();
    setrlimit(Resource::Fsize, Rlimit { current: Some(4096), maximum: None }).unwrap();
    let mut engine = Engine::builder().shared_heap(true).trace(file).build(tickwire::Bootstrap::solo()).unwrap();
    let refused = engine.alloc(100).unwrap_err();
    assert!(refused == HeapError::FileSize { most: 4096 }, "{refused}");
    // These events are more than the trace's file may hold.
    let world = engine.comm_world();
    for _ in 0..2000 {
        engine.send(&[1u8; 100], Rank(0), Tag(1), world).unwrap();
        assert_eq!(engine.recv(&mut [0u8; 100], Rank(0), Tag(1), world).unwrap().length, 100);
    }
    drop(engine);
    let left = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(left.len() <= 4096, "{}", left.len());
    println!("went on");
}

#[test]
fn a_bound_of_file_sizes_ends_nobody() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "under_a_bound_of_file_sizes", "--ignored", "--nocapture"]);
    let output = child.env_remove(ENV_SHARED_HEAP_BYTES).output().unwrap();
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("went on"), "{}: {text}", output.status);
    assert!(text.contains("files of this process may have 4096 bytes at most"), "the trace says why it ends: {text}");
}

/// What the ranks of a job have reported of their memory.
struct Memory {
    /// Bytes of all segments that some rank has mapped. Each segment counts once.
    mapped: u64,
    /// Bytes that the ranks say that they have made.
    made: u64,
    /// Bytes of all memory of the processes. Shared memory is divided among its processes.
    all: u64,
}

fn memory_of(place: &Path, ranks: u32) -> Memory {
    let (mut segments, mut made, mut all) = (BTreeMap::new(), 0, 0);
    for rank in 0..ranks {
        let text = std::fs::read_to_string(place.join(format!("memory-{rank}"))).unwrap();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "map" => drop(segments.insert(number(1), number(2))),
                "made" => made += number(1),
                _ => all += number(1) << 10,
            }
        }
    }
    Memory { mapped: segments.values().sum(), made, all }
}

const MIB: u64 = 1 << 20;

/// Runs a job by a command. Each rank sends this many bytes to each other rank. With length 0, all ranks pass a
/// barrier instead.
fn run_memory(place: &Path, ranks: u32, length: usize, command: impl FnOnce(&[&OsStr]) -> Command) -> Memory {
    let (tickwire, rank) = (binary("tickwire"), env!("CARGO_BIN_EXE_tests-rank"));
    let (ranks_text, length) = (ranks.to_string(), length.to_string());
    let words = ["run", "-n", &ranks_text, "--", rank, "memory"].map(OsStr::new);
    let words: Vec<&OsStr> =
        [tickwire.as_os_str()].into_iter().chain(words).chain([place.as_os_str(), OsStr::new(&length)]).collect();
    let output = command(&words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    memory_of(place, ranks)
}

fn plainly(words: &[&OsStr]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

#[test]
fn sixty_four_ranks_that_all_talk_take_64_mib_and_say_so() {
    let place = Directory::new("shm-memory");
    let Memory { mapped, made, .. } = run_memory(&place, 64, 8 << 10, plainly);
    assert_eq!(mapped, made, "what they say is what there is");
    println!("{} KiB", made >> 10);
    assert!(made <= 64 * MIB, "{made}");
}

/// A job of 256 ranks has to fit into 1 GiB. This test has an eighth of both.
#[test]
fn ranks_that_pass_a_barrier_take_4_mib_each() {
    let place = Directory::new("shm-barrier");
    let Memory { mapped, made, all } = run_memory(&place, 32, 0, plainly);
    assert_eq!(mapped, made);
    println!("{} KiB, {} KiB of them for rings", all >> 10, made >> 10);
    assert!(all <= 1024 / 8 * MIB, "{all}");
}

#[test]
fn a_small_dev_shm_or_none_bounds_nobody() {
    let may = Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|output| output.status.success());
    if !may {
        return println!("skipped: this user may not make a mount namespace (unshare -m)");
    }
    for mount in ["mount -t tmpfs -o size=64m tmpfs /dev/shm", "mount -t tmpfs -o ro,size=4k tmpfs /dev/shm"] {
        let place = Directory::new("shm-namespace");
        let script = format!("{mount} && exec \"$@\"");
        let Memory { mapped, made, .. } = run_memory(&place, 32, 8 << 10, |words| {
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", &script, "sh"]).args(words);
            command
        });
        assert_eq!(mapped, made, "{mount}");
    }
}

#[test]
fn a_limit_of_the_size_of_files_is_an_error_or_keeps_rings_small() {
    let rank = env!("CARGO_BIN_EXE_tests-rank");
    for (kib, test, args) in [(4, "file-size", &[][..]), (20, "storm", &["4", "40"][..])] {
        let place = Directory::new(&format!("shm-file-size-{kib}"));
        // The limit is in bytes, because the shells' `ulimit` counts in different units.
        let limit = format!("--fsize={}", kib << 10);
        let job = Job::new(4).program("prlimit").args([&limit, "--", rank, test]).args([place.as_os_str()]).args(args);
        let outcome = job.on_failure(OnFailure::Continue).tag_output(true).run().unwrap();
        assert_eq!(outcome.code(), 0, "{kib} KiB: {outcome:?}");
    }
}

#[test]
fn messages_from_nothing_to_64_mib() {
    assert_eq!(run(2, "lengths", &[]).code(), 0);
}

/// As [`run`], for ranks that stage in the cases that `when` names.
fn run_staging(when: &str, ranks: u32, test: &str, args: &[&str]) -> JobOutcome {
    run_program(env!("CARGO_BIN_EXE_tests-rank"), ranks, test, args, Some((ENV_STAGING, when)))
}

#[test]
fn messages_that_are_staged_arrive_as_they_were() {
    assert_eq!(run_staging("always", 2, "lengths", &[]).code(), 0);
    assert_eq!(run_staging("always", 8, "storm", &["8", "10"]).code(), 0);
    for (when, ranks) in [("always", 2), ("always", 4), ("cheaper", 2), ("never", 2)] {
        let outcome = run_staging(when, ranks, "staging", &[]);
        assert_eq!(outcome.code(), 0, "{when}, {ranks} ranks: {outcome:?}");
    }
}

#[test]
fn a_sender_that_is_killed_while_its_messages_are_read_leaves_nobody_waiting() {
    for when in ["always", "never"] {
        for _ in 0..3 {
            let outcome = run_staging(when, 2, "death-of-a-sender", &[]);
            assert_eq!(outcome.statuses[1], RankStatus::Killed(9), "{when}: {outcome:?}");
            assert!(outcome.statuses[0].is_success(), "{when}: {outcome:?}");
        }
    }
}

#[test]
fn a_sender_that_is_stopped_while_its_messages_are_read_holds_nobody_up() {
    for when in ["always", "cheaper"] {
        let outcome = run_staging(when, 2, "stopped-sender", &[]);
        assert_eq!(outcome.code(), 0, "{when}: {outcome:?}");
    }
}

#[test]
fn all_to_all() {
    for (ranks, messages) in [(2, "60"), (3, "40"), (8, "10"), (16, "4")] {
        let outcome = run(ranks, "storm", &[&ranks.to_string(), messages]);
        assert_eq!(outcome.code(), 0, "{ranks} ranks: {outcome:?}");
    }
}

/// Each message has 1 KiB. Without a bound, the million messages of the second job would take about 1 GiB.
#[test]
fn a_flood_of_messages_that_nobody_waits_for_is_bounded_and_nothing_is_lost() {
    for (messages, first) in [(20_000, "first"), (1_000_000, "last")] {
        assert_eq!(run(2, "flood", &[&messages.to_string(), first]).code(), 0, "{messages}, {first}");
    }
}

#[test]
fn a_killed_rank_is_noticed_and_the_others_go_on() {
    for ranks in [2, 4] {
        let outcome = run(ranks, "death", &[]);
        assert_eq!(outcome.first_failure, Some((ranks - 1, RankStatus::Killed(9))), "{outcome:?}");
        let others = &outcome.statuses[..ranks as usize - 1];
        assert!(others.iter().all(|status| status.is_success()), "{outcome:?}");
    }
}

#[test]
fn a_rank_that_may_open_no_more_files_says_so_to_whoever_calls_it() {
    for transports in ["loopback,shm", "loopback,ofi:tcp;ofi_rxm"] {
        let only = Some(("TICKWIRE_TRANSPORTS", transports));
        let outcome = run_program(env!("CARGO_BIN_EXE_tests-rank"), 2, "no-descriptors", &[], only);
        assert_eq!(outcome.code(), 0, "{transports}: {outcome:?}");
    }
}

#[test]
fn a_rank_that_is_stopped_or_computes_is_waited_for_and_one_that_was_given_up_is_told() {
    for limit in ["none", "300"] {
        let outcome = run(2, "computes", &[limit]);
        assert_eq!(outcome.code(), 0, "{limit}: {outcome:?}");
    }
}

#[test]
fn a_rank_that_fails_is_told_to_receives_from_any_source_also_if_nobody_knew_it() {
    let ways =
        [("killed", RankStatus::Killed(9)), ("panics", RankStatus::Exited(101)), ("exits", RankStatus::Exited(3))];
    for (way, status) in ways {
        let outcome = run(3, "stranger", &[way]);
        assert_eq!(outcome.statuses[2], status, "{way}: {outcome:?}");
        assert!(outcome.statuses[..2].iter().all(|status| status.is_success()), "{way}: {outcome:?}");
    }
}

#[test]
fn a_programs_whole_heap_is_read_by_its_peer_without_the_kernel() {
    let outcome = run_program(env!("CARGO_BIN_EXE_tests-heap"), 2, "heap", &[], None);
    assert_eq!(outcome.code(), 0, "{outcome:?}");
}

#[test]
fn a_rank_that_is_killed_while_its_heap_is_read_harms_nobody() {
    let outcome = run_program(env!("CARGO_BIN_EXE_tests-heap"), 2, "heap-death", &[], None);
    assert_eq!(outcome.statuses[1], RankStatus::Killed(9), "{outcome:?}");
    assert!(outcome.statuses[0].is_success(), "{outcome:?}");
}

#[test]
fn a_program_goes_on_with_a_full_heap_and_without_one() {
    // The smallest heap that is possible, and a size that is invalid.
    for bytes in ["1048576", "none"] {
        let outcome = run_program(
            env!("CARGO_BIN_EXE_tests-heap"),
            2,
            "heap-fallback",
            &[bytes],
            Some((ENV_SHARED_HEAP_BYTES, bytes)),
        );
        assert_eq!(outcome.code(), 0, "{bytes}: {outcome:?}");
    }
}

/// A cluster in which the engines with these numbers use the shared heap. No engine reads memory by way of the
/// kernel.
fn heaps(users: &[u32]) -> Cluster {
    let users = users.to_vec();
    Cluster::build(2, move |rank| {
        Engine::builder().initial_rows(ROWS).cross_memory_attach(false).shared_heap(users.contains(&rank))
    })
}

fn filled(engine: &Engine, name: u64, length: usize) -> HeapBuffer {
    let mut buffer = engine.alloc(length).unwrap();
    assert!(buffer.iter().all(|&byte| byte == 0));
    buffer.copy_from_slice(&content(name, length));
    buffer
}

/// Sends a buffer from engine 0 to engine 1. Returns the buffer, and what has arrived.
fn pass<B: Pieces + Send + 'static>(cluster: &mut Cluster, buffer: B, length: usize) -> (B, Vec<u8>) {
    let world = cluster.engines[0].comm_world();
    let incoming = cluster.engines[1].irecv(vec![0u8; length], Rank(0), Tag(1), world).unwrap();
    let outgoing = cluster.engines[0].isend(buffer, Rank(1), Tag(1), world).unwrap();
    let received = cluster.finish(BOUND, 1, incoming).unwrap().0;
    (cluster.finish(BOUND, 0, outgoing).unwrap().0, received)
}

#[test]
fn buffers_of_the_heap_go_wherever_buffers_go() {
    let mut cluster = heaps(&[0, 1]);
    let world = cluster.engines[0].comm_world();
    let mut read = 0;
    for (name, length) in [(7, MAPPED_MIN), (8, 5000), (1, 8193), (2, 100_000), (3, 3_000_000)] {
        let buffer = filled(&cluster.engines[0], name, length);
        let (mut buffer, received) = pass(&mut cluster, buffer, length);
        assert!(received == content(name, length));
        // Once the send is done, nobody reads the buffer any more. So it may be changed.
        buffer.fill(9);
        let (buffer, received) = pass(&mut cluster, buffer, length);
        assert!(received == buffer[..]);
        read += 2 * length as u64;
        assert_eq!(cluster.engines[1].bytes_read().heap, read, "not in pieces");
    }
    // The receive buffer is in the heap, too. The send is persistent, so its buffer is used again.
    let buffer = filled(&cluster.engines[0], 4, 50_000);
    let mut sends = cluster.engines[0].send_init(buffer, Rank(1), Tag(2), world).unwrap();
    for round in 0..3 {
        cluster.engines[0].buffer(&mut sends).unwrap()[0] = round;
        let into = cluster.engines[1].alloc(50_000).unwrap();
        let incoming = cluster.engines[1].irecv(into, Rank(0), Tag(2), world).unwrap();
        cluster.engines[0].start(&sends).unwrap();
        let received = cluster.finish(BOUND, 1, incoming).unwrap().0;
        assert!(received[0] == round && received[1..] == content(4, 50_000)[1..]);
        let id = sends.id();
        cluster.tick_until(BOUND, "sent", |cluster| cluster.engines[0].test(&id).unwrap().is_done());
    }
    // Elements in one run are read out of the heap. Scattered elements are packed and go in pieces.
    let before = cluster.engines[1].bytes_read().heap;
    let whole = Typed::new(filled(&cluster.engines[0], 5, 40_000), &Datatype::of::<u8>(), 40_000).unwrap();
    assert!(pass(&mut cluster, whole, 40_000).1 == content(5, 40_000));
    assert_eq!(cluster.engines[1].bytes_read().heap, before + 40_000);
    let second = Datatype::vector(20_000, 1, 2, &Datatype::of::<u8>()).unwrap();
    let scattered = Typed::new(filled(&cluster.engines[0], 5, 40_000), &second, 1).unwrap();
    let expected: Vec<u8> = content(5, 40_000).into_iter().step_by(2).collect();
    assert!(pass(&mut cluster, scattered, 20_000).1 == expected);
    // A buffer below `MAPPED_MIN` is copied, not read. After a buffered send, the sender may change its memory at
    // once.
    let short = filled(&cluster.engines[0], 9, MAPPED_MIN - 1);
    assert!(pass(&mut cluster, short, MAPPED_MIN - 1).1 == content(9, MAPPED_MIN - 1));
    let mut buffer = filled(&cluster.engines[0], 10, 4096);
    cluster.engines[0].bsend(&buffer, Rank(1), Tag(3), world).unwrap();
    buffer.fill(0);
    let incoming = cluster.engines[1].irecv(vec![0u8; 4096], Rank(0), Tag(3), world).unwrap();
    assert!(cluster.finish(BOUND, 1, incoming).unwrap().0 == content(10, 4096));
    // A buffer outside the heap is copied, too.
    assert!(pass(&mut cluster, content(6, 300_000), 300_000).1 == content(6, 300_000));
    assert_eq!(cluster.engines[1].bytes_read().heap, before + 40_000);
    assert_eq!(cluster.engines[1].bytes_read().attach, 0);
}

#[test]
fn an_engine_without_the_heap_reads_from_one_that_has_it() {
    let mut cluster = heaps(&[0]);
    let refused = cluster.engines[1].alloc(100).unwrap_err();
    assert!(refused == HeapError::Off && refused.to_string().contains("TICKWIRE_SHARED_HEAP=1"), "{refused}");
    assert!(cluster.engines[1].heap_report().is_none());
    let buffer = filled(&cluster.engines[0], 1, 100_000);
    assert!(cluster.engines[0].heap_report().unwrap().used >= 100_000);
    assert!(pass(&mut cluster, buffer, 100_000).1 == content(1, 100_000));
    assert_eq!(cluster.engines[1].bytes_read().heap, 100_000);
    // A buffer may outlive its engine.
    let buffer = filled(&cluster.engines[0], 2, 100);
    drop(cluster);
    assert!(buffer[..] == content(2, 100));
}
