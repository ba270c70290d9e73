//! Clocks that the standard library does not offer.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Processor time that this thread has used so far.
pub fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Milliseconds of the monotonic clock, which is the same for all processes of a host.
pub fn monotonic_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
