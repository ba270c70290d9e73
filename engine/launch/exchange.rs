//! The launcher's side of the bootstrap exchange: the values, the ranks at the fence, and what each rank must still be told. It takes and
//! returns bytes, and touches no descriptor.

use std::collections::{BTreeMap, HashMap};

use crate::bootstrap::wire::{Malformed, Message, VERSION, next_frame};

/// Most bytes that a rank may put: 64 values of the longest kind. So 4096 ranks stay below 4 GiB.
const RANK_BYTES_MAX: usize = 1 << 20;
/// Most keys that a rank may put.
const RANK_KEYS_MAX: usize = 1024;
/// Answers and events are encoded up to this many bytes, and continued when the rank has read them. So listings of 4096 ranks for 4096
/// ranks are never all in memory at the same time.
const OUTPUT_BYTES: usize = 64 << 10;
/// News are encoded up to this many bytes. So only answers reach [`OUTPUT_BYTES`], and show that a rank asks on without reading them.
const NEWS_BYTES: usize = OUTPUT_BYTES / 2;

pub(super) struct Server {
    job: String,
    ranks: Vec<Rank>,
    values: HashMap<String, BTreeMap<u32, Vec<u8>>>,
    /// Ranks that have ended, in the order of their ends. Each rank reads this log at its own pace.
    ended: Vec<(u32, String)>,
    /// The number of ranks that fences wait for, and how many of them are at the fence.
    live: usize,
    at_fence: usize,
    /// Ranks to which something is to be written.
    pending: Vec<u32>,
    /// The first rank that has asked for the end of the job, and its exit status.
    abort: Option<(u32, i32)>,
}

#[derive(Default)]
struct Rank {
    input: Vec<u8>,
    output: Vec<u8>,
    joined: bool,
    finished: bool,
    closed: bool,
    /// Whether the process has ended, the connection is closed, or the rank has finished. No fence waits for this rank any more.
    left: bool,
    at_fence: bool,
    /// The key and the next rank of a listing that is being written.
    listing: Option<(String, u32)>,
    told: usize,
    bytes: usize,
    keys: usize,
    pending: bool,
}

impl Rank {
    /// Whether the rank is told of the ends of other ranks. A rank that has finished does not need to know.
    fn wants_news(&self) -> bool {
        self.joined && !self.finished && !self.closed
    }
}

impl Server {
    pub(super) fn new(size: usize, job: String) -> Self {
        Self {
            job,
            ranks: (0..size).map(|_| Rank::default()).collect(),
            values: HashMap::new(),
            ended: Vec::new(),
            live: size,
            at_fence: 0,
            pending: Vec::new(),
            abort: None,
        }
    }

    /// Takes bytes that `rank` has sent. After an error, the caller must close the rank's connection.
    pub(super) fn receive(&mut self, rank: u32, bytes: &[u8]) -> Result<(), Malformed> {
        let mut input = std::mem::take(&mut self.ranks[rank as usize].input);
        input.extend_from_slice(bytes);
        let mut used = 0;
        while let Some((body, taken)) = next_frame(&input[used..])? {
            self.request(rank, Message::decode(body)?)?;
            used += taken;
        }
        input.drain(..used);
        self.ranks[rank as usize].input = input;
        Ok(())
    }

    fn request(&mut self, rank: u32, message: Message<'_>) -> Result<(), Malformed> {
        let state = &mut self.ranks[rank as usize];
        if matches!(message, Message::Finish) {
            state.finished = true;
            self.leave(rank);
            return Ok(());
        }
        if let Message::Abort { code } = message {
            self.abort.get_or_insert((rank, code));
            return Ok(());
        }
        if state.joined == matches!(message, Message::Hello { .. }) {
            return Err(Malformed("a greeting out of turn"));
        }
        if state.finished || state.at_fence || state.listing.is_some() || state.output.len() > OUTPUT_BYTES {
            return Err(Malformed("a request before the answer to the last one"));
        }
        match message {
            Message::Hello { version, rank: of, size, job } => self.greet(rank, version, (of, size, job)),
            Message::Put { key, value } => self.put(rank, key, value),
            Message::Fence => {
                state.at_fence = true;
                self.at_fence += 1;
                self.open_fence();
            }
            Message::Get { rank: of, key } => {
                let value = self.values.get(key).and_then(|ranks| ranks.get(&of)).map(Vec::as_slice);
                Message::Value { rank: of, value }.encode(&mut state.output);
                self.mark(rank);
            }
            Message::GetAll { key } => {
                state.listing = Some((key.to_owned(), 0));
                self.mark(rank);
            }
            _ => return Err(Malformed("a frame that only a launcher sends")),
        }
        Ok(())
    }

    fn greet(&mut self, rank: u32, version: u16, (of, size, job): (u32, u32, &str)) {
        let matches = of == rank && size as usize == self.ranks.len() && job == self.job;
        let state = &mut self.ranks[rank as usize];
        if version != VERSION {
            let reason = format!("version {version} of the bootstrap protocol; this launcher has {VERSION}");
            Message::Refused { reason: &reason }.encode(&mut state.output);
        } else if !matches {
            let reason = format!("rank {of} of {size} in {job}; the connection is that of rank {rank} in {}", self.job);
            Message::Refused { reason: &reason }.encode(&mut state.output);
        } else {
            state.joined = true;
            Message::Done.encode(&mut state.output);
        }
        self.mark(rank);
    }

    fn put(&mut self, rank: u32, key: &str, value: &[u8]) {
        let state = &mut self.ranks[rank as usize];
        let old = self.values.get(key).and_then(|ranks| ranks.get(&rank)).map(Vec::len);
        let bytes = state.bytes - old.unwrap_or(0) + value.len();
        let keys = state.keys + usize::from(old.is_none());
        if bytes > RANK_BYTES_MAX || keys > RANK_KEYS_MAX {
            let reason = format!("a rank may put {RANK_KEYS_MAX} keys and {RANK_BYTES_MAX} bytes in all");
            Message::Refused { reason: &reason }.encode(&mut state.output);
        } else {
            (state.bytes, state.keys) = (bytes, keys);
            self.values.entry(key.to_owned()).or_default().insert(rank, value.to_owned());
            Message::Done.encode(&mut state.output);
        }
        self.mark(rank);
    }

    /// Notes that a rank's process has ended, and tells the others.
    pub(super) fn rank_ended(&mut self, rank: u32, reason: String) {
        self.leave(rank);
        self.ended.push((rank, reason));
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].wants_news() {
                self.mark(rank as u32);
            }
        }
    }

    /// Notes that a rank's connection is closed. No fence waits for this rank any more.
    pub(super) fn closed(&mut self, rank: u32) {
        self.leave(rank);
        let state = &mut self.ranks[rank as usize];
        let Rank { joined, finished, pending, .. } = *state;
        *state = Rank { joined, finished, pending, closed: true, left: true, ..Rank::default() };
    }

    /// The rank that has asked for the end of the job, and the exit status, if one has.
    pub(super) fn abort(&self) -> Option<(u32, i32)> {
        self.abort
    }

    /// Whether a rank has greeted, and not announced its end.
    pub(super) fn is_engaged(&self, rank: u32) -> bool {
        let state = &self.ranks[rank as usize];
        state.joined && !state.finished
    }

    fn leave(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        if !std::mem::replace(&mut state.left, true) {
            self.live -= 1;
            self.at_fence -= usize::from(std::mem::take(&mut state.at_fence));
            self.open_fence();
        }
    }

    fn open_fence(&mut self) {
        if self.at_fence == 0 || self.at_fence < self.live {
            return;
        }
        self.at_fence = 0;
        for rank in 0..self.ranks.len() {
            let state = &mut self.ranks[rank];
            if std::mem::take(&mut state.at_fence) {
                Message::Done.encode(&mut state.output);
                self.mark(rank as u32);
            }
        }
    }

    fn mark(&mut self, rank: u32) {
        if !std::mem::replace(&mut self.ranks[rank as usize].pending, true) {
            self.pending.push(rank);
        }
    }

    /// The next rank to which something is to be written since the last call.
    pub(super) fn next_pending(&mut self) -> Option<u32> {
        let rank = self.pending.pop()?;
        self.ranks[rank as usize].pending = false;
        Some(rank)
    }

    /// The bytes to write to `rank` now. Afterwards the caller says by [`sent`](Self::sent) how many were written.
    pub(super) fn output(&mut self, rank: u32) -> &[u8] {
        let size = self.ranks.len() as u32;
        let state = &mut self.ranks[rank as usize];
        if let Some((key, next)) = &mut state.listing {
            let values = self.values.get(key);
            while *next < size && state.output.len() < OUTPUT_BYTES {
                let value = values.and_then(|ranks| ranks.get(next)).map(Vec::as_slice);
                Message::Value { rank: *next, value }.encode(&mut state.output);
                *next += 1;
            }
            if *next < size {
                return &state.output;
            }
            state.listing = None;
        }
        let news = self.ended.get(state.told..).filter(|_| state.wants_news()).unwrap_or_default();
        for (rank, reason) in news {
            if state.output.len() >= NEWS_BYTES {
                break;
            }
            Message::RankEnded { rank: *rank, reason }.encode(&mut state.output);
            state.told += 1;
        }
        &state.output
    }

    pub(super) fn sent(&mut self, rank: u32, bytes: usize) {
        self.ranks[rank as usize].output.drain(..bytes);
    }
}

#[cfg(test)]
mod tests;
