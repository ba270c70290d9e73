//! The own part of a window, and parts in shared memory, as this proc reads and writes them by itself.
//!
//! Safe code never has a slice of memory that others write. A program copies elements out of it and into it, or uses cells. It gets a
//! slice only within an epoch in which nobody else may access the part.

use crate::run::engine::Engine;
use smallvec::SmallVec;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use tickwire_components::{Element, LeasedBytes, LockKind, Rank, Row, Sequence, Span, Window, WindowError};
use tickwire_systems::procs::connections::ask_whether_ended;
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_systems::procs::windows::{Access, OwnMemory, Reach, WindowRow};

impl Engine {
    /// Copies elements of the own part of a window into a buffer. It needs no epoch: a program that races with others gets some of their
    /// bytes.
    ///
    /// # Errors
    /// They are not within the own part.
    pub fn win_read<R: Sequence + LeasedBytes>(
        &mut self,
        into: R,
        displacement: usize,
        window: Window<R::Item>,
    ) -> Result<(), WindowError> {
        self.copy_own::<R::Item>(into.piece(0), displacement, false, window.handle)
    }

    /// Copies elements into the own part of a window. See [`Engine::win_read`].
    ///
    /// # Errors
    /// They are not within the own part.
    pub fn win_write<S: Sequence>(
        &mut self,
        from: S,
        displacement: usize,
        window: Window<S::Item>,
    ) -> Result<(), WindowError> {
        self.copy_own::<S::Item>(from.piece(0), displacement, true, window.handle)
    }

    fn copy_own<T>(&mut self, run: Span, displacement: usize, writes: bool, handle: u32) -> Result<(), WindowError> {
        let window = self.window(handle)?;
        let first = displacement.saturating_mul(size_of::<T>());
        // SAFETY: the caller lends the run.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let copied = window
            .place(first, run.len())
            .is_some_and(|(part, at)| unsafe { if writes { part.put(at, run) } else { part.get(at, run) } });
        let (target, length) = (Rank(window.rank), window.own_part().map_or(0, |part| part.bytes()));
        let end = first.saturating_add(run.len());
        if copied { Ok(()) } else { Err(WindowError::OutOfBounds { target, first, end, length }) }
    }

    /// The elements of a rank's part of a window, as cells, where that is in reach of the processor. The own part always is. Parts of
    /// others on the same host are if they are in shared memory: allocated (`MPI_Win_shared_query`), created with a copy there, or of a
    /// buffer in a shared heap. Then an epoch towards them must be open. The cells are good until the next call that changes the engine.
    ///
    /// ```compile_fail,E0502
    /// # use tickwire::{Bootstrap, Engine};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    /// # let world = engine.comm_world();
    /// let window = engine.win_allocate::<u32>(4, world).unwrap();
    /// let cells = engine.win_cells(engine.rank(), window).unwrap();
    /// engine.win_free(window).unwrap();
    /// cells.set(0, 1);
    /// ```
    ///
    /// # Errors
    /// No epoch is open, the part is elsewhere, or its elements are not aligned.
    pub fn win_cells<T: Element>(&self, rank: Rank, window: Window<T>) -> Result<PartCells<'_, T>, WindowError> {
        self.closed.check_post()?;
        let windows = self.store.windows();
        let row = windows.list.get(tickwire_components::Communicator::row(window.handle));
        let is_window = |row: &&WindowRow| row.handle == window.handle && row.handle != REGIONS && !row.is_retired;
        let row = row.and_then(Option::as_deref).filter(is_window);
        let row = row.ok_or(WindowError::Freed(window.handle))?;
        let last = row.targets.len() as u32 - 1;
        let wrong = tickwire_components::PostError::Rank { rank: rank.0, last };
        let target = row.targets.get(rank.0 as usize).ok_or(wrong)?;
        if rank.0 != row.rank && target.access == Access::None {
            return Err(WindowError::NoEpoch(rank));
        }
        let memory = match &target.reach {
            Reach::Memory(part) => part.memory(),
            _ => None,
        };
        let away = WindowError::OwnPart {
            what: "not in reach of the processor",
            instead: "use win_allocate on one host, or put and get",
        };
        let memory = memory.ok_or(away)?;
        if !memory.start().cast::<T>().is_aligned() {
            return Err(WindowError::Unaligned { target: rank, displacement: 0 });
        }
        let length = memory.len() / size_of::<T>().max(1);
        Ok(PartCells { start: memory.start().cast(), length, engine: PhantomData })
    }

    /// Locks the own part of a window alone, and lends it as a slice until that is dropped: nobody else may access it meanwhile.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// # let world = engine.comm_world();
    /// let window = engine.win_allocate::<f64>(100, world)?;
    /// engine.win_exclusive(window)?.fill(1.0);
    /// # Ok::<(), tickwire::Error>(())
    /// ```
    ///
    /// The slice cannot outlive the epoch:
    ///
    /// ```compile_fail,E0716
    /// # use tickwire::{Bootstrap, Engine};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    /// # let world = engine.comm_world();
    /// let window = engine.win_allocate::<f64>(100, world).unwrap();
    /// let first = engine.win_exclusive(window).unwrap().first_mut().unwrap();
    /// *first = 1.0;
    /// ```
    ///
    /// ```compile_fail,E0499
    /// # use tickwire::{Bootstrap, Engine};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    /// # let world = engine.comm_world();
    /// let window = engine.win_allocate::<f64>(100, world).unwrap();
    /// let mut part = engine.win_exclusive(window).unwrap();
    /// engine.win_free(window).unwrap();
    /// part.fill(1.0);
    /// ```
    ///
    /// # Errors
    /// An epoch is open in which others may access the part, or a member that holds the lock has failed. After an exposure epoch in which
    /// an origin has failed, its process must have ended: until this proc knows that, the origin may still write. What a fabric has taken
    /// from it may arrive even later, so the part is not lent any more where one reaches it. Neither is it lent any more after an epoch in
    /// which a fabric has failed to do a put of an origin that lives on: bytes of the put may arrive after the epoch.
    pub fn win_exclusive<T: Element>(&mut self, window: Window<T>) -> Result<ExclusivePart<'_, T>, WindowError> {
        let row = self.window(window.handle)?;
        let (rank, epochs) = (Rank(row.rank), row.epochs);
        if epochs.posted {
            return Err(WindowError::EpochOpen { what: "win_exclusive", open: "an exposure epoch is posted" });
        }
        if matches!(row.own, OwnMemory::Attached(_)) {
            let instead = "use win_read and win_write";
            return Err(WindowError::OwnPart { what: "attached piece by piece", instead });
        }
        // This also holds if this member has gone on to locks: others may still be in the fence's epoch.
        if epochs.fence_exposes {
            let all = self.store.all();
            let window = all.windows.get(window.handle);
            if window.is_some_and(|window| (0..window.targets.len() as u32).any(|rank| window.is_dead(all.vcs, rank))) {
                let instead = "use win_read and win_write";
                return Err(WindowError::OwnPart {
                    what: "in the epoch of a fence that a failed member cannot end",
                    instead,
                });
            }
            let open = "a fence's epoch is open (win_fence_last ends it)";
            return Err(WindowError::EpochOpen { what: "win_exclusive", open });
        }
        if self.may_be_written_by_lost(window.handle)? {
            let instead = "use win_read and win_write, at least until its process is known to have ended";
            return Err(WindowError::OwnPart { what: "one that an origin which has failed may still write", instead });
        }
        self.win_lock(LockKind::Exclusive, rank, window).map_err(|error| match error {
            WindowError::EpochOpen { open, .. } => WindowError::EpochOpen { what: "win_exclusive", open },
            error => error,
        })?;
        let row = self.window(window.handle)?;
        let memory = row.own_part().and_then(|part| part.memory()).unwrap_or(Span::EMPTY);
        // An origin tells it before it gives the lock back for which this has waited.
        if row.has_puts_in_flight {
            self.win_unlock(rank, window)?;
            let instead = "use win_read and win_write";
            return Err(WindowError::OwnPart { what: "one into which a put that has failed may still write", instead });
        }
        if !memory.start().cast::<T>().is_aligned() {
            self.win_unlock(rank, window)?;
            return Err(WindowError::Unaligned { target: rank, displacement: 0 });
        }
        let (start, length) = (memory.start().cast(), memory.len() / size_of::<T>().max(1));
        Ok(ExclusivePart { start, length, engine: self, rank, window })
    }

    /// Whether an origin that has failed within an exposure epoch may still write into the own part. One that neither shares memory with
    /// this proc nor reaches the part by a fabric cannot: its operations need this engine.
    fn may_be_written_by_lost(&mut self, handle: u32) -> Result<bool, WindowError> {
        let window = self.window(handle)?;
        let is_registered = window.fabric_key.is_some();
        let lost = window.targets.iter().filter(|target| target.is_lost);
        let lost: SmallVec<[(Row, bool); 4]> = lost.map(|target| (target.vc, target.locks().is_some())).collect();
        for (row, shares) in lost {
            let all = self.store.all();
            let Some(proc) = all.vcs.get(row as usize).map(|vc| vc.proc) else { continue };
            if all.procs.departed.contains(&row) || !shares && !is_registered {
                continue;
            }
            if !shares {
                // What a fabric has taken may arrive after the end of the process.
                return Ok(true);
            }
            ask_whether_ended(&mut self.store.as_mut(), proc);
            if !self.store.all().procs.gone.contains(&row) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Elements of a part of a window that others may write at any time: each is read and written by itself. Aligned words of 4 and 8 bytes are
/// read and written whole.
pub struct PartCells<'e, T> {
    start: *mut T,
    length: usize,
    engine: PhantomData<&'e Engine>,
}

impl<T: Element> PartCells<'_, T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// An element as it is now.
    ///
    /// # Panics
    /// An index out of bounds.
    #[inline]
    pub fn get(&self, index: usize) -> T {
        assert!(index < self.length, "element {index} of {}", self.length);
        // SAFETY: within the part, which is kept while the engine is borrowed; any bytes are a value.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            self.start.add(index).read_volatile()
        }
    }

    /// Writes an element.
    ///
    /// # Panics
    /// An index out of bounds.
    #[inline]
    pub fn set(&self, index: usize, value: T) {
        assert!(index < self.length, "element {index} of {}", self.length);
        // SAFETY: as in `get`. Nobody has a reference to the memory: the owner can lend none while the engine is borrowed, and others
        // only while they hold the part alone.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            self.start.add(index).write_volatile(value);
        }
    }
}

impl<T> fmt::Debug for PartCells<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartCells").field("len", &self.length).finish_non_exhaustive()
    }
}

/// The own part of a window, held alone. Dropping it gives it back.
pub struct ExclusivePart<'e, T> {
    start: *mut T,
    length: usize,
    engine: &'e mut Engine,
    rank: Rank,
    window: Window<T>,
}

impl<T: Element> Deref for ExclusivePart<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the own memory, aligned and as long, kept while the engine is borrowed. Any bytes are values, and nobody else accesses
        // them while the lock is held.
        #[expect(unsafe_code, reason = "a view of memory that is held alone")]
        unsafe {
            std::slice::from_raw_parts(self.start, self.length)
        }
    }
}

impl<T: Element> DerefMut for ExclusivePart<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed uniquely.
        #[expect(unsafe_code, reason = "a view of memory that is held alone")]
        unsafe {
            std::slice::from_raw_parts_mut(self.start, self.length)
        }
    }
}

impl<T> Drop for ExclusivePart<'_, T> {
    fn drop(&mut self) {
        // It was locked when this was made, and the engine was borrowed since.
        let _ = self.engine.win_unlock(self.rank, self.window);
    }
}

impl<T> fmt::Debug for ExclusivePart<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExclusivePart").field("len", &self.length).finish_non_exhaustive()
    }
}
