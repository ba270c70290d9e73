//! How windows are made and freed, by all members together.
//!
//! A window has a communicator of its own, whose members tell each other what they have for a part. On one host they pass each other the
//! memory that they share. Nobody uses a window before all members have it.

use super::offer::{ATTACHED, Brings, Brought, FABRIC, FENCES, KERNEL, Link, MEMORY, Offer, RUN};
use super::passing::{fabric_reach, memory_reach};
use super::{RejectedBuffer, comm_of};
use crate::api::collectives::exchange;
use crate::api::request::OperationError;
use crate::run::engine::Engine;
use std::any::Any;
use std::collections::VecDeque;
use tickwire_components::{
    AtomicsDomain, Comm, Communicator, Element, LeasedBytes, PostError, Rank, Row, Sequence, Span, TrafficClass,
    Window, WindowError,
};
use tickwire_systems::procs::routes::link_for;
use tickwire_systems::procs::windows::{Epochs, OwnMemory, Reach, Target, WindowRow};
use tickwire_systems::protocols::one_sided::remove_window;
use tickwire_transports::RemoteKey;
use tickwire_transports::shared::SharedRun;
use tickwire_transports::windows::{Memory, Part};

/// Keys of runs that windows share begin here; below are those of boards.
const KEYS: u64 = 1 << 32;

/// What a member that has no window tells the others: it has failed, or a member that it needs has.
const FAILED: u8 = u8::MAX;

/// What there was of a window that is gone, and whether an operation has failed.
type Freed = (Option<Box<WindowRow>>, Result<(), WindowError>);

/// The error of a member whose part a fabric may still write.
fn lost_puts() -> WindowError {
    WindowError::Fabric {
        reason: "puts of another member have failed and may still arrive, so the memory stays in use".into(),
    }
}

/// Rows of a collective operation besides those of its messages to and from each member.
const ROWS: usize = 16;

impl Engine {
    /// Makes a window of memory that it allocates: `count` elements at this rank, all bytes zero (`MPI_Win_allocate`). All members of a
    /// communicator call it. On one host the members share the memory.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, LockKind, op};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// let (me, world) = (engine.rank(), engine.comm_world());
    /// let window = engine.win_allocate::<u64>(100, world)?;
    /// engine.win_lock(LockKind::Shared, me, window)?;
    /// engine.put(&[7, 8], me, 10, window)?;
    /// assert_eq!(engine.fetch_and_op(1, op::Sum, me, 11, window)?, 8);
    /// engine.win_unlock(me, window)?;
    /// let mut now = [0; 2];
    /// engine.win_read(&mut now, 10, window)?;
    /// assert_eq!(now, [7, 9]);
    /// engine.win_free(window)?;
    /// # Ok::<(), tickwire::Error>(())
    /// ```
    ///
    /// # Errors
    /// A member has no memory, or has failed; then there is no window on any member.
    pub fn win_allocate<T: Element>(&mut self, count: usize, comm: Comm) -> Result<Window<T>, WindowError> {
        let bytes = count.saturating_mul(size_of::<T>());
        self.make_window(&mut Brought { memory: Brings::Allocated, bytes }, comm).map(Window::new)
    }

    /// As [`Engine::win_allocate`], where all members share the memory (`MPI_Win_allocate_shared`): [`Engine::win_cells`] has the parts of
    /// all of them.
    ///
    /// # Errors
    /// As [`Engine::win_allocate`], and if a member is on another host or cannot share memory: there is no window then.
    pub fn win_allocate_shared<T: Element>(&mut self, count: usize, comm: Comm) -> Result<Window<T>, WindowError> {
        let window = self.win_allocate(count, comm)?;
        let domain = self.window(window.handle)?.domain;
        if domain == AtomicsDomain::Processor {
            return Ok(window);
        }
        self.win_free(window)?;
        let reason = "not all members share memory with each other: split the communicator by host (comm_split_shared)";
        Err(WindowError::Memory { rank: Rank(0), reason: reason.into() })
    }

    /// Makes a buffer of the program's this rank's part of a window (`MPI_Win_create`). All members of a communicator call it. The engine
    /// owns the buffer until [`Engine::win_take`] gives it back; [`Engine::win_free`] drops it.
    ///
    /// If other members are on this host, the part is a copy of the buffer in shared memory, as fast as memory of
    /// [`Engine::win_allocate`]. Freeing the window copies the bytes back. A buffer is itself the part if it is in the
    /// [shared heap](Engine::alloc), if it is longer than [`Limits::window_copy_max`](crate::Limits::window_copy_max), or if there is not
    /// enough shared memory.
    ///
    /// # Errors
    /// As [`Engine::win_allocate`]. The error gives the buffer back, unless another member may still write into it.
    pub fn win_create<B>(&mut self, buffer: B, comm: Comm) -> Result<Window<B::Item>, RejectedBuffer<B>>
    where
        B: Sequence + LeasedBytes + Send + Sync + 'static,
    {
        let buffer = Box::new(buffer);
        let span = buffer.piece(0);
        let bytes = span.len();
        let mut brought = Brought { memory: Brings::Buffer(span, buffer), bytes };
        match self.make_window(&mut brought, comm) {
            Ok(handle) => Ok(Window::new(handle)),
            Err(error) => Err(RejectedBuffer { error, buffer: brought.memory.into_buffer() }),
        }
    }

    /// Makes a window without memory, to which every member attaches its own (`MPI_Win_create_dynamic`). Displacements are what
    /// [`Engine::win_attach`] returns, and count bytes.
    ///
    /// # Errors
    /// As [`Engine::win_allocate`].
    pub fn win_create_dynamic(&mut self, comm: Comm) -> Result<Window<u8>, WindowError> {
        self.make_window(&mut Brought { memory: Brings::Attached, bytes: 0 }, comm).map(Window::new)
    }

    /// Frees a window (`MPI_Win_free`). All members call it, after all epochs but those of fences have ended.
    ///
    /// # Errors
    /// An epoch is open, an operation has failed, or a member has. In the latter two cases the window is gone here, too. If a member has
    /// failed, the memory of its part is not used again: others may still write there. Neither is memory into which a put of another member
    /// may still come, since a fabric has failed to do it.
    pub fn win_free<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.free_window(window.handle)?.1
    }

    /// As [`Engine::win_free`], and gives back the buffer that the part was made of. `None` if the window was not made by
    /// [`Engine::win_create`].
    ///
    /// # Errors
    /// As [`Engine::win_free`], or the buffer is no `B`: the window stays as it is then. If the window is gone, the error gives the buffer
    /// back, unless another member may still write into it.
    pub fn win_take<B>(&mut self, window: Window<B::Item>) -> Result<Option<B>, RejectedBuffer<B>>
    where
        B: Sequence + LeasedBytes + Send + Sync + 'static,
    {
        let taken = self.take_window(window.handle, |buffer| buffer.is::<B>());
        let (row, told) = taken.map_err(|error| RejectedBuffer { error, buffer: None })?;
        let buffer = row.and_then(|row| Brings::back(row.own).into_buffer());
        match told {
            Ok(()) => Ok(buffer),
            Err(error) => Err(RejectedBuffer { error, buffer }),
        }
    }

    /// Frees a window, if its part is no buffer or one that is wanted. As [`Engine::free_window`] otherwise.
    fn take_window(&mut self, handle: u32, is_wanted: fn(&dyn Any) -> bool) -> Result<Freed, WindowError> {
        if let OwnMemory::Buffer(buffer) | OwnMemory::Copied(_, buffer) = &self.window(handle)?.own
            && !is_wanted(&**buffer)
        {
            let instead = "name its type, or drop it by win_free";
            return Err(WindowError::OwnPart { what: "a buffer of another type", instead });
        }
        self.free_window(handle)
    }

    /// Frees a window. Returns what there was of it, and whether an operation has failed.
    ///
    /// # Errors
    /// The window stays, or others may still use it.
    fn free_window(&mut self, handle: u32) -> Result<Freed, WindowError> {
        let Epochs { all_locked, locked, started, posted, .. } = self.window(handle)?.epochs;
        let open = [
            (all_locked, "all ranks are locked"),
            (locked > 0, "a rank is locked"),
            (started, "an access epoch is started"),
            (posted, "an exposure epoch is posted"),
        ];
        if let Some((_, open)) = open.into_iter().find(|(is_open, _)| *is_open) {
            return Err(WindowError::EpochOpen { what: "win_free", open });
        }
        let done = self.complete_window(handle);
        let failures = self.take_failures(handle)?;
        let met = self.meet_to_free(handle);
        if let Err(OperationError::Post(error @ PostError::Full { .. })) = met {
            // Nobody was told of anything: the call can be made again, and tells of failures then.
            self.put_back(failures, handle)?;
            return Err(error.into());
        }
        let flushed = done.and(self.first_of(failures, handle));
        // A member that has not heard of the failure may still write there, and a fabric may still write what it has taken.
        let in_use = met.map_or_else(|error| Some(error.into()), |has_lost| has_lost.then(lost_puts));
        if let Some(error) = in_use {
            self.store.all().windows.retire(handle);
            return Err(flushed.err().unwrap_or(error));
        }
        let freed = self.free_comm(comm_of(handle));
        let removed = self.store.with(|rows, wire| remove_window(rows, wire.endpoints, handle));
        if let Some(window) = &removed
            && let (OwnMemory::Copied(memory, _), Some(part)) = (&window.own, window.own_part())
        {
            // SAFETY: the window had the buffer, which may be written like the part of any window.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let copied = unsafe { part.get(0, *memory) };
            debug_assert!(copied, "both have one length");
        }
        Ok((removed, flushed.and(freed.map_err(WindowError::from))))
    }

    /// Waits until all members have come to free a window. Returns whether a fabric may still write into the own part: puts of another
    /// member have failed there, and the fabric may have taken a part of them.
    fn meet_to_free(&mut self, handle: u32) -> Result<bool, OperationError> {
        let lost: Option<Vec<u8>> = self
            .store
            .all()
            .windows
            .get(handle)
            .filter(|window| window.has_fabric)
            .map(|window| window.targets.iter().map(|target| target.has_lost_put.into()).collect());
        let Some(lost) = lost else { return self.barrier(comm_of(handle)).map(|()| false) };
        let mut theirs = vec![0; lost.len()];
        self.run_graph(exchange::alltoall(&lost[..], &mut theirs[..]), comm_of(handle))?;
        Ok(theirs.contains(&1))
    }

    /// Makes a window; its handle. If that fails, what was brought is given back, if nobody can use it.
    fn make_window(&mut self, brought: &mut Brought, comm: Comm) -> Result<u32, WindowError> {
        let known = self.store.all().communicators.get(Communicator::row(comm.0));
        let size = known.map_or(0, |comm| comm.size as usize);
        // For a send and a receive of each member, and some: then no member is left waiting by the calls below.
        self.need_rows(2 * size + ROWS)?;
        let own = self.comm_dup(comm)?;
        match self.make_window_on(brought, own) {
            Ok(()) => Ok(own.0),
            Err(error) => {
                let back = self.give_up_window(own, matches!(error, WindowError::Memory { .. }));
                back.into_iter().for_each(|memory| brought.memory = memory);
                Err(error)
            }
        }
    }

    /// Cleans up after a window that could not be made, and gives back what was brought for it. If `all_know` that, nobody uses it.
    /// Otherwise a member may take it for a window, and its memory stays; but nobody can use a buffer that has a copy.
    fn give_up_window(&mut self, comm: Comm, all_know: bool) -> Option<Brings> {
        let windows = self.store.all().windows;
        if all_know || windows.get(comm.0).is_none() {
            let removed = self.store.with(|rows, wire| remove_window(rows, wire.endpoints, comm.0));
            let _ = self.free_comm(comm);
            return removed.map(|row| Brings::back(row.own));
        }
        let row = windows.get(comm.0)?;
        let is_copied = matches!(row.own, OwnMemory::Copied(..));
        let back = is_copied.then(|| Brings::back(std::mem::replace(&mut row.own, OwnMemory::Allocated)));
        windows.retire(comm.0);
        back
    }

    /// Makes a window on its own communicator. A member takes every step, even after a failure, since others may wait for its word.
    fn make_window_on(&mut self, brought: &mut Brought, comm: Comm) -> Result<(), WindowError> {
        let (row, context) = self.context_of(comm);
        let Communicator { rank, size, .. } = self.store.all().communicators[row];
        let vcs = self.connect_members(row, size)?;
        let links = self.link_members(&vcs)?;
        let (key, shares) = (KEYS | u64::from(context), self.sharing_endpoint(&links));
        let made = self.make_run(brought, key, size, shares);
        let fabric = made.as_ref().ok().and_then(|run| self.offer_to_fabric(brought, run, &links));
        let mut offer = Offer::of(brought, made.is_ok(), shares.is_some());
        if let Some((_, RemoteKey { key, base, .. })) = fabric {
            (offer.has, offer.fabric) = (offer.has | FABRIC, [key, base]);
        }
        offer.over = [shares, fabric.map(|(endpoint, _)| endpoint)].map(|endpoint| self.number_of(endpoint));
        let heard = self.tell_offer(comm, offer, &links);
        let runs = self.pass_runs(key, &vcs, &links, heard.as_ref().ok(), rank);
        let offers = heard.map(|heard| heard.offers);
        self.stop_giving(key);
        let poor = offers.as_ref().ok().and_then(|offers| offers.iter().position(|offer| offer.has & MEMORY == 0));
        let (mut farthest, mut refused) = (FAILED, String::new());
        match (&offers, made) {
            (Ok(offers), Ok(run)) if poor.is_none() => {
                let members = Members { offers, vcs: &vcs, links: &links, rank, fabric };
                farthest = self.add_window(comm, brought, run, runs, &members);
            }
            (_, Err(reason)) => refused = reason,
            _ => self.withdraw_key(fabric),
        }
        let told = self.tell_all_of(comm, farthest, size);
        offers?;
        if let Some(poor) = poor {
            let reason = if poor as u32 == rank { refused } else { "see its own error".into() };
            return Err(WindowError::Memory { rank: Rank(poor as u32), reason });
        }
        let told = told?;
        if let Some(failed) = told.iter().position(|&told| told == FAILED) {
            let reason = "it has lost another member, see its own error".into();
            return Err(WindowError::Memory { rank: Rank(failed as u32), reason });
        }
        self.window(comm.0)?.domain = match told.into_iter().max() {
            Some(0) => AtomicsDomain::Processor,
            Some(1) => AtomicsDomain::Lock,
            _ => AtomicsDomain::Engine,
        };
        Ok(())
    }

    /// Adds the window with the parts of all members. Returns what makes updates of its parts atomic: 0 for the processor, 1 for a lock,
    /// 2 for the targets' engines.
    fn add_window(
        &mut self,
        comm: Comm,
        brought: &mut Brought,
        run: SharedRun,
        runs: Vec<Option<SharedRun>>,
        members: &Members<'_>,
    ) -> u8 {
        let (_, context) = self.context_of(comm);
        let Members { offers, vcs, rank, fabric, .. } = *members;
        let (size, fences) = (offers.len() as u32, members.have(FENCES));
        let (place, copied) = match brought.memory {
            Brings::Allocated => (Memory::Behind(brought.bytes), None),
            Brings::Buffer(span, _) => (Memory::Own(span), None),
            Brings::Copied(span, _) => (Memory::Behind(brought.bytes), Some(span)),
            Brings::Attached => (Memory::Own(Span::EMPTY), None),
        };
        let is_shared = matches!(place, Memory::Behind(_));
        // The run was made long enough for this.
        let Some(part) = Part::new(run, place, size, rank, fences) else {
            self.withdraw_key(fabric);
            return FAILED;
        };
        // SAFETY: the window has the buffer. Nobody uses the part yet.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        if copied.is_some_and(|copied| unsafe { !part.put(0, copied) }) {
            self.withdraw_key(fabric);
            return FAILED;
        }
        let own = std::mem::take(&mut brought.memory).into_own();
        if !is_shared {
            part.lock_all_updates();
        }
        let mut part = Some(part);
        let targets = (0..).zip(runs).zip(offers.iter().zip(vcs)).map(|((member, run), (offer, &row))| {
            let bytes = if offer.has & ATTACHED != 0 { usize::MAX as u64 } else { offer.bytes };
            let reach = match member == rank {
                true => part.take().map(Reach::Memory),
                false => self.reach_of_part(comm, member as usize, run, members, fences),
            };
            Target::new(row, bytes, reach.unwrap_or(Reach::Engine))
        });
        let targets: Vec<Target> = targets.collect();
        let farness = |target: &Target| match target.reach {
            Reach::Memory(_) => u8::from(!is_shared),
            Reach::Kernel { .. } | Reach::Listed { .. } => 1,
            Reach::Fabric { .. } | Reach::Engine => 2,
        };
        let farthest = targets.iter().map(farness).max().unwrap_or(0);
        let (epochs, served, domain) = (Epochs::default(), VecDeque::new(), AtomicsDomain::Engine);
        let window = WindowRow {
            handle: comm.0,
            context,
            rank,
            targets,
            domain,
            own,
            fabric_key: fabric,
            has_fabric: offers.iter().any(|offer| offer.has & FABRIC != 0),
            epochs,
            served,
            is_retired: false,
        };
        let has_mail =
            offers[rank as usize].has & (RUN | KERNEL) == RUN | KERNEL && window.own_part().is_some_and(Part::has_mail);
        let windows = self.store.all().windows;
        windows.add(window);
        if has_mail {
            windows.mailed.push(comm.0);
        }
        self.mind_boards();
        farthest
    }

    /// How the part of another member is reached, by the run that it has passed or by a fabric. `None` if its engine must help.
    fn reach_of_part(
        &mut self,
        comm: Comm,
        member: usize,
        run: Option<SharedRun>,
        members: &Members<'_>,
        fences: bool,
    ) -> Option<Reach> {
        let offer = &members.offers[member];
        // It may have ended meanwhile, and another link may get its number.
        let now = link_for(&mut self.store.all(), members.vcs[member], TrafficClass::OneSided);
        let link = members.links[member].filter(|&link| now == Some(link));
        let (size, rank) = (members.offers.len() as u32, members.rank);
        let Some(run) = run else {
            let (endpoint, link) = link.filter(|&(endpoint, _)| offer.over[1] == self.number_of(Some(endpoint)))?;
            let channel = self.channel(endpoint, link, comm.0);
            return fabric_reach(endpoint, channel, offer);
        };
        if offer.has & KERNEL != 0 && run.beside().is_some() {
            return memory_reach(run, (size, rank), fences);
        }
        if offer.has & (KERNEL | ATTACHED) != 0 {
            return self.host_reach(link, run, offer, (size, rank), fences);
        }
        let memory = Memory::Behind(usize::try_from(offer.bytes).unwrap_or(usize::MAX));
        Part::new(run, memory, size, rank, fences).map(Reach::Memory)
    }
}

/// The members of a window that is made.
struct Members<'a> {
    offers: &'a [Offer],
    vcs: &'a [Row],
    links: &'a [Link],
    /// The own one.
    rank: u32,
    /// The endpoint of a fabric that reaches the own memory, and the fabric's key to it.
    fabric: Option<(u8, RemoteKey)>,
}

impl Members<'_> {
    /// Whether all of them have something.
    fn have(&self, what: u64) -> bool {
        self.offers.iter().all(|offer| offer.has & what != 0)
    }
}
