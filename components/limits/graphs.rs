//! Graphs of collective operations: how many are kept, what one pass starts, and when a member asks after messages that do not come.

use super::CONTROL_FRAMES;

/// Nodes of graphs that one pass starts at most.
pub const STARTS_A_PASS: usize = 256;
/// Rounds of successive graph nodes that one run of Complete starts and ends at most.
pub const ROUNDS_A_RUN: usize = 16;
/// Graphs that are kept for the next equal call at most.
pub const GRAPHS_KEPT: usize = 16;
/// Bytes of memory that the kept graphs own at most.
pub const GRAPH_BYTES_KEPT: usize = 8 << 20;

/// Time between two checks for failed members, for receives from any source. Also the time between two checks for messages of collective
/// operations that do not come. ns. A check asks about up to [`PROCS_ASKED_A_LOOK`](super::PROCS_ASKED_A_LOOK) procs, for up to 40 µs, so
/// it costs at most 0.2 %.
pub const MEMBERS_CHECK_NS: u64 = 20_000_000;
/// How long a start of a graph runs before a member first asks after messages that it expects, ns. Before each further question it waits
/// twice as long as before. Nearly all operations are over by then.
pub const INQUIRY_FIRST_NS: u64 = 20_000_000;
/// Longest time between two such questions, ns. One question a second costs nothing, and a member that hangs for lack of
/// a message learns why within a second.
pub const INQUIRY_INTERVAL_NS_MAX: u64 = 1_000_000_000;
/// Inquiries that may wait for their connections at a time: a quarter of all control frames, so that answers always have room.
pub const INQUIRIES_MAX: usize = 32;
/// Unexpected messages, the oldest first, that one check for messages that nobody will receive covers at most. There is one such check in
/// [`MEMBERS_CHECK_NS`] at most. Messages behind these stay until these are received. 4096 entries of 48 B are 192 KiB of cache.
pub const STRAYS_A_LOOK: usize = 4096;
/// How many operations of its communicator ago the operation of a stray message is at most. A message that seems older stays: its tag has
/// only the low bits of the operation's number, so it may be of a much later operation.
pub const OPERATIONS_LATE_MAX: u32 = 1 << 12;

// Answers and grants still have room when the most inquiries wait.
const _: () = assert!(4 * INQUIRIES_MAX <= CONTROL_FRAMES);
// A graph is looked at often enough for its first question to come in time.
const _: () = assert!(MEMBERS_CHECK_NS <= INQUIRY_FIRST_NS && 2 * INQUIRY_FIRST_NS <= INQUIRY_INTERVAL_NS_MAX);
