//! How the ranks of a cluster are connected before the calls that are compared.

use crate::calls::{Call, How, Shape, What};
use crate::side::Side;
use tickwire::{Agreed, Engine};
use tickwire_tests::cases::BOUND;

impl Side {
    /// Connects each rank to each other one. Otherwise the comparison would depend on when ranks connect.
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

    /// Makes another communicator. Its work is not counted: how often engines poll for each other's messages here may
    /// differ.
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

/// A receive of the message that connects to a rank.
fn receive_one(from: usize) -> What {
    What::Receive { source: Some(from as u64), tag: Some(0), room: 8, shape: Shape::OneRun }
}
