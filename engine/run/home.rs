//! The list to which tokens add themselves when they are dropped.

use crossbeam_queue::SegQueue;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tickwire_components::{Comm, Row};

/// The place to which dropped tokens report. It lives as long as the process, so that a token may outlive its engine. An engine that ends
/// leaves its home to the next engine.
pub(crate) struct Home {
    /// Requests whose tokens were dropped: (row, generation).
    pub(crate) dropped: SegQueue<(Row, u64)>,
    /// What else was dropped, with the epoch of its engine.
    pub(crate) others: SegQueue<(Dropped, u64)>,
    /// Generations below this have been used by earlier engines.
    generation: AtomicU64,
}

/// What has lost its owner and is not a request.
pub(crate) enum Dropped {
    /// A probed message: the row of its entry.
    Message(Row),
    /// A communicator that nobody has taken from the future of its agreement.
    Comm(Comm),
}

static FREE_HOMES: Mutex<Vec<&'static Home>> = Mutex::new(Vec::new());

impl Home {
    /// Takes a home that no other engine uses now. Also returns the first generation that the engine's requests may have.
    pub(crate) fn take() -> (&'static Home, u64) {
        let free = FREE_HOMES.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let home = free.unwrap_or_else(|| {
            let generation = AtomicU64::new(first_generation());
            Box::leak(Box::new(Home { dropped: SegQueue::new(), others: SegQueue::new(), generation }))
        });
        (home, home.generation.load(Ordering::Relaxed))
    }

    /// Leaves the home to the next engine, whose requests start at `generation`.
    pub(crate) fn leave(&'static self, generation: u64) {
        while self.dropped.pop().is_some() {}
        while self.others.pop().is_some() {}
        self.generation.store(generation, Ordering::Relaxed);
        FREE_HOMES.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }
}

/// The first generation of a new home. It is far from those of all other homes, so that a handle of one engine is stale in another.
/// Generations start at multiples of the golden ratio: among n homes no two are nearer than 2⁶⁴ / 2.7 n. There are as many homes as engines
/// at one time. With a thousand of them, a row would have to be used 10⁸ times a second for two years before it came to another home's
/// generations.
fn first_generation() -> u64 {
    static HOMES: AtomicU64 = AtomicU64::new(0);
    HOMES.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
