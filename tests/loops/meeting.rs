//! How the ranks of a cluster meet before the calls that are compared.

use crate::calls::{Call, How, Shape, What};
use crate::side::Side;
use tickwire::{Agreed, Engine};
use tickwire_tests::cases::BOUND;

impl Side {
    /// Everybody meets everybody, so that what follows does not depend on who connects when.
    pub(crate) fn meet(&mut self) {
        let ranks = self.cluster.engines.len();
        for from in 0..ranks {
            for to in 0..ranks {
                let call = Call { rank: to, what: receive_one(from) };
                self.call(usize::MAX, &call);
                let what = What::Send { to: to as u64, tag: 0, length: 8, how: How::Standard(Shape::OneRun) };
                self.call(usize::MAX, &Call { rank: from, what });
                self.settle();
            }
        }
    }

    /// Makes another communicator. How often engines look for each other's words meanwhile is not to be compared.
    pub(crate) fn agree(&mut self) {
        let work = self.work.clone();
        let start = |engine: &mut Engine| engine.start_dup(engine.comm_world()).unwrap();
        let mut agreements: Vec<_> = self.cluster.engines.iter_mut().map(start).collect();
        let mut made = vec![None; agreements.len()];
        for round in 0.. {
            assert!(round < BOUND, "they do not agree: {}", self.cluster.report());
            let each = self.cluster.engines.iter_mut().zip(&mut agreements).zip(&mut made);
            for ((engine, agreement), made) in each.filter(|(_, made)| made.is_none()) {
                if let Agreed::Done(comm) = engine.test_agreement(agreement).unwrap() {
                    *made = comm;
                }
            }
            if made.iter().all(Option::is_some) {
                break;
            }
            self.tick();
        }
        self.others = made.into_iter().flatten().collect();
        self.settle();
        self.work = work;
    }
}

/// A receive of the one message that a rank sends when it is met.
fn receive_one(from: usize) -> What {
    What::Receive { source: Some(from as u64), tag: Some(0), room: 8, shape: Shape::OneRun }
}
