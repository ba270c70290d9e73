//! The window value: what the reader of a ring allows its writer to send, written into memory that the writer reads
//! (reference: communication agent notes, "writing window values directly into the remote memory").
//!
//! `<counter><window><sequence><counter>`: both counters are equal in a completely written value. So the writer recognises a value that it
//! has read in the middle of a write, and reads it again. Window and sequence are totals since the ring was made, of lines and of
//! envelopes. So a value that is overwritten before it was read is not lost, and one that is read twice is not counted twice. This takes no
//! frame, no space in any ring, and no system call.

use super::atomics::{Ordering, fence};
use super::ring::RingMemory;
use tickwire_components::credit::Credit;

/// Words of a value: counter, window, sequence, counter.
pub const WORDS: usize = 4;

/// How often a torn value is read again at once. The next call tries again.
const TRIES: u32 = if cfg!(tickwire_loom) { 2 } else { 4 };

/// The side that grants credit.
#[derive(Debug, Default)]
pub struct Granter {
    counter: u32,
    total: Credit,
}

impl Granter {
    /// Grants further credit.
    pub fn grant<M: RingMemory>(&mut self, memory: &M, credit: Credit) {
        self.counter = self.counter.wrapping_add(1);
        self.total = sum(self.total, credit);
        memory.store_window(0, self.counter, Ordering::Relaxed);
        // A reader that sees a part of the new value also sees its first counter.
        fence(Ordering::Release);
        memory.store_window(1, self.total.lines, Ordering::Relaxed);
        memory.store_window(2, self.total.envelopes, Ordering::Relaxed);
        memory.store_window(3, self.counter, Ordering::Release);
    }
}

/// The side that uses credit to send.
#[derive(Debug, Default)]
pub struct Spender {
    total: Credit,
}

impl Spender {
    /// Returns the credit granted since the last call; none if the value is being written right now.
    pub fn collect<M: RingMemory>(&mut self, memory: &M) -> Credit {
        for _ in 0..TRIES {
            let last = memory.load_window(3, Ordering::Acquire);
            let lines = memory.load_window(1, Ordering::Relaxed);
            let envelopes = memory.load_window(2, Ordering::Relaxed);
            fence(Ordering::Acquire);
            if memory.load_window(0, Ordering::Relaxed) == last {
                let total = Credit { lines, envelopes };
                let more = Credit {
                    lines: lines.wrapping_sub(self.total.lines),
                    envelopes: envelopes.wrapping_sub(self.total.envelopes),
                };
                self.total = total;
                return more;
            }
        }
        Credit::NONE
    }
}

impl Spender {
    /// Whether no credit was granted since the last call of [`Spender::collect`].
    pub fn is_current<M: RingMemory>(&self, memory: &M) -> bool {
        let words = [0, 1, 2, 3].map(|word| memory.load_window(word, Ordering::Acquire));
        words[0] == words[3] && (words[1], words[2]) == (self.total.lines, self.total.envelopes)
    }
}

/// Adds credit to a total, which wraps around.
fn sum(total: Credit, more: Credit) -> Credit {
    Credit { lines: total.lines.wrapping_add(more.lines), envelopes: total.envelopes.wrapping_add(more.envelopes) }
}
