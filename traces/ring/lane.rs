//! A circular buffer of slots that one writer fills while others read. It takes no lock, and only uses loads and stores.
//!
//! The writer announces an entry as begun, stores its words, and announces it as done. A reader copies the words of the entries that
//! are done, and then reads how many were begun meanwhile. It drops an entry whose slot a newer entry may have overwritten.

#[cfg(all(test, tickwire_loom))]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(all(test, tickwire_loom)))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The slots, of `WORDS` words each.
pub(super) struct Lane<const WORDS: usize> {
    /// Entry `n` is in slot `n` modulo the number of slots.
    slots: Box<[[AtomicU64; WORDS]]>,
    /// How many entries the writer has begun.
    begun: AtomicU64,
    /// How many entries are done.
    done: AtomicU64,
}

/// The writer's position in a lane.
pub(super) struct Place {
    /// Entries so far.
    pub(super) count: u64,
    slot: usize,
}

impl<const WORDS: usize> Lane<WORDS> {
    /// A lane of `capacity` slots, at least one. The kernel gives memory to them only when they are filled for the first time.
    pub(super) fn new(capacity: usize) -> Self {
        Lane { slots: zeroed(capacity.max(1)), begun: AtomicU64::new(0), done: AtomicU64::new(0) }
    }

    /// The position where a writer continues.
    pub(super) fn place(&self) -> Place {
        let count = self.done();
        Place { count, slot: (count % self.slots.len() as u64) as usize }
    }

    /// Entries so far.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// The first of `count` entries that is not overwritten.
    pub(super) fn oldest(&self, count: u64) -> u64 {
        count.saturating_sub(self.slots.len() as u64)
    }

    /// Fills the next slot. There is only one writer at a time, which owns `place`.
    #[inline(always)]
    pub(super) fn keep<const COUNT: usize>(&self, place: &mut Place, words: [u64; COUNT]) {
        const { assert!(COUNT <= WORDS) }
        self.begun.store(place.count + 1, Ordering::Relaxed);
        // A reader that sees one of the words also sees that its entry was begun.
        fence(Ordering::Release);
        for (slot, word) in self.slots[place.slot].iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        place.count += 1;
        place.slot += 1;
        if place.slot == self.slots.len() {
            place.slot = 0;
        }
        self.done.store(place.count, Ordering::Release);
    }

    /// The complete entries from number `from` on, and the number of the first one. Words that an entry does not use hold those of an
    /// older one.
    pub(super) fn read(&self, from: u64) -> (u64, Vec<[u64; WORDS]>) {
        let done = self.done();
        let first = self.oldest(done).max(from);
        let slot = |number: u64| &self.slots[(number % self.slots.len() as u64) as usize];
        let copy = |number| slot(number).each_ref().map(|word| word.load(Ordering::Relaxed));
        let mut entries: Vec<_> = (first..done).map(copy).collect();
        fence(Ordering::Acquire);
        let oldest = self.oldest(self.begun.load(Ordering::Relaxed)).max(first);
        entries.drain(..entries.len().min((oldest - first) as usize));
        (oldest, entries)
    }
}

#[cfg(not(all(test, tickwire_loom)))]
fn zeroed<const WORDS: usize>(count: usize) -> Box<[[AtomicU64; WORDS]]> {
    bytemuck::try_zeroed_slice_box(count).unwrap_or_else(|()| panic!("there is no memory for a ring of {count} events"))
}

#[cfg(all(test, tickwire_loom))]
fn zeroed<const WORDS: usize>(count: usize) -> Box<[[AtomicU64; WORDS]]> {
    (0..count).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect()
}

#[cfg(all(test, not(tickwire_loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_reads_while_it_is_written_gets_whole_entries_in_order() {
        const ENTRIES: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let lane = Lane::<4>::new(16);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut place = lane.place();
                (0..ENTRIES).for_each(|n| lane.keep(&mut place, [n, n, n, n]));
            });
            let mut before = 0;
            while before < ENTRIES {
                let (first, entries) = lane.read(before);
                assert!(first >= before && entries.len() <= 16);
                for (entry, number) in entries.iter().zip(first..) {
                    assert_eq!(*entry, [number; 4]);
                }
                before = first + entries.len() as u64;
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn a_later_writer_goes_on_where_the_one_before_has_stopped() {
        let lane = Lane::<1>::new(3);
        for n in 0..5 {
            lane.keep(&mut lane.place(), [n]);
        }
        assert_eq!((lane.read(0), lane.read(4)), ((2, vec![[2], [3], [4]]), (4, vec![[4]])));
    }
}

#[cfg(all(test, tickwire_loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// A reader never gets a mixture of two entries.
    #[test]
    fn loom_no_entry_is_a_mixture() {
        loom::model(|| {
            let lane = Arc::new(Lane::<2>::new(2));
            let written = lane.clone();
            let writer = loom::thread::spawn(move || {
                let mut place = written.place();
                (1..=3).for_each(|n| written.keep(&mut place, [n, n]));
            });
            let (first, entries) = lane.read(0);
            for (entry, number) in entries.iter().zip(first + 1..) {
                assert_eq!(*entry, [number; 2]);
            }
            writer.join().unwrap();
            assert_eq!(lane.read(0), (1, vec![[2, 2], [3, 3]]));
        });
    }
}
