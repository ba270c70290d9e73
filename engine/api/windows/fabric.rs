//! Puts and gets by a fabric, which reaches the target's memory by itself: transports with the facet
//! [`OneSided`](tickwire_transports::OneSided). Updates and locks of such a target are its engine's.

use crate::api::collectives::activate;
use crate::run::engine::Engine;
use tickwire_components::{Access, Comm, Pending, Rank, RegistrationUse, Span, VcState, WindowError};
use tickwire_systems::procs::windows::FabricOperation;
use tickwire_systems::procs::windows::{Reach, Target};
use tickwire_systems::protocols::one_sided::fabric::{post_by_fabric, take_failures};
use tickwire_systems::steps::registering::acquire;
use tickwire_transports::{Channel, Issued, OneSided, RemoteKey, RemoteRun};

/// Looks at the fabric that a call makes before it waits as others do.
const LOOKS: u32 = 20_000;

/// Where an operation goes, and by what.
#[derive(Clone, Copy)]
struct Route {
    endpoint: u8,
    channel: Channel,
    key: RemoteKey,
}

impl Engine {
    /// Moves bytes to or from a target's memory. It returns when the run may be used again.
    pub(crate) fn move_by_fabric(
        &mut self,
        at: usize,
        run: Span,
        writes: bool,
        rank: Rank,
        handle: u32,
    ) -> Result<(), WindowError> {
        let Some(route) = self.fabric_route(rank, handle) else { return Err(self.failed_target(rank, handle)) };
        let reference = self.know_run(route.endpoint, run, writes)?;
        let moved = self.move_known(at, run, writes, rank, handle, route);
        self.forget_run(reference);
        moved
    }

    fn move_known(
        &mut self,
        at: usize,
        run: Span,
        writes: bool,
        rank: Rank,
        handle: u32,
        route: Route,
    ) -> Result<(), WindowError> {
        let number = self.store.all().windows.number();
        let remote = RemoteRun { key: route.key, offset: at as u64 };
        let mut issued = Ok(Issued::Full);
        self.look_until(|engine| {
            let Some(fabric) = engine.fabric(route.endpoint) else { return true };
            // SAFETY: the caller of the operation lends the run. This returns once the operation is complete, or the transport has
            // copied what it puts.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            unsafe {
                issued = match writes {
                    true => fabric.put(route.channel, remote, run, number),
                    false => fabric.get(route.channel, remote, run, number),
                };
            }
            if issued == Ok(Issued::Full) {
                fabric.progress();
            }
            issued != Ok(Issued::Full) || engine.fabric_is_gone(rank, handle)
        })?;
        let turn = match issued {
            Ok(Issued::Taken(turn)) => turn,
            Ok(Issued::Full) => return Err(self.failed_target(rank, handle)),
            Err(reason) => return Err(WindowError::Fabric { reason }),
        };
        let target = self.target(rank, handle)?;
        (target.issued, target.by_fabric, target.fabric_turn) = (target.issued + 1, target.by_fabric + 1, turn);
        let copied = self.fabric(route.endpoint).map_or(0, |fabric| fabric.copies_max());
        if writes && run.len() <= copied {
            return Ok(());
        }
        self.flush_fabric(rank, handle)?;
        match self.target(rank, handle)?.failure.take() {
            Some(failure) => Err(self.failed(failure, rank, handle)),
            None => Ok(()),
        }
    }

    /// Waits until all operations on a target by a fabric are complete. How one has failed is noted at the target.
    pub(crate) fn flush_fabric(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        let Some(route) = self.fabric_route(rank, handle) else { return Ok(()) };
        let &mut Target { fabric_turn: turn, vc: row, .. } = self.target(rank, handle)?;
        let is_complete = |engine: &mut Engine| {
            let Some(fabric) = engine.fabric(route.endpoint) else { return true };
            fabric.completed(route.channel) >= turn || {
                fabric.progress();
                fabric.completed(route.channel) >= turn
            }
        };
        if let Err(error) = self.look_until(|engine| is_complete(engine) || engine.fabric_is_gone(rank, handle)) {
            // The fabric has memory of the caller, and gives it back once the link has ended.
            self.cut_off(row);
            while !is_complete(self) {
                rustix::thread::sched_yield();
            }
            return Err(error);
        }
        // Of a link that has ended the transport gives all back within a bounded time.
        while !is_complete(self) {
            rustix::thread::sched_yield();
        }
        let all = self.store.all();
        let now_ns = all.progress.now_ns;
        if let Some(fabric) = all.endpoints[usize::from(route.endpoint)].transport.get().one_sided() {
            take_failures(fabric, all.windows, route.endpoint, now_ns);
        }
        let target = self.target(rank, handle)?;
        target.completed = target.issued.min(target.completed + std::mem::take(&mut target.by_fabric));
        Ok(())
    }

    /// Posts an operation with a request: its row.
    pub(crate) fn post_fabric(
        &mut self,
        at: usize,
        run: Span,
        writes: bool,
        (rank, handle): (Rank, u32),
        comm: Comm,
    ) -> Result<u32, WindowError> {
        let Some(route) = self.fabric_route(rank, handle) else { return Err(self.failed_target(rank, handle)) };
        let reference = self.know_run(route.endpoint, run, writes)?;
        let request = match self.request_row(comm) {
            Ok(row) => row,
            Err(error) => {
                self.forget_run(reference);
                return Err(error.into());
            }
        };
        let (number, vc) = (self.store.all().windows.number(), self.target(rank, handle)?.vc);
        let remote = RemoteRun { key: route.key, offset: at as u64 };
        let (endpoint, channel, target, turn, failed_ns) = (route.endpoint, route.channel, rank.0, None, None);
        let operation = FabricOperation {
            number,
            handle,
            target,
            vc,
            request,
            endpoint,
            channel,
            remote,
            run,
            writes,
            turn,
            failed_ns,
        };
        self.store.with(|rows, wire| {
            activate(rows, request);
            if let Some(reference) = reference {
                rows.progress.registrations.hold(request, reference, false);
                rows.progress.registered = rows.progress.registrations.users();
            }
            post_by_fabric(rows, wire.endpoints, operation);
        });
        self.mind_boards();
        Ok(request)
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

    /// Does something that is done soon or late: first look after look, then as all waits do.
    fn look_until(&mut self, mut is_done: impl FnMut(&mut Engine) -> bool) -> Result<(), WindowError> {
        for _ in 0..LOOKS {
            if is_done(self) {
                return Ok(());
            }
        }
        Ok(self.wait_until(|engine| {
            engine.closed.check_request()?;
            Ok(is_done(engine))
        })?)
    }

    fn fabric_is_gone(&mut self, rank: Rank, handle: u32) -> bool {
        let Ok(target) = self.target(rank, handle) else { return true };
        let row = target.vc;
        self.store.all().vcs.get(row as usize).is_none_or(|vc| vc.state == VcState::Failed)
    }

    fn fabric_route(&mut self, rank: Rank, handle: u32) -> Option<Route> {
        match self.target(rank, handle).ok()?.reach {
            Reach::Fabric { endpoint, link, key } => {
                Some(Route { endpoint, channel: Channel { link, context: 0 }, key })
            }
            _ => None,
        }
    }

    fn fabric(&mut self, endpoint: u8) -> Option<&mut dyn OneSided> {
        self.store.endpoints().get_mut(usize::from(endpoint))?.transport.get().one_sided()
    }
}
