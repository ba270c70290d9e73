//! Helpers of several files: a modelled ring, its frames, and how a model is run.

use crate::rings::atomics::{AtomicU32, AtomicU64, Ordering, fence};
use crate::rings::ring::{Reader, RingMemory, Writer};
use crate::rings::window;
use loom::sync::Arc;
use tickwire_components::wire::{Header, Kind, frame_bytes};
use tickwire_components::{NoBytes, Span};

/// Words of a modelled ring, four frames without payload.
const WORDS: usize = 4 * frame_bytes(0) as usize / 8;

/// What stands beside a ring's data.
struct Beside {
    released: AtomicU64,
    watched: AtomicU32,
    starving: AtomicU32,
    window: [AtomicU32; window::WORDS],
}

#[derive(Clone)]
pub(super) struct Modelled {
    words: Arc<Vec<AtomicU64>>,
    beside: Arc<Beside>,
}

impl Modelled {
    pub(super) fn new(watched: bool) -> Self {
        let beside = Beside {
            released: AtomicU64::new(0),
            watched: AtomicU32::new(watched.into()),
            starving: AtomicU32::new(0),
            window: std::array::from_fn(|_| AtomicU32::new(0)),
        };
        Modelled { words: words(WORDS), beside: Arc::new(beside) }
    }

    /// The same ring with data twice as long.
    pub(super) fn larger(&self) -> Self {
        Modelled { words: words(2 * WORDS), beside: self.beside.clone() }
    }
}

fn words(count: usize) -> Arc<Vec<AtomicU64>> {
    Arc::new((0..count).map(|_| AtomicU64::new(0)).collect())
}

// SAFETY: its bytes are within the data.
#[expect(unsafe_code, reason = "memory that another process may write")]
unsafe impl RingMemory for Modelled {
    fn capacity(&self) -> u64 {
        self.words.len() as u64 * 8
    }
    fn load(&self, offset: u64, order: Ordering) -> u64 {
        self.words[offset as usize / 8].load(order)
    }
    fn store(&self, offset: u64, word: u64, order: Ordering) {
        self.words[offset as usize / 8].store(word, order);
    }
    unsafe fn fill(&self, _offset: u64, _from: Span) {
        unreachable!("modelled frames have no payload")
    }
    fn bytes(&self, _offset: u64, _length: usize) -> Span {
        Span::EMPTY
    }
    fn released(&self) -> u64 {
        self.beside.released.load(Ordering::Acquire)
    }
    fn release(&self, position: u64) {
        self.beside.released.store(position, Ordering::Release);
    }
    fn watched(&self) -> bool {
        self.beside.watched.load(Ordering::Relaxed) != 0
    }
    fn watch(&self, watched: bool) {
        self.beside.watched.store(watched.into(), Ordering::Relaxed);
    }
    fn load_window(&self, word: usize, order: Ordering) -> u32 {
        self.beside.window[word].load(order)
    }
    fn store_window(&self, word: usize, value: u32, order: Ordering) {
        self.beside.window[word].store(value, order);
    }
    fn starving(&self) -> bool {
        self.beside.starving.load(Ordering::SeqCst) != 0
    }
    fn starve(&self, starving: bool) {
        self.beside.starving.store(starving.into(), Ordering::SeqCst);
    }
}

/// Frame number `n`; every word tells its number.
pub(super) fn frame(n: u32) -> Header {
    Header::new(Kind::Rts, n, n, n, n, n.into())
}

/// Writes frame number `n`; false if there is no room.
pub(super) fn push(writer: &mut Writer<Modelled>, n: u32) -> bool {
    writer.push(&frame(n), &NoBytes).expect("the reader is honest")
}

/// The next frame, if there is one.
pub(super) fn next(reader: &mut Reader<Modelled>) -> Option<Header> {
    reader.read().expect("the writer is honest").map(|(header, _)| header)
}

/// Runs a check under every order of accesses with at most so many preemptions.
pub(super) fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

/// A modelled transport's memory ordering of `fences::light` towards a reader without one-sided fences.
pub(super) fn fence_of_writer() {
    fence(Ordering::SeqCst);
}
