//! A reference model of window memory. Random programs run over all kinds of windows, and every value that an operation returns and every
//! element that is left must be explained by an order that is allowed.
//!
//! A program is a list of phases, which all ranks begin together:
//! - *Fenced*: puts, gets and updates between two fences; *Posted*: the same between `win_start` and `win_complete`, for a group of all. An element that was put has one of the values that were put. An element that was
//!   updated is explained by an order of its updates that keeps the order of each origin.
//! - *Shared*: updates under `win_lock_all`, explained in the same way.
//! - *Locked*: sections under a lock of one rank. Sections that are alone are serial: a number in the part, which each of them increments by
//!   a get and a put, says in which order they were. Sections that share the lock see what one of those has left.
//!
//! Operations with a stride have datatypes. What a phase leaves is what the next one begins with.

mod explain;
mod player;
mod program;

use crate::kit::{ALL, FABRICS, Over, each_rank};
use explain::explain;
use player::{Played, play};
use program::{COUNT, Program, TICKET, program};
use proptest::prelude::*;
use std::sync::Mutex;
use tickwire_tests::one_sided::{HEAP, Parts};

/// Kinds of windows.
const KINDS: [&str; 4] = ["allocated", "created", "attached", HEAP];

/// Plays a program on each kind of window, and explains what was seen.
fn check(over: Over, program: &Program) {
    let kinds = if over == Over::Heap { &KINDS[..] } else { &KINDS[..3] };
    let played: Vec<Mutex<Vec<Option<Played>>>> =
        kinds.iter().map(|_| Mutex::new((0..program.ranks).map(|_| None).collect())).collect();
    each_rank(program.ranks, over, |engine, rank, world| {
        for (kind, played) in kinds.iter().zip(&played) {
            let parts = Parts::make(engine, kind, COUNT + 1, world).unwrap();
            let own = play(engine, program, rank, &parts, world);
            played.lock().unwrap()[rank as usize] = Some(own);
            engine.win_free(parts.window).unwrap();
        }
    });
    for played in played {
        let played: Vec<Played> = played.into_inner().unwrap().into_iter().map(Option::unwrap).collect();
        explain(program, &played);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_windows_hold_is_explained(program in program()) {
        const { assert!(TICKET == COUNT) };
        for over in ALL {
            check(over, &program);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_windows_over_fabrics_hold_is_explained(program in program()) {
        for over in FABRICS {
            check(over, &program);
        }
    }
}
