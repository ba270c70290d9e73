//! A reference model of window memory. Random programs run over all kinds of windows, and every value that an operation returns and every
//! element that is left must be explained by an order that is allowed.
//!
//! A program is a list of phases, which all ranks begin together:
//! - *Fenced*: puts, gets and updates between two fences. An element that was put has one of the values that were put. An element that was
//!   updated is explained by an order of its updates that keeps the order of each origin.
//! - *Shared*: updates under `win_lock_all`, explained in the same way.
//! - *Locked*: sections under a lock of one rank. Sections that are alone are serial: a number in the part, which each of them increments by
//!   a get and a put, says in which order they were. Sections that share the lock see what one of those has left.
//!
//! What a phase leaves is what the next one begins with.

mod explain;
mod player;
mod program;

use crate::kit::{ALL, Over, each_rank, windows};
use explain::explain;
use player::{Played, play};
use program::{COUNT, Program, TICKET, program};
use proptest::prelude::*;
use std::sync::Mutex;

/// Plays a program on both kinds of windows, and explains both.
fn check(over: Over, program: &Program) {
    let played: [Mutex<Vec<Option<Played>>>; 2] =
        [(); 2].map(|()| Mutex::new((0..program.ranks).map(|_| None).collect()));
    each_rank(program.ranks, over, |engine, rank, world| {
        for (window, played) in windows(engine, COUNT + 1, world).into_iter().zip(&played) {
            let own = play(engine, program, rank, window, world);
            played.lock().unwrap()[rank as usize] = Some(own);
            engine.win_free(window).unwrap();
        }
    });
    for played in played {
        let played: Vec<Played> = played.into_inner().unwrap().into_iter().map(Option::unwrap).collect();
        explain(program, &played);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_windows_hold_is_explained(program in program()) {
        const { assert!(TICKET == COUNT) };
        for over in ALL {
            check(over, &program);
        }
    }
}
