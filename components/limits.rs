//! All limits and per-tick budgets, each with the calculation that justifies it. What an application may change is a field of
//! [`Limits`]. The constants are the defaults of these fields, and the bounds that wire and memory formats set. This file has those of
//! messages, memory and rows; each submodule has those of one part of the engine.
//!
//! Constants that only describe a wire or memory format, or an algorithm, stand where that is defined.

mod boards;
mod configured;
mod connections;
mod fabric;
mod graphs;
mod lengths;
mod named;
mod observing;
mod rings;
mod waits;
mod windows;

pub use boards::*;
pub use configured::Limits;
pub use connections::*;
pub use fabric::*;
pub use graphs::*;
pub use lengths::{Lengths, Matching};
pub use named::NamedLimit;
pub use observing::*;
pub use rings::*;
pub use waits::*;
pub use windows::*;

use crate::credit::Credit;

/// Bytes of a cache line. Words that different processors use are apart by as much, and what is prefetched are whole lines. Processors with
/// longer lines, of 128 B, exist; on these, code is slower and still right.
pub const CACHE_LINE: usize = 64;
/// Bytes of a page on most systems. No system has smaller pages.
pub const PAGE_BYTES: usize = 4096;

/// Largest tag of an application; the upper half of the range is reserved for the engine's own traffic.
pub const TAG_MAX: u32 = (1 << 31) - 1;
/// Wire value of "any source" and "any tag" in a posted receive. Never on the wire.
pub const ANY: u32 = u32::MAX;
/// Most procs in one world. Proc numbers and ranks are u32; the top value is [`ANY`].
pub const PROCS_MAX: usize = 1 << 24;
/// Bytes that a message in buffered mode takes of the attached buffer besides its data: the cost of its rows.
pub const BUFFERED_OVERHEAD: usize = 128;
/// Ranks that one local launcher starts at most. An engine maps 20 KiB for each peer, 80 MiB for 4096 peers, plus the rings that have
/// grown.
pub const LOCAL_RANKS_MAX: usize = 4096;

/// Context ids, and so communicators of one proc: the id has 20 bits of a context word, and not all of them set, so that no row is named by
/// [`NIL`](crate::NIL). A row costs about 110 B, including what bevy
/// keeps for it. There are rows up to the highest id that was ever in use.
pub const CONTEXTS_MAX: usize = (1 << 20) - 1;

/// Largest eager payload, bytes. For longer messages one more round trip is cheaper than the copy out of a temporary buffer.
pub const EAGER_MAX: usize = 8 << 10;
/// Payload of one frame of an eager message that needs several frames, bytes.
pub const PART_BYTES: usize = EAGER_MAX;
/// Payload of one piece of a large message, bytes: long enough to hide the cost of a frame, short enough that eight fit into a ring.
pub const PIECE_BYTES: usize = 32 << 10;
/// Shortest message that the receiver reads out of the sender's memory, bytes: below, two copies cost less than a system call.
pub const READ_MIN: usize = EAGER_MAX + 1;
/// The same limit for messages in memory that the receiver has mapped, bytes. Such a read moves one cache line more, for its end, and
/// saves both copies of sixteen lines.
pub const MAPPED_MIN: usize = 1 << 10;
/// Pieces that one pass sends over one VC at most: as many as fit into a ring, so that neither side waits for the other.
pub const PIECES_A_PASS: usize = 8;
/// Bytes, in whole pages, that one turn reads out of the memory of senders before other messages have their turn: 200 µs at 10 GB/s.
pub const READ_BYTES_A_TURN: usize = 2 << 20;
/// Turns of one pass at most. If there is only one message, it gets all of them. If frames have arrived meanwhile, the pass ends after
/// one turn.
pub const READ_TURNS_A_PASS: usize = 2;
/// Messages of one VC that one system call reads at most. Each further message saves a call, but every message waits until all are
/// read.
pub const READS_A_CALL: usize = 8;
/// Runs that one such system call moves at most: as many as the kernel takes (`IOV_MAX`).
pub const KERNEL_RUNS_A_CALL: usize = 1024;
/// Runs of such a call for which no heap memory is allocated.
pub const KERNEL_RUNS_INLINE: usize = 8;
/// Runs of a datatype that a boxed transport gets separately at most. With more, they are packed first.
pub const BOXED_RUNS_MAX: usize = 8;
/// Bytes of a long piece that are copied near and unpacked at a time: they stay in the L1 cache.
pub const UNPACKED_BYTES: usize = 4096;
/// Shortest piece that is unpacked in this way, bytes. Shorter ones are still in some processor's cache.
pub const UNPACKED_MIN: usize = PACKED_PAST_MIN;
/// Address space of a process's shared heap if it asks for one, bytes; half of the machine's memory if that is less. The mappings of
/// 4096 peers fill half of an address space of 2^47 bytes. Address space takes no memory until it is used.
pub const HEAP_BYTES: usize = 16 << 30;
/// Largest shared heap, also of a peer, bytes: 64 of them fill half of such an address space.
pub const HEAP_BYTES_MAX: usize = 1 << 40;
/// Smallest shared heap, bytes. With less, allocations would all go to the system's allocator.
pub const HEAP_BYTES_MIN: usize = 1 << 20;
/// Shortest block that a program's allocator takes from the shared heap, bytes. Peers never read a shorter message out of the heap, and
/// most blocks are shorter. Such blocks stay with the system's allocator, which has per-thread caches.
pub const HEAP_BLOCK_MIN: usize = 1 << 10;
/// Shortest block of the shared heap whose memory may go back to the system when it is freed, bytes: 64 pages, so that the call costs
/// less than the page faults that it causes.
pub const HEAP_LARGE_MIN: usize = 256 << 10;
/// Freed memory that the shared heap keeps for reuse, bytes: sixteen messages of 4 MiB.
pub const HEAP_KEPT_BYTES: usize = 64 << 20;
/// Shortest block of the shared heap that is zeroed by giving its pages back to the system, bytes. Clearing such a block would cost
/// more than its page faults, and would touch pages that are perhaps never used.
pub const HEAP_ZEROED_MIN: usize = 32 << 20;
/// The longest block of the shared heap that is moved while its lock is held, bytes: 5 µs.
pub const HEAP_MOVED_MAX: usize = 64 << 10;
/// Descriptors of a peer that are checked for its heap at most. Most processes open the heap before many other files.
pub const HEAP_DESCRIPTORS_MAX: usize = 1 << 16;
/// Alignment of a buffer of the shared heap, bytes: a cache line.
pub const HEAP_ALIGN: usize = CACHE_LINE;
/// Largest message, bytes: the length field has 64 bits, addresses have 47.
pub const MESSAGE_MAX: u64 = 1 << 46;
/// Runs of one operation that have CAR rows of their own at most. More runs are one list, which has one row, so that an application may
/// have runs by the million.
pub const RUN_ROWS_MAX: usize = 16;
/// Largest nesting depth of loops and lists in a datatype: walking over it is recursive and takes 200 B of stack for each level.
pub const DATATYPE_DEPTH_MAX: u32 = 64;

/// Arrival rows, and so the most frames that one pass drains.
pub const ARRIVALS: usize = 128;
/// Frames and completions that one tick reads at most, in all of its passes.
pub const TICK_BUDGET: usize = 256;
/// Deliver leaves one of this many frames of a tick's budget to DrainCq. So what only DrainCq reads is read, however much there is to
/// deliver. With the usual budget these are 32 frames, from at least two rings.
pub const DRAINED_PART: usize = 8;
/// Passes over the systems in one tick. An eager message needs one, a rendezvous step two.
pub const PASSES_MAX: u32 = 8;
/// Submissions of other threads that one pass takes at most.
pub const SUBMISSIONS_A_PASS: usize = 64;
/// Limit for operations that other threads have submitted and not taken back, and likewise for calls that wait for the engine's thread.
pub const SUBMISSIONS_MAX: usize = 1024;

/// Entries of a matching queue that a look-up walks past before the engine makes an index. 32 entries of 64 B take as many instructions
/// as two look-ups in the index, and 2 KiB of a near cache.
pub const WALK_MAX: u32 = 32;
/// Default of [`Limits::hash_seed`]: any number does, and this one spells the crate's name.
pub const HASH_SEED: u64 = u64::from_be_bytes(*b"tickwire");
/// Bits of the counter that orders receives from one source against receives from any source: as many as its word has. At its end the open
/// receives are renumbered, of which there are fewer ([`ROWS_MAX`]).
pub const WILDCARD_BITS: u32 = 32;

/// CAR rows spawned at start: 4096 rows of 128 B, with bevy's change ticks, stay within an L2 cache.
pub const ROWS_INITIAL: usize = 4096;
/// CAR rows at most: a million posted receives and as many again in flight.
pub const ROWS_MAX: usize = 1 << 21;
/// Free CAR rows below which more are spawned ahead of use.
pub const CARS_LOW: u32 = 64;
/// Control frame rows that are reserved for grants of credit, so that other frames cannot hold grants up.
pub const CONTROL_GRANTS: usize = 8;
/// Control frames that wait for room at a transport at most: the answers to all arrivals of a pass, and grants. If the list is full, an
/// offer in ready mode is kept like any other offer, and acknowledgements wait.
pub const CONTROL_FRAMES: usize = ARRIVALS + CONTROL_GRANTS;
/// Buffer rows at start. Each row holds one unexpected payload.
pub const BUFFERS_INITIAL: usize = 1024;
/// Buffer rows at most.
pub const BUFFERS_MAX: usize = 1 << 21;
/// Buffer rows that are reserved for operations that forward bytes: two windows. At most an eighth of all rows.
pub const FORWARD_BUFFERS: usize = 2 * FORWARD_WINDOW / GRANT_BYTES;
/// Buffer rows that are reserved for the engine's own messages: one in each direction. At most a sixteenth of all rows.
pub const CONTROL_BUFFERS: usize = 2;
/// Bytes of temporary buffers that all forwarding operations together hold at most: 64 operations with a full window.
pub const FORWARD_BYTES: usize = 16 << 20;
/// Bytes of space that one forwarding operation holds at most, if it is at the head of its VC's queue: as many pieces as fit into a
/// ring.
pub const FORWARD_WINDOW: usize = 256 << 10;
/// Bytes of one grant of space at most: two pieces, so that one is filled while the other one leaves.
pub const GRANT_BYTES: usize = 2 * PIECE_BYTES;
/// Longest message in parts that its receiver asks for as a whole, and that may therefore be sent eagerly, bytes. Its parts have memory
/// of their own, as much as one grant, instead of a window.
pub const PASSED_WHOLE_MAX: usize = GRANT_BYTES;
/// Bytes that one step of a reduction combines in a part of a message: they stay in the L1 cache.
pub const COMBINED_BYTES: usize = 4 << 10;
/// Grants of space in one pass at most: a window each for sixteen operations.
pub const GRANTS_A_PASS: usize = 64;
/// Supply rows at start; there are never more than CAR rows.
pub const SUPPLIES_INITIAL: usize = 32;
/// Shortest run that is registered as a memory region, bytes: below, a copy of 1 µs costs less than two system calls.
pub const REGISTER_MIN: usize = EAGER_MAX + 1;
/// Registered ranges that stay in the cache while no operation uses them. A look-up searches them.
pub const REGISTRATIONS_MAX: usize = 1024;
/// Bytes of such unused ranges: their pages are pinned, so the system cannot use them otherwise.
pub const REGISTERED_BYTES: usize = 256 << 20;
/// Registered ranges before the looked-up address that a look-up checks at most: few ranges overlap.
pub const RANGES_CHECKED_MAX: usize = 8;
/// Bytes that the pool keeps for reuse after the unexpected queue has been emptied.
pub const POOL_KEPT_BYTES: usize = 32 << 20;

/// Every fourth pass serves the queue with the lowest priority first, so that more urgent messages cannot stop it for ever. With 8
/// pieces a pass it keeps 3 % of a VC.
pub const FAIR_TURN: u32 = 4;

/// Rows whose age is recorded, for CARs and for unexpected messages each: 1 MiB of stamps, sixteen times the rows at start.
pub const STAMPS_MAX: usize = 1 << 16;

/// Bytes of unexpected messages that a proc keeps, from all peers together: small compared with an application, and enough for 30,000
/// messages of 1 KiB.
pub const UNEXPECTED_BYTES: usize = 32 << 20;
/// Credit of each side of a new VC, without a grant: enough to keep a sender busy until the first grant arrives, 64 KiB.
pub const CREDIT_INITIAL: Credit = Credit { lines: 1 << 10, envelopes: 64 };
/// Most lines of credit that a peer may have: 2^24 lines of 64 B are 1 GiB.
pub const CREDIT_LINES_MAX: u32 = 1 << 24;
/// Most envelopes of credit that a peer may have: the header's field has 16 bits, and may hold the sum of two such amounts.
pub const CREDIT_ENVELOPES_MAX: u32 = 1 << 14;

const _: () = assert!(CREDIT_INITIAL.envelopes >= 4 && 2 * CREDIT_ENVELOPES_MAX <= u16::MAX as u32);
const _: () = assert!(HEAP_BLOCK_MIN <= MAPPED_MIN && MAPPED_MIN < READ_MIN);
const _: () = assert!(HEAP_BLOCK_MIN < HEAP_LARGE_MIN && HEAP_LARGE_MIN < HEAP_KEPT_BYTES);
const _: () = assert!(HEAP_BYTES_MIN <= HEAP_BYTES && HEAP_BYTES <= HEAP_BYTES_MAX);
const _: () = assert!(ARRIVALS <= TICK_BUDGET);
const _: () = assert!(READ_BYTES_A_TURN.is_multiple_of(PAGE_BYTES) && PAGE_BYTES.is_multiple_of(CACHE_LINE));
const _: () = assert!(KERNEL_RUNS_INLINE <= KERNEL_RUNS_A_CALL && READS_A_CALL <= KERNEL_RUNS_A_CALL);
const _: () = assert!(UNPACKED_BYTES <= UNPACKED_MIN);
const _: () = assert!(CARS_LOW as usize <= ROWS_INITIAL && (ROWS_MAX as u64) < 1 << WILDCARD_BITS);
const _: () = assert!(GRANT_BYTES <= FORWARD_WINDOW && FORWARD_WINDOW <= FORWARD_BYTES);
