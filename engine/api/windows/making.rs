//! How windows are made, by all members together.
//!
//! A window has a communicator of its own, whose members tell each other what they have for a part. On one host they pass each other the
//! memory that they share. Nobody uses a window before all members have it.

use super::RejectedBuffer;
use super::offer::{ATTACHED, Brings, Brought, FABRIC, FENCES, KERNEL, Link, MEMORY, Offer, RUN};
use super::passing::{fabric_reach, memory_reach};
use crate::run::engine::Engine;
use std::collections::VecDeque;
use tickwire_components::{
    AtomicsDomain, Comm, Communicator, Element, LeasedBytes, Rank, Row, Sequence, Span, TrafficClass, Window,
    WindowError,
};
use tickwire_systems::procs::routes::link_for;
use tickwire_systems::procs::windows::{Epochs, Failure, OwnMemory, Reach, Target, WindowRow};
use tickwire_systems::protocols::one_sided::remove_window;
use tickwire_transports::RemoteKey;
use tickwire_transports::shared::SharedRun;
use tickwire_transports::windows::{Memory, Part};

/// Keys of runs that windows share begin here; below are those of boards.
const KEYS: u64 = 1 << 32;

/// What a member that has no window tells the others: it has failed, or a member that it needs has.
const FAILED: u8 = u8::MAX;

/// Rows for [`Engine::comm_dup`]: for a message to and from each of a few members at a time. They are checked and not set aside; while
/// others have them, the call waits.
const DUP_ROWS: usize = 16;

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
        let bytes = count.saturating_mul(size_of::<T>());
        let brought = &mut Brought { memory: Brings::Allocated, bytes };
        self.make_window_of(brought, comm, true).map(Window::new)
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

    /// Makes a window; its handle. If that fails, what was brought is given back, if nobody can use it.
    fn make_window(&mut self, brought: &mut Brought, comm: Comm) -> Result<u32, WindowError> {
        self.make_window_of(brought, comm, false)
    }

    /// As [`Engine::make_window`]. If `only_shared`, there is no window unless all members share the memory with each other.
    fn make_window_of(&mut self, brought: &mut Brought, comm: Comm, only_shared: bool) -> Result<u32, WindowError> {
        // If there is no such communicator, `comm_dup` says what is wrong. Its duplicate has the same members.
        let mut aside = Vec::new();
        if let Ok(needed) = self.rows_to_make_window(comm) {
            self.need_rows(needed + DUP_ROWS)?;
            aside = self.set_aside(needed)?;
        }
        let made = self.comm_dup(comm).map_err(WindowError::from).and_then(|own| {
            match self.make_window_on(brought, own, only_shared, &mut aside) {
                Ok(()) => Ok(own.0),
                Err(error) => {
                    let back = self.give_up_window(own, matches!(error, WindowError::Memory { .. }));
                    back.into_iter().for_each(|memory| brought.memory = memory);
                    Err(error)
                }
            }
        });
        self.free_again(&mut aside, usize::MAX);
        made
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

    /// Makes a window on its own communicator. A member takes every step, even after a failure, since others may wait for its word. Takes
    /// the rows `aside`.
    fn make_window_on(
        &mut self,
        brought: &mut Brought,
        comm: Comm,
        only_shared: bool,
        aside: &mut Vec<Row>,
    ) -> Result<(), WindowError> {
        let ((row, context), name) = (self.context_of(comm), brought.memory.call(only_shared));
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
        let heard = self.tell_offer((name, comm), offer, &links, aside);
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
        let told = self.tell_all(name, comm, farthest, aside);
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
        let domain = match told.into_iter().max() {
            Some(0) => AtomicsDomain::Processor,
            Some(1) => AtomicsDomain::Lock,
            _ => AtomicsDomain::Engine,
        };
        if only_shared && domain != AtomicsDomain::Processor {
            // All members have heard the same, so each of them sees this.
            let reason =
                "not all members share memory with each other: split the communicator by host (comm_split_shared)";
            return Err(WindowError::Memory { rank: Rank(0), reason: reason.into() });
        }
        self.window(comm.0)?.domain = domain;
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
        let Members { offers, rank, fabric, .. } = *members;
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
        let targets = self.targets_of(comm, part, runs, members, fences);
        let farthest = targets.iter().map(|target| farness(target, is_shared)).max().unwrap_or(0);
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
            has_puts_in_flight: false,
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

    /// The targets of a window: the own part, and how the parts of all others are reached.
    fn targets_of(
        &mut self,
        comm: Comm,
        own: Part,
        runs: Vec<Option<SharedRun>>,
        members: &Members<'_>,
        fences: bool,
    ) -> Vec<Target> {
        let mut own = Some(own);
        let each = (0..).zip(runs).zip(members.offers.iter().zip(members.vcs));
        each.map(|((member, run), (offer, &row))| {
            let bytes = if offer.has & ATTACHED != 0 { usize::MAX as u64 } else { offer.bytes };
            let reach = match member == members.rank {
                true => own.take().map(Reach::Memory),
                false => self.reach_of_part(comm, member as usize, run, members, fences),
            };
            // What fails from now on is noted by the target, but not what has failed while the window was made.
            let failure = self.is_gone(row).then_some(Failure::TargetFailed);
            Target { failure, ..Target::new(row, bytes, reach.unwrap_or(Reach::Engine)) }
        })
        .collect()
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

/// What makes updates of a member's part atomic: 0 the processor, 1 a lock, 2 the member's engine.
fn farness(target: &Target, is_shared: bool) -> u8 {
    match target.reach {
        Reach::Memory(_) => u8::from(!is_shared),
        Reach::Kernel { .. } | Reach::Listed { .. } => 1,
        Reach::Fabric { .. } | Reach::Engine => 2,
    }
}
