//! A reference model of window memory. Random programs run over all kinds of windows. Some allowed order of operations
//! must explain every value that an operation returned, and every element at the end.
//!
//! A program is a list of phases. All ranks begin a phase together.
//! - *Fenced*: puts, gets and updates between two fences. An element that was put must hold one of the put values. The
//!   values of an updated element must be explained by an order of its updates that keeps the order of each origin.
//! - *Posted*: as *Fenced*, between `win_start` and `win_complete` for a group of all ranks. Some ranks end their
//!   exposure by `win_test`, others by `win_wait`.
//! - *Shared*: updates under `win_lock_all`, explained in the same way.
//! - *Locked*: sections under a lock of one rank. Sections that hold the lock alone are serial. Each of them increments
//!   a number in the part, by a get and a put, which tells their order. Sections that share the lock see what one of
//!   the serial sections has left. A section in the own part may have it lent as a slice.
//! - *Exposed*: as *Fenced*, on regions that the ranks expose and withdraw. A region begins as a copy of the own part,
//!   which stays as it is. Keys of withdrawn regions are used in every way: that is an error, and changes nothing.
//!
//! Operations with a stride have datatypes. A phase begins with the memory that the phase before has left.

mod explain;
mod exposed;
mod player;
mod program;

use crate::kit::{ALL, FABRICS, Over, each_rank};
use explain::explain;
use player::{Played, play};
use program::{COUNT, Program, TICKET, program};
use proptest::prelude::*;
use std::sync::Mutex;
use tickwire_tests::one_sided::{HEAP, KINDS, Parts};

/// The kinds of windows that are made over a way to reach their parts.
fn kinds(over: Over) -> &'static [&'static str] {
    match over {
        Over::Heap => &["allocated", "created", "attached", HEAP],
        // Both ways share memory, where only listed memory is reached without the target's engine.
        Over::Shm | Over::Process => &KINDS,
        _ => &KINDS[..3],
    }
}

/// Plays a program on each kind of window, and explains what was seen.
fn check(over: Over, program: &Program) {
    let kinds = kinds(over);
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
