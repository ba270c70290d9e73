//! Waiting for a fabric that has memory of the caller.

use super::Route;
use crate::run::engine::Engine;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tickwire_components::limits::FABRIC_CALL_POLLS;
use tickwire_components::{NIL, WindowError};
use tickwire_systems::protocols::one_sided::fabric::take_failures;
use tickwire_transports::OneSided;

impl Engine {
    /// Waits until the operations on a route up to this one are complete, and notes which have failed.
    pub(super) fn complete_by_fabric(&mut self, route: Route, turn: u64) -> Result<(), WindowError> {
        let is_complete = |engine: &mut Engine| {
            let Some(fabric) = engine.fabric(route.endpoint) else { return true };
            // After this link has ended, another link may have got its number, with counts that begin anew.
            let is_over = |fabric: &dyn OneSided| {
                let channel = route.channel;
                fabric.completed(channel) >= turn || fabric.issued(channel) < turn
            };
            is_over(fabric) || {
                fabric.progress();
                is_over(fabric)
            }
        };
        let is_gone = |engine: &mut Engine| engine.is_gone(route.vc);
        // Sinks, launchers and transports of the application may panic while this waits.
        let look = || self.look_until(|engine| is_complete(engine) || is_gone(engine));
        let looked = catch_unwind(AssertUnwindSafe(look));
        if !matches!(looked, Ok(Ok(()))) {
            if looked.is_err() {
                // Rows may be gone.
                let _ = self.store.verify();
            }
            // The fabric has memory of the caller, and gives it back once the link has ended.
            if route.vc != NIL {
                let _ = catch_unwind(AssertUnwindSafe(|| self.cut_off(route.vc)));
            }
            self.outlast(is_complete);
            return looked.unwrap_or_else(|panic| resume_unwind(panic));
        }
        // If the link has ended, the transport gives all memory back within a bounded time.
        self.outlast(is_complete);
        let all = self.store.all();
        let now_ns = all.progress.now_ns;
        if let Some(fabric) = all.endpoints[usize::from(route.endpoint)].transport.get().one_sided() {
            take_failures(fabric, all.windows, now_ns);
        }
        Ok(())
    }

    /// Waits until a fabric has given memory of the caller back. Nothing may return before, so a panic ends the process.
    fn outlast(&mut self, is_complete: impl Fn(&mut Engine) -> bool) {
        loop {
            match catch_unwind(AssertUnwindSafe(|| is_complete(self))) {
                Ok(true) => return,
                Ok(false) => rustix::thread::sched_yield(),
                Err(_) => std::process::abort(),
            }
        }
    }

    /// Repeats something until it is done: first in a busy loop of [`FABRIC_CALL_POLLS`] polls, then as all waits do.
    pub(super) fn look_until(&mut self, mut is_done: impl FnMut(&mut Engine) -> bool) -> Result<(), WindowError> {
        for _ in 0..FABRIC_CALL_POLLS {
            if is_done(self) {
                return Ok(());
            }
        }
        Ok(self.wait_until(|engine| {
            engine.closed.check_request()?;
            Ok(is_done(engine))
        })?)
    }
}
