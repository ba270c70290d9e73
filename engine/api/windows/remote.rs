//! Operations that the target's engine does: how they are posted and waited for. How they go: `tickwire_systems::protocols::one_sided`.

use crate::run::engine::Engine;
use tickwire_components::{Rank, RemoteKind, Span, WindowError};
use tickwire_systems::procs::windows::{Failure, RemoteOperation};
use tickwire_systems::protocols::one_sided::{batch::post, cut_operation};

/// What a caller waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// All has left: the origin's buffer is free.
    Sent,
    /// It is done at the target.
    Done,
}

impl Engine {
    /// Posts an operation with borrowed bytes, and waits. What is listed in the target's directory needs none of that, and is done.
    pub(crate) fn run_remote(
        &mut self,
        kind: RemoteKind,
        at: usize,
        (from, into): (Span, Span),
        length: usize,
        until: Until,
        (rank, handle): (Rank, u32),
    ) -> Result<(), WindowError> {
        if self.move_listed(kind, at, (from, into), length, (rank, handle))? {
            return Ok(());
        }
        let number = self.store.all().windows.number();
        let operation = RemoteOperation::new(number, kind, at as u64, length as u64);
        let operation = RemoteOperation { from, into, awaited: until == Until::Done, ..operation };
        let ended = self.lending(|engine| {
            let awaited = engine.store.with(|rows, wire| post(rows, wire.endpoints, handle, rank.0, operation));
            let awaited = match (until, awaited) {
                (Until::Done, _) => number,
                (Until::Sent, Some(awaited)) => awaited,
                // Its bytes are copied, and leave with the next tick.
                (Until::Sent, None) => {
                    engine.let_go();
                    return Ok(Ok(()));
                }
            };
            let mut ended = Ok(());
            let waited = engine.wait_until(|engine| {
                let Some(state) = engine.remote_state(awaited, until, rank, handle) else {
                    engine.closed.check_request()?;
                    return Ok(false);
                };
                ended = state;
                Ok(true)
            });
            engine.let_go();
            if waited.is_err() {
                engine.store.with(|rows, _| cut_operation(rows, handle, rank.0, number));
            }
            waited.map(|()| ended)
        })?;
        ended.map_err(|failure| self.failed(failure, rank, handle))
    }

    /// How an operation has ended, if it has come as far as that.
    fn remote_state(&mut self, number: u64, until: Until, rank: Rank, handle: u32) -> Option<Result<(), Failure>> {
        let windows = self.store.all().windows;
        if let Some(place) = windows.ended.iter().position(|(of, _)| *of == number) {
            return Some(windows.ended.swap_remove(place).1);
        }
        let Some(window) = windows.get(handle) else { return Some(Ok(())) };
        let target = &window.targets[rank.0 as usize];
        let operation = target.operations.iter().find(|operation| operation.number == number);
        match (operation, until) {
            (Some(operation), Until::Sent) => operation.all_sent.then_some(Ok(())),
            (Some(_), Until::Done) => None,
            // It is over: the next flush tells how, if not well.
            (None, Until::Sent) => Some(Ok(())),
            (None, Until::Done) => None,
        }
    }
}
