//! The inbox tells a reader of many rings which of them have frames, without touching the idle ones; and it lets the reader sleep.
//!
//! The reader polls a few rings directly, the *watched* ones. The writer of any other ring sets the ring's bit in the reader's inbox after
//! each frame, and rings the doorbell if the reader has said that it sleeps (*armed*). To the writer of a watched ring this costs one
//! relaxed load per frame.
//!
//! To stop watching, the reader clears the ring's flag, makes that visible to all writers (`membarrier`; where the kernel lacks it, each
//! writer fences each send), and polls the ring once more. If it does not see a frame then, the frame's writer will see the cleared flag.

use crate::rings::atomics::{AtomicU32, AtomicU64, Ordering, fence};

/// Words of the bitmap, which has one bit for each ring.
const WORDS: usize = 64;

/// Rings that can announce themselves to one reader.
pub const SLOTS: usize = WORDS * 64;

/// The inbox of one reader; all writers map it.
#[repr(C, align(128))]
pub struct Inbox {
    /// One bit for each word of `words` that is not 0.
    summary: AtomicU64,
    /// Whether the reader sleeps on its doorbell.
    armed: AtomicU32,
    /// Whether something other than a frame waits, such as a connection within the process.
    control: AtomicU32,
    _pad: [u64; 14],
    words: [AtomicU64; WORDS],
}

impl Default for Inbox {
    fn default() -> Self {
        Inbox {
            summary: AtomicU64::new(0),
            armed: AtomicU32::new(0),
            control: AtomicU32::new(0),
            _pad: [0; 14],
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Inbox {
    /// Writer: announces that ring `slot` has a frame. `true` if the reader sleeps and the doorbell must ring.
    #[cold]
    #[must_use]
    pub fn announce(&self, slot: u32) -> bool {
        let slot = slot as usize % SLOTS;
        self.words[slot / 64].fetch_or(1 << (slot % 64), Ordering::SeqCst);
        self.summary.fetch_or(1 << (slot / 64), Ordering::SeqCst);
        // Loom treats sequentially consistent accesses as acquire and release. It knows sequential consistency of fences only.
        #[cfg(all(test, tickwire_loom))]
        fence(Ordering::SeqCst);
        self.armed.load(Ordering::SeqCst) != 0
    }

    /// Any process: announces that something other than a frame waits. `true` if the doorbell must ring.
    #[must_use]
    pub fn call(&self) -> bool {
        self.control.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.armed.load(Ordering::SeqCst) != 0
    }

    /// Reader: whether any ring or caller has announced itself.
    #[inline(always)]
    pub fn ready(&self) -> bool {
        self.summary.load(Ordering::Relaxed) != 0 || self.control.load(Ordering::Relaxed) != 0
    }

    /// Reader: whether something other than a frame waits.
    #[inline(always)]
    pub fn wants_control(&self) -> bool {
        self.control.load(Ordering::Relaxed) != 0
    }

    /// Reader: takes the announcement that something other than a frame waits. `false` if there was none.
    pub fn called(&self) -> bool {
        self.control.load(Ordering::Relaxed) != 0 && self.control.swap(0, Ordering::SeqCst) != 0
    }

    /// Reader: takes the announced slots of one word: (first slot, bits). `None` if there is none left.
    pub fn take(&self) -> Option<(u32, u64)> {
        let summary = self.summary.load(Ordering::Relaxed);
        if summary == 0 {
            return None;
        }
        let word = summary.trailing_zeros() as usize;
        // Clear the summary bit first: a writer that announces between the two steps sets it again.
        self.summary.fetch_and(!(1 << word), Ordering::SeqCst);
        let bits = self.words[word].swap(0, Ordering::SeqCst);
        Some((word as u32 * 64, bits))
    }

    /// Reader: says that it is about to sleep. It must look at everything once more before it does.
    pub fn arm(&self) {
        self.armed.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Anyone: whether the reader sleeps, or is about to.
    #[inline(always)]
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != 0
    }

    /// Reader: says that it is awake.
    pub fn disarm(&self) {
        self.armed.store(0, Ordering::Relaxed);
    }
}
