//! Persistent operations of all ranks: made when they are first called, and started again by each call.

use crate::ends::{Open, restarted};
use crate::joint::{Site, own};
use std::cell::RefCell;
use std::rc::Rc;
use tickwire::{Engine, Persistent, PostError, op};

/// Elements of each operation: one goes by short messages, one by long ones in several pieces.
const COUNTS: [usize; 2] = [20, 6_000];

/// An operation, and whether it has been started and has not been seen to end.
pub(crate) struct Sum {
    pub(crate) operation: Persistent<(Vec<u64>, Vec<u64>)>,
    pub(crate) is_open: bool,
}

/// Those of one rank, by their counts.
#[derive(Default)]
pub(crate) struct Sums([Option<Rc<RefCell<Sum>>>; 2]);

impl Sums {
    /// Starts one of them with elements of a call; `None` if it is still open. It is on all ranks then: what was started has ended everywhere
    /// when all is quiet, also where a rank has died, and calls that are made together are made by all.
    pub(crate) fn start(&mut self, engine: &mut Engine, site: Site, is_long: bool) -> Option<Result<Open, PostError>> {
        let (place, count) = (&mut self.0[usize::from(is_long)], COUNTS[usize::from(is_long)]);
        if place.is_none() {
            // Persistent operations are always of the world: communicators take turns with calls.
            let world = engine.comm_world();
            let made = engine.allreduce_init(vec![0; count], vec![0; count], op::Sum, world);
            let operation = match made {
                Ok(operation) => operation,
                Err(rejected) => return Some(Err(rejected.error)),
            };
            *place = Some(Rc::new(RefCell::new(Sum { operation, is_open: false })));
        }
        let sum = place.as_ref()?;
        let mut borrowed = sum.borrow_mut();
        if borrowed.is_open {
            return None;
        }
        let begun = engine.buffer(&mut borrowed.operation).map(|(send, _)| send.copy_from_slice(&own(site, count)));
        if let Err(error) = begun.and_then(|()| engine.start(&borrowed.operation)) {
            return Some(Err(error));
        }
        borrowed.is_open = true;
        let id = borrowed.operation.id();
        drop(borrowed);
        Some(Ok(restarted(id, (site.call, site.rank), sum.clone())))
    }
}
