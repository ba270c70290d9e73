//! All limits and per-tick budgets, each with the calculation that justifies it. What an application may change is a field of
//! [`Limits`]. The constants are the defaults of these fields, and the bounds that wire and memory formats set.

mod configured;
mod lengths;

pub use configured::Limits;
pub use lengths::{Lengths, Matching};

use crate::credit::Credit;
use crate::wire::HEADER_BYTES;

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

/// Context ids, and so communicators of one proc: the id has 20 bits of a context word. A row costs about 110 B, including what bevy
/// keeps for it. There are rows up to the highest id that was ever in use.
pub const CONTEXTS_MAX: usize = 1 << 20;

/// Bytes to which a shared-memory ring, one direction of a pair, grows if much is streamed through it. It is twice a common L2 cache of
/// 1 MiB, so that a line has left the reader's caches when it is written again. By measurement, for messages in a row between near
/// processors: 1.2 times the message rate of [`ROOMY_RING_BYTES`] for 64 B, 1.6 times for 256 B, 2.3 times for 1 KiB. 4 MiB gain little
/// more.
pub const RING_BYTES: usize = 2 << 20;
/// Bytes to which such a ring grows in the first step: eight pieces, and half of a common 512 KiB L2 slice.
pub const ROOMY_RING_BYTES: usize = 256 << 10;
/// Bytes of such a ring at the start: room for 128 short messages, and small enough that both rings of a pair stay in the L1 cache. A
/// pair takes five pages; 64 procs that all talk to each other take 40 MiB.
pub const FIRST_RING_BYTES: usize = 8 << 10;
/// Bytes of a ring that are used while two procs send in turns (ping-pong), however long the ring is. Both directions together take an
/// eighth of a 512 KiB L2 cache. By measurement on Zen 3, for messages of 128 B and 256 B one by one: up to a tenth faster than with 8
/// KiB.
pub const TURNS_BYTES: u64 = 32 << 10;
/// Number of frames that fit into that space at least: 32 of 4 KiB take 132 KiB. By measurement on Zen 3, a message of 4 KiB, one by
/// one, takes 0.55 µs; with 16 frames 0.6 to 0.75 µs, and with one or two frames 1.3 µs.
pub const TURNS_FRAMES: u64 = 32;
/// How many times its length a ring that is too small has to carry before it grows: a message of a few frames is no reason to grow.
pub const RING_PATIENCE: u64 = 8;
/// How many times its length a ring has to carry in all before it grows to [`ROOMY_RING_BYTES`]: 1 MiB for a ring of
/// [`FIRST_RING_BYTES`].
pub const RING_LAPS: u64 = 128;
/// How many times its length a ring of [`ROOMY_RING_BYTES`] has to carry in frames in a row before it grows to its full length: 4 MiB,
/// which is 65,000 short messages.
pub const STREAM_LAPS: u64 = 16;
/// Bytes of all grown rings together that a proc writes. One half is enough for 32 rings of [`ROOMY_RING_BYTES`]: a cell of a
/// three-dimensional grid has 26 neighbours. Longer rings only get what is left of the other half. A host of 128 procs has 2 GiB of
/// grown rings at most.
pub const GROWN_BYTES: usize = 16 << 20;
/// Bytes of a ring between two engines of one process. A cluster of 64 engines has 4032 rings, 63 MiB at most.
pub const LOOPBACK_RING_BYTES: usize = 16 << 10;
/// Largest eager payload, bytes. For longer messages one more round trip is cheaper than the copy out of a temporary buffer.
pub const EAGER_MAX: usize = 8 << 10;
/// Shortest payload of a shared-memory frame that is written past the caches (streaming stores), bytes. By measurement, for messages of
/// 8 KiB in a row: 1.6 times the message rate, and 6 times between processors where the transfer of a cache line takes 0.27 µs.
/// Messages of 4 KiB one by one would take a quarter longer.
pub const PAST_MIN: usize = 8 << 10;
/// The same limit for payloads that are packed from many short runs, bytes.
pub const PACKED_PAST_MIN: usize = 32 << 10;
/// Payload of one frame of an eager message that needs several frames, bytes.
pub const PART_BYTES: usize = EAGER_MAX;
/// Payload of one piece of a large message, bytes: long enough to hide the cost of a frame, short enough that eight fit into a ring.
pub const PIECE_BYTES: usize = 32 << 10;
/// The same three lengths over a fabric. There, asking costs two round trips through a network, a frame costs a system call on either
/// side, and nothing has to fit into a ring. TCP within a host takes 64 KiB, less a header, at a time, and is slow for slightly longer
/// frames. So these lengths stay below once or four times that. Pieces of half the length cost an eighth of the bandwidth.
pub const FABRIC_LENGTHS: Lengths = Lengths { eager_max: 64 << 10, part_bytes: 32 << 10, piece_bytes: 255 << 10 };
/// Longest frame over a fabric, bytes.
const FABRIC_FRAME_MAX: usize = 16 << 20;
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
/// Default of [`Limits::direct_min`], bytes: below, the endpoint's own receive buffers cost less than polling one more queue.
pub const DIRECT_MIN: usize = 256 << 10;
/// Bytes of a page on most systems. No system has smaller pages.
pub const PAGE_BYTES: usize = 4096;
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
/// Alignment of a buffer of the shared heap, bytes: a cache line.
pub const HEAP_ALIGN: usize = 64;
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
/// Nodes of graphs that one pass starts at most.
pub const STARTS_A_PASS: usize = 256;
/// Rounds of successive graph nodes that one run of Complete starts and ends at most.
pub const ROUNDS_A_RUN: usize = 16;
/// Graphs that are kept for the next equal call at most.
pub const GRAPHS_KEPT: usize = 16;
/// Bytes of memory that the kept graphs own at most.
pub const GRAPH_BYTES_KEPT: usize = 8 << 20;
/// How many operations of a communicator a member may be ahead of the slowest member, over shared memory. Each has a slot of 2 KiB. Two
/// of these boards stay within an L1 cache of 32 KiB.
pub const BOARD_SLOTS: usize = 8;
/// Bytes of the chunks that a member shows to others at a time on a narrow board: four chunks of 16 KiB, of which two fit into an L1
/// cache.
pub const BOARD_CELL_BYTES: usize = 64 << 10;
/// The same on a wide board, bytes: twice an L2 cache of 1 MiB. Writing a line that a reader still has in its cache takes five times as
/// long as writing one that has left it. So cells are used in turn, and reused late.
pub const BOARD_CELL_BYTES_WIDE: usize = 2 << 20;
/// Wide boards of a proc at most: 16 MiB. The communicators that open their boards first get them.
pub const BOARDS_WIDE: usize = 8;
/// Members of a communicator with boards at most. Each member reads the boards of all others, so larger communicators are better served
/// by trees of messages.
pub const BOARD_MEMBERS: u32 = 16;
/// Communicators with boards at most. Each narrow board takes 81 KiB of each proc, in all 5 MiB.
pub const BOARDS_MAX: usize = 64;
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
pub const MAIL_LOOKS: u32 = 250;
/// Number of puts that go through the kernel after one was taken back, since the target is computing.
pub const MAIL_PAUSE: u32 = 64;
/// Shared memory runs of one connection that a peer has passed and that no call has asked for yet, at most. They are those of one
/// communicator at a time, which is made, gets its boards, or becomes a window.
pub const SHARED_PASSED: usize = 8;
/// Steps that one poll does for one operation at most. A sum of 1 MiB takes up to 25 steps, three for each chunk.
pub const BOARD_CHUNKS_A_LOOK: u32 = 32;
/// Polls for the next chunk of other members that one look at a long operation does after it has moved a chunk: about 15 µs, twice as
/// long as a peer takes for a chunk of 128 KiB.
pub const BOARD_LOOKS: u32 = 500;
/// Submissions of other threads that one pass takes at most.
pub const SUBMISSIONS_A_PASS: usize = 64;
/// Limit for operations that other threads have submitted and not taken back, and likewise for calls that wait for the engine's thread.
pub const SUBMISSIONS_MAX: usize = 1024;

/// Entries of a matching queue that a look-up walks past before the engine makes an index. 32 entries of 64 B take as many instructions
/// as two look-ups in the index, and 2 KiB of a near cache.
pub const WALK_MAX: u32 = 32;

/// CAR rows spawned at start: 4096 rows of 128 B, with bevy's change ticks, stay within an L2 cache.
pub const ROWS_INITIAL: usize = 4096;
/// CAR rows at most: a million posted receives and as many again in flight.
pub const ROWS_MAX: usize = 1 << 21;
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
/// Bytes that the pool keeps for reuse after the unexpected queue has been emptied.
pub const POOL_KEPT_BYTES: usize = 32 << 20;

/// Every fourth pass serves the queue with the lowest priority first, so that more urgent messages cannot stop it for ever. With 8
/// pieces a pass it keeps 3 % of a VC.
pub const FAIR_TURN: u32 = 4;

/// Rows whose age is recorded, for CARs and for unexpected messages each: 1 MiB of stamps, sixteen times the rows at start.
pub const STAMPS_MAX: usize = 1 << 16;

/// Completions that one call reads from a fabric at most. A completion costs 10 ns and a call 100 ns, so that the call adds a tenth.
pub const PROGRESS_EVENTS: usize = 100;

/// Time between two polls of the sockets, µs. A poll is two system calls of about 300 ns, so it costs less than 1 %.
pub const CONTROL_US: u32 = 100;
/// Polls between two readings of the clock: 25 ns for 512 polls of 5 ns or more. A tick counts as [`CLOCK_LOOKS_A_TICK`] polls.
pub const CLOCK_LOOKS: u32 = 512;
/// Polls that a tick counts as, so that the clock is read at least every 64 ticks.
pub const CLOCK_LOOKS_A_TICK: u32 = 8;
/// Time between two updates of the statistics page, ns. An update takes one or two µs, so at most 0.2 %.
pub const OBSERVE_NS: u64 = 1_000_000;
/// CAR rows that each update counts. All rows of the start are counted within 16 ms, 16 KiB of cache at a time.
pub const ROWS_A_LOOK: usize = 256;
/// The same if the page is updated rarely, as in a wait that sleeps: 20 µs.
pub const ROWS_A_LOOK_MAX: usize = 4096;
/// Peers whose figures each update writes.
pub const PEERS_A_LOOK: usize = 32;
/// Unsuccessful polls of `wait` before it yields, if there are more procs than processors: about 2 µs, a round trip between processors.
pub const SPINS_SHARED: u32 = 200;
/// Request rows that a tick checks to find an operation that waits for a transport whose poll is expensive. A check reads two cache
/// lines, 10 ns; such a poll costs 100 ns.
pub const OPERATION_LOOKS: u32 = 8;
/// Rings that their reader polls directly. The other rings announce frames by a bit.
pub const WATCHED: usize = 4;
/// Frames that a ring which is not polled directly hands over before the next one has its turn: eight such rings have a turn in each
/// pass.
pub const TURN_FRAMES: usize = ARRIVALS / 8;

/// Bytes of unexpected messages that a proc keeps, from all peers together: small compared with an application, and enough for 30,000
/// messages of 1 KiB.
pub const UNEXPECTED_BYTES: usize = 32 << 20;
/// Credit of each side of a new VC, without a grant: enough to keep a sender busy until the first grant arrives, 64 KiB.
pub const CREDIT_INITIAL: Credit = Credit { lines: 1 << 10, envelopes: 64 };
/// Most lines of credit that a peer may have: 2^24 lines of 64 B are 1 GiB.
pub const CREDIT_LINES_MAX: u32 = 1 << 24;
/// Most envelopes of credit that a peer may have: the header's field has 16 bits, and may hold the sum of two such amounts.
pub const CREDIT_ENVELOPES_MAX: u32 = 1 << 14;

// A frame never fills more than a quarter of a ring, so that a drained ring always takes the next one.
const _: () = assert!(RING_BYTES.is_power_of_two() && LOOPBACK_RING_BYTES.is_power_of_two());
const _: () = assert!(
    FIRST_RING_BYTES.is_power_of_two() && FIRST_RING_BYTES <= ROOMY_RING_BYTES && RING_BYTES <= GROWN_BYTES / 2
);
const _: () = assert!(HEADER_BYTES + EAGER_MAX <= ROOMY_RING_BYTES / 4 && ROOMY_RING_BYTES <= RING_BYTES);
const _: () = assert!(HEADER_BYTES + PIECE_BYTES <= ROOMY_RING_BYTES / 4);
const _: () = assert!(CREDIT_INITIAL.envelopes >= 4 && 2 * CREDIT_ENVELOPES_MAX <= u16::MAX as u32);
const _: () = assert!(HEAP_BLOCK_MIN <= MAPPED_MIN && MAPPED_MIN < READ_MIN);
const _: () = assert!(HEAP_BLOCK_MIN < HEAP_LARGE_MIN && HEAP_LARGE_MIN < HEAP_KEPT_BYTES);
const _: () = assert!(HEAP_BYTES_MIN <= HEAP_BYTES && HEAP_BYTES <= HEAP_BYTES_MAX);
const _: () = assert!(CLOCK_LOOKS.is_power_of_two());
const _: () = assert!(ARRIVALS <= TICK_BUDGET);
const _: () = assert!(TICK_BUDGET / DRAINED_PART >= 2 * TURN_FRAMES);
const _: () = assert!(GRANT_BYTES <= FORWARD_WINDOW && FORWARD_WINDOW <= FORWARD_BYTES);
