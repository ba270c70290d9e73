//! A hash table and a histogram whose parts are in windows: every rank updates all parts, and no rank serves the others.

use std::ops::Range;

use tickwire::{Comm, Engine, LockKind, Rank, Window, WindowError, op};

use super::keys::scramble;

/// The word of a slot that is free.
const FREE: u64 = 0;
/// Words of a slot: its key plus 1, which is never [`FREE`], and how often the key has come.
const WORDS: usize = 2;

/// An open-addressing table. Each rank has a part of its slots.
pub(crate) struct Table {
    window: Window<u64>,
    /// Slots of each rank.
    slots: usize,
    ranks: u32,
    /// Slots that this rank has looked at.
    pub(crate) probes: u64,
}

impl Table {
    /// A table with twice as many slots as different keys. All ranks make it together.
    pub(crate) fn new(engine: &mut Engine, keys: u64, world: Comm) -> Result<Self, WindowError> {
        let ranks = engine.size();
        let slots = (2 * keys).div_ceil(u64::from(ranks)).max(1) as usize;
        let window = engine.win_allocate(WORDS * slots, world)?;
        Ok(Table { window, slots, ranks, probes: 0 })
    }

    /// The window, whose epochs the caller opens.
    pub(crate) fn window(&self) -> Window<u64> {
        self.window
    }

    /// Counts a key. The first rank that finds a slot free claims it.
    pub(crate) fn count(&mut self, key: u64, engine: &mut Engine) -> Result<(), WindowError> {
        let all = self.slots * self.ranks as usize;
        let first = ((u128::from(scramble(key)) * all as u128) >> 64) as usize;
        // Half of the slots stay free, so a search ends.
        for slot in (first..all).chain(0..first) {
            let (owner, at) = (Rank((slot / self.slots) as u32), slot % self.slots * WORDS);
            self.probes += 1;
            let found = engine.compare_and_swap(FREE, key + 1, owner, at, self.window)?;
            if found == FREE || found == key + 1 {
                return engine.accumulate(&[1], op::Sum, owner, at + 1, self.window);
            }
        }
        unreachable!("there are more slots than keys")
    }

    /// How many slots of the own part are taken, once nobody counts any more.
    pub(crate) fn taken(&self, engine: &mut Engine) -> Result<u64, WindowError> {
        let part = engine.win_exclusive(self.window)?;
        Ok(part.chunks_exact(WORDS).filter(|slot| slot[0] != FREE).count() as u64)
    }

    /// All keys with their counts, in the order of keys.
    pub(crate) fn read(&self, engine: &mut Engine) -> Result<Vec<(u64, u64)>, WindowError> {
        let mut all = Vec::new();
        let mut part = vec![0; WORDS * self.slots];
        for owner in (0..self.ranks).map(Rank) {
            read_part(engine, &mut part, owner, self.window)?;
            let taken = part.chunks_exact(WORDS).filter(|slot| slot[0] != FREE);
            all.extend(taken.map(|slot| (slot[0] - 1, slot[1])));
        }
        all.sort_unstable();
        Ok(all)
    }
}

/// Counts of bins. Each rank has a run of them.
pub(crate) struct Histogram {
    window: Window<u64>,
    bins: usize,
    ranks: u32,
}

impl Histogram {
    /// All ranks make it together.
    pub(crate) fn new(engine: &mut Engine, bins: usize, world: Comm) -> Result<Self, WindowError> {
        let (rank, ranks) = (engine.rank().0, engine.size());
        let window = engine.win_allocate(bins_of(rank, bins, ranks).len(), world)?;
        Ok(Histogram { window, bins, ranks })
    }

    /// The window, whose epochs the caller opens.
    pub(crate) fn window(&self) -> Window<u64> {
        self.window
    }

    /// Adds counts of all bins: one update for each rank.
    pub(crate) fn add(&self, counts: &[u64], engine: &mut Engine) -> Result<(), WindowError> {
        for owner in 0..self.ranks {
            let counts = &counts[bins_of(owner, self.bins, self.ranks)];
            engine.accumulate(counts, op::Sum, Rank(owner), 0, self.window)?;
        }
        Ok(())
    }

    /// The counts of all bins.
    pub(crate) fn read(&self, engine: &mut Engine) -> Result<Vec<u64>, WindowError> {
        let mut counts = vec![0; self.bins];
        for owner in 0..self.ranks {
            let part = &mut counts[bins_of(owner, self.bins, self.ranks)];
            read_part(engine, part, Rank(owner), self.window)?;
        }
        Ok(counts)
    }
}

/// The bins that a rank has.
pub(crate) fn bins_of(rank: u32, bins: usize, ranks: u32) -> Range<usize> {
    let first = |rank: u32| bins * rank as usize / ranks as usize;
    first(rank)..first(rank + 1)
}

/// Reads a rank's part from its start on.
fn read_part(engine: &mut Engine, into: &mut [u64], owner: Rank, window: Window<u64>) -> Result<(), WindowError> {
    engine.win_lock(LockKind::Shared, owner, window)?;
    let read = engine.get(into, owner, 0, window);
    read.and(engine.win_unlock(owner, window))
}
