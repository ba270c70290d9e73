//! An exchange in memory, for several engines in one process.

use crate::Bootstrap;
use crate::bootstrap::{BootstrapError, BootstrapEvent, Exchange, unique_job};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait at a fence, ms.
const FENCE_MS_MAX: u64 = 30_000;

/// The place where engines of one process exchange their cards. Clones share the same board.
#[derive(Clone)]
pub struct Board {
    size: u32,
    job: String,
    shared: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    values: HashMap<(u32, String), Vec<u8>>,
    fences: Vec<u64>,
    finished: Vec<bool>,
    events: Vec<VecDeque<BootstrapEvent>>,
}

impl Board {
    /// A board for this many engines, with a job name of its own.
    pub fn new(size: u32) -> Self {
        let ranks = size as usize;
        let (fences, finished, events) = (vec![0; ranks], vec![false; ranks], vec![VecDeque::new(); ranks]);
        let state = State { values: HashMap::new(), fences, finished, events };
        Board { size, job: unique_job("board"), shared: Arc::new((Mutex::new(state), Condvar::new())) }
    }

    /// The exchange of one engine, as a bootstrap.
    pub fn bootstrap(&self, rank: u32) -> Bootstrap {
        Bootstrap::custom(self.exchange(rank))
    }

    /// The exchange of one engine.
    pub fn exchange(&self, rank: u32) -> BoardExchange {
        BoardExchange { board: self.clone(), rank }
    }

    /// Tells all engines that a rank has ended, as a launcher does.
    pub fn end(&self, rank: u32, reason: &str) {
        let mut state = self.lock();
        state.finished[rank as usize] = true;
        let event = BootstrapEvent::RankEnded { rank, reason: reason.to_owned() };
        state.events.iter_mut().for_each(|events| events.push_back(event.clone()));
        self.shared.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One engine's part of a [`Board`].
pub struct BoardExchange {
    board: Board,
    rank: u32,
}

impl Exchange for BoardExchange {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.board.size
    }

    fn job(&self) -> &str {
        &self.board.job
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        self.board.lock().values.insert((self.rank, key.to_owned()), value.to_owned());
        Ok(())
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        let since = Instant::now();
        let mut state = self.board.lock();
        state.fences[self.rank as usize] += 1;
        let mine = state.fences[self.rank as usize];
        self.board.shared.1.notify_all();
        while state.fences.iter().zip(&state.finished).any(|(&theirs, &finished)| theirs < mine && !finished) {
            let left = Duration::from_millis(FENCE_MS_MAX).saturating_sub(since.elapsed());
            if left.is_zero() {
                return Err(BootstrapError::Timeout { operation: "a fence", ms: FENCE_MS_MAX });
            }
            state = self.board.shared.1.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        Ok(self.board.lock().values.get(&(rank, key.to_owned())).cloned())
    }

    fn poll_event(&mut self) -> Option<BootstrapEvent> {
        self.board.lock().events[self.rank as usize].pop_front()
    }

    fn finish(&mut self) {
        self.board.lock().finished[self.rank as usize] = true;
        self.board.shared.1.notify_all();
    }
}
