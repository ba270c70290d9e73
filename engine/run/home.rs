//! Where tokens that are dropped report to.

use crossbeam_queue::SegQueue;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tickwire_components::Row;

/// Where tokens that are dropped report to. Lives as long as the process, so that a token may outlive its engine;
/// engines hand their home on to the next one.
pub(crate) struct Home {
    /// Requests whose tokens were dropped: (row, generation).
    pub(crate) dropped: SegQueue<(Row, u64)>,
    /// Probed messages whose tokens were dropped: (row of the entry, epoch of the engine).
    pub(crate) messages: SegQueue<(Row, u64)>,
    /// Generations below this have been used by earlier engines.
    generation: AtomicU64,
}

static FREE_HOMES: Mutex<Vec<&'static Home>> = Mutex::new(Vec::new());

impl Home {
    /// A home that no other engine has now, and the first generation that its requests may have.
    pub(crate) fn take() -> (&'static Home, u64) {
        let free = FREE_HOMES.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let home = free.unwrap_or_else(|| {
            let generation = AtomicU64::new(first_generation());
            Box::leak(Box::new(Home { dropped: SegQueue::new(), messages: SegQueue::new(), generation }))
        });
        (home, home.generation.load(Ordering::Relaxed))
    }

    /// Leaves the home to the next engine, whose requests start at `generation`.
    pub(crate) fn leave(&'static self, generation: u64) {
        while self.dropped.pop().is_some() {}
        while self.messages.pop().is_some() {}
        self.generation.store(generation, Ordering::Relaxed);
        FREE_HOMES.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }
}

/// Where a new home's generations start: far from those of all others, so that a handle of one engine is stale in another.
/// Multiples of the golden ratio: of n homes no two are nearer than 2⁶⁴ / 2.7 n. There are as many as engines at a time; with
/// a thousand of them a row would have to be used for two years, 10⁸ times a second, before it came to another's numbers.
fn first_generation() -> u64 {
    static HOMES: AtomicU64 = AtomicU64::new(0);
    HOMES.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
