//! Staging: what is taken was put, and nobody writes where the other side reads.

use super::kit::model;
use crate::rings::atomics::{AtomicU64, Ordering};
use crate::rings::staging::{self, Position, Room, StagingWords};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use tickwire_components::limits::STAGING_BYTES;

/// Bytes that are put at once here: the buffer holds two of these pieces.
const PIECE: Position = STAGING_BYTES as Position / 2;

/// The words beside a ring, and a buffer of two pieces, each with the position that was put there last.
#[derive(Default)]
struct Shared {
    put: AtomicU64,
    taken: AtomicU64,
    buffer: [UnsafeCell<Position>; 2],
}

impl StagingWords for Arc<Shared> {
    fn load_put(&self, order: Ordering) -> Position {
        self.put.load(order)
    }
    fn store_put(&self, put: Position, order: Ordering) {
        self.put.store(put, order);
    }
    fn load_taken(&self, order: Ordering) -> Position {
        self.taken.load(order)
    }
    fn store_taken(&self, taken: Position, order: Ordering) {
        self.taken.store(taken, order);
    }
}

impl Shared {
    fn place(&self, at: Position) -> &UnsafeCell<Position> {
        &self.buffer[(at / PIECE) as usize % 2]
    }
}

/// Pieces that are asked for by questions of three and one.
const QUESTIONS: [std::ops::Range<Position>; 2] = [0..3, 3..4];

#[test]
#[expect(unsafe_code, reason = "cells whose accesses are checked")]
fn loom_staged_bytes_are_taken_in_order_or_given_up() {
    model(3, || {
        let shared = Arc::new(Shared::default());
        let asked = Arc::new(AtomicU64::new(0));
        let (putting, heard) = (shared.clone(), asked.clone());
        let putter = thread::spawn(move || {
            let mut piece = 0;
            // As often as pieces can be put or find no room at all.
            for _ in 0..6 {
                if piece >= heard.load(Ordering::Acquire) {
                    thread::yield_now();
                    continue;
                }
                let at = piece * PIECE;
                match staging::room(at, staging::taken(&putting)) {
                    Room::Full => thread::yield_now(),
                    Room::Over => piece = QUESTIONS[0].end.max(piece + 1),
                    Room::Free(free) => {
                        assert!(free >= PIECE as usize);
                        // SAFETY: loom finds accesses at the same time.
                        putting.place(at).with_mut(|place| unsafe { *place = at + 1 });
                        staging::put(&putting, at + PIECE);
                        piece += 1;
                    }
                }
            }
        });
        for question in QUESTIONS {
            asked.store(question.end, Ordering::Release);
            for piece in question.clone() {
                let at = piece * PIECE;
                // The reader looks once, and has lost its patience then.
                if staging::there(&shared, at) < PIECE as usize {
                    break;
                }
                // SAFETY: as above.
                let found = shared.place(at).with(|place| unsafe { *place });
                assert_eq!(found, at + 1, "what is said to be there is there");
                staging::take(&shared, at, PIECE as usize);
            }
            staging::skip(&shared, question.end * PIECE);
        }
        putter.join().expect("no panic");
    });
}
