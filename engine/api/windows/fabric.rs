//! Puts and gets by a fabric, which reaches the target's memory by itself: transports with the facet
//! [`OneSided`](tickwire_transports::OneSided). Updates and locks of such a target are its engine's.

use crate::run::engine::Engine;
use tickwire_components::{Rank, Span, VcState, WindowError};
use tickwire_systems::procs::windows::{Failure, Reach, Target};
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
        while let Some(failed) = self.fabric(route.endpoint).and_then(|fabric| fabric.failed_operation()) {
            self.note_fabric_failure(route.endpoint, failed.channel.link, failed.reason);
        }
        let target = self.target(rank, handle)?;
        target.completed = target.issued.min(target.completed + std::mem::take(&mut target.by_fabric));
        Ok(())
    }

    /// An operation has failed: the next flush of its target says so.
    #[cold]
    fn note_fabric_failure(&mut self, endpoint: u8, link: u32, reason: String) {
        let windows = self.store.all().windows;
        windows.fabric_reason = reason;
        for target in windows.list.iter_mut().flatten().flat_map(|window| &mut window.targets) {
            if let Reach::Fabric { endpoint: of, link: over, .. } = target.reach
                && (of, over) == (endpoint, link)
            {
                target.failure = target.failure.or(Some(Failure::Fabric));
            }
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
