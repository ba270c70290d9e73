//! Persistent operations of all ranks. Each is made at its first call, and is started again by each further call.

use crate::ends::{Open, restarted};
use crate::joint::{Site, own};
use std::cell::RefCell;
use std::rc::Rc;
use tickwire::{Engine, Persistent, PostError, op};

/// Elements of the two operations. One goes by short messages. The other goes by long messages in several pieces.
const COUNTS: [usize; 2] = [20, 6_000];

/// An operation, and whether it was started and its end was not seen yet.
pub(crate) struct Sum {
    pub(crate) operation: Persistent<(Vec<u64>, Vec<u64>)>,
    pub(crate) is_open: bool,
}

/// The operations of one rank, in the order of their counts.
#[derive(Default)]
pub(crate) struct Sums([Option<Rc<RefCell<Sum>>>; 2]);

impl Sums {
    /// Starts one of the operations with elements of this call. Returns `None` if it is still open. Then it is open on
    /// all ranks: when all is quiet, everything that was started has ended everywhere, even if a rank has died, and
    /// calls that are made together are made by all ranks.
    pub(crate) fn start(&mut self, engine: &mut Engine, site: Site, is_long: bool) -> Option<Result<Open, PostError>> {
        let (place, count) = (&mut self.0[usize::from(is_long)], COUNTS[usize::from(is_long)]);
        if place.is_none() {
            // A persistent operation is always on the world, while other calls use the communicators in turn.
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
