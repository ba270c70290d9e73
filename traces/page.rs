//! The statistics page: figures of a running engine, in memory that other processes can read.
//!
//! An engine has one page, a `memfd` with the name [`NAME`]. Nothing remains of it when the process ends, in whatever way. A process of
//! the same user finds it among the descriptors of the engine's process in `/proc`, and reads it as a file. There is one writer and no
//! lock. The words that show whether the engine ticks are stored at every poll. All other words are written about once a millisecond,
//! between two increments of a sequence number, which readers compare. Writing is a handful of stores without a system call. Readers
//! never write.

use crate::words::clean;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(miri))]
use tickwire_components::check_file_bytes;

/// The name of the memfd.
pub const NAME: &str = "tickwire-statistics";
/// Peers that a page has room for at most: 72 KiB. Further peers are left out.
pub const PEERS_MAX: usize = 1024;
/// Endpoints whose names a page has room for.
pub const ENDPOINTS_MAX: usize = 4;
/// "tickwire" and the version of the layout.
const MAGIC: u64 = u64::from_ne_bytes(*b"tickwire") ^ 3;
/// How many times a reader tries again while the page is being written.
const TRIES: usize = 100;

/// Indices of the words.
const SEQUENCE: usize = 1;
const TICKS: usize = 2;
const ASLEEP: usize = 3;
const IDENTITY: usize = 4;
const JOB_WORDS: usize = 5;
/// Enough for the numbered endpoints of layered providers, such as "ofi:verbs;ofi_rxm@2": `top` tells transports apart by these names.
const NAME_WORDS: usize = 4;
const FIGURES: usize = IDENTITY + Identity::WORDS + JOB_WORDS + ENDPOINTS_MAX * NAME_WORDS;
const PEERS: usize = FIGURES + Figures::WORDS;

/// Declares a group of words that is written and read as a whole.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: u64,)*
        }

        impl $name {
            /// Number of words.
            pub const WORDS: usize = [$(stringify!($field)),*].len();

            fn to_words(self) -> [u64; Self::WORDS] {
                [$(self.$field),*]
            }

            fn of_words(words: &[u64]) -> Self {
                let mut words = words.iter().copied();
                $name { $($field: words.next().unwrap_or(0)),* }
            }
        }
    };
}

words! {
    /// The identity of the writer of a page. Written once.
    Identity {
        /// The process.
        pid,
        /// The rank in the world.
        rank,
        /// Ranks in the world.
        size,
        /// The number of the engine in its process.
        engine,
    }
}

words! {
    /// The figures of an engine. Rows are counted by a sweep over the tables, a few rows at a time.
    Figures {
        /// The clock of the host (`CLOCK_MONOTONIC`) when they were written, ns.
        written_ns,
        /// The engine's age, ns.
        now_ns,
        /// Time asleep in a wait, ns.
        slept_ns,
        /// Ticks that had something to do.
        busy,
        /// Operations posted.
        posted,
        /// Receives that were matched with a message.
        matched,
        /// Frames given to transports.
        sent,
        /// Frames read from transports.
        received,
        /// Requests completed.
        completed,
        /// Requests that are not done.
        active,
        /// Messages that no receive has taken.
        unexpected,
        /// Bytes of these messages in temporary buffers.
        unexpected_bytes,
        /// Posted receives that are not matched.
        posted_receives,
        /// Sends that wait for the connection or for room.
        queued_sends,
        /// Messages whose envelope (RTS) was sent and whose data the receiver has not asked for yet.
        offered_sends,
        /// Messages whose bytes are moving.
        moving,
        /// Free rows of operations.
        free_rows,
        /// Rows of operations.
        rows,
        /// Bytes of free temporary buffers that are kept for further messages.
        pool_bytes,
        /// Procs that were contacted.
        peers,
        /// Whether the engine is finalized or poisoned.
        closed,
    }
}

words! {
    /// The figures of a peer.
    PeerFigures {
        /// Its rank in the world.
        proc,
        /// 0 not connected, 1 connecting, 2 connected, 3 failed.
        state,
        /// Index in [`Snapshot::endpoints`] of the endpoint over which it is reached.
        endpoint,
        /// Index of the endpoint of one-sided traffic with it, plus 1; 0 as long as there was no such traffic.
        one_sided,
        /// Bytes of frames written to it.
        sent,
        /// Bytes of frames read from it.
        received,
        /// Bytes read out of its memory.
        read,
        /// Receives posted for this source.
        posted_receives,
        /// Sends to it that wait or are in progress.
        sends,
    }
}

/// The writer's end of a page.
#[derive(Debug)]
pub struct Page {
    words: NonNull<AtomicU64>,
    count: usize,
    peers: usize,
    /// Whether the words are a mapping.
    file: Option<OwnedFd>,
    sequence: u64,
}

// SAFETY: the words are atomics that the page owns.
#[expect(unsafe_code, reason = "owns a mapping")]
unsafe impl Send for Page {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "owns a mapping")]
unsafe impl Sync for Page {}

impl Page {
    /// A page with room for `peers` peers, but at most [`PEERS_MAX`]. If the system has no memory that others can read, the page is
    /// private, and nobody reads it.
    pub fn new(identity: Identity, job: &str, endpoints: &[&str], peers: usize) -> Self {
        let peers = peers.min(PEERS_MAX);
        let count = PEERS + peers * PeerFigures::WORDS;
        let mut page = match map(count) {
            Some((words, file)) => Page { words, count, peers, file: Some(file), sequence: 0 },
            None => {
                let words: Box<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
                let words = NonNull::from(Box::leak(words)).cast();
                Page { words, count, peers, file: None, sequence: 0 }
            }
        };
        page.write(|page| {
            page.put(IDENTITY, &identity.to_words());
            page.put(IDENTITY + Identity::WORDS, &packed::<JOB_WORDS>(job));
            for (place, name) in endpoints.iter().take(ENDPOINTS_MAX).enumerate() {
                let at = IDENTITY + Identity::WORDS + JOB_WORDS + place * NAME_WORDS;
                page.put(at, &packed::<NAME_WORDS>(name));
            }
        });
        page.put(0, &[MAGIC]);
        page
    }

    #[expect(unsafe_code, reason = "a view of shared memory")]
    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: as many words as were mapped or allocated, valid as long as the page, and accessed as atomics only.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }

    /// The words that are stored at every poll.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    #[inline(always)]
    fn live(&self) -> &[AtomicU64; IDENTITY] {
        // SAFETY: as above; there are more than so many words.
        unsafe { self.words.cast::<[AtomicU64; IDENTITY]>().as_ref() }
    }

    fn put(&self, at: usize, values: &[u64]) {
        for (word, value) in self.words()[at..].iter().zip(values) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// Stores the number of ticks.
    #[inline(always)]
    pub fn ticked(&self, ticks: u64) {
        self.live()[TICKS].store(ticks, Ordering::Relaxed);
    }

    /// Stores whether the engine sleeps in a call.
    pub fn asleep(&self, asleep: bool) {
        self.live()[ASLEEP].store(asleep.into(), Ordering::Relaxed);
    }

    /// Number of peers that there is room for.
    pub fn peers(&self) -> usize {
        self.peers
    }

    /// Writes the figures of the engine, and those of some peers, starting with peer number `first`.
    pub fn publish(&mut self, figures: Figures, first: usize, peers: impl Iterator<Item = PeerFigures>) {
        let room = self.peers;
        self.write(|page| {
            page.put(FIGURES, &figures.to_words());
            for (place, peer) in (first..room).zip(peers) {
                page.put(PEERS + place * PeerFigures::WORDS, &peer.to_words());
            }
        });
    }

    /// Writes words between two increments of the sequence number. The number is odd while the words are inconsistent.
    fn write(&mut self, write: impl FnOnce(&Page)) {
        self.sequence += 1;
        self.words()[SEQUENCE].store(self.sequence, Ordering::Relaxed);
        fence(Ordering::Release);
        write(self);
        self.sequence += 1;
        self.words()[SEQUENCE].store(self.sequence, Ordering::Release);
    }

    /// The memfd, if there is one.
    pub fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }
}

impl Drop for Page {
    #[expect(unsafe_code, reason = "gives back what `new` has taken")]
    fn drop(&mut self) {
        match self.file {
            // SAFETY: the mapping of `map`, which nobody else has.
            Some(_) => drop(unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), self.count * 8) }),
            // SAFETY: the box of `new`.
            None => drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.words.as_ptr(), self.count)) }),
        }
    }
}

/// Maps memory of `count` words that other processes can read.
#[cfg(not(miri))]
#[expect(unsafe_code, reason = "a mapping is raw memory")]
fn map(count: usize) -> Option<(NonNull<AtomicU64>, OwnedFd)> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    check_file_bytes(count as u64 * 8).ok()?;
    let file = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC).ok()?;
    rustix::fs::ftruncate(&file, count as u64 * 8).ok()?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; the file is as long, and nobody is given it to shorten it:
    // who can open it could as well end the process.
    let base = unsafe { mmap(std::ptr::null_mut(), count * 8, protection, MapFlags::SHARED, file.as_fd(), 0) }.ok()?;
    Some((NonNull::new(base.cast())?, file))
}

#[cfg(miri)]
fn map(_: usize) -> Option<(NonNull<AtomicU64>, OwnedFd)> {
    None
}

/// The first bytes of a text as words, padded with zeros.
fn packed<const N: usize>(text: &str) -> [u64; N] {
    let mut bytes = text.bytes().chain(std::iter::repeat(0));
    std::array::from_fn(|_| u64::from_ne_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0))))
}

/// The text in some words. Any process can write any text there, so control characters are replaced.
fn unpacked(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|&byte| byte != 0).collect();
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    clean(&mut text);
    text
}

/// The content of a page at one time.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    /// Ticks so far, including the polls of a wait.
    pub ticks: u64,
    /// Whether the engine sleeps in a call.
    pub asleep: bool,
    /// The identity of its writer.
    pub identity: Identity,
    /// The job.
    pub job: String,
    /// The names of the endpoints.
    pub endpoints: Vec<String>,
    /// The figures of the engine.
    pub figures: Figures,
    /// The figures of the peers.
    pub peers: Vec<PeerFigures>,
}

impl Snapshot {
    /// Reads a page.
    ///
    /// # Errors
    /// If it cannot be read, is no page of this version, or is being written at every try.
    pub fn read(file: &File) -> io::Result<Self> {
        let wrong = |words| io::Error::new(io::ErrorKind::InvalidData, words);
        let bytes =
            usize::try_from(file.metadata()?.len()).unwrap_or(0).min((PEERS + PEERS_MAX * PeerFigures::WORDS) * 8);
        let mut buffer = vec![0; bytes];
        for _ in 0..TRIES {
            let before = sequence(file)?;
            file.read_exact_at(&mut buffer, 0)?;
            fence(Ordering::SeqCst);
            if before % 2 == 1 || sequence(file)? != before {
                continue;
            }
            let words: Vec<u64> =
                buffer.chunks_exact(8).filter_map(|b| b.try_into().ok().map(u64::from_ne_bytes)).collect();
            if words.len() < PEERS || words[0] != MAGIC {
                return Err(wrong("it is of another version of tickwire"));
            }
            return Ok(Self::of_words(&words));
        }
        Err(wrong("it is always being written"))
    }

    fn of_words(words: &[u64]) -> Self {
        let job = IDENTITY + Identity::WORDS;
        let names = words[job + JOB_WORDS..FIGURES].chunks(NAME_WORDS);
        let figures = Figures::of_words(&words[FIGURES..PEERS]);
        let peers = words[PEERS..].chunks_exact(PeerFigures::WORDS).take(figures.peers as usize);
        Snapshot {
            ticks: words[TICKS],
            asleep: words[ASLEEP] != 0,
            identity: Identity::of_words(&words[IDENTITY..job]),
            job: unpacked(&words[job..job + JOB_WORDS]),
            endpoints: names.map(unpacked).filter(|name| !name.is_empty()).collect(),
            figures,
            peers: peers.map(PeerFigures::of_words).collect(),
        }
    }
}

fn sequence(file: &File) -> io::Result<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, SEQUENCE as u64 * 8)?;
    Ok(u64::from_ne_bytes(word))
}

#[cfg(test)]
mod tests;
