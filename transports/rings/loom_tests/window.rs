//! The credit window: its values are read whole.

use super::kit::{Modelled, model};
use crate::rings::window::{Granter, Spender};
use loom::thread;
use tickwire_components::credit::Credit;

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
