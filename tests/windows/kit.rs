//! Engines in threads, over each way to reach a part of a window.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::internals::transports::ofi::Choice;
use tickwire::testing::Board;
use tickwire::transport::Hub;
use tickwire::{Builder, Comm, Engine, Limits, Rank, Window, WindowError};

/// Longer than any wait on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a short ring.
const SHORT_RING: usize = 8 << 10;

/// The way in which ranks reach each other's parts of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// Shared memory: by loads and stores, or by the kernel.
    Shm,
    /// Shared memory: by loads and stores, since created windows have copies there.
    Copied,
    /// As `Copied`, but rank 0 has no copies: others reach its part by the kernel.
    SomeCopied,
    /// Shared memory with a heap that peers map: by loads and stores there.
    Heap,
    /// Loopback: by loads and stores.
    Process,
    /// Loopback between engines that share no memory: the target's engine does the operations.
    Loopback,
    /// As `Loopback`, with short rings and without Deliver: the target's engine does the operations, in many
    /// requests.
    Short,
    /// A fabric of this provider: it does puts and gets. The target's engine does all other operations.
    Fabric(&'static str),
}

/// Fabrics that work between engines of one process.
pub(crate) const FABRICS: [Over; 2] = [Over::Fabric("tcp;ofi_rxm"), Over::Fabric("sockets")];

/// The ways with shared memory: no operation waits for the target.
pub(crate) const SHARED: [Over; 3] = [Over::Shm, Over::Heap, Over::Process];

pub(crate) const ALL: [Over; 6] = [Over::Shm, Over::SomeCopied, Over::Heap, Over::Process, Over::Loopback, Over::Short];

/// Runs `part` as each rank, in threads.
pub(crate) fn each_rank(size: u32, over: Over, part: impl Fn(&mut Engine, u32, Comm) + Sync) {
    let ring = if over == Over::Short { SHORT_RING } else { LOOPBACK_RING_BYTES };
    let hub = Hub::new(size, ring);
    let hub = if over == Over::Process { hub } else { hub.apart() };
    let builder = |rank| match over {
        // The heap must be off explicitly: another test of this process may have opened it.
        Over::Shm => Engine::builder().shared_heap(false).limits(no_copies()),
        Over::SomeCopied if rank == 0 => Engine::builder().shared_heap(false).limits(no_copies()),
        Over::Copied | Over::SomeCopied => Engine::builder().shared_heap(false),
        Over::Heap => Engine::builder().shared_heap(true),
        Over::Loopback | Over::Process => Engine::builder().include(["loopback"]).hub(hub.clone()),
        // Several contexts, so that windows use different ones in turn.
        Over::Fabric(provider) => over_fabric(provider, 3),
        Over::Short => {
            let limits = Limits { deliver: false, ..Limits::default() };
            Engine::builder().limits(limits).include(["loopback"]).hub(hub.clone())
        }
    };
    each_of(size, builder, part);
}

/// An engine that reaches others by this provider alone, with so many contexts for one-sided operations.
pub(crate) fn over_fabric(provider: &str, contexts: usize) -> Builder {
    let choice = Choice { contexts: Some(contexts), ..Choice::default() };
    Engine::builder().ofi(choice).include(["loopback".to_owned(), format!("ofi:{provider}")])
}

/// As [`each_rank`], with any engine for a rank.
pub(crate) fn each_of(
    size: u32,
    builder: impl Fn(u32) -> Builder + Sync,
    part: impl Fn(&mut Engine, u32, Comm) + Sync,
) {
    let board = Board::new(size);
    std::thread::scope(|threads| {
        for rank in 0..size {
            let (board, part, builder) = (&board, &part, &builder);
            threads.spawn(move || {
                let mut engine = builder(rank).build(board.bootstrap(rank)).unwrap();
                let world = engine.comm_world();
                part(&mut engine, rank, world);
                let _ = engine.finalize(Duration::from_secs(20));
            });
        }
    });
}

/// Limits of an engine that keeps no copies of created windows in shared memory.
pub(crate) fn no_copies() -> Limits {
    Limits { window_copy_max: 0, ..Limits::default() }
}

/// An allocated window and a created window with `count` elements each. The buffer of the created window is in the
/// shared heap, if there is one.
pub(crate) fn windows(engine: &mut Engine, count: usize, world: Comm) -> [Window<u64>; 2] {
    let allocated = engine.win_allocate::<u64>(count, world).unwrap();
    let created = match engine.alloc_elements(count) {
        Ok(buffer) => engine.win_create(buffer, world).unwrap(),
        Err(_) => engine.win_create(vec![0u64; count], world).unwrap(),
    };
    [allocated, created]
}

/// The elements of the own part.
pub(crate) fn own(engine: &mut Engine, count: usize, window: Window<u64>) -> Vec<u64> {
    let mut elements = vec![0; count];
    engine.win_read(&mut elements, 0, window).unwrap();
    elements
}

/// Computes until another thread sets the flag. No call of an engine happens meanwhile.
pub(crate) fn compute_until(is_done: &AtomicBool) {
    let start = Instant::now();
    while !is_done.load(Ordering::Acquire) {
        assert!(start.elapsed() < PATIENCE, "the origin waits");
        std::thread::yield_now();
    }
}

/// Elements that differ by rank and place.
pub(crate) fn values(rank: u32, count: usize) -> Vec<u64> {
    (0..count as u64).map(|at| u64::from(rank) * 1_000_003 + at * at + 1).collect()
}

#[track_caller]
pub(crate) fn refused(result: Result<(), WindowError>, words: &str) {
    let error = result.expect_err("it is refused").to_string();
    assert!(error.contains(words), "{error}");
}

/// The next rank. After the last rank comes rank 0.
pub(crate) fn next(rank: u32, size: u32) -> Rank {
    Rank((rank + 1) % size)
}
