//! The launcher's side of the bootstrap exchange: the values, who waits at the fence, and what each rank is still to
//! be told. Bytes go in and out; no descriptor is touched here.

use std::collections::{BTreeMap, HashMap};

use crate::bootstrap::wire::{Malformed, Message, VERSION, next_frame};

/// Bytes that a rank may keep here: 64 values of the longest kind, and 4096 ranks stay below 4 GiB.
const RANK_BYTES_MAX: usize = 1 << 20;
/// Keys that a rank may keep here.
const RANK_KEYS_MAX: usize = 1024;
/// Answers and events are written out up to this mark and continued when the rank has read: listings of 4096 ranks
/// for 4096 ranks never stand in memory at the same time.
const OUTPUT_BYTES: usize = 64 << 10;

pub(super) struct Server {
    job: String,
    ranks: Vec<Rank>,
    values: HashMap<String, BTreeMap<u32, Vec<u8>>>,
    /// Ranks in the order of their ends; each rank reads this log at its own pace.
    ended: Vec<(u32, String)>,
    /// Ranks that fences wait for, and how many of them are at the fence.
    live: usize,
    at_fence: usize,
    /// Ranks that have something to be written to.
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
    /// Process ended, connection closed or finished: no fence waits for it.
    left: bool,
    at_fence: bool,
    /// Key and next rank of a listing that is being written.
    listing: Option<(String, u32)>,
    told: usize,
    bytes: usize,
    keys: usize,
    pending: bool,
}

impl Rank {
    /// A rank that has finished has nothing left that another's end could fail.
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

    /// Takes bytes that `rank` has sent. An error means that its connection must be closed.
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

    /// The rank's process has ended: everyone is told.
    pub(super) fn rank_ended(&mut self, rank: u32, reason: String) {
        self.leave(rank);
        self.ended.push((rank, reason));
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].wants_news() {
                self.mark(rank as u32);
            }
        }
    }

    /// The rank's connection is closed: no fence waits for it.
    pub(super) fn closed(&mut self, rank: u32) {
        self.leave(rank);
        let state = &mut self.ranks[rank as usize];
        let Rank { joined, finished, pending, .. } = *state;
        *state = Rank { joined, finished, pending, closed: true, left: true, ..Rank::default() };
    }

    /// A rank has asked for the end of the job, with an exit status.
    pub(super) fn abort(&self) -> Option<(u32, i32)> {
        self.abort
    }

    /// It has greeted, but not announced its end.
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

    /// A rank that has something to be written to since the last call.
    pub(super) fn next_pending(&mut self) -> Option<u32> {
        let rank = self.pending.pop()?;
        self.ranks[rank as usize].pending = false;
        Some(rank)
    }

    /// What is to be written to `rank` now; the caller then says by [`sent`](Self::sent) how much of it was.
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
            if state.output.len() >= OUTPUT_BYTES {
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
mod tests {
    use super::*;

    fn server(size: usize) -> Server {
        let mut server = Server::new(size, "job-test".into());
        for rank in 0..size as u32 {
            hello(&mut server, rank).unwrap();
            assert_eq!(answers(&mut server, rank), ["Done"]);
        }
        server
    }

    fn hello(server: &mut Server, rank: u32) -> Result<(), Malformed> {
        let size = server.ranks.len() as u32;
        say(server, rank, Message::Hello { version: VERSION, rank, size, job: "job-test" })
    }

    fn say(server: &mut Server, rank: u32, message: Message<'_>) -> Result<(), Malformed> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        // One byte at a time: a frame may arrive in any pieces.
        bytes.iter().try_for_each(|byte| server.receive(rank, &[*byte]))
    }

    fn answers(server: &mut Server, rank: u32) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let bytes = server.output(rank).to_vec();
            if bytes.is_empty() {
                return all;
            }
            let mut used = 0;
            while let Some((body, taken)) = next_frame(&bytes[used..]).unwrap() {
                all.push(match Message::decode(body).unwrap() {
                    Message::Done => "Done".to_owned(),
                    Message::Value { rank, value } => format!("{rank} {value:?}"),
                    Message::RankEnded { rank, reason } => format!("{rank} {reason}"),
                    Message::Refused { reason } => format!("Refused: {reason}"),
                    other => panic!("{other:?}"),
                });
                used += taken;
            }
            server.sent(rank, used);
        }
    }

    #[test]
    fn a_fence_opens_when_the_last_live_rank_is_there() {
        let mut server = server(4);
        say(&mut server, 0, Message::Fence).unwrap();
        say(&mut server, 1, Message::Fence).unwrap();
        assert!(answers(&mut server, 0).is_empty());
        server.rank_ended(2, "killed".into());
        assert_eq!(answers(&mut server, 0), ["2 killed"]);
        say(&mut server, 3, Message::Finish).unwrap();
        assert_eq!(answers(&mut server, 0), ["Done"]);
        assert_eq!(answers(&mut server, 1), ["Done", "2 killed"]);
        // It has finished: no news for it.
        assert!(answers(&mut server, 3).is_empty());
    }

    #[test]
    fn a_rank_that_dies_at_the_fence_neither_opens_nor_blocks_it() {
        let mut server = server(3);
        say(&mut server, 0, Message::Fence).unwrap();
        server.closed(0);
        server.rank_ended(0, "killed".into());
        say(&mut server, 1, Message::Fence).unwrap();
        assert_eq!(answers(&mut server, 1), ["0 killed"]);
        say(&mut server, 2, Message::Fence).unwrap();
        assert_eq!(answers(&mut server, 1), ["Done"]);
        assert_eq!((server.live, server.at_fence), (2, 0));
    }

    #[test]
    fn a_listing_has_every_rank_in_order_and_comes_in_bounded_pieces() {
        let mut server = server(300);
        let value = vec![7; 1000];
        for rank in (0..300).step_by(2) {
            say(&mut server, rank, Message::Put { key: "k", value: &value }).unwrap();
            assert_eq!(answers(&mut server, rank), ["Done"]);
        }
        say(&mut server, 5, Message::GetAll { key: "k" }).unwrap();
        assert!(server.output(5).len() < OUTPUT_BYTES + 2000);
        // An event comes after the answer that is under way, not within it.
        server.rank_ended(9, "exited".into());
        let all = answers(&mut server, 5);
        assert_eq!(all.len(), 301);
        for (rank, answer) in all[..300].iter().enumerate() {
            let value = (rank % 2 == 0).then_some(&value);
            assert_eq!(*answer, format!("{rank} {value:?}"));
        }
        assert_eq!(all[300], "9 exited");
    }

    #[test]
    fn what_a_rank_keeps_is_bounded() {
        let mut server = server(1);
        let value = vec![0; 16 << 10];
        for key in 0..64 {
            say(&mut server, 0, Message::Put { key: &key.to_string(), value: &value }).unwrap();
            assert_eq!(answers(&mut server, 0), ["Done"]);
        }
        say(&mut server, 0, Message::Put { key: "0", value: &value }).unwrap();
        assert_eq!(answers(&mut server, 0), ["Done"]);
        say(&mut server, 0, Message::Put { key: "one more", value: &value }).unwrap();
        assert!(answers(&mut server, 0)[0].starts_with("Refused: a rank may put"));
        say(&mut server, 0, Message::Get { rank: 0, key: "one more" }).unwrap();
        assert_eq!(answers(&mut server, 0), ["0 None"]);
    }

    #[test]
    fn only_a_matching_greeting_is_accepted() {
        let mut server = Server::new(2, "job-test".into());
        assert!(say(&mut server, 0, Message::Fence).is_err());
        for hello in [
            Message::Hello { version: VERSION + 1, rank: 0, size: 2, job: "job-test" },
            Message::Hello { version: VERSION, rank: 1, size: 2, job: "job-test" },
            Message::Hello { version: VERSION, rank: 0, size: 3, job: "job-test" },
            Message::Hello { version: VERSION, rank: 0, size: 2, job: "another" },
        ] {
            say(&mut server, 0, hello).unwrap();
            assert!(answers(&mut server, 0)[0].starts_with("Refused"));
            assert!(!server.is_engaged(0));
        }
        hello(&mut server, 0).unwrap();
        assert!(server.is_engaged(0));
        assert!(hello(&mut server, 0).is_err());
    }

    #[test]
    fn the_first_rank_that_asks_for_the_end_of_the_job_is_heard_at_any_time() {
        let mut server = server(2);
        assert_eq!(server.abort(), None);
        say(&mut server, 1, Message::Fence).unwrap();
        say(&mut server, 1, Message::Abort { code: 7 }).unwrap();
        say(&mut server, 0, Message::Abort { code: 8 }).unwrap();
        assert_eq!(server.abort(), Some((1, 7)));
    }

    #[test]
    fn a_rank_that_talks_out_of_turn_is_refused() {
        let mut server = server(2);
        assert!(say(&mut server, 0, Message::Done).is_err());
        say(&mut server, 0, Message::Fence).unwrap();
        assert!(say(&mut server, 0, Message::Fence).is_err());
        say(&mut server, 1, Message::Finish).unwrap();
        say(&mut server, 1, Message::Finish).unwrap();
        assert!(say(&mut server, 1, Message::Get { rank: 0, key: "k" }).is_err());
        assert!(server.receive(0, &[0xff; 8]).is_err());
        // Without reading its answers, a rank cannot make the launcher keep more and more of them.
        let mut server = super::tests::server(1);
        let flood = (0..1_000_000).find(|_| say(&mut server, 0, Message::Get { rank: 0, key: "k" }).is_err());
        assert!(flood.is_some());
    }
}
