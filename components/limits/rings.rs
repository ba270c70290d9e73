//! Rings in shared memory: how long they are and how they grow, what is prefetched, and staging buffers.

use super::{
    ARRIVALS, BOARD_CELL_BYTES_WIDE, CACHE_LINE, DRAINED_PART, EAGER_MAX, PAGE_BYTES, PIECE_BYTES, READ_MIN,
    READS_A_CALL, TICK_BUDGET,
};
use crate::wire::{HEADER_BYTES, frame_bytes};
use std::time::Duration;

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
/// Shortest ring that may be configured, bytes: a page.
pub const RING_BYTES_MIN: usize = PAGE_BYTES;
/// Longest ring that may be configured, bytes: far more than any cache.
pub const RING_BYTES_MAX: usize = 1 << 30;
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
/// Bytes of all grown rings and staging buffers together that a proc writes. One half is enough for 32 rings of [`ROOMY_RING_BYTES`]: a
/// cell of a three-dimensional grid has 26 neighbours. Longer rings and staging buffers only get what is left of the other half. A host
/// of 128 procs has 2 GiB of them at most.
pub const GROWN_BYTES: usize = 16 << 20;
/// Bytes of a ring between two engines of one process. A cluster of 64 engines has 4032 rings, 63 MiB at most.
pub const LOOPBACK_RING_BYTES: usize = 16 << 10;
/// Shortest payload of a shared-memory frame that is written past the caches (streaming stores), bytes, if the reader is not
/// [near](NEAR_LINE_NS). By measurement, for messages of 8 KiB in a row: 6 times the message rate between processors where the transfer of
/// a cache line takes 0.27 µs. Messages of 4 KiB one by one would take a quarter longer.
pub const PAST_MIN: usize = 8 << 10;
/// The same limit for payloads that are packed from many short runs, bytes.
pub const PACKED_PAST_MIN: usize = 32 << 10;
/// The longest time of a look at a cache line of another processor that counts as near, ns, with the two looks at the clock
/// around it. On an AMD EPYC (Zen 4) the median of nine looks was 20 to 60 ns where the transfer of a cache line takes 0.06 µs, and 100
/// to 150 ns where it takes 0.26 µs. Near processors write through the caches: by measurement, twice the message rate of 8 KiB, and 1.6
/// to 2.3 times the bandwidth of messages that come in pieces.
pub const NEAR_LINE_NS: u32 = 80;
/// Looks after a decision about the distance that are not timed. In a stream, there is one look each time a ring was filled.
pub const NEAR_LOOKS_UNTIMED: u32 = 256;
/// Rings that their reader polls directly. The other rings announce frames by a bit.
pub const WATCHED: usize = 4;
/// Frames that a ring which is not polled directly hands over before the next one has its turn: eight such rings have a turn in each
/// pass.
pub const TURN_FRAMES: usize = ARRIVALS / 8;

/// Segments of ended processes whose names one sweep checks at most.
pub const SEGMENTS_SWEPT_MAX: usize = 1 << 16;
/// Names that are tried for a segment before giving up.
pub const SEGMENT_NAME_TRIES: u32 = 64;
/// A segment may take one part in this many of the available memory.
pub const SEGMENT_MEMORY_PARTS: u64 = 16;
/// The longest shared run whose pages are all mapped at once, bytes. Boards are mapped so, since otherwise each of their pages would cost a
/// fault in some operation.
pub const POPULATED_MAX: usize = 4 << 20;

/// Polls without a frame after which a ring that is polled directly gives its place to a busier one.
pub const WATCHED_IDLE_POLLS: u32 = 1024;

/// How far ahead of the next frame a reader prefetches a line, bytes. Measured with messages of 0 B: they are 8 % slower without prefetch,
/// 2 % slower with 128, and 25 % slower with 256, since that takes lines away from the writer.
pub const RING_READ_AHEAD: u64 = 3 * CACHE_LINE as u64;
/// How far ahead a writer of one-line frames prefetches a line, in bytes behind the word that it clears. A line arrives in the time of
/// three or four frames. Measured with messages of 0 B: 64 and 512 are both 8 % slower.
pub const RING_WRITE_AHEAD: u64 = 4 * CACHE_LINE as u64;
/// The most cache lines that are prefetched before one read. A processor does not fetch more at a time.
pub const RING_LINES_READ: u64 = 20;
/// The most cache lines that are prefetched or demoted for one write: those of a frame of 4 KiB. Nobody waits for them, so there may be
/// more than [`RING_LINES_READ`].
pub const RING_LINES_SENT: u64 = 66;
/// The longest frame, in bytes, that is moved out of the writer's caches for a waiting reader: a message of 4 KiB. A longer one takes
/// longer to write than to fetch.
pub const RING_HANDED_OVER_MAX: u64 = RING_LINES_SENT * CACHE_LINE as u64;
/// Payloads up to this length, in bytes, are written in less time than the first line of their frame takes to arrive.
pub const RING_FIRST_LINE_MIN: u64 = 128;
/// Bytes after which releasing space of a ring is always worth its cost, which is a cache miss on either side.
pub const RING_UNPUBLISHED_BYTES: u64 = 4 << 10;
/// Bytes of a payload that are packed at a time before they are written past the caches. They stay in the L1 cache.
pub const RING_PACKED_BYTES: usize = 4096;

/// Bytes of a staging buffer. Its lines should lie in the common cache when the sender writes them again, and not in the receiver's own.
/// With an own cache of 1 MiB (AMD, Zen 4) and half of these bytes, messages of 64 KiB have half of the bandwidth.
pub const STAGING_BYTES: usize = 2 << 20;
/// Bytes that are put into a staging buffer before the receiver is told, unless there are no more: it copies the first ones while the next
/// ones are put.
pub const STAGING_STEP_BYTES: usize = 8 << 10;
/// Bytes after which the receiver tells the sender what it has taken. Each time the sender waits for a cache line.
pub const STAGING_TAKEN_BYTES: usize = STAGING_BYTES / 8;
/// The shortest run that a peer may ask to have staged, bytes. A shorter message is sent with its envelope, or reading it costs less than
/// a question.
pub const STAGING_MIN: usize = EAGER_MAX + 1;
/// The most bytes that one call stages for a connection: about 20 µs.
pub const STAGED_A_CALL: usize = 512 << 10;
/// The most questions of a connection that are kept: more than the reader asks in several calls.
pub const STAGING_QUESTIONS_MAX: usize = 4 * READS_A_CALL;
/// Calls without room after which a question is given up. They take 2 ms or more, far longer than a reader at work needs. A reader that was
/// stopped reads the rest itself.
pub const STAGING_CALLS_MAX: u32 = 20_000;
/// How long the reader waits for a step: enough for a polling sender to find the question, and many times as long as a step takes.
pub const STAGING_WAIT: Duration = Duration::from_micros(8);
/// As [`STAGING_WAIT`], if every message is to be staged: long enough also for a sender that is not running yet.
pub const STAGING_WAIT_ALWAYS: Duration = Duration::from_millis(2);
/// Polls for bytes between two readings of the clock: 25 ns for 32 polls of 5 ns or more.
pub const STAGING_POLLS_A_CLOCK: u32 = 32;
/// Reads of a size that do not consider staging after a read out of a shared heap.
pub const HEAP_READS_UNSTAGED: u8 = 16;

// A frame never fills more than a quarter of a ring, so that a drained ring always takes the next one.
const _: () = assert!(RING_BYTES.is_power_of_two() && LOOPBACK_RING_BYTES.is_power_of_two());
const _: () = assert!(
    FIRST_RING_BYTES.is_power_of_two() && FIRST_RING_BYTES <= ROOMY_RING_BYTES && RING_BYTES <= GROWN_BYTES / 2
);
const _: () = assert!(HEADER_BYTES + EAGER_MAX <= ROOMY_RING_BYTES / 4 && ROOMY_RING_BYTES <= RING_BYTES);
const _: () = assert!(HEADER_BYTES + PIECE_BYTES <= ROOMY_RING_BYTES / 4);
const _: () = assert!(TICK_BUDGET / DRAINED_PART >= 2 * TURN_FRAMES);
// A frame begins at a cache line, and one of 4 KiB is prefetched and handed over as a whole.
const _: () = assert!(frame_bytes(0) == CACHE_LINE as u64 && frame_bytes(4096) == RING_HANDED_OVER_MAX);
// Lines ahead lie within the shortest ring.
const _: () = assert!(RING_READ_AHEAD < RING_BYTES_MIN as u64);
const _: () = assert!(RING_WRITE_AHEAD < RING_BYTES_MIN as u64);
const _: () = assert!(RING_BYTES_MIN <= FIRST_RING_BYTES && RING_BYTES <= RING_BYTES_MAX);
// Every message that is read may be staged. A buffer is mapped at once.
const _: () = assert!(STAGING_MIN <= READ_MIN && STAGING_BYTES <= POPULATED_MAX);
const _: () = assert!(STAGING_TAKEN_BYTES.is_power_of_two() && STAGING_STEP_BYTES <= STAGING_TAKEN_BYTES);
// A wide board, with its slots, is mapped at once.
const _: () = assert!(2 * BOARD_CELL_BYTES_WIDE <= POPULATED_MAX);
const _: () = assert!(STAGING_WAIT.as_nanos() <= STAGING_WAIT_ALWAYS.as_nanos());
