//! What programs build of one-sided operations: counters, locks and a queue. Each lock guards two words. They are read
//! by a get and written by two puts, so only the lock keeps them equal.

use crate::one_sided::Parts;
use std::time::{Duration, Instant};
use tickwire::{Comm, Engine, Rank, RegionAccess, RegionKey, WindowError, op};

/// Longest time of one wait, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The rank whose part holds the shared elements.
const HOME: Rank = Rank(0);

// Elements in the part of `HOME`.
const COUNTER: usize = 0;
const NEXT_TICKET: usize = 1;
const NOW_SERVED: usize = 2;
/// The last rank in the queue of the queue lock, plus 1. The value is 0 if nobody is in the queue.
const LAST: usize = 3;
/// The first of the two words that a lock guards.
const GUARDED: usize = 4;
const HEAD: usize = 6;
const END: usize = 7;
// Elements in each rank's part.
/// The next rank in the queue of the queue lock, plus 1. The value is 0 if no rank is next.
const NEXT: usize = 8;
/// Whether the rank still has to wait for the rank before it.
const WAITS: usize = 9;
/// The first place of the distributed queue. The places fill the rest of a part.
const PLACES: usize = 10;

/// How many elements a part needs.
pub fn elements(rounds: usize) -> usize {
    PLACES + rounds
}

/// A rank with a window that all ranks have locked for all parts.
struct Player<'a> {
    engine: &'a mut Engine,
    parts: &'a Parts,
    comm: Comm,
    me: Rank,
    size: u32,
}

/// What a rank does while it holds a lock.
type Section<'a> = fn(&mut Player<'a>) -> Result<(), WindowError>;

/// Hammers counters, locks and a queue in a window with [`elements`] elements at each rank.
///
/// # Panics
/// If an update is lost, two ranks hold a lock at once, or a value comes twice or never.
///
/// # Errors
/// The errors of one-sided operations.
pub fn hammer(engine: &mut Engine, parts: &Parts, comm: Comm, rounds: usize) -> Result<(), WindowError> {
    engine.win_lock_all(parts.window)?;
    engine.barrier(comm)?;
    let (me, size) = (engine.comm_rank(comm)?, engine.comm_size(comm)?);
    let mut player = Player { engine, parts, comm, me, size };
    player.count(rounds)?;
    player.guard(rounds, Player::with_ticket)?;
    player.guard(rounds, Player::with_queue_lock)?;
    player.pass_on(rounds)?;
    engine.barrier(comm)?;
    engine.win_unlock_all(parts.window)
}

/// All ranks count at once in a word of exposed memory, each `rounds` times. Its owner goes on counting as long as
/// others do. Returns the key, which is stale by then.
///
/// # Panics
/// If an update is lost.
///
/// # Errors
/// The errors of one-sided operations.
pub fn count_exposed(engine: &mut Engine, owner: Rank, comm: Comm, rounds: usize) -> Result<RegionKey, WindowError> {
    let others = (u64::from(engine.comm_size(comm)?) - 1) * rounds as u64;
    let is_owner = engine.comm_rank(comm)? == owner;
    let region = engine.expose(vec![0u64], RegionAccess::ALL).map_err(WindowError::from)?;
    let mut keys = [region.key()];
    engine.bcast(&mut keys, owner, comm)?;
    let [key] = keys;
    let (start, mut own, mut of_others, mut last) = (Instant::now(), 0, 0, None);
    while own < rounds as u64 || is_owner && of_others < others {
        let old = engine.region_fetch_and_op(1u64, op::Sum, &key, 0)?;
        assert!(last < Some(old) && old >= own, "a counter only grows: {last:?}, {old}");
        (of_others, own, last) = (old - own, own + 1, Some(old));
        assert!(start.elapsed() < PATIENCE, "{own} of rank {owner:?}, {of_others} of {others}: updates are lost");
        if is_owner {
            engine.tick();
        }
    }
    let mut all = [0];
    engine.allreduce(&[own], &mut all, op::Sum, comm)?;
    assert_eq!(engine.region_fetch_and_op(0u64, op::Keep, &key, 0)?, all[0], "updates are lost");
    engine.barrier(comm)?;
    engine.withdraw(region)?;
    engine.barrier(comm)?;
    Ok(key)
}

impl<'a> Player<'a> {
    fn get(&mut self, rank: Rank, element: usize) -> Result<u64, WindowError> {
        let mut value = [0];
        self.engine.get(&mut value, rank, self.parts.at(rank, element), self.parts.window)?;
        Ok(value[0])
    }

    /// Puts a value. When this returns, all ranks can see it.
    fn put(&mut self, value: u64, rank: Rank, element: usize) -> Result<(), WindowError> {
        self.engine.put(&[value], rank, self.parts.at(rank, element), self.parts.window)?;
        self.engine.win_flush(rank, self.parts.window)
    }

    fn add(&mut self, element: usize) -> Result<u64, WindowError> {
        self.engine.fetch_and_op(1, op::Sum, HOME, self.parts.at(HOME, element), self.parts.window)
    }

    /// Reads an element until it has a value that is right.
    fn until(&mut self, rank: Rank, element: usize, is_right: impl Fn(u64) -> bool) -> Result<u64, WindowError> {
        let start = Instant::now();
        loop {
            let value = self.get(rank, element)?;
            if is_right(value) {
                // The flush orders the reads: what its writer put before this value is read after it.
                self.engine.win_flush(rank, self.parts.window)?;
                return Ok(value);
            }
            assert!(start.elapsed() < PATIENCE, "rank {}: element {element} of {rank:?} stays {value}", self.me.0);
            self.engine.tick();
            std::thread::yield_now();
        }
    }

    /// A counter: each of its values is returned to exactly one rank.
    fn count(&mut self, rounds: usize) -> Result<(), WindowError> {
        let own = (0..rounds).map(|_| self.add(COUNTER)).collect::<Result<Vec<u64>, _>>()?;
        assert!(own.is_sorted(), "a counter only grows");
        let mut all = vec![0; rounds * self.size as usize];
        self.engine.allgather(&own, &mut all, self.comm)?;
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..all.len() as u64), "counted: {all:?}");
        Ok(())
    }

    /// Goes through a lock `rounds` times.
    fn guard(
        &mut self,
        rounds: usize,
        lock: fn(&mut Self, Section<'a>) -> Result<(), WindowError>,
    ) -> Result<(), WindowError> {
        let before = self.get(HOME, GUARDED)?;
        self.engine.barrier(self.comm)?;
        for _ in 0..rounds {
            lock(self, Self::increment)?;
        }
        self.engine.barrier(self.comm)?;
        let sum = before + u64::from(self.size) * rounds as u64;
        let guarded = [self.get(HOME, GUARDED)?, self.get(HOME, GUARDED + 1)?];
        assert_eq!(guarded, [sum; 2], "rank {}: increments are lost", self.me.0);
        self.engine.barrier(self.comm)?;
        Ok(())
    }

    /// The work under a lock.
    fn increment(&mut self) -> Result<(), WindowError> {
        let mut words = [0; 2];
        self.engine.get(&mut words, HOME, self.parts.at(HOME, GUARDED), self.parts.window)?;
        assert_eq!(words[0], words[1], "rank {}: somebody else is in the lock", self.me.0);
        self.put(words[0] + 1, HOME, GUARDED)?;
        self.put(words[1] + 1, HOME, GUARDED + 1)
    }

    /// A ticket lock.
    fn with_ticket(&mut self, run: Section<'a>) -> Result<(), WindowError> {
        let ticket = self.add(NEXT_TICKET)?;
        self.until(HOME, NOW_SERVED, |now| now == ticket)?;
        run(self)?;
        self.put(ticket + 1, HOME, NOW_SERVED)
    }

    /// The lock of Mellor-Crummey and Scott: a rank that waits polls only its own part.
    fn with_queue_lock(&mut self, run: Section<'a>) -> Result<(), WindowError> {
        let (me, mine) = (self.me, u64::from(self.me.0) + 1);
        let (last, window) = (self.parts.at(HOME, LAST), self.parts.window);
        let rank = |name: u64| Rank(name as u32 - 1);
        self.put(0, me, NEXT)?;
        self.put(1, me, WAITS)?;
        let before = self.engine.fetch_and_op(mine, op::Replace, HOME, last, window)?;
        if before != 0 {
            self.put(mine, rank(before), NEXT)?;
            self.until(me, WAITS, |waits| waits == 0)?;
        }
        run(self)?;
        if self.get(me, NEXT)? == 0 && self.engine.compare_and_swap(mine, 0, HOME, last, window)? == mine {
            return Ok(());
        }
        let next = self.until(me, NEXT, |next| next != 0)?;
        self.put(0, rank(next), WAITS)
    }

    /// A queue whose places are in the parts of all ranks. Each rank appends and takes the same number of items.
    fn pass_on(&mut self, rounds: usize) -> Result<(), WindowError> {
        let place = |number: u64, size: u32| {
            let size = u64::from(size);
            (Rank((number % size) as u32), PLACES + (number / size) as usize)
        };
        let mut taken = Vec::new();
        for round in 0..rounds as u64 {
            let (rank, element) = place(self.add(END)?, self.size);
            self.put((u64::from(self.me.0) + 1) << 32 | round, rank, element)?;
            let (rank, element) = place(self.add(HEAD)?, self.size);
            taken.push(self.until(rank, element, |item| item != 0)?);
        }
        for rank in 0..u64::from(self.size) {
            let of_rank = taken.iter().filter(|&&item| item >> 32 == rank + 1);
            assert!(of_rank.is_sorted(), "rank {}: items of rank {rank} are out of order: {taken:x?}", self.me.0);
        }
        let mut all = vec![0; rounds * self.size as usize];
        self.engine.allgather(&taken, &mut all, self.comm)?;
        all.sort_unstable();
        let items = (1..=u64::from(self.size)).flat_map(|rank| (0..rounds as u64).map(move |round| rank << 32 | round));
        assert!(all.iter().copied().eq(items), "taken: {all:x?}");
        Ok(())
    }
}
