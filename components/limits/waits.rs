//! How calls wait: how often they poll, and when they read the clock, yield and sleep.

use super::FAILURE_MS_MAX;
use std::time::Duration;

/// Time between two polls of the sockets, µs. A poll is two system calls of about 300 ns, so it costs less than 1 %.
pub const CONTROL_US: u32 = 100;
/// Polls between two readings of the clock: 25 ns for 512 polls of 5 ns or more. A tick counts as [`CLOCK_POLLS_A_TICK`] polls.
pub const CLOCK_POLLS: u32 = 512;
/// Polls that a tick counts as, so that the clock is read at least every 64 ticks.
pub const CLOCK_POLLS_A_TICK: u32 = 8;

/// Unsuccessful polls of `wait` before it yields: 200 µs or more, at 10 ns or more each. Whoever waits for a peer that is at work gets its
/// message within that time, and without a switch to another process.
pub const SPINS: u32 = 20_000;
/// Unsuccessful polls of `wait` before it yields, if there are more procs than processors: about 2 µs, a round trip between processors.
pub const SPINS_SHARED: u32 = 200;
/// Yields of `wait` before it sleeps: 60 µs of system calls of about 300 ns, if no other process wants the processor. If others want it,
/// they have it in between. A sleep is worse for both sides, since the peer has to wake this process.
pub const YIELDS: u32 = 200;
/// Longest single sleep of `wait`, ms. Descriptors end a sleep early, so this bounds only what no descriptor announces. Ten wake-ups a
/// second cost an idle processor next to nothing.
pub const SLEEP_MS_MAX: u32 = 100;
/// Longest sleep when something must be polled, ms: a transport without a descriptor, or one that may not announce free room. So what is
/// polled is found a millisecond late at most.
pub const SLEEP_POLL_MS: u32 = 1;
/// Unsuccessful polls that a tick of `wait` which has found nothing counts as: it takes about as long as 30 polls of 10 ns.
pub const WAIT_POLLS_A_TICK: u32 = 30;
/// Unsuccessful polls that a poll of boards counts as, where ranks share processors: after four of them `wait` yields.
pub const WAIT_POLLS_A_BOARD_POLL: u32 = SPINS_SHARED / 4;
/// Unsuccessful polls of `wait` before the processor is told that this is a spin loop: about 20 µs. Until then a message is expected soon,
/// and the hint would delay the poll that finds it.
pub const WAIT_POLLS_UNPAUSED: u32 = 2_000;
/// Polls that find work between two readings of the clock, in a wait that has a deadline. A tick that works takes longer than the 25 ns of
/// a reading, so a reading costs less than 1 %.
pub const WAIT_BUSY_POLLS_A_CLOCK: u32 = 64;
/// Unsuccessful polls between two readings of the clock, in a wait that has a deadline and spins: 25 ns for 16 polls of 10 ns or more,
/// and time that would be spent in vain anyway.
pub const WAIT_POLLS_A_CLOCK: u32 = 16;
/// A century: longer than anybody waits, and short enough to be added to a time.
pub const WAIT_TIME_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Most time that a dropped engine takes to send pending messages. Nobody has asked this thread to wait, so it is half of the time that is
/// granted to the requests of a dead peer ([`FAILURE_MS_MAX`]).
pub const DROP_TIME_MAX: Duration = Duration::from_millis(500);

/// Ticks in a row that find work before the future that drives the engine lets other tasks run.
pub const FUTURE_TICKS: u32 = 64;
/// Polls of that future in a row that find nothing before it sleeps. Other tasks run in between. A message that arrives during these polls
/// needs no other thread to wake the future.
pub const FUTURE_POLLS: u32 = 100;

/// Looks for a receive that a cancelling call has asked a transport to give back: the first one asks, the second one finds the answer of a
/// transport that answers at once. After that, the receive comes back in a later tick.
pub const RECALL_LOOKS: u32 = 2;
/// Polls for the result of a peek, at most. Without a result after that many, the provider counts as having no message. The last nine
/// tenths yield the processor before each poll, so that the provider's own thread may run.
pub const PEEK_POLLS: u32 = 1000;
/// Communicators whose messages are pulled together at most: each costs one question to the transport.
pub const CONTEXTS_PULLED: usize = 1000;
/// `wait_all` lets messages gather only if an open request is followed, this many places later, by another open one.
pub const GATHER_DISTANCE: usize = 16;
/// How long messages may gather for each request that is left. A sender takes about twice as long to write the shortest message.
pub const GATHER_TIME: Duration = Duration::from_nanos(10);
/// Longest time to let messages gather: a hundred of the shortest ones.
pub const GATHER_TIME_MAX: Duration = Duration::from_micros(1);

/// Longest interval between two polls of an idle transport that is expensive to poll, ticks. With a poll of 100 ns, it adds 2 ns to a tick
/// on average.
pub const POLL_INTERVAL_MAX: u32 = 64;
/// Request rows that a tick checks to find an operation that waits for a transport whose poll is expensive. A check reads two cache
/// lines, 10 ns; such a poll costs 100 ns.
pub const OPERATION_LOOKS: u32 = 8;

const _: () = assert!(CLOCK_POLLS.is_power_of_two() && CLOCK_POLLS_A_TICK < CLOCK_POLLS);
// Intervals double up to the longest one.
const _: () = assert!(POLL_INTERVAL_MAX.is_power_of_two());
// Only a wait that yields soon counts a poll of boards for many.
const _: () = assert!(SPINS_SHARED < SPINS && WAIT_POLLS_A_BOARD_POLL > 1);
// By default a wait first polls at full speed, then spins, and then yields.
const _: () = assert!(WAIT_POLLS_UNPAUSED < SPINS);
const _: () = assert!(SLEEP_POLL_MS <= SLEEP_MS_MAX);
const _: () = assert!(DROP_TIME_MAX.as_millis() <= FAILURE_MS_MAX as u128);
const _: () = assert!(GATHER_TIME.as_nanos() <= GATHER_TIME_MAX.as_nanos());
