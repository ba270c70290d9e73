//! How an engine answers those who ask for a dump.

use super::door::Visitor;
use crate::run::engine::Engine;
use std::io::{self, Write};

impl Engine {
    /// Gives dumps to whoever asks.
    #[cold]
    pub(crate) fn answer_visitors(&mut self) {
        let Some(door) = &self.observer.door else { return };
        let (signalled, mut new) = (door.signalled(), door.accept());
        if signalled {
            let words = self.dump().to_string();
            // A closed stderr is no reason to fail.
            let _ = io::stderr().write_all(words.as_bytes());
        }
        while let Some(stream) = new {
            // Cannot fail: a dump has no maps with keys that are no strings.
            let answer = serde_json::to_vec(&self.dump()).unwrap_or_default();
            let since_ns = self.store.progress().now_ns;
            let Some(door) = &mut self.observer.door else { return };
            door.visitors.push(Visitor { stream, answer, written: 0, since_ns });
            new = door.accept();
        }
        let now_ns = self.store.progress().now_ns;
        if let Some(door) = &mut self.observer.door {
            door.serve(now_ns);
        }
    }
}
