//! Updates with a request.

use super::super::{PartPlace, PostedUpdate, RejectedUpdate};
use super::check_lengths;
use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::Engine;
use tickwire_components::{LeasedBytes, Number, Rank, RemoteKind, Sequence, Span, Update, Window};
use tickwire_transports::windows::Updater;

impl Engine {
    /// As [`Engine::accumulate`], with a request (`MPI_Raccumulate`): it is done when the elements are updated.
    ///
    /// # Errors
    /// As [`Engine::accumulate`], or no row is free; the buffer comes back.
    pub fn raccumulate<S: Sequence<Item: Number> + Send + 'static, O: Update<S::Item>>(
        &mut self,
        from: S,
        operation: O,
        target: Rank,
        displacement: usize,
        window: Window<S::Item>,
    ) -> PostedUpdate<S> {
        let run = from.piece(0);
        let kind = RemoteKind::Update(Updater::of::<S::Item, O>().code);
        let place = PartPlace::new(target, displacement, window);
        self.told_post(OneSidedCall::moving("raccumulate", run.len(), target, window.handle), |engine| {
            let posted = engine.post_move::<S::Item>(kind, (run, Span::EMPTY), run.len(), place);
            engine
                .token(posted, from, |engine, from| engine.accumulate(&*from, operation, target, displacement, window))
        })
    }

    /// As [`Engine::get_accumulate`], with a request (`MPI_Rget_accumulate`): it is done when the old values are in the second buffer.
    ///
    /// # Errors
    /// As [`Engine::get_accumulate`], or no row is free; the buffers come back.
    pub fn rget_accumulate<S, R, O>(
        &mut self,
        from: S,
        into: R,
        operation: O,
        target: Rank,
        displacement: usize,
        window: Window<S::Item>,
    ) -> PostedUpdate<(S, R)>
    where
        S: Sequence<Item: Number> + Send + 'static,
        R: Sequence<Item = S::Item> + LeasedBytes + Send + 'static,
        O: Update<S::Item>,
    {
        if let Err(error) = check_lengths(&from, &into) {
            return Err(RejectedUpdate { error, buffer: (from, into) });
        }
        let runs = (from.piece(0), into.piece(0));
        let kind = RemoteKind::FetchUpdate(Updater::of::<S::Item, O>().code);
        let place = PartPlace::new(target, displacement, window);
        let call = OneSidedCall::moving("rget_accumulate", runs.0.len(), target, window.handle);
        self.told_post(call, |engine| {
            let posted = engine.post_move::<S::Item>(kind, runs, runs.0.len(), place);
            engine.token(posted, (from, into), |engine, (from, into)| {
                engine.get_accumulate(&*from, into, operation, target, displacement, window)
            })
        })
    }
}
