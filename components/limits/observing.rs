//! Observing an engine: the statistics page, dumps, and those that ask for them.

use std::time::Duration;

/// Time between two updates of the statistics page, ns. An update takes one or two µs, so at most 0.2 %.
pub const OBSERVE_NS: u64 = 1_000_000;
/// CAR rows that each update counts. All rows of the start are counted within 16 ms, 16 KiB of cache at a time.
pub const ROWS_A_LOOK: usize = 256;
/// The same if the page is updated rarely, as in a wait that sleeps: 20 µs.
pub const ROWS_A_LOOK_MAX: usize = 4096;
/// Peers whose figures each update writes.
pub const PEERS_A_LOOK: usize = 32;

/// Watchers that are answered at the same time at most, by all engines of the process. Each takes a thread.
pub const WATCHERS_ANSWERED_MAX: usize = 4;
/// Watchers that wait for the engine at a fabric at most: as many as are answered at a time.
pub const FABRIC_WATCHERS_MAX: usize = WATCHERS_ANSWERED_MAX;
/// The longest time that ranks on this host may take to answer, whatever the question allows.
pub const WATCHER_PATIENCE_MAX: Duration = Duration::from_secs(60);
/// The longest time that a watcher may take to read its answer.
pub const WATCHER_READING_MAX: Duration = Duration::from_secs(5);
/// Visitors that one engine serves with dumps at the same time at most.
pub const DUMP_VISITORS_MAX: usize = 8;
/// How long a visitor may take to read its dump, ns.
pub const DUMP_VISIT_NS_MAX: u64 = 5_000_000_000;
/// Members of a communicator that a dump lists at most.
pub const DUMPED_MEMBERS_MAX: usize = 4096;

const _: () = assert!(ROWS_A_LOOK <= ROWS_A_LOOK_MAX);
const _: () = assert!(WATCHER_READING_MAX.as_nanos() <= WATCHER_PATIENCE_MAX.as_nanos());
