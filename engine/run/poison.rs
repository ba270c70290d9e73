//! Poisoning an engine: after a panic in code of the application, or because the engine's tables are not where they were.

use crate::run::engine::{Closed, Engine, Looks};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwire_components::{RequestError, posting};
use tickwire_systems::protocols::board::leave;
use tickwire_systems::store::words_of;

impl Engine {
    #[cold]
    pub(crate) fn poison(&mut self, panic: &(dyn std::any::Any + Send)) {
        // The code that panicked may have moved tables, so they are checked before a row is read.
        let _ = self.store.verify();
        let words = words_of(panic);
        self.close_poisoned(words);
    }

    /// Whether the world is lost: the tables are not where they were. If so, the engine is poisoned.
    #[cold]
    pub(crate) fn is_lost(&mut self) -> bool {
        let Some(words) = self.store.lost() else { return false };
        if self.closed == Closed::No {
            self.close_poisoned(words);
        }
        true
    }

    #[cold]
    pub(crate) fn close_poisoned(&mut self, words: String) {
        if self.store.lost().is_some() {
            // These lists name rows of endpoints, and there are no endpoints any more.
            (self.holders, self.prompt, self.others) = Default::default();
            self.looks = Looks::Rings;
            self.allow_deliver(false);
        }
        // No later tick reports the work done so far.
        self.take_work();
        // From here on no call touches memory of the application, and neither does a transport.
        (self.closed, self.quick) = (Closed::Poisoned(words.clone()), false);
        self.store.progress().posting |= posting::CLOSED;
        for endpoint in self.store.endpoints() {
            // If one transport panics here, the others must still be told.
            let _ = catch_unwind(AssertUnwindSafe(|| endpoint.transport.get().give_memory_back()));
        }
        // The engine leaves its boards, too. A transport may panic again.
        let all = self.store.all();
        let _ = catch_unwind(AssertUnwindSafe(|| {
            all.boards.open_ones().for_each(|members| leave(&members.seats, all.endpoints));
        }));
        // Submitters of operations that are done still get their answers.
        let _ = self.answer_submissions();
        self.refuse_submissions();
        // Callbacks are told of the first panic. Panics of the callbacks themselves change nothing.
        self.store.all().callbacks.tell_all(&Err(RequestError::Poisoned(words.clone())));
        self.call_disappointed();
        // The sink itself may have panicked.
        let _ = catch_unwind(AssertUnwindSafe(|| self.tell_error(&format!("the engine is poisoned: {words}"))));
    }
}
