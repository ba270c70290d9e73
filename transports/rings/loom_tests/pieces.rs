//! Spliced pieces: taken in order, or taken out again.

use super::kit::model;
use crate::rings::atomics::{AtomicU32, Ordering};
use crate::rings::pieces::{self, PIPES, PieceMemory, Room};
use loom::sync::Arc;
use loom::thread;

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
