//! Exposed memory: a buffer that any proc with its key may read, write or update, without windows and epochs.
//!
//! A proc exposes a buffer ([`Engine::expose`]) and sends its key in any message. Any proc that has the key can put to the buffer and get
//! from it. Once the region is withdrawn, its key is stale: using it is an error, and never a write.
//!
//! On one host an operation needs no help from the owner, even while the owner computes: the owner lists its regions in a [`directory`].
//! Between hosts a fabric does puts and gets. Otherwise the owner's engine does them, and checks each operation. If the user gives updates
//! to a fabric ([`TrafficClass::Atomics`](tickwire_components::TrafficClass::Atomics)), that fabric does all updates, even those by the
//! owner: [`atomics`].

mod atomics;
mod directory;
mod fabric;
mod flushing;
mod own;
mod span;
mod updating;

pub(crate) use span::span_of;

use crate::api::request::Request;
use crate::api::windows::{PostedUpdate, RejectedUpdate, RemoteMove, Route, Until, WindowCounts, WindowReach};
use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::Engine;
use atomics::fabric_update;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use tickwire_components::{
    Comm, LeasedBytes, NIL, Pieces, PostError, ProcId, Rank, RegionAccess, RegionKey, RemoteKind, RequestError,
    Sequence, Span, VcState, WindowError,
};
use tickwire_systems::procs::windows::regions::{REGION_BYTES_MAX, REGIONS, REGIONS_MAX, displacement, region_of};
use tickwire_systems::procs::windows::{ExposedRegion, OwnMemory};

/// An exposed buffer. The engine holds the buffer until [`Engine::withdraw`] gives it back. Dropping this leaves it exposed.
#[derive(Debug)]
pub struct Region<B> {
    key: RegionKey,
    buffer: PhantomData<B>,
}

impl<B> Region<B> {
    /// The key by which other procs name the region. It is plain data, and can be sent in any message.
    pub fn key(&self) -> RegionKey {
        self.key
    }
}

/// Where an operation goes.
#[derive(Clone, Copy)]
struct Place {
    /// The proc's index among the targets, or `None` for the own proc.
    target: Option<u32>,
    /// The displacement in the region.
    at: usize,
    /// For an update that a fabric does: the route to that fabric.
    updates: Option<Route>,
}

impl Engine {
    /// Exposes a buffer to all procs that get its key.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, RegionAccess, Tag, op};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// # let (me, world) = (engine.rank(), engine.comm_world());
    /// let region = engine.expose(vec![0u64; 10], RegionAccess::ALL)?;
    /// let key = region.key();
    /// engine.region_put(&[5u64], &key, 8)?;
    /// assert_eq!(engine.region_fetch_and_op(2u64, op::Sum, &key, 8)?, 5);
    /// let buffer = engine.withdraw(region)?;
    /// assert_eq!(buffer[1], 7);
    /// assert!(engine.region_put(&[5u64], &key, 8).is_err(), "the key is stale");
    /// # Ok::<(), tickwire::Error>(())
    /// ```
    ///
    /// # Errors
    /// The engine is closed, the buffer is too long, the engine has used up all region numbers, or no fabric that is named for updates can
    /// do them here. The error gives the buffer back.
    pub fn expose<B>(&mut self, buffer: B, access: RegionAccess) -> Result<Region<B>, RejectedUpdate<B>>
    where
        B: Sequence + LeasedBytes + Send + Sync + 'static,
    {
        if let Err(error) = self.closed.check_post() {
            return Err(RejectedUpdate { error: error.into(), buffer });
        }
        let boxed = Box::new(buffer);
        let span = boxed.piece(0);
        self.open_directory();
        let all = self.store.all();
        let me = all.procs.me;
        let full = |reason: &str| WindowError::Memory { rank: Rank(me), reason: reason.into() };
        let part = all.windows.regions(me).and_then(|row| row.own_part()?.with_memory(span));
        let number = all.windows.next_region;
        if span.len() as u64 > REGION_BYTES_MAX || number == REGIONS_MAX {
            return Err(RejectedUpdate { error: full("a region is too long, or there were too many"), buffer: *boxed });
        }
        let Some(part) = part else {
            return Err(RejectedUpdate { error: full("there is none for its locks"), buffer: *boxed });
        };
        let key = RegionKey::new(ProcId(me), number, span.len() as u64, access);
        let (key, [moves, updates]) = match self.offer_region(key, span) {
            Ok(offered) => offered,
            Err(reason) => return Err(RejectedUpdate { error: WindowError::Fabric { reason }, buffer: *boxed }),
        };
        let region = ExposedRegion { number, part, access, moves, updates, buffer: boxed };
        let here = region.here();
        let windows = &mut self.store.all().windows;
        windows.next_region += 1;
        if let Some(OwnMemory::Exposed(regions)) = windows.get(REGIONS).map(|row| &mut row.own) {
            regions.push(region);
        }
        self.list_region(number, span, here);
        Ok(Region { key, buffer: PhantomData })
    }

    /// Withdraws a region, and gives its buffer back. Later operations on it are errors, and those in progress end first: where a fabric
    /// does them, this waits until all procs that may use the region have ticked and their operations so far are done.
    ///
    /// # Errors
    /// The region is not one of this engine's, or the engine is closed. Or, where a fabric does operations, a proc that may use the region
    /// has failed since the region was exposed: bytes of it may still arrive, so the buffer is never freed.
    pub fn withdraw<B: Send + Sync + 'static>(&mut self, region: Region<B>) -> Result<B, WindowError> {
        self.closed.check_post()?;
        let none = || WindowError::Request(RequestError::Stale);
        if region.key.proc != self.store.all().procs.me {
            return Err(none());
        }
        self.unlist_region(region.key.number)?;
        let all = self.store.all();
        let row = all.windows.get(REGIONS).ok_or_else(none)?;
        let OwnMemory::Exposed(regions) = &mut row.own else { return Err(none()) };
        let place = regions.binary_search_by_key(&region.key.number, |region| region.number).map_err(|_| none())?;
        let ExposedRegion { buffer, moves, updates, .. } = regions.remove(place);
        // A fabric may still write into the buffer if this fails or panics.
        let buffer = ManuallyDrop::new(buffer);
        let updates = updates.filter(|_| updates != moves);
        self.withdraw_for_good([moves, updates])?;
        let buffer = ManuallyDrop::into_inner(buffer);
        buffer.downcast::<B>().map(|buffer| *buffer).map_err(|_| none())
    }

    /// Writes elements into a region, from byte `offset` on. Returns when the buffer may be used again. The elements are in the region
    /// after [`Engine::region_flush`].
    ///
    /// # Errors
    /// The key does not allow it, the elements are not within the region, or its proc has failed. The flush reports errors that only the
    /// target can see, such as a stale key.
    pub fn region_put<S: Sequence>(&mut self, from: S, key: &RegionKey, offset: usize) -> Result<(), WindowError> {
        let run = from.piece(0);
        self.region_run("region_put", RemoteKind::Put, (run, Span::EMPTY), key, offset)
    }

    /// Reads elements of a region, from byte `offset` on. Returns when they are in the buffer.
    ///
    /// # Errors
    /// As [`Engine::region_put`], or the key is stale.
    pub fn region_get<R: Sequence + LeasedBytes>(
        &mut self,
        into: R,
        key: &RegionKey,
        offset: usize,
    ) -> Result<(), WindowError> {
        let run = into.piece(0);
        self.region_run("region_get", RemoteKind::Get, (Span::EMPTY, run), key, offset)
    }

    /// As [`Engine::region_put`], with a request. The request is done when the elements are in the region.
    ///
    /// # Errors
    /// As [`Engine::region_put`], or no row is free. The error gives the buffer back.
    pub fn region_rput<S: Sequence + Send + 'static>(
        &mut self,
        from: S,
        key: &RegionKey,
        offset: usize,
    ) -> PostedUpdate<S> {
        let run = from.piece(0);
        self.region_request(("region_rput", RemoteKind::Put), (run, Span::EMPTY), key, offset, from)
    }

    /// As [`Engine::region_get`], with a request. The request is done when the elements are in the buffer.
    ///
    /// # Errors
    /// As [`Engine::region_rput`].
    pub fn region_rget<R: Sequence + LeasedBytes + Send + 'static>(
        &mut self,
        into: R,
        key: &RegionKey,
        offset: usize,
    ) -> PostedUpdate<R> {
        let run = into.piece(0);
        self.region_request(("region_rget", RemoteKind::Get), (Span::EMPTY, run), key, offset, into)
    }

    /// How many operations were posted on regions of a proc, and how many of them are done there.
    pub fn region_counts(&mut self, proc: ProcId) -> WindowCounts {
        let target = self.known_target(proc);
        let row = self.store.all().windows.get(REGIONS);
        let counts = row.zip(target).map(|(row, target)| &row.targets[target as usize]);
        let (issued, completed) = counts.map_or((0, 0), |target| (target.issued, target.completed));
        WindowCounts { issued, completed }
    }

    /// How puts and gets with a key reach the memory. Updates go over a fabric if [`RegionKey::domain`] says so. Otherwise they go the same
    /// way as puts, or are done by the owner's engine where puts go by a fabric.
    ///
    /// # Errors
    /// The proc has failed, or cannot be connected to.
    pub fn region_reach(&mut self, key: &RegionKey) -> Result<WindowReach, WindowError> {
        let Some(target) = self.region_place(key, RegionAccess::NONE, 0, 0)?.target else {
            return Ok(WindowReach::Memory);
        };
        Ok(WindowReach::of(&self.target(Rank(target), REGIONS)?.reach))
    }

    /// Does an operation with borrowed bytes, of a call of this name.
    #[inline(always)]
    fn region_run(
        &mut self,
        name: &'static str,
        kind: RemoteKind,
        runs: (Span, Span),
        key: &RegionKey,
        offset: usize,
    ) -> Result<(), WindowError> {
        let bytes = length_of(kind, runs.0, runs.1);
        self.told(OneSidedCall::moving(name, bytes, Rank(key.proc), REGIONS), |engine| {
            let place = engine.region_place(key, access_by(kind), offset, bytes)?;
            let until = if kind == RemoteKind::Put { Until::Sent } else { Until::Done };
            engine.region_move(kind, runs, until, place)
        })
    }

    /// Posts an operation with a request, of a call of this name. The buffer has the runs.
    fn region_request<B: Pieces>(
        &mut self,
        (name, kind): (&'static str, RemoteKind),
        runs: (Span, Span),
        key: &RegionKey,
        offset: usize,
        buffer: B,
    ) -> PostedUpdate<B> {
        let bytes = length_of(kind, runs.0, runs.1);
        self.told_post(OneSidedCall::moving(name, bytes, Rank(key.proc), REGIONS), |engine| {
            let posted = engine.region_place(key, access_by(kind), offset, bytes);
            let posted = posted.and_then(|place| engine.region_post(kind, runs, place));
            engine.region_token(posted, buffer)
        })
    }

    /// A proc's index among the targets, if it was a target before.
    fn known_target(&mut self, proc: ProcId) -> Option<u32> {
        let row = self.store.all().windows.get(REGIONS)?;
        let target = row.targets.get(proc.0 as usize)?;
        (target.vc != NIL || proc.0 == row.rank).then_some(proc.0)
    }

    /// Checks an operation against the key. Connects to the key's proc, if there is no connection yet.
    fn region_place(
        &mut self,
        key: &RegionKey,
        access: RegionAccess,
        offset: usize,
        bytes: usize,
    ) -> Result<Place, WindowError> {
        self.closed.check_post()?;
        if !key.access().covers(access) {
            let named = [(RegionAccess::WRITE, "write"), (RegionAccess::READ, "read")];
            let what = named.into_iter().find(|(of, _)| *of == access).map_or("update", |(_, what)| what);
            return Err(WindowError::Forbidden(what));
        }
        let (end, length) = (offset.saturating_add(bytes), key.bytes.min(REGION_BYTES_MAX) as usize);
        if end > length {
            return Err(WindowError::OutOfBounds { target: Rank(key.proc), first: offset, end, length });
        }
        if key.number >= REGIONS_MAX {
            return Err(RequestError::OutOfBounds.into());
        }
        let at = displacement(key.number, offset as u64) as usize;
        let all = self.store.all();
        let last = all.procs.known.len() as u32 - 1;
        if key.proc > last {
            return Err(PostError::Rank { rank: key.proc, last }.into());
        }
        if key.proc == all.procs.me {
            let updates = if access == RegionAccess::UPDATE { self.updates_by(key, NIL)? } else { None };
            return Ok(Place { target: None, at, updates });
        }
        let vc = self.reach(key.proc)?;
        self.wait_at_once(|engine| {
            let state = engine.store.all().vcs.get(vc as usize).map(|vc| vc.state);
            matches!(state, None | Some(VcState::Connected | VcState::Failed))
        })?;
        if self.store.all().procs.routes.one_sided(vc).is_none() {
            self.link_members(&[vc])?;
        }
        let all = self.store.all();
        let is_open = all.vcs.get(vc as usize).is_some_and(|vc| vc.state == VcState::Connected);
        let none = || WindowError::Memory { rank: Rank(key.proc), reason: "there is none for a table".into() };
        let me = all.procs.me;
        all.windows.regions(me).ok_or_else(none)?.region_target(key.proc, vc);
        if !is_open {
            return Err(self.failed_target(Rank(key.proc), REGIONS));
        }
        self.find_directory(key.proc, vc);
        self.find_fabric(key, vc)?;
        let updates = if access == RegionAccess::UPDATE { self.updates_by(key, vc)? } else { None };
        Ok(Place { target: Some(key.proc), at, updates })
    }

    /// Does an operation, or has the target's engine do it.
    fn region_move(
        &mut self,
        kind: RemoteKind,
        (from, into): (Span, Span),
        until: Until,
        Place { target, at, updates }: Place,
    ) -> Result<(), WindowError> {
        if let Some(route) = updates {
            let (update, place) = (fabric_update(kind, from)?, self.place_of_target(target));
            return self.update_by_fabric(route, update, region_of(at).1, into, place);
        }
        match target {
            Some(target) if self.goes_by_fabric(kind, target) => {
                let (writes, (_, offset)) = (kind == RemoteKind::Put, region_of(at));
                self.move_by_fabric(offset, if writes { from } else { into }, writes, Rank(target), REGIONS)
            }
            Some(target) => {
                let run = RemoteMove { at, from, into, length: length_of(kind, from, into) };
                self.run_remote(kind, run, until, (Rank(target), REGIONS))
            }
            None => self.region_own(kind, (from, into), length_of(kind, from, into), at),
        }
    }

    /// Posts an operation with a request. Returns the request's row, or `None` if the operation is done already.
    fn region_post(
        &mut self,
        kind: RemoteKind,
        (from, into): (Span, Span),
        Place { target, at, updates }: Place,
    ) -> Result<Option<u32>, WindowError> {
        if let Some(route) = updates {
            let (update, place) = (fabric_update(kind, from)?, self.place_of_target(target));
            return self.post_over(route, update, &[(region_of(at).1, into)], place, Comm::WORLD).map(Some);
        }
        let Some(target) = target else {
            return self.region_own(kind, (from, into), length_of(kind, from, into), at).map(|()| None);
        };
        if self.goes_by_fabric(kind, target) {
            let (writes, (_, offset)) = (kind == RemoteKind::Put, region_of(at));
            let run = if writes { from } else { into };
            return self.post_fabric(&[(offset, run)], writes, (Rank(target), REGIONS), Comm::WORLD).map(Some);
        }
        let run = RemoteMove { at, from, into, length: length_of(kind, from, into) };
        self.post_remote(kind, &[run], (Rank(target), REGIONS), Comm::WORLD)
    }

    fn region_token<B: Pieces>(&mut self, posted: Result<Option<u32>, WindowError>, buffer: B) -> PostedUpdate<B> {
        match posted {
            Ok(Some(row)) => Ok(self.hold(row, buffer, false)),
            Ok(None) => Ok(Request::ready(self.home, buffer, Rank::NULL.0, 0)),
            Err(error) => Err(RejectedUpdate { error, buffer }),
        }
    }
}

/// Bytes of a region that an operation of this kind writes, reads or updates.
fn length_of(kind: RemoteKind, from: Span, into: Span) -> usize {
    if kind == RemoteKind::Put { from.len() } else { into.len() }
}

/// What a key must allow for an operation of this kind.
fn access_by(kind: RemoteKind) -> RegionAccess {
    match kind {
        RemoteKind::Put => RegionAccess::WRITE,
        RemoteKind::Get => RegionAccess::READ,
        _ => RegionAccess::UPDATE,
    }
}
