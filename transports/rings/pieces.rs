//! The progress of the pieces of spliced messages, which pass beside a ring, through two pipes in turn. It is kept in two words next to the
//! ring.
//!
//! All pieces of a connection are numbered in sequence. *Put* is the number of the next piece that the writer of the ring (the putter) will
//! put into its pipe. *Taken* is the number of the next piece that the reader of the ring (the taker) will take out. A pipe holds one
//! piece. The taker asks for pieces by a frame.
//!
//! If the taker does not want to wait any longer, it *skips* the pieces that it has asked for and not got: it advances *put* past them. The
//! putter notices that when it tries to report a piece as put. The piece is still in its pipe then, and the putter takes it out again. So a
//! pipe is empty before each piece that is put into it.

use super::atomics::Ordering;

/// Access to the two words.
pub trait PieceMemory {
    /// Number of the next piece to be put.
    fn load_put(&self, order: Ordering) -> u32;
    /// Replaces that number if it is still `before`.
    fn exchange_put(&self, before: u32, after: u32) -> bool;
    /// Replaces that number. Returns the previous one.
    fn swap_put(&self, after: u32) -> u32;
    /// Number of the next piece to be taken.
    fn load_taken(&self, order: Ordering) -> u32;
    /// Sets that number.
    fn store_taken(&self, taken: u32, order: Ordering);
}

/// Pipes of one direction of a connection, used in turn. Each pipe has a lock, so the putter can work in one while the taker works in the
/// other.
pub const PIPES: usize = 2;

/// The pipe that a piece goes through.
#[inline]
pub const fn pipe_of(piece: u32) -> usize {
    piece as usize % PIPES
}

/// Whether the putter may put a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Its pipe is empty.
    Free,
    /// There is an older piece in its pipe.
    Full,
    /// The taker no longer waits for this piece.
    Over,
}

/// Putter: whether a piece may be put into its pipe.
#[inline]
pub fn room<M: PieceMemory>(memory: &M, piece: u32) -> Room {
    if memory.load_put(Ordering::Relaxed) != piece {
        return Room::Over;
    }
    // Acquire: the piece that `taken` counts is really out of its pipe.
    match piece.wrapping_sub(memory.load_taken(Ordering::Acquire)) {
        0..2 => Room::Free,
        _ => Room::Full,
    }
}

/// Putter: reports that a piece is in its pipe. `false` if the taker no longer waits for it.
#[inline]
pub fn put<M: PieceMemory>(memory: &M, piece: u32) -> bool {
    memory.exchange_put(piece, piece.wrapping_add(1))
}

/// Taker: whether a piece is in its pipe.
#[inline]
pub fn is_put<M: PieceMemory>(memory: &M, piece: u32) -> bool {
    memory.load_put(Ordering::Acquire).wrapping_sub(piece).wrapping_sub(1) < PIPES as u32
}

/// Taker: reports that a piece is out of its pipe.
#[inline]
pub fn take<M: PieceMemory>(memory: &M, piece: u32) {
    memory.store_taken(piece.wrapping_add(1), Ordering::Release);
}

/// Taker: skips the pieces from `piece` on and before `next`, except those that are in their pipes already. Returns how many those are. The
/// next piece then has the number `next`.
pub fn skip<M: PieceMemory>(memory: &M, piece: u32, next: u32) -> u32 {
    let put = memory.swap_put(next);
    memory.store_taken(next, Ordering::Release);
    // Whatever a hostile peer writes, the result is at most what the pipes hold.
    put.wrapping_sub(piece).min(next.wrapping_sub(piece)).min(PIPES as u32)
}

#[cfg(all(test, not(tickwire_loom)))]
pub(super) mod tests {
    use super::*;
    use std::cell::Cell;

    /// The two words of one thread.
    #[derive(Default)]
    pub(crate) struct Words {
        pub(crate) put: Cell<u32>,
        pub(crate) taken: Cell<u32>,
    }

    impl PieceMemory for Words {
        fn load_put(&self, _: Ordering) -> u32 {
            self.put.get()
        }
        fn exchange_put(&self, before: u32, after: u32) -> bool {
            self.put.get() == before && self.put.replace(after) == before
        }
        fn swap_put(&self, after: u32) -> u32 {
            self.put.replace(after)
        }
        fn load_taken(&self, _: Ordering) -> u32 {
            self.taken.get()
        }
        fn store_taken(&self, taken: u32, _: Ordering) {
            self.taken.set(taken);
        }
    }

    #[test]
    fn numbers_go_on_behind_the_last_one() {
        for start in [0, u32::MAX - 1] {
            let words = Words { put: Cell::new(start), taken: Cell::new(start) };
            let number = |n: u32| start.wrapping_add(n);
            for n in 0..2 {
                assert_eq!((room(&words, number(n)), room(&words, number(n + 1))), (Room::Free, Room::Over));
                assert!(!is_put(&words, number(n)) && put(&words, number(n)) && !put(&words, number(n)));
                assert!(is_put(&words, number(n)));
            }
            assert_eq!(room(&words, number(2)), Room::Full);
            take(&words, number(0));
            assert_eq!(room(&words, number(2)), Room::Free);
            assert!(put(&words, number(2)) && is_put(&words, number(1)));
            take(&words, number(1));
            // Two of seven were asked for and are there, the fourth is not, and the fifth comes with the next question.
            assert!(put(&words, number(3)) && is_put(&words, number(2)));
            assert_eq!(skip(&words, number(2), number(7)), 2);
            assert!(!put(&words, number(4)) && room(&words, number(4)) == Room::Over);
            assert_eq!(room(&words, number(7)), Room::Free);
            assert_eq!(skip(&words, number(7), number(8)), 0);
        }
    }

    #[test]
    fn words_that_cannot_be_are_no_pieces() {
        for (put, taken) in [(100, 0), (3, 100), (u32::MAX, 5), (4, 4)] {
            let words = Words { put: Cell::new(put), taken: Cell::new(taken) };
            assert!(!is_put(&words, 5));
            let there = skip(&words, 5, 9);
            assert!(there <= PIPES as u32, "{there}");
            assert_eq!((words.put.get(), words.taken.get()), (9, 9));
        }
    }
}
