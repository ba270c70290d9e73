//! Boards: collective operations over shared memory. What a board holds, how operands are cut into chunks, and how long calls poll.

use super::CACHE_LINE;

/// How many operations of a communicator a member may be ahead of the slowest member, over shared memory. Each has a slot of 2 KiB. Two
/// of these boards stay within an L1 cache of 32 KiB.
pub const BOARD_SLOTS: usize = 8;
/// Bytes of the chunks that a member shows to others at a time on a narrow board: four chunks of 16 KiB, of which two fit into an L1
/// cache.
pub const BOARD_CELL_BYTES: usize = 64 << 10;
/// The same on a wide board, bytes: twice an L2 cache of 1 MiB. Writing a line that a reader still has in its cache takes five times as
/// long as writing one that has left it. So cells are used in turn, and reused late.
pub const BOARD_CELL_BYTES_WIDE: usize = 2 << 20;
/// Wide boards of a proc at most, at a time: 16 MiB. The communicators that open their boards first get them.
pub const BOARDS_WIDE: usize = 8;
/// Members of a communicator with boards at most. Each member reads the boards of all others, so larger communicators are better served
/// by trees of messages.
pub const BOARD_MEMBERS: u32 = 16;
/// Communicators with boards at most. Each narrow board takes 81 KiB of each proc, in all 5 MiB.
pub const BOARDS_MAX: usize = 64;

/// Bytes of a chunk at most, of all parts together. Four fill narrow cells.
pub const BOARD_CHUNK_MAX: usize = BOARD_CELL_BYTES / 4;
/// The same in wide cells, bytes: so long that exchanging the counts of a chunk costs next to nothing, and four chunks fit an L2 cache.
pub const BOARD_CHUNK_MAX_WIDE: usize = 128 << 10;
/// Bytes of a chunk at least, of all parts together. Its counts move a cache line each way, which takes as long as copying 4 KiB.
pub const BOARD_CHUNK_MIN: usize = 4 << 10;
/// The same in wide cells, which are faster, bytes.
pub const BOARD_CHUNK_MIN_WIDE: usize = 8 << 10;
/// Chunks that a long operand is cut into, or more, unless they would be shorter than [`BOARD_CHUNK_MIN`]: one is written while another
/// one is read.
pub const BOARD_CHUNKS_MIN: usize = 4;
/// The same in wide cells.
pub const BOARD_CHUNKS_MIN_WIDE: usize = 2;
/// Between two members with wide boards, an allreduce of up to this many bytes has one round: both combine the whole operands.
pub const BOARD_ONE_ROUND_MAX: usize = 32 << 10;
/// Parts from this length on, in bytes, are read straight out of the memory of their owner, where the kernel lets all members do so: a call
/// of it costs as much as copying 16 KiB.
pub const BOARD_DIRECT_MIN: usize = 96 << 10;
/// Bytes of such a chunk at most, of all members together: long, so that calls of the kernel are few, but its room fits an L2 cache.
pub const BOARD_DIRECT_CHUNK: usize = 128 << 10;
/// Bytes of an element at most. One block of scratch holds an element for each level of a reduction tree, and all of them stay in the L1
/// cache: five blocks of 4 KiB.
pub const BOARD_ELEMENT_MAX: usize = 4 << 10;
/// On wide boards, operands of at least this length, in bytes, are read out of a shared heap, if all members give and take. Reading there
/// leaves the owner's buffer in the caches of its readers, and the owner's next writes to it are slow. So shorter operands go through
/// cells, and so does all that passes one way.
pub const BOARD_HEAP_MIN: usize = 256 << 10;

/// Steps that one poll does for one operation at most. A sum of 1 MiB takes up to 25 steps, three for each chunk.
pub const BOARD_STEPS_A_POLL: u32 = 32;
/// Polls for the next chunk of other members that one look at a long operation does after it has moved a chunk: about 15 µs, twice as
/// long as a peer takes for a chunk of 128 KiB.
pub const BOARD_POLLS: u32 = 500;
/// Polls of boards that a call does by itself before it waits as other calls do. They take about a microsecond: time for a few cache
/// lines to cross between processors.
pub const BOARD_CALL_POLLS: u32 = 200;
/// The same where ranks share processors: others run in between.
pub const BOARD_CALL_POLLS_SHARED: u32 = 32 * BOARD_POLLS_A_YIELD;
/// Polls of boards between two yields of the processor to other ranks, where ranks share processors.
pub const BOARD_POLLS_A_YIELD: u32 = 4;
/// One of this many calls of operations on boards, or waits for them, also advances everything else that the engine has to do.
pub const BOARD_CALLS_A_TICK: u32 = 16;

// The lengths of chunks are clamped between these, and are cut at cache lines.
const _: () = assert!(BOARD_CHUNK_MIN <= BOARD_CHUNK_MAX && BOARD_CHUNK_MIN_WIDE <= BOARD_CHUNK_MAX_WIDE);
const _: () = assert!(BOARD_CHUNK_MIN.is_multiple_of(CACHE_LINE) && BOARD_CHUNK_MAX.is_multiple_of(CACHE_LINE));
// A cell holds the chunks of which one is written while another one is read.
const _: () = assert!(BOARD_CHUNKS_MIN * BOARD_CHUNK_MAX <= BOARD_CELL_BYTES);
const _: () = assert!(BOARD_CHUNKS_MIN_WIDE * BOARD_CHUNK_MAX_WIDE <= BOARD_CELL_BYTES_WIDE);
const _: () = assert!(BOARD_ONE_ROUND_MAX <= BOARD_CELL_BYTES_WIDE);
// Every chunk that is read directly has room for at least one element of each member.
const _: () = assert!(BOARD_MEMBERS as usize * BOARD_ELEMENT_MAX <= BOARD_DIRECT_CHUNK);
