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
    /// The number of the host of each rank. If empty, all are on one host.
    hosts: Arc<[u32]>,
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
        Self::on_hosts(size, [])
    }

    /// The same, for engines that are told to be on several hosts: `hosts` has the number of the host of each. If it is empty, all are on one.
    ///
    /// # Panics
    /// If there are other numbers of hosts and of engines.
    pub fn on_hosts(size: u32, hosts: impl Into<Arc<[u32]>>) -> Self {
        let hosts = hosts.into();
        assert!(hosts.is_empty() || hosts.len() == size as usize, "a host for each engine");
        let ranks = size as usize;
        let (fences, finished, events) = (vec![0; ranks], vec![false; ranks], vec![VecDeque::new(); ranks]);
        let state = State { values: HashMap::new(), fences, finished, events };
        Board { size, hosts, job: unique_job("board"), shared: Arc::new((Mutex::new(state), Condvar::new())) }
    }

    /// The number of engines.
    pub fn size(&self) -> u32 {
        self.size
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

    fn hosts(&self) -> Option<u32> {
        let mut hosts = self.board.hosts.to_vec();
        hosts.sort_unstable();
        hosts.dedup();
        Some(hosts.len().max(1) as u32)
    }

    fn host_of(&self, rank: u32) -> Option<u32> {
        (rank < self.board.size).then(|| self.board.hosts.get(rank as usize).copied().unwrap_or(0))
    }

    fn poll_event(&mut self) -> Option<BootstrapEvent> {
        self.board.lock().events[self.rank as usize].pop_front()
    }

    fn finish(&mut self) {
        self.board.lock().finished[self.rank as usize] = true;
        self.board.shared.1.notify_all();
    }
}
