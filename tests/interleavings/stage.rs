//! Ranks as coroutines of one thread. They take turns at moments that a seed chooses.

use generator::{Generator, Gn};
use std::cell::RefCell;
use tickwire::testing::SplitMix;

/// Words of a rank's stack.
const STACK_WORDS: usize = 1 << 17;
/// A rank that has not begun does so in one of this many of its turns.
const BEGINS: u64 = 16;
/// Turns after which all must be over. Far more than any seed takes.
const TURNS_MAX: usize = 1_000_000;
/// Further turns, in which each rank may say what it waits for.
const LAST_WORDS: usize = 10_000;

/// What a rank does, from the making of its engine to its end.
pub(crate) type Rank = Box<dyn FnOnce() + Send>;

/// The choice of moments.
struct Moments {
    random: SplitMix,
    /// How many of 256 moments end a turn.
    of_256: u64,
    is_late: bool,
}

thread_local! {
    /// Empty while no rank is on.
    static MOMENTS: RefCell<Option<Moments>> = const { RefCell::new(None) };
}

/// Lets the ranks go on in turns until all have ended.
///
/// # Panics
/// If a rank panics, or they do not end.
pub(crate) fn run(seed: u64, of_256: u64, ranks: Vec<Rank>) {
    MOMENTS.set(Some(Moments { random: SplitMix::new(!seed), of_256, is_late: false }));
    let mut random = SplitMix::new(seed);
    let mut ranks: Vec<(bool, Generator<'_, (), ()>)> =
        ranks.into_iter().map(|rank| (false, Gn::new_opt(STACK_WORDS, rank))).collect();
    let mut turns = 0;
    while !ranks.is_empty() {
        turns += 1;
        assert!(turns < TURNS_MAX + LAST_WORDS, "seed {seed}: {} ranks do not end", ranks.len());
        if turns == TURNS_MAX {
            MOMENTS.with_borrow_mut(|moments| moments.as_mut().expect("it is on").is_late = true);
        }
        let at = random.below(ranks.len() as u64) as usize;
        let (has_begun, rank) = &mut ranks[at];
        if !*has_begun && random.below(BEGINS) != 0 {
            continue;
        }
        *has_begun = true;
        rank.resume();
        if rank.is_done() {
            ranks.swap_remove(at);
        }
    }
    MOMENTS.set(None);
}

/// A moment at which the turn of a rank may end.
pub(crate) fn moment() {
    // After a panic, all ranks end without any more turns.
    if std::thread::panicking() {
        return;
    }
    let is_last = |moments: &mut Option<Moments>| {
        let Some(Moments { random, of_256, .. }) = moments else { return false };
        random.below(256) < *of_256
    };
    if MOMENTS.try_with(|moments| is_last(&mut moments.borrow_mut())).unwrap_or(false) {
        end_turn();
    }
}

/// Ends the turn of a rank.
#[expect(deprecated, reason = "a scope cannot be passed through the engine")]
pub(crate) fn end_turn() {
    generator::yield_with(());
}

/// Whether ranks should have ended long ago.
pub(crate) fn is_late() -> bool {
    MOMENTS.with_borrow(|moments| moments.as_ref().is_some_and(|moments| moments.is_late))
}
