//! Puts and gets.

use super::remote::{RemoteMove, Until};
use super::{PartPlace, PostedUpdate, RejectedUpdate};
use crate::api::request::Request;
use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::{Closed, Engine};
use smallvec::SmallVec;
use tickwire_components::limits::FABRIC_RUNS_MAX;
use tickwire_components::{LeasedBytes, Pieces, Rank, RemoteKind, RequestError, Sequence, Span, Window, WindowError};
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_systems::procs::windows::{Reach, Target};
use tickwire_transports::windows::Part;

/// How a part is reached: a [`Reach`] without its fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Memory,
    Kernel,
    Fabric,
    Engine,
}

/// What became of an operation with a request.
pub(crate) enum Posted {
    /// The target's engine is to do it; the request has this row.
    Row(u32),
    /// It is done.
    Done,
    /// Nothing was posted: the caller does the operation at once, in another way.
    Otherwise,
}

impl Engine {
    /// Writes elements into a rank's part of a window (`MPI_Put`). It returns when the buffer may be used again; the elements are there for
    /// all after a flush or the end of the epoch. A put to [`Rank::NULL`] does nothing.
    ///
    /// # Errors
    /// No epoch is open towards the rank, or the elements are not within its part.
    #[inline]
    pub fn put<S: Sequence>(
        &mut self,
        from: S,
        target: Rank,
        displacement: usize,
        window: Window<S::Item>,
    ) -> Result<(), WindowError> {
        let run = from.piece(0);
        // SAFETY: the buffer is lent for the call.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let put = |part: &Part, at| unsafe { part.put(at, run) };
        if self.is_quick() && self.move_near::<S::Item>(target, displacement, window.handle, put).is_some() {
            return Ok(());
        }
        self.move_slowly::<S::Item>(run, true, target, displacement, window.handle)
    }

    /// Reads elements of a rank's part of a window (`MPI_Get`). It returns when they are there. A get from [`Rank::NULL`] leaves the buffer
    /// as it is.
    ///
    /// # Errors
    /// As [`Engine::put`].
    #[inline]
    pub fn get<R: Sequence + LeasedBytes>(
        &mut self,
        into: R,
        target: Rank,
        displacement: usize,
        window: Window<R::Item>,
    ) -> Result<(), WindowError> {
        let run = into.piece(0);
        // SAFETY: as in `put`.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let get = |part: &Part, at| unsafe { part.get(at, run) };
        if self.is_quick()
            && let Some(target) = self.move_near::<R::Item>(target, displacement, window.handle, get)
        {
            target.ordered += 1;
            return Ok(());
        }
        self.move_slowly::<R::Item>(run, false, target, displacement, window.handle)
    }

    /// Moves bytes to or from a part in memory, and counts the operation. `None` if they must move in another way. The engine is open.
    #[inline(always)]
    fn move_near<T>(
        &mut self,
        rank: Rank,
        displacement: usize,
        handle: u32,
        go: impl FnOnce(&Part, usize) -> bool,
    ) -> Option<&mut Target> {
        let (target, at) = self.near::<T>(rank, displacement, handle)?;
        let Reach::Memory(part) = &target.reach else { return None };
        if !go(part, at) {
            return None;
        }
        (target.issued, target.completed) = (target.issued + 1, target.completed + 1);
        Some(target)
    }

    /// As [`Engine::put`], with a request (`MPI_Rput`): it is done when the elements are there. The call never waits. Where only the kernel
    /// reaches the target's memory, the kernel writes the elements at once.
    ///
    /// # Errors
    /// As [`Engine::put`], or no row is free; the buffer comes back.
    pub fn rput<S: Sequence + Send + 'static>(
        &mut self,
        from: S,
        target: Rank,
        displacement: usize,
        window: Window<S::Item>,
    ) -> PostedUpdate<S> {
        let run = from.piece(0);
        let place = PartPlace::new(target, displacement, window);
        self.told_post(OneSidedCall::moving("rput", run.len(), target, window.handle), |engine| {
            let posted = engine.post_move::<S::Item>(RemoteKind::Put, (run, Span::EMPTY), run.len(), place);
            engine.token(posted, from, |engine, from| engine.put(&*from, target, displacement, window))
        })
    }

    /// As [`Engine::get`], with a request (`MPI_Rget`): it is done when the elements are in the buffer.
    ///
    /// # Errors
    /// As [`Engine::rput`].
    pub fn rget<R: Sequence + LeasedBytes + Send + 'static>(
        &mut self,
        into: R,
        target: Rank,
        displacement: usize,
        window: Window<R::Item>,
    ) -> PostedUpdate<R> {
        let run = into.piece(0);
        let place = PartPlace::new(target, displacement, window);
        self.told_post(OneSidedCall::moving("rget", run.len(), target, window.handle), |engine| {
            let posted = engine.post_move::<R::Item>(RemoteKind::Get, (Span::EMPTY, run), run.len(), place);
            engine.token(posted, into, |engine, into| engine.get(into, target, displacement, window))
        })
    }

    /// Makes the token of an operation. If the operation was not posted, `at_once` does it now.
    pub(crate) fn token<B: Pieces>(
        &mut self,
        posted: Result<Posted, WindowError>,
        mut buffer: B,
        at_once: impl FnOnce(&mut Engine, &mut B) -> Result<(), WindowError>,
    ) -> PostedUpdate<B> {
        let done = match posted {
            Ok(Posted::Row(row)) => return Ok(self.hold(row, buffer, false)),
            Ok(Posted::Done) => Ok(()),
            Ok(Posted::Otherwise) => at_once(self, &mut buffer),
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => Ok(Request::ready(self.home, buffer, Rank::NULL.0, 0)),
            Err(error) => Err(RejectedUpdate { error, buffer }),
        }
    }

    /// As [`Engine::post_moves`], for one run whose place is still to be checked.
    pub(super) fn post_move<T>(
        &mut self,
        kind: RemoteKind,
        (from, into): (Span, Span),
        length: usize,
        PartPlace { rank, displacement, handle }: PartPlace,
    ) -> Result<Posted, WindowError> {
        if self.is_to_nobody(rank, handle)? {
            return Ok(Posted::Done);
        }
        let at = self.checked::<T>(rank, displacement, length, handle)?;
        self.post_moves(kind, &[RemoteMove { at, from, into, length }], rank, handle)
    }

    /// Posts operations of one kind with one request, if the target's engine or a fabric does them. If the kernel moves the bytes, it does
    /// so now: a put that is left for the target's engine would have to be waited for.
    pub(crate) fn post_moves(
        &mut self,
        kind: RemoteKind,
        moves: &[RemoteMove],
        rank: Rank,
        handle: u32,
    ) -> Result<Posted, WindowError> {
        if moves.is_empty() {
            // There is no way to nobody's part.
            return self.window_row(handle).map(|_| Posted::Done);
        }
        match self.way(rank, handle)? {
            way @ (Way::Kernel | Way::Fabric) if matches!(kind, RemoteKind::Put | RemoteKind::Get) => {
                let writes = kind == RemoteKind::Put;
                let runs: SmallVec<[_; 1]> =
                    moves.iter().map(|run| (run.at, if writes { run.from } else { run.into })).collect();
                if way == Way::Kernel {
                    return self.runs_by_kernel(&runs, writes, rank, handle).map(|()| Posted::Done);
                }
                if runs.len() > FABRIC_RUNS_MAX {
                    return Ok(Posted::Otherwise);
                }
                self.post_fabric(&runs, writes, (rank, handle), super::comm_of(handle)).map(Posted::Row)
            }
            Way::Memory | Way::Kernel => Ok(Posted::Otherwise),
            Way::Fabric | Way::Engine => {
                let posted = self.post_remote(kind, moves, (rank, handle), super::comm_of(handle))?;
                Ok(posted.map_or(Posted::Done, Posted::Row))
            }
        }
    }

    /// How a part is reached. The own one is always in memory.
    pub(super) fn way(&mut self, rank: Rank, handle: u32) -> Result<Way, WindowError> {
        Ok(match self.target(rank, handle)?.reach {
            Reach::Memory(_) => Way::Memory,
            Reach::Kernel { .. } => Way::Kernel,
            Reach::Fabric { .. } => Way::Fabric,
            Reach::Listed { .. } | Reach::Engine => Way::Engine,
        })
    }

    #[inline(never)]
    fn move_slowly<T>(
        &mut self,
        run: Span,
        writes: bool,
        rank: Rank,
        displacement: usize,
        handle: u32,
    ) -> Result<(), WindowError> {
        let call = OneSidedCall::moving(if writes { "put" } else { "get" }, run.len(), rank, handle);
        self.told(call, |engine| engine.move_any_way::<T>(run, writes, rank, displacement, handle))
    }

    fn move_any_way<T>(
        &mut self,
        run: Span,
        writes: bool,
        rank: Rank,
        displacement: usize,
        handle: u32,
    ) -> Result<(), WindowError> {
        if self.is_untried() {
            // SAFETY: the caller of the operation lends the run.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let go = |part: &Part, at| unsafe { if writes { part.put(at, run) } else { part.get(at, run) } };
            if let Some(target) = self.move_near::<T>(rank, displacement, handle, go) {
                target.ordered += u64::from(!writes);
                return Ok(());
            }
        }
        if self.is_to_nobody(rank, handle)? {
            return Ok(());
        }
        let at = self.checked::<T>(rank, displacement, run.len(), handle)?;
        self.move_run(at, run, writes, rank, handle)
    }

    /// Moves bytes to or from a place in a target's memory. It returns when the run may be used again.
    pub(crate) fn move_run(
        &mut self,
        at: usize,
        run: Span,
        writes: bool,
        rank: Rank,
        handle: u32,
    ) -> Result<(), WindowError> {
        match self.way(rank, handle)? {
            Way::Memory => self.runs_in_memory(&[(at, run)], writes, rank, handle),
            Way::Kernel if writes => self.put_by_kernel(at, run, rank, handle),
            Way::Kernel => {
                self.get_by_kernel(at, run, rank, handle)?;
                self.count_done(rank, handle)
            }
            Way::Fabric => self.runs_by_fabric(&[(at, run)], run, writes, (rank, handle)),
            Way::Engine => {
                let (kind, from, into, until) = match writes {
                    true => (RemoteKind::Put, run, Span::EMPTY, Until::Sent),
                    false => (RemoteKind::Get, Span::EMPTY, run, Until::Done),
                };
                self.run_remote(kind, RemoteMove { at, from, into, length: run.len() }, until, (rank, handle))
            }
        }
    }

    /// Whether a call has yet to try what short calls do by themselves: it is told, so it has not.
    #[inline(always)]
    pub(super) fn is_untried(&self) -> bool {
        !self.is_quick() && self.closed == Closed::No
    }

    /// Counts an operation that is done.
    pub(crate) fn count_done(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        let target = self.target(rank, handle)?;
        target.issued += 1;
        target.completed += 1;
        Ok(())
    }

    /// Moves runs to or from a target's memory by loads and stores, and counts them as one operation. The own memory may consist of several buffers.
    pub(super) fn runs_in_memory(
        &mut self,
        runs: &[(usize, Span)],
        writes: bool,
        rank: Rank,
        handle: u32,
    ) -> Result<(), WindowError> {
        let kind = if writes { RemoteKind::Put } else { RemoteKind::Get };
        let window = self.window_row(handle)?;
        for &(at, run) in runs {
            let place = match &window.targets[rank.0 as usize].reach {
                _ if window.rank == rank.0 => window.place(at, run.len()).filter(|_| window.permits(kind, at)),
                Reach::Memory(part) => Some((part, at)),
                _ => None,
            };
            // SAFETY: the caller of the operation lends the run.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let moved =
                place.is_some_and(|(part, at)| unsafe { if writes { part.put(at, run) } else { part.get(at, run) } });
            if !moved {
                let (first, end, length) = (at, at.saturating_add(run.len()), 0);
                return Err(match handle {
                    REGIONS => RequestError::OutOfBounds.into(),
                    _ => WindowError::OutOfBounds { target: rank, first, end, length },
                });
            }
        }
        let target = &mut window.targets[rank.0 as usize];
        (target.issued, target.completed) = (target.issued + 1, target.completed + 1);
        target.ordered += u64::from(!writes);
        Ok(())
    }
}
