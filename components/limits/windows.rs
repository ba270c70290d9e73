//! Windows and registered memory: one-sided operations through shared memory, the kernel, and requests to the target.

use super::{FAILURE_MS_MAX, SLEEP_MS_MAX};
use std::time::Duration;

/// Longest update of a window whose elements are each updated by an atomic operation of the processor, bytes: 6 ns for each element.
/// Longer updates take a lock, for about 15 ns, and then less than 1 ns for each element.
pub const UPDATED_FREE_MAX: usize = 64;
/// Shortest put that goes past the caches (streaming stores), bytes: a quarter of a shared L3 cache of 32 MiB, from which it would
/// evict what both sides need. Shorter puts are a third faster by stores into the caches, also if the target reads the bytes at once.
pub const STREAMED_MIN: usize = 8 << 20;
/// Unanswered one-sided requests that an origin may have at a target. For each origin, the target keeps as many answers, and old values
/// of as many bytes: 256 KiB.
pub const REMOTE_FRAMES: u32 = 16;
/// Bytes that one such request puts, gets or updates at most. Longer operations take several requests.
pub const REMOTE_BYTES: u64 = 16 << 10;
/// Longest put, get or update that shares a request with others, bytes. A longer one would gain little, and would be copied once more.
pub const BATCHED_BYTES: u64 = 1 << 10;
/// Longest buffer of a created window that is kept in shared memory while the window lives, bytes. Making and taking the window copy it,
/// which takes a few ms, and the bytes are there twice.
pub const WINDOW_COPY_MAX: usize = 16 << 20;
/// Bytes of elements that are updated through the kernel (read, and written back) while a lock is held once.
pub const KERNEL_UPDATE_BYTES: usize = 64 << 10;
/// Longest put that the origin leaves for the target's engine, bytes, if only the kernel reaches the target's memory. Longer puts gain
/// less.
pub const MAIL_BYTES: usize = 4096;
/// Members of a window at most for which its parts have slots for such puts, 4 KiB for each member. A tick of the target polls all
/// slots.
pub const MAIL_MEMBERS: u32 = 16;
/// Polls of an origin after which it takes such a put back, about 3 µs. A target that ticks takes the put within 1 µs, and a system
/// call takes 2 µs.
pub const MAIL_POLLS: u32 = 250;
/// Polls for the end of such a put that the target has begun with, before the origin waits as others do: 100 µs or more. The target
/// copies 4 KiB, in less than a microsecond unless it loses its processor.
pub const MAIL_TAKEN_POLLS: u32 = 10_000;
/// Number of puts that go through the kernel after one was taken back, since the target is computing.
pub const MAIL_PAUSE: u32 = 64;

/// Bytes that are moved while the lock of exposed memory is held once: about 25 µs at 10 GB/s. It bounds how long others wait for the lock.
pub const LOCKED_BYTES: usize = 256 << 10;
/// Runs of a datatype that are moved while that lock is held once, if they have not more than [`LOCKED_BYTES`] bytes: as many as one call
/// of the kernel takes.
pub const LOCKED_RUNS: usize = super::KERNEL_RUNS_A_CALL;
/// The same for elements that are updated, bytes: they are read, changed and written back. A buffer of this length is on the stack.
pub const LOCKED_UPDATE_BYTES: usize = 4 << 10;
/// How long a proc waits for such a lock before it asks the operating system whether the holder lives, and before it asks again. It asks
/// only about a holder that it never contacted. A holder at work gives the lock back sooner. A question takes about 10 µs, so it costs
/// 1 % of the wait.
pub const LOCK_HOLDER_ASKED: Duration = Duration::from_millis(1);
/// Tries to take an update lock by a caller that waits for it, before it does something else. A tick that serves a peer tries once.
pub const UPDATE_LOCK_TRIES: u32 = 200;
/// Polls of the fabric that a call does by itself before it waits as others do: as many as [`SPINS`](super::SPINS).
pub const FABRIC_CALL_POLLS: u32 = 20_000;
/// Runs of one request that a fabric gets at most, since each completion is searched for among all of them. A request of more runs is
/// done at once, run by run.
pub const FABRIC_RUNS_MAX: usize = 1024;
/// How long members of a new window are called over the route of one-sided traffic, ns: those that are there answer within a tick.
pub const WINDOW_LINK_NS_MAX: u64 = 5_000_000_000;
/// Procs that are checked at most to find the transport which shares memory with most procs.
pub const DIRECTORY_PROCS_ASKED: usize = 256;

const _: () = assert!(BATCHED_BYTES <= REMOTE_BYTES);
// Between two questions the wait may sleep once. Even so the holder's death is noticed in time.
const _: () = assert!(2 * (LOCK_HOLDER_ASKED.as_millis() + SLEEP_MS_MAX as u128) <= FAILURE_MS_MAX as u128);
// Updated elements are whole numbers of the widest type.
const _: () = assert!(LOCKED_UPDATE_BYTES.is_multiple_of(size_of::<u128>()) && LOCKED_UPDATE_BYTES <= LOCKED_BYTES);
