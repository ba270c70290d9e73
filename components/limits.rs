//! Every limit and per-tick budget, with the sum that argues for it. What an application may change is a field of
//! [`Limits`]; the constants are its defaults and the bounds of the formats.

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
/// What a message in buffered mode takes of the attached buffer besides its bytes: its rows.
pub const BUFFERED_OVERHEAD: usize = 128;
/// Ranks that one local launcher starts. One engine maps 20 KiB a peer, 80 MiB for 4096 of them, and what its rings have grown by.
pub const LOCAL_RANKS_MAX: usize = 4096;

/// Context ids, and so communicators of one proc: 20 bits of a context word. A row costs about 110 B with what bevy keeps of it;
/// there are rows up to the highest id that was in use.
pub const CONTEXTS_MAX: usize = 1 << 20;

/// Bytes that one direction of a pair's ring over shared memory grows to, if much is streamed through it: twice a common L2 cache of
/// 1 MiB, so that a line has left its reader's caches when it is written again. By measurement, messages in a row between near processors:
/// 1.2 times as many of 64 B as with [`ROOMY_RING_BYTES`], 1.6 times of 256 B, 2.3 times of 1 KiB. 4 MiB gain little more.
pub const RING_BYTES: usize = 2 << 20;
/// Bytes that such a ring grows to at first: eight pieces, and half of a common 512 KiB L2 slice.
pub const ROOMY_RING_BYTES: usize = 256 << 10;
/// Bytes of such a ring at first: 128 short messages, and both rings of a pair in the nearest cache. Five pages a pair: 64
/// procs that all talk to each other take 40 MiB.
pub const FIRST_RING_BYTES: usize = 8 << 10;
/// Bytes of a ring that are used while two procs take turns, whatever its length: both directions together take an eighth of a second cache
/// of 512 KiB. By measurement, Zen 3, messages of 128 B and 256 B one by one: up to a tenth faster than with 8 KiB.
pub const TURNS_BYTES: u64 = 32 << 10;
/// Frames that fit there at least: 32 of 4 KiB take 132 KiB. By measurement, Zen 3, messages of 4 KiB one by one: 0.55 µs, 0.6 to 0.75 with 16
/// frames, and 1.3 µs with one or two.
pub const TURNS_FRAMES: u64 = 32;
/// How many times a ring has to be filled while it is too small before it grows: a message of a few frames is no reason.
pub const RING_PATIENCE: u64 = 8;
/// How many times a ring has to be filled at all before it becomes [`ROOMY_RING_BYTES`] long: 1 MiB through one of [`FIRST_RING_BYTES`].
pub const RING_LAPS: u64 = 128;
/// How many times a ring of [`ROOMY_RING_BYTES`] has to be filled by frames in a row before it becomes as long as it may: 4 MiB, which is 65,000
/// short messages.
pub const STREAM_LAPS: u64 = 16;
/// Bytes of all rings together that have grown, which a proc writes. One half is for 32 of [`ROOMY_RING_BYTES`], for the 26 neighbours of a
/// cell in a grid of three dimensions; rings that are longer only get what is left of the other. A host of 128 procs has 2 GiB of them at
/// most.
pub const GROWN_BYTES: usize = 16 << 20;
/// Bytes of a ring between two engines of one process: a cluster of 64 has 4032 of them, 63 MiB at most.
pub const LOOPBACK_RING_BYTES: usize = 16 << 10;
/// Largest eager payload. Above, one more round trip is cheaper than the copy out of a temporary.
pub const EAGER_MAX: usize = 8 << 10;
/// Shortest payload of a frame over shared memory that is written past the caches. By measurement, 8 KiB in a row: 1.6 times as
/// many, 6 times where a line takes 0.27 µs from one processor to the other; one by one 4 KiB take a quarter longer.
pub const PAST_MIN: usize = 8 << 10;
/// The same of what is packed, which is read in small parts.
pub const PACKED_PAST_MIN: usize = 32 << 10;
/// Payload of a part of a message that is sent without asking and in more than one frame.
pub const PART_BYTES: usize = EAGER_MAX;
/// Payload of one piece of a large message: long enough to hide a frame's cost, short enough for eight in a ring.
pub const PIECE_BYTES: usize = 32 << 10;
/// The same three over a fabric, where asking costs two round trips through a network, a frame a system call of either side,
/// and nothing has to fit in a ring. TCP within a host takes 64 KiB less a header at a time, and is slow with what is a
/// little longer: so these stay below once or four times that. Half as much a piece costs an eighth of the bandwidth.
pub const FABRIC_LENGTHS: Lengths = Lengths { eager_max: 64 << 10, part_bytes: 32 << 10, piece_bytes: 255 << 10 };
/// Longest frame over a fabric.
const FABRIC_FRAME_MAX: usize = 16 << 20;
/// Shortest message that is read out of the sender's memory: below, two copies cost less than a system call.
pub const READ_MIN: usize = EAGER_MAX + 1;
/// The same for what the receiver has mapped: reading it takes a line more, for its end, and saves both a copy of sixteen.
pub const MAPPED_MIN: usize = 1 << 10;
/// Pieces that one pass sends for one VC at most: a ring's worth, so that neither side waits for the other.
pub const PIECES_A_PASS: usize = 8;
/// Bytes, in whole pages, that are read out of the memory of senders before others have their turn: 200 µs at 10 GB/s.
pub const READ_BYTES_A_TURN: usize = 2 << 20;
/// Turns of one pass at most; all are one message's if it is the only one. There is but one if frames have arrived meanwhile.
pub const READ_TURNS_A_PASS: usize = 2;
/// Reads of one VC that are done by one call at most: each saves a call, and its message waits until all are read.
pub const READS_A_CALL: usize = 8;
/// Default of [`Limits::direct_min`]: below, the port's own places cost less than a question to one more queue.
pub const DIRECT_MIN: usize = 256 << 10;
/// Bytes of a page as most systems have them, and none has fewer.
pub const PAGE_BYTES: usize = 4096;
/// Address space of a process's shared heap, which it asks for or half of the machine's memory if that is less: the maps of
/// 4096 peers fill half of an address space of 2^47 bytes. It is no memory until it is used.
pub const HEAP_BYTES: usize = 16 << 30;
/// Bytes of a shared heap at most, also of a peer's: 64 of them fill half of such an address space.
pub const HEAP_BYTES_MAX: usize = 1 << 40;
/// Bytes of a shared heap at least: below, the fallback is all there is.
pub const HEAP_BYTES_MIN: usize = 1 << 20;
/// Shortest block that a program's allocator takes from the shared heap. A shorter one is never read there, and most blocks
/// are shorter: they stay with the system's allocator, which has caches for each thread.
pub const HEAP_BLOCK_MIN: usize = 1 << 10;
/// Shortest block of the shared heap whose memory may go back to the system when it is freed: 64 pages, so that the call
/// costs less than the faults it causes.
pub const HEAP_LARGE_MIN: usize = 256 << 10;
/// Freed memory that the shared heap keeps for reuse: sixteen messages of 4 MiB.
pub const HEAP_KEPT_BYTES: usize = 64 << 20;
/// Shortest block of the shared heap that is zeroed by giving its pages back: clearing it would cost more than their faults,
/// and would touch what is perhaps never used.
pub const HEAP_ZEROED_MIN: usize = 32 << 20;
/// Alignment of a buffer of the shared heap: a cache line.
pub const HEAP_ALIGN: usize = 64;
/// Largest message: the length field has 64 bits, addresses have 47.
pub const MESSAGE_MAX: u64 = 1 << 46;
/// Runs of an operation that have rows of their own at most; more are one list, which has one: what an application may have
/// by the million has no rows.
pub const RUN_ROWS_MAX: usize = 16;
/// Levels of loops and lists in a datatype at most: walking over one is recursive, 200 B of stack each.
pub const DATATYPE_DEPTH_MAX: u32 = 64;

/// Arrival rows, and so frames that one pass drains at most.
pub const ARRIVALS: usize = 128;
/// Frames and completions that one tick reads at most, whatever the number of passes.
pub const TICK_BUDGET: usize = 256;
/// Of how many frames of a tick's budget one is left to DrainCq by Deliver, so that what only DrainCq reads is read however
/// much there is to deliver. With the usual budget 32 frames, of at least two rings.
pub const DRAINED_PART: usize = 8;
/// Passes over the systems in one tick. An eager message needs one, a rendezvous step two.
pub const PASSES_MAX: u32 = 8;
/// Nodes of graphs that one pass starts.
pub const STAGED_A_PASS: usize = 256;
/// Rounds of nodes that Complete starts and ends at once, one behind the other, in one run.
pub const ROUNDS_A_RUN: usize = 16;
/// Graphs of calls that stay for calls that are the same, at most.
pub const GRAPHS_KEPT: usize = 16;
/// Bytes of their own memory, at most.
pub const GRAPH_BYTES_KEPT: usize = 8 << 20;
/// Operations of one communicator that a member may be ahead of the slowest one, over shared memory. A slot of 2 KiB each: two of
/// these boards stay within a first cache of 32 KiB.
pub const BOARD_SLOTS: usize = 8;
/// Bytes of chunks that a member shows to others at a time, where boards are narrow: four chunks of 16 KiB, of which two fit a first cache.
pub const BOARD_CELL_BYTES: usize = 64 << 10;
/// The same where boards are wide: twice a second cache of 1 MiB. A line that a reader still has in a cache of its own is written five
/// times as slowly as one that has left it, so cells are used in turn and come round late.
pub const BOARD_CELL_BYTES_WIDE: usize = 2 << 20;
/// Wide boards of a proc at most: 16 MiB. They are those of the communicators that open theirs first.
pub const BOARDS_WIDE: usize = 8;
/// Members of a communicator that has boards: each reads those of all others, so that more of them are better served by trees.
pub const BOARD_MEMBERS: u32 = 16;
/// Communicators with boards at most: 81 KiB of each proc for each narrow one, 5 MiB.
pub const BOARDS_MAX: usize = 64;
/// Bytes of an update of a window up to which each element is updated by itself, by an atomic operation of the processor: 6 ns an element.
/// Longer updates take a lock, for about 15 ns, and less than 1 ns an element.
pub const UPDATED_FREE_MAX: usize = 64;
/// Bytes from which a put goes past the caches: a quarter of a cache of 32 MiB that processors share, out of which it would push what
/// both need. Below, stores into the caches are faster by a third, also if the target reads the bytes at once.
pub const STREAMED_MIN: usize = 8 << 20;
/// Requests of one-sided operations that an origin may have sent to a target without an answer. The target keeps as many answers for each
/// origin, and old values of as many bytes: 256 KiB.
pub const REMOTE_FRAMES: u32 = 16;
/// Bytes that one such request puts, gets or updates at most.
pub const REMOTE_BYTES: u64 = 16 << 10;
/// Bytes that an operation puts, gets or updates at most to share a request with others: a longer one gains little by that, and would be
/// copied once more.
pub const BATCHED_BYTES: u64 = 1 << 10;
/// Bytes of elements that the kernel reads, and writes back, under one hold of a lock.
pub const KERNEL_UPDATE_BYTES: usize = 64 << 10;
/// Bytes of a put that is left for the target's engine, where only the kernel reaches its memory from elsewhere. Longer ones gain less.
pub const MAIL_BYTES: usize = 4096;
/// Members of a window up to which its parts have room for that, 4 KiB for each: a tick of the target looks at all of them.
pub const MAIL_MEMBERS: u32 = 16;
/// Looks of an origin after which it takes such a put back, about 3 us: a target that ticks takes it within 1 us, and a call of the kernel takes
/// 2 us.
pub const MAIL_LOOKS: u32 = 250;
/// Puts that go by the kernel after one was taken back: the target computes.
pub const MAIL_PAUSE: u32 = 64;
/// Shared runs that a peer has passed and nobody has asked for, for one connection: those of one communicator at a time, which is also made
/// ready or made a window of.
pub const SHARED_PASSED: usize = 8;
/// Steps that one look makes for one operation, at most: a sum of 1 MiB takes up to 25, three for each chunk.
pub const BOARD_CHUNKS_A_LOOK: u32 = 32;
/// Looks for others' next chunk that one look at a long operation makes once it has moved one: about 15 us, twice as long as a peer takes
/// for a chunk of 128 KiB.
pub const BOARD_LOOKS: u32 = 500;
/// Submissions of other threads that one pass takes.
pub const SUBMISSIONS_A_PASS: usize = 64;
/// Operations that other threads have submitted and not taken back, and calls that wait for the engine's thread, each.
pub const SUBMISSIONS_MAX: usize = 1024;

/// Entries of a matching queue that a look-up walks past before an index is made: 32 of 64 B are as many instructions as
/// two look-ups in the index, and 2 KiB of a near cache.
pub const WALK_MAX: u32 = 32;

/// CAR rows spawned at start: 4096 rows of 128 B and their ticks stay within an L2.
pub const ROWS_INITIAL: usize = 4096;
/// CAR rows at most: a million posted receives and as many again in flight.
pub const ROWS_MAX: usize = 1 << 21;
/// Control frames that only grants of credit use: no number of other frames can hold them up.
pub const CONTROL_GRANTS: usize = 8;
/// Control frames that wait for room at a transport at most: the answers to all arrivals of a pass, and grants. Where there is none
/// for another one, an offer in ready mode is kept as any other, and acknowledgements wait.
pub const CONTROL_FRAMES: usize = ARRIVALS + CONTROL_GRANTS;
/// Buffer rows at start and at most; each holds one unexpected payload.
pub const BUFFERS_INITIAL: usize = 1024;
/// See [`BUFFERS_INITIAL`].
pub const BUFFERS_MAX: usize = 1 << 21;
/// Buffer rows that unexpected messages leave to operations that pass bytes on, an eighth of all at most: two windows.
pub const FORWARD_BUFFERS: usize = 2 * FORWARD_WINDOW / GRANT_BYTES;
/// Buffer rows that are left to the engine's own messages, a sixteenth of all at most: one in each direction.
pub const CONTROL_BUFFERS: usize = 2;
/// Bytes of temporaries that operations which pass bytes on hold at most: 64 of them at their full window.
pub const FORWARD_BYTES: usize = 16 << 20;
/// Bytes of space that one such operation holds at most, at the head of its VC's queue: a ring's worth of pieces.
pub const FORWARD_WINDOW: usize = 256 << 10;
/// Bytes of one grant at most: two pieces, so that one is filled while the other one leaves.
pub const GRANT_BYTES: usize = 2 * PIECE_BYTES;
/// Longest message in parts that its receiver asks for as a whole, and so one that may leave without asking: its parts have places of
/// their own, a grant's worth, instead of a window.
pub const PASSED_WHOLE_MAX: usize = GRANT_BYTES;
/// Bytes of a part with an operation that are combined at a time: they stay in the nearest cache.
pub const COMBINED_BYTES: usize = 4 << 10;
/// Grants of one pass at most: a window for sixteen operations.
pub const GRANTS_A_PASS: usize = 64;
/// Supply rows at start; there are never more than CAR rows.
pub const SUPPLIES_INITIAL: usize = 32;
/// Shortest run that is registered with a method: below, a copy of 1 µs costs less than two system calls.
pub const REGISTER_MIN: usize = EAGER_MAX + 1;
/// Registered ranges that are kept in the cache while nobody needs them: a look-up is a search among them.
pub const REGISTRATIONS_MAX: usize = 1024;
/// Bytes of such ranges: pages that the system cannot use otherwise.
pub const REGISTERED_BYTES: usize = 256 << 20;
/// Bytes that the pool keeps for reuse after the unexpected queue has been emptied.
pub const POOL_KEPT_BYTES: usize = 32 << 20;

/// Every fourth pass serves the queue with the lowest priority first, so that more urgent messages cannot stop it for ever. With 8
/// pieces a pass it keeps 3 % of a VC.
pub const FAIR_TURN: u32 = 4;

/// Rows whose age is known, of CARs and of unexpected messages each: 1 MiB of stamps, sixteen times the rows at start.
pub const STAMPS_MAX: usize = 1 << 16;

/// Completions that one call reads from a fabric: a tenth of a call's cost each, where one costs 10 ns and the call 100 ns.
pub const PROGRESS_EVENTS: usize = 100;

/// Time between two looks at sockets, µs; a look is two system calls of about 300 ns, so it costs less than 1 %.
pub const CONTROL_US: u32 = 100;
/// Looks between two samples of the clock: 25 ns in 512 looks of 5 ns or more. A tick counts for [`CLOCK_LOOKS_A_TICK`].
pub const CLOCK_LOOKS: u32 = 512;
/// A tick counts as so many looks, so that the clock is sampled at least every 64 ticks.
pub const CLOCK_LOOKS_A_TICK: u32 = 8;
/// Time between two times of writing the statistics page, ns: a microsecond or two of work, so at most 0.2 %.
pub const OBSERVE_NS: u64 = 1_000_000;
/// CAR rows that are counted for it each time: all rows there are at start in 16 ms, 16 KiB of a cache at a time.
pub const ROWS_A_LOOK: usize = 256;
/// The same where it is written rarely, as in a wait that sleeps: 20 µs.
pub const ROWS_A_LOOK_MAX: usize = 4096;
/// Peers whose figures are written each time.
pub const PEERS_A_LOOK: usize = 32;
/// Empty looks of `wait` before it yields where procs outnumber processors: about 2 µs, a round trip between processors.
pub const SPINS_SHARED: u32 = 200;
/// Request rows that a tick looks at twice for an operation that waits for a transport which is expensive to look at: two
/// cache lines each, 10 ns, where such a look costs 100 ns.
pub const OPERATION_LOOKS: u32 = 8;
/// Rings that the owner polls directly; all others announce themselves by a bit.
pub const WATCHED: usize = 4;
/// Frames that a ring which is not watched hands over before the next one has its turn: eight rings have one in each pass.
pub const TURN_FRAMES: usize = ARRIVALS / 8;

/// Bytes that a proc keeps of messages before their receives, from all peers together: half of what would still be called
/// small beside an application, and 30,000 messages of 1 KiB.
pub const UNEXPECTED_BYTES: usize = 32 << 20;
/// Credit that both sides of a VC know of without a word: enough to be busy until the first grant arrives, 64 KiB.
pub const CREDIT_INITIAL: Credit = Credit { lines: 1 << 10, envelopes: 64 };
/// Most lines of a window: 2^24 of 64 B are 1 GiB.
pub const CREDIT_LINES_MAX: u32 = 1 << 24;
/// Most envelopes of a window: a header's field has 16 bits, and two windows may meet in one.
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
