//! How an engine is poisoned: by a panic of the application's code, or because its tables are not where they were.

use crate::run::engine::{Closed, Engine, Looks};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwire_components::{RequestError, posting};
use tickwire_systems::protocols::board::leave;
use tickwire_systems::store::words_of;

impl Engine {
    #[cold]
    pub(crate) fn poison(&mut self, panic: &(dyn std::any::Any + Send)) {
        // Whoever panicked may have moved tables before: they are looked at before a row is.
        let _ = self.store.verify();
        let words = words_of(panic);
        self.close_poisoned(words);
    }

    /// Whether the world is lost; the engine is poisoned then.
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
            // These are rows of endpoints, of which there are none any more.
            (self.holders, self.prompt, self.others) = Default::default();
            self.looks = Looks::Rings;
            self.allow_deliver(false);
        }
        // What was done so far is told of by no tick any more.
        self.take_work();
        // From here on no call touches memory of the application, and neither does a transport.
        self.closed = Closed::Poisoned(words.clone());
        self.store.progress().posting |= posting::CLOSED;
        for endpoint in self.store.endpoints() {
            // One that panics has told so by itself, and the others still have to be told.
            let _ = catch_unwind(AssertUnwindSafe(|| endpoint.transport.get().give_memory_back()));
        }
        // Nor does it take part in operations on boards. A transport may panic again.
        let all = self.store.all();
        let _ = catch_unwind(AssertUnwindSafe(|| {
            all.boards.open_ones().for_each(|members| leave(&members.seats, all.endpoints));
        }));
        // What is done is done, whoever else has panicked.
        let _ = self.answer_submissions();
        self.refuse_submissions();
        // The first panic is told; those of who hears of it change nothing.
        self.store.all().callbacks.tell_all(&Err(RequestError::Poisoned(words.clone())));
        self.call_disappointed();
        // A sink may have been who panicked.
        let _ = catch_unwind(AssertUnwindSafe(|| self.tell_error(&format!("the engine is poisoned: {words}"))));
    }
}
