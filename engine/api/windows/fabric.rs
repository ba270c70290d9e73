//! Operations by a fabric, which reaches the target's memory by itself: transports with the facet
//! [`OneSided`](tickwire_transports::OneSided). Updates and locks of windows are the target's engine's; those of exposed memory may be a
//! fabric's.

mod waiting;

use crate::api::collectives::activate;
use crate::run::engine::Engine;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tickwire_components::{
    Access, Comm, Communicator, NIL, Pending, Rank, RegistrationUse, Row, Span, VcState, WindowError,
};
use tickwire_systems::procs::windows::regions::{REGIONS, region_of};
use tickwire_systems::procs::windows::{
    AwaitedUpdate, FabricKind, FabricOperation, Failure, Notice, Reach, number_of_target,
};
use tickwire_systems::protocols::one_sided::fabric::{issue, post_by_fabric};
use tickwire_systems::steps::registering::acquire;
use tickwire_transports::{Channel, Issued, OneSided, RemoteKey, RemoteRun};

/// Where an operation goes, and by what.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) endpoint: u8,
    pub(crate) channel: Channel,
    pub(crate) key: RemoteKey,
    /// The target's VC; [`NIL`] of the own proc.
    pub(crate) vc: Row,
}

impl Engine {
    /// Moves runs to or from places in a target's memory. All of them are within `memory`. It returns when that may be used again.
    pub(crate) fn runs_by_fabric(
        &mut self,
        runs: &[(usize, Span)],
        memory: Span,
        writes: bool,
        (rank, handle): (Rank, u32),
    ) -> Result<(), WindowError> {
        let Some(route) = self.fabric_route(rank, handle) else { return Err(self.failed_target(rank, handle)) };
        let reference = self.know_run(route.endpoint, memory, writes)?;
        let moved = self.lending(|engine| engine.move_known(runs, writes, (rank, handle), route));
        self.forget_run(reference);
        moved
    }

    fn move_known(
        &mut self,
        runs: &[(usize, Span)],
        writes: bool,
        (rank, handle): (Rank, u32),
        route: Route,
    ) -> Result<(), WindowError> {
        let copied = self.fabric(route.endpoint).map_or(0, |fabric| fabric.copies_max());
        let (mut last, mut is_lent) = (0, false);
        let issue = || {
            for &(at, run) in runs {
                last = self.issue_known(at, run, writes, (rank, handle), route)?;
                is_lent |= !writes || run.len() > copied;
            }
            Ok(())
        };
        // What the application has in the engine may panic while this waits for room.
        let issued = catch_unwind(AssertUnwindSafe(issue));
        if issued.is_err() {
            let _ = self.store.verify();
        }
        // The fabric has the runs up to an error or a panic. They have taken this route, even if there is none any more.
        let completed = match is_lent {
            true => self.complete_at(route, last, (rank, handle)).and_then(|()| self.take_failure(rank, handle)),
            false => Ok(()),
        };
        issued.unwrap_or_else(|panic| resume_unwind(panic)).and(completed)
    }

    /// Hands an operation on a run to the fabric, and counts it. Returns its number on the channel.
    fn issue_known(
        &mut self,
        at: usize,
        run: Span,
        writes: bool,
        (rank, handle): (Rank, u32),
        route: Route,
    ) -> Result<u64, WindowError> {
        self.target(rank, handle)?;
        let kind = if writes { FabricKind::Put } else { FabricKind::Get };
        let number = number_of_target(handle, rank.0, kind);
        // SAFETY: the caller waits until the operation is complete, unless the transport has copied what it puts.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let turn = unsafe { self.issue_by_fabric(route, kind, at, run, number, (rank, handle))? };
        self.target(rank, handle)?.taken_by_fabric(kind, turn);
        Ok(turn)
    }

    /// Waits until all operations on a target by a fabric are complete, and tells how one of them has failed.
    pub(super) fn flush_puts(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        if !matches!(self.target(rank, handle)?.reach, Reach::Fabric { .. }) {
            return Ok(());
        }
        self.flush_fabric(rank, handle)?;
        self.take_failure(rank, handle)
    }

    /// Updates an integer of a target, and waits for the one from before.
    pub(crate) fn update_by_fabric(
        &mut self,
        route: Route,
        kind: FabricKind,
        at: usize,
        into: Span,
        (rank, handle): (Rank, u32),
    ) -> Result<(), WindowError> {
        // Once the fabric has the operation, nothing returns before the operation is complete.
        self.target(rank, handle)?;
        let windows = &mut self.store.all().windows;
        let number = windows.number();
        windows.update = Some(AwaitedUpdate { number, handle, target: rank.0, has_failed: false });
        let done = self.lending(|engine| {
            // SAFETY: this returns once the operation is complete.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let turn = unsafe { engine.issue_by_fabric(route, kind, at, into, number, (rank, handle))? };
            engine.complete_by_fabric(route, turn)
        });
        let has_failed = self.store.all().windows.update.take().is_some_and(|update| update.has_failed);
        done?;
        let target = self.target(rank, handle)?;
        (target.issued, target.completed) = (target.issued + 1, target.completed + 1);
        if has_failed { Err(self.failed(Failure::Fabric, rank, handle)) } else { Ok(()) }
    }

    /// The error of an operation on a target that a fabric could not do: the fabric's own, or that the target has failed. Waits a short time
    /// for the news of that.
    #[cold]
    pub(super) fn failed_by_fabric(&mut self, reason: String, rank: Rank, handle: u32) -> WindowError {
        let vc = match self.target(rank, handle) {
            Ok(target) => target.vc,
            Err(error) => return error,
        };
        match self.wait_for_end(vc) {
            Err(error) => error,
            Ok(()) if self.is_gone(vc) => self.failed_target(rank, handle),
            Ok(()) => WindowError::Fabric { reason },
        }
    }

    /// Waits a short time for news that a target has ended.
    fn wait_for_end(&mut self, vc: Row) -> Result<(), WindowError> {
        self.sample_clock();
        let mut notice = Notice::new(self.store.progress().now_ns);
        let mut is_over = false;
        Ok(self.wait_until(|engine| {
            engine.closed.check_request()?;
            if vc == NIL || is_over || engine.is_gone(vc) {
                return Ok(true);
            }
            // The last look comes after the end of this time, and what it finds is handled once more.
            is_over = notice.is_over(engine.store.progress().now_ns);
            engine.look_around();
            Ok(engine.is_gone(vc))
        })?)
    }

    /// Hands an operation to the fabric. Returns its number on the channel.
    ///
    /// # Errors
    /// The fabric does not take it, or the target has failed before.
    ///
    /// # Safety
    /// The run is lent as [`issue`] says: until the operation is complete, or the fabric has copied what is put.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn issue_by_fabric(
        &mut self,
        route: Route,
        kind: FabricKind,
        at: usize,
        run: Span,
        number: u64,
        (rank, handle): (Rank, u32),
    ) -> Result<u64, WindowError> {
        let remote = RemoteRun { key: route.key, offset: offset_in_key(handle, at) };
        let mut issued = Ok(Issued::Full);
        self.look_until(|engine| {
            let Some(fabric) = engine.fabric(route.endpoint) else { return true };
            // SAFETY: by this function's contract.
            unsafe {
                issued = issue(fabric, kind, route.channel, remote, run, number);
            }
            if issued == Ok(Issued::Full) {
                fabric.progress();
            }
            issued != Ok(Issued::Full) || engine.is_gone(route.vc)
        })?;
        match issued {
            Ok(Issued::Taken(turn)) => Ok(turn),
            Ok(Issued::Full) => Err(self.failed_target(rank, handle)),
            Err(reason) => Err(self.failed_by_fabric(reason, rank, handle)),
        }
    }

    /// Waits until all operations on a target by a fabric are complete. How one has failed is noted at the target.
    pub(crate) fn flush_fabric(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        let Some(route) = self.fabric_route(rank, handle) else { return Ok(()) };
        let turn = self.target(rank, handle)?.fabric_turn;
        self.complete_at(route, turn, (rank, handle))
    }

    /// Waits until the operations on a target by a fabric up to the last one, which has this number, are complete. Then none is counted as
    /// being on its way.
    fn complete_at(&mut self, route: Route, turn: u64, (rank, handle): (Rank, u32)) -> Result<(), WindowError> {
        self.complete_by_fabric(route, turn)?;
        self.target(rank, handle)?.end_by_fabric();
        Ok(())
    }

    /// Posts puts or gets, each of a place in the target's memory and a run, with one request: its row.
    pub(crate) fn post_fabric(
        &mut self,
        runs: &[(usize, Span)],
        writes: bool,
        (rank, handle): (Rank, u32),
        comm: Comm,
    ) -> Result<u32, WindowError> {
        let Some(route) = self.fabric_route(rank, handle) else { return Err(self.failed_target(rank, handle)) };
        let kind = if writes { FabricKind::Put } else { FabricKind::Get };
        self.post_over(route, kind, runs, (rank, handle), comm)
    }

    /// Posts operations of one kind with one request: its row.
    pub(crate) fn post_over(
        &mut self,
        route: Route,
        kind: FabricKind,
        runs: &[(usize, Span)],
        (rank, handle): (Rank, u32),
        comm: Comm,
    ) -> Result<u32, WindowError> {
        // What the application has in the engine may panic, and then the transport must not go on with the buffer.
        self.lending(|engine| {
            let mut references = SmallVec::new();
            let request = match engine.know_runs(&mut references, route.endpoint, runs, kind.writes(), comm) {
                Ok(row) => row,
                Err(error) => {
                    references.into_iter().for_each(|reference| engine.forget_run(Some(reference)));
                    return Err(error);
                }
            };
            let Route { endpoint, channel, vc, key } = route;
            engine.store.with(|rows, wire| {
                activate(rows, request);
                for reference in references {
                    rows.progress.registrations.hold(request, reference, false);
                    rows.progress.registered = rows.progress.registrations.users();
                }
                for &(at, run) in runs {
                    let operation = FabricOperation {
                        number: rows.windows.number(),
                        handle,
                        target: rank.0,
                        vc,
                        request,
                        is_alone: runs.len() == 1,
                        endpoint,
                        channel,
                        remote: RemoteRun { key, offset: offset_in_key(handle, at) },
                        run,
                        kind,
                        turn: None,
                        failed: None,
                        reason: String::new(),
                    };
                    post_by_fabric(rows, wire.endpoints, operation);
                }
            });
            engine.mind_boards();
            Ok(request)
        })
    }

    /// Registers what a fabric wants to know of runs, and takes a row for their request.
    fn know_runs(
        &mut self,
        references: &mut SmallVec<[RegistrationUse; 1]>,
        endpoint: u8,
        runs: &[(usize, Span)],
        writes: bool,
        comm: Comm,
    ) -> Result<Row, WindowError> {
        for &(_, run) in runs {
            references.extend(self.know_run(endpoint, run, writes)?);
        }
        Ok(self.request_row(comm)?)
    }

    /// Registers a run with a fabric that wants to know memory, unless it copies the run.
    fn know_run(&mut self, endpoint: u8, run: Span, writes: bool) -> Result<Option<RegistrationUse>, WindowError> {
        let all = self.store.all();
        let Some(of) = all.endpoints.get_mut(usize::from(endpoint)).filter(|of| of.abilities.registers) else {
            return Ok(None);
        };
        let copied = of.transport.get().one_sided().map_or(0, |fabric| fabric.copies_max());
        if run.len() <= copied {
            return Ok(None);
        }
        let access = if writes { Access::SEND } else { Access::RECEIVE };
        let reference = acquire(all.progress, of, endpoint, run, access);
        reference.map(Some).map_err(|reason| WindowError::Fabric { reason })
    }

    fn forget_run(&mut self, reference: Option<RegistrationUse>) {
        let progress = self.store.progress();
        if let Some(reference) = reference {
            progress.registrations.give_back(reference);
            progress.pending |= Pending::WORLD;
        }
    }

    /// Whether the target of a route has failed. This proc has not.
    pub(super) fn is_gone(&mut self, row: Row) -> bool {
        row != NIL && self.store.all().vcs.get(row as usize).is_none_or(|vc| vc.state == VcState::Failed)
    }

    fn fabric_route(&mut self, rank: Rank, handle: u32) -> Option<Route> {
        let target = self.target(rank, handle).ok()?;
        let Reach::Fabric { endpoint, channel, key } = target.reach else { return None };
        Some(Route { endpoint, channel, key, vc: target.vc })
    }

    /// The channel over a link for the operations of a window. Windows are spread over the contexts.
    pub(crate) fn channel(&mut self, endpoint: u8, link: u32, handle: u32) -> Channel {
        let contexts = self.fabric(endpoint).map_or(1, |fabric| fabric.contexts().max(1));
        Channel { link, context: Communicator::row(handle) as u32 % contexts }
    }

    pub(super) fn fabric(&mut self, endpoint: u8) -> Option<&mut dyn OneSided> {
        self.store.endpoints().get_mut(usize::from(endpoint))?.transport.get().one_sided()
    }
}

/// Where a place in a target's memory is in the memory that a fabric's key names: that of a region is of the one region.
fn offset_in_key(handle: u32, at: usize) -> u64 {
    (if handle == REGIONS { region_of(at).1 } else { at }) as u64
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use crate::Engine;
    use crate::testing::Board;
    use std::time::Duration;
    use tickwire_components::Rank;
    use tickwire_transports::Channel;
    use tickwire_transports::ofi::{Choice, Library};

    #[test]
    fn windows_take_the_contexts_in_turn() {
        if Library::get().is_err() {
            return;
        }
        let board = Board::new(2);
        std::thread::scope(|threads| {
            for rank in 0..2 {
                let board = &board;
                threads.spawn(move || {
                    let choice = Choice { contexts: Some(3), ..Choice::default() };
                    let builder = Engine::builder().include(["loopback", "ofi:tcp;ofi_rxm"]).ofi(choice);
                    let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                    let (world, other) = (engine.comm_world(), Rank(1 - rank));
                    let windows = [(); 5].map(|()| engine.win_allocate::<u64>(8, world).unwrap());
                    for (count, &window) in (1..).zip(&windows) {
                        engine.win_fence(window).unwrap();
                        for at in 0..count {
                            engine.put(&[9u64], other, at, window).unwrap();
                        }
                        engine.win_fence_last(window).unwrap();
                    }
                    let route = engine.fabric_route(other, windows[0].handle).unwrap();
                    let first = route.channel.context;
                    let issued = [0, 1, 2].map(|turn| {
                        let channel = Channel { context: (first + turn) % 3, ..route.channel };
                        engine.fabric(route.endpoint).unwrap().issued(channel)
                    });
                    assert_eq!(issued, [1 + 4, 2 + 5, 3]);
                    windows.into_iter().for_each(|window| engine.win_free(window).unwrap());
                    engine.finalize(Duration::from_secs(20)).unwrap();
                });
            }
        });
    }
}
