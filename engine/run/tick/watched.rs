//! Deliver where somebody watches: a sink, a profiler, or open receipts. It takes frames by the same steps as where nobody does.

use crate::run::engine::Engine;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwire_components::Pending;
use tickwire_systems::procs::receipts::note_delivered;
use tickwire_systems::tick::deliver::{deliver, look_and_deliver};

impl Engine {
    /// Runs Deliver where somebody watches. Returns whether anything is pending afterwards. If a watcher panics, the engine is poisoned,
    /// and nothing more is done.
    #[inline(never)]
    pub(super) fn deliver_watched(&mut self) -> bool {
        let Engine { watching, store, .. } = self;
        let is_open = if watching.tells() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| watching.deliver(&mut store.as_mut()))) {
                self.poison(&*panic);
                return false;
            }
            !self.observer.receipts || self.store.with(|rows, _| note_delivered(rows))
        } else {
            store.with(|rows, wire| {
                deliver(rows, wire);
                note_delivered(rows)
            })
        };
        // The next message may have a receipt too, so the engine looks for receipts until a message has none.
        if !is_open {
            self.end_receipts();
        }
        self.store.progress().pending != Pending::NONE
    }

    /// Looks at a prompt endpoint where somebody watches. Returns how many messages it has delivered; none if a watcher has panicked.
    #[inline(never)]
    pub(super) fn look_promptly_watched(&mut self, row: usize, most: u32, patient: bool) -> u32 {
        let Engine { watching, store, .. } = self;
        let look = || match watching.tells() {
            true => watching.look_and_deliver(&mut store.as_mut(), row, most, patient),
            false => store.with(|rows, wire| look_and_deliver(rows, &mut wire.endpoints[row], most, patient)),
        };
        let count = match catch_unwind(AssertUnwindSafe(look)) {
            Ok(count) => count,
            Err(panic) => {
                self.poison(&*panic);
                return 0;
            }
        };
        if count != 0 && self.observer.receipts {
            self.note_deliveries();
        }
        count
    }

    /// Notes in receipts what Deliver has done. The next message may have a receipt too, so the engine looks for receipts until a message
    /// has none.
    fn note_deliveries(&mut self) {
        if !self.store.with(|rows, _| note_delivered(rows)) {
            self.end_receipts();
        }
    }
}
