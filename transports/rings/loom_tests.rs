//! Models that loom runs under every order of accesses that the memory model allows.
//!
//! `RUSTFLAGS="--cfg tickwire_loom" cargo test -p tickwire-transports --lib loom`. One-sided fences are not modelled:
//! a system call orders them. The models take the way of a kernel without them, where each writer fences.

use super::atomics::{AtomicU32, AtomicU64, Ordering, fence};
use super::inbox::Inbox;
use super::pieces::{self, PIPES, PieceMemory, Room};
use super::ring::{Reader, RingMemory, Writer};
use super::window::{self, Granter, Spender};
use loom::sync::Arc;
use loom::thread;
use tickwire_components::credit::Credit;
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
struct Modelled {
    words: Arc<Vec<AtomicU64>>,
    beside: Arc<Beside>,
}

impl Modelled {
    fn new(watched: bool) -> Self {
        let beside = Beside {
            released: AtomicU64::new(0),
            watched: AtomicU32::new(watched.into()),
            starving: AtomicU32::new(0),
            window: std::array::from_fn(|_| AtomicU32::new(0)),
        };
        Modelled { words: words(WORDS), beside: Arc::new(beside) }
    }

    /// The same ring with data twice as long.
    fn larger(&self) -> Self {
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
fn frame(n: u32) -> Header {
    Header::new(Kind::Rts, n, n, n, n, n.into())
}

fn push(writer: &mut Writer<Modelled>, n: u32) -> bool {
    writer.push(&frame(n), &NoBytes).expect("the reader is honest")
}

fn next(reader: &mut Reader<Modelled>) -> Option<Header> {
    reader.read().expect("the writer is honest").map(|(header, _)| header)
}

fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

/// A modelled transport's memory ordering of `fences::light` towards a reader without one-sided fences.
fn fence_of_writer() {
    fence(Ordering::SeqCst);
}

#[test]
fn loom_frames_arrive_whole_and_in_order_around_the_ring() {
    model(3, || {
        let memory = Modelled::new(true);
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
        // Three of the four frames that fit have come and gone, so that the next ones go around.
        for n in 1..=3 {
            assert!(push(&mut writer, n));
            assert_eq!(next(&mut reader), Some(frame(n)));
        }
        let _ = reader.release();
        let thread = thread::spawn(move || {
            let mut sent = 4;
            while sent <= 6 {
                if push(&mut writer, sent) {
                    sent += 1;
                } else {
                    thread::yield_now();
                }
            }
        });
        let mut expected = 4;
        while expected <= 6 {
            match next(&mut reader) {
                Some(header) => {
                    assert_eq!(header, frame(expected));
                    expected += 1;
                    let _ = reader.release();
                }
                None => thread::yield_now(),
            }
        }
        assert_eq!(next(&mut reader), None);
        thread.join().expect("no panic");
    });
}

#[test]
fn loom_a_ring_goes_on_in_a_larger_one_without_a_frame_lost() {
    model(3, || {
        let small = Modelled::new(true);
        let large = small.larger();
        let (mut writer, mut reader) = (Writer::new(small.clone()), Reader::new(small));
        assert!(reader.follow_to(large.clone()));
        for n in 1..=2 {
            assert!(push(&mut writer, n));
        }
        let thread = thread::spawn(move || {
            assert!(push(&mut writer, 3));
            writer.go_over(large);
            for n in 4..=5 {
                assert!(push(&mut writer, n), "what has not been read of the old one takes no more of the new one");
            }
        });
        let mut expected = 1;
        while expected <= 5 {
            match next(&mut reader) {
                Some(header) => {
                    assert_eq!(header, frame(expected));
                    expected += 1;
                    let _ = reader.release();
                }
                None => thread::yield_now(),
            }
        }
        assert_eq!(next(&mut reader), None);
        thread.join().expect("no panic");
    });
}

#[test]
fn loom_space_is_not_used_before_its_release() {
    model(3, || {
        let memory = Modelled::new(true);
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
        for n in 1..=3 {
            assert!(push(&mut writer, n));
        }
        let thread = thread::spawn(move || {
            // Does not fit: the word behind it is the first frame's until that is released.
            for _ in 0..2 {
                if push(&mut writer, 4) {
                    return true;
                }
                thread::yield_now();
            }
            false
        });
        let first = next(&mut reader);
        let offset = 0;
        // A payload would be used now: its bytes must still be there.
        assert_eq!(reader.memory().load(offset, Ordering::Relaxed), frame(1).lead);
        assert_eq!(first, Some(frame(1)));
        let _ = reader.release();
        assert_eq!(next(&mut reader), Some(frame(2)));
        assert_eq!(next(&mut reader), Some(frame(3)));
        if thread.join().expect("no panic") {
            assert_eq!(next(&mut reader), Some(frame(4)));
        }
        assert_eq!(next(&mut reader), None);
    });
}

#[test]
fn loom_an_announcement_is_never_lost() {
    model(3, || {
        let inbox = Arc::new(Inbox::default());
        let done = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        // Two slots of one word: the second writer's bit must survive the taking of the first one's.
        let threads: Vec<_> = (0..2u32)
            .map(|slot| {
                let (inbox, done) = (inbox.clone(), done.clone());
                thread::spawn(move || {
                    done[slot as usize].store(1, Ordering::Relaxed);
                    let _ = inbox.announce(slot);
                })
            })
            .collect();
        let mut seen = 0;
        let mut take = || {
            if let Some((first, bits)) = inbox.take() {
                assert_eq!(first, 0);
                for slot in 0..2 {
                    // What was written before an announcement is seen after it.
                    assert!(bits & (1 << slot) == 0 || done[slot].load(Ordering::Relaxed) == 1);
                }
                seen |= bits;
            }
        };
        take();
        take();
        for thread in threads {
            thread.join().expect("no panic");
        }
        take();
        take();
        assert_eq!(seen, 0b11);
    });
}

#[test]
fn loom_no_frame_is_lost_when_watching_stops() {
    model(3, || {
        let memory = Modelled::new(true);
        let inbox = Arc::new(Inbox::default());
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
        let announced = inbox.clone();
        let thread = thread::spawn(move || {
            assert!(push(&mut writer, 1));
            fence_of_writer();
            if !writer.memory().watched() {
                let _ = announced.announce(0);
            }
        });
        // As in `Links::stop_watching`.
        reader.memory().watch(false);
        fence(Ordering::SeqCst);
        let before = next(&mut reader);
        thread.join().expect("no panic");
        if before.is_none() {
            assert_eq!(inbox.take(), Some((0, 1)), "neither seen nor announced");
            assert_eq!(next(&mut reader), Some(frame(1)));
        }
    });
}

#[test]
fn loom_nobody_sleeps_with_a_frame_unseen() {
    model(3, || {
        let memory = Modelled::new(true);
        let inbox = Arc::new(Inbox::default());
        let bell = Arc::new(AtomicU32::new(0));
        let (mut writer, reader) = (Writer::new(memory.clone()), Reader::new(memory));
        let (announced, rung) = (inbox.clone(), bell.clone());
        let thread = thread::spawn(move || {
            assert!(push(&mut writer, 1));
            fence_of_writer();
            if !writer.memory().watched() && announced.announce(0) {
                rung.store(1, Ordering::Relaxed);
            }
        });
        // As in `Links::arm`.
        reader.memory().watch(false);
        fence(Ordering::SeqCst);
        let backlog = reader.ready();
        inbox.arm();
        fence(Ordering::SeqCst);
        let sleeps = !inbox.ready() && !backlog;
        thread.join().expect("no panic");
        assert!(!sleeps || bell.load(Ordering::Relaxed) == 1, "asleep with a frame unseen");
    });
}

#[test]
fn loom_a_call_wakes_a_sleeper() {
    model(3, || {
        let inbox = Arc::new(Inbox::default());
        let caller = inbox.clone();
        let thread = thread::spawn(move || caller.call());
        inbox.arm();
        fence(Ordering::SeqCst);
        let sleeps = !inbox.ready();
        let rings = thread.join().expect("no panic");
        assert!(!sleeps || rings, "asleep with a caller");
        assert!(inbox.called() && !inbox.called());
    });
}

#[test]
fn loom_a_writer_that_sleeps_for_room_is_told_of_it() {
    model(3, || {
        let memory = Modelled::new(true);
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
        // As many as fit: the word behind the last one must be free.
        for n in 1..=3 {
            assert!(push(&mut writer, n));
        }
        assert!(!push(&mut writer, 4));
        let thread = thread::spawn(move || {
            let mut told = false;
            for n in 1..=3 {
                assert_eq!(next(&mut reader), Some(frame(n)));
                told |= reader.release();
            }
            told
        });
        let sleeps = writer.starve();
        let told = thread.join().expect("the reader ends");
        assert!(!sleeps || told, "the writer sleeps, there is room, and nobody has told it");
        assert!(push(&mut writer, 4));
    });
}

#[test]
fn loom_a_window_value_is_read_whole_or_not_at_all() {
    model(2, || {
        let memory = Modelled::new(true);
        let other = memory.clone();
        let granting = thread::spawn(move || {
            let mut granter = Granter::default();
            // In every value that is written, both totals are the same.
            for more in [1, 10] {
                granter.grant(&other, Credit { lines: more, envelopes: more });
            }
        });
        let (mut spender, mut total) = (Spender::default(), 0);
        let Credit { lines, envelopes } = spender.collect(&memory);
        assert_eq!(lines, envelopes, "torn");
        total += lines;
        assert!([0, 1, 11].contains(&total));
        granting.join().expect("the other thread has not panicked");
        total += spender.collect(&memory).lines;
        assert_eq!(total, 11, "nothing is lost, nothing counted twice");
    });
}

/// The words beside a ring, and two pipes, each with the number of the piece that is in it; 0 is none.
#[derive(Default)]
struct Pipes {
    put: AtomicU32,
    taken: AtomicU32,
    pipes: [AtomicU32; PIPES],
}

impl PieceMemory for Arc<Pipes> {
    fn load_put(&self, order: Ordering) -> u32 {
        self.put.load(order)
    }
    fn exchange_put(&self, before: u32, after: u32) -> bool {
        self.put.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
    fn swap_put(&self, after: u32) -> u32 {
        self.put.swap(after, Ordering::AcqRel)
    }
    fn load_taken(&self, order: Ordering) -> u32 {
        self.taken.load(order)
    }
    fn store_taken(&self, taken: u32, order: Ordering) {
        self.taken.store(taken, order);
    }
}

impl Pipes {
    /// A pipe as the kernel has it: its lock orders what its users do.
    fn pipe(&self, piece: u32) -> &AtomicU32 {
        &self.pipes[pieces::pipe_of(piece)]
    }
}

/// Pieces that are asked for by questions of three and one.
const QUESTIONS: [std::ops::Range<u32>; 2] = [0..3, 3..4];

#[test]
fn loom_pieces_are_taken_in_order_or_taken_out_again() {
    model(3, || {
        let shared = Arc::new(Pipes::default());
        let asked = Arc::new(AtomicU32::new(0));
        let (putting, heard) = (shared.clone(), asked.clone());
        let putter = thread::spawn(move || {
            let mut piece = 0;
            // As often as pieces can be put or be full at all.
            for _ in 0..6 {
                if piece >= heard.load(Ordering::Acquire) {
                    thread::yield_now();
                    continue;
                }
                match pieces::room(&putting, piece) {
                    Room::Full => thread::yield_now(),
                    Room::Over => piece = QUESTIONS[0].end.max(piece + 1),
                    Room::Free => {
                        // Numbers from 1 on, to be told from none.
                        let before = putting.pipe(piece).swap(piece + 1, Ordering::AcqRel);
                        assert_eq!(before, 0, "a piece is put into an empty pipe");
                        if !pieces::put(&putting, piece) {
                            assert_eq!(putting.pipe(piece).swap(0, Ordering::AcqRel), piece + 1, "nobody else took it");
                        }
                        piece += 1;
                    }
                }
            }
        });
        for question in QUESTIONS {
            asked.store(question.end, Ordering::Release);
            let mut end = None;
            for piece in question.clone() {
                // The reader looks once, and has lost its patience then.
                if end.is_none() && !pieces::is_put(&shared, piece) {
                    end = Some(piece + pieces::skip(&shared, piece, question.end));
                }
                if end == Some(piece) {
                    break;
                }
                assert_eq!(
                    shared.pipe(piece).swap(0, Ordering::AcqRel),
                    piece + 1,
                    "what is said to be there is there"
                );
                if end.is_none() {
                    pieces::take(&shared, piece);
                }
            }
        }
        putter.join().expect("no panic");
        assert!(shared.pipes.iter().all(|pipe| pipe.load(Ordering::Relaxed) == 0), "nothing is left");
    });
}
