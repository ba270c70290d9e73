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
mod typed;
mod updating;

pub(crate) use span::span_of;

use crate::api::windows::{Posted, PostedUpdate, RejectedUpdate, RemoteMove, Route, Until, WindowCounts, WindowReach};
use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::Engine;
use atomics::fabric_update;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use tickwire_components::{
    Comm, LeasedBytes, NIL, Pieces, PostError, ProcId, Rank, RegionAccess, RegionKey, RemoteKind, RequestError,
    Sequence, Span, VcState, WindowError,
};
use tickwire_systems::procs::windows::regions::{REGION_BYTES_MAX, REGIONS, REGIONS_MAX, displacement};
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
    /// The proc, as a rank among the targets.
    target: Rank,
    /// The displacement of the first byte.
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
        let target = self.region_place(key, RegionAccess::NONE, 0, 0)?.target;
        Ok(WindowReach::of(&self.target(target, REGIONS)?.reach))
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
            match kind {
                RemoteKind::Put => engine.move_run(place.at, runs.0, true, place.target, REGIONS),
                RemoteKind::Get => engine.move_run(place.at, runs.1, false, place.target, REGIONS),
                _ => engine.region_update(kind, runs, place),
            }
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
            let place = engine.region_place(key, access_by(kind), offset, bytes);
            engine.region_post(kind, runs, place, buffer)
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
        let at = place_in_key(key, access, offset, bytes)?;
        let target = Rank(key.proc);
        let all = self.store.all();
        let (me, last) = (all.procs.me, all.procs.known.len() as u32 - 1);
        if key.proc > last {
            return Err(PostError::Rank { rank: key.proc, last }.into());
        }
        let none = || WindowError::Memory { rank: target, reason: "there is none for a table".into() };
        if key.proc == me {
            all.windows.regions(me).ok_or_else(none)?;
            let updates = if access == RegionAccess::UPDATE { self.updates_by(key, NIL)? } else { None };
            return Ok(Place { target, at, updates });
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
        all.windows.regions(me).ok_or_else(none)?.region_target(key.proc, vc);
        if !is_open {
            return Err(self.failed_target(target, REGIONS));
        }
        self.find_directory(key.proc, vc);
        self.find_fabric(key, vc)?;
        let updates = if access == RegionAccess::UPDATE { self.updates_by(key, vc)? } else { None };
        Ok(Place { target, at, updates })
    }

    /// Does an update, or has the target's engine do it.
    fn region_update(
        &mut self,
        kind: RemoteKind,
        (from, into): (Span, Span),
        Place { target, at, updates }: Place,
    ) -> Result<(), WindowError> {
        if let Some(route) = updates {
            return self.update_by_fabric(route, fabric_update(kind, from)?, at, into, (target, REGIONS));
        }
        if target.0 == self.store.all().procs.me {
            return self.update_own_region(kind, (from, into), at);
        }
        let run = RemoteMove { at, from, into, length: length_of(kind, from, into) };
        self.run_remote(kind, run, Until::Done, (target, REGIONS))
    }

    /// Posts an operation with a request, and makes its token.
    fn region_post<B: Pieces>(
        &mut self,
        kind: RemoteKind,
        (from, into): (Span, Span),
        place: Result<Place, WindowError>,
        buffer: B,
    ) -> PostedUpdate<B> {
        let Place { target, at, updates } = match place {
            Ok(place) => place,
            Err(error) => return Err(RejectedUpdate { error, buffer }),
        };
        let posted = match updates {
            Some(route) => fabric_update(kind, from)
                .and_then(|update| self.post_over(route, update, &[(at, into)], (target, REGIONS), Comm::WORLD))
                .map(Posted::Row),
            None => {
                let run = RemoteMove { at, from, into, length: length_of(kind, from, into) };
                self.post_moves(kind, &[run], target, REGIONS)
            }
        };
        self.token(posted, buffer, |engine, _| match kind {
            RemoteKind::Put => engine.move_run(at, from, true, target, REGIONS),
            RemoteKind::Get => engine.move_run(at, into, false, target, REGIONS),
            _ => engine.update_own_region(kind, (from, into), at),
        })
    }
}

/// Checks an operation against a key: bytes from `offset` on, all of them within the region. Returns the displacement of the first one.
fn place_in_key(key: &RegionKey, access: RegionAccess, offset: usize, bytes: usize) -> Result<usize, WindowError> {
    if !key.access().covers(access) {
        let named = [(RegionAccess::WRITE, "write"), (RegionAccess::READ, "read")];
        let what = named.into_iter().find(|(of, _)| *of == access).map_or("update", |(_, what)| what);
        return Err(WindowError::Forbidden(what));
    }
    let (end, length) = (offset.saturating_add(bytes), length_of_region(key));
    if end > length {
        return Err(WindowError::OutOfBounds { target: Rank(key.proc), first: offset, end, length });
    }
    if key.number >= REGIONS_MAX {
        return Err(RequestError::OutOfBounds.into());
    }
    Ok(displacement(key.number, offset as u64) as usize)
}

/// Bytes of a region, as its key says.
fn length_of_region(key: &RegionKey) -> usize {
    key.bytes.min(REGION_BYTES_MAX) as usize
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
