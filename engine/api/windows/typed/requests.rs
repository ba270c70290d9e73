//! Operations with datatypes on both sides and a request: one for all of their runs. They are moved straight between the origin's buffer,
//! which the request keeps, and the part.

use super::super::moving::{Posted, Way};
use super::super::remote::RemoteMove;
use super::super::{PostedUpdate, RejectedUpdate};
use super::{Placed, updates};
use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::Engine;
use tickwire_components::{
    Datatype, Element, Elements, ElementsMut, Number, Pieces, Rank, RemoteKind, Span, Typed, TypedPair, Update, Window,
    WindowError,
};
use tickwire_transports::windows::Updater;

/// Splits an operation into moves that are one run each in the sent message, in the received message, and in the part. An empty message
/// splits nothing.
fn joint(placed: &[Placed], from: &[Span], into: &[Span]) -> Vec<RemoteMove> {
    let (mut from, mut into) = (Cursor::new(from), Cursor::new(into));
    let mut moves = Vec::with_capacity(placed.len());
    for run in placed {
        let (mut at, mut left) = (run.at, run.packed.len());
        while left > 0 {
            let length = left.min(from.room()).min(into.room());
            moves.push(RemoteMove { at, from: from.take(length), into: into.take(length), length });
            (at, left) = (at.wrapping_add(length), left - length);
        }
    }
    moves
}

/// A place in a message that is several runs.
struct Cursor<'a> {
    runs: &'a [Span],
    /// Bytes of the first one that are behind it.
    done: usize,
}

impl<'a> Cursor<'a> {
    fn new(runs: &'a [Span]) -> Self {
        Cursor { runs, done: 0 }
    }

    /// Bytes up to the end of the run.
    fn room(&self) -> usize {
        self.runs.first().map_or(usize::MAX, |run| run.len() - self.done)
    }

    /// The next so many bytes, not more than there is room.
    fn take(&mut self, length: usize) -> Span {
        let Some((run, rest)) = self.runs.split_first() else { return Span::EMPTY };
        let taken = run.part(self.done, length);
        self.done += length;
        if self.done == run.len() {
            (self.runs, self.done) = (rest, 0);
        }
        taken
    }
}

/// The runs of a message that have bytes.
fn runs<B: Elements>(typed: &Typed<B>) -> Vec<Span> {
    typed.runs(0, usize::MAX).filter(|run| !run.is_empty()).collect()
}

impl Engine {
    /// As [`Engine::put_typed`], with a request (`MPI_Rput`): it is done when all bytes are there. See [`Engine::rput`].
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Datatype, Engine, Rank, Typed};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// let world = engine.comm_world();
    /// let window = engine.win_allocate::<u32>(8, world)?;
    /// engine.win_fence(window)?;
    /// let (number, every_second) = (Datatype::of::<u32>(), Datatype::vector(4, 1, 2, &Datatype::of::<u32>())?);
    /// let from = Typed::new(vec![1u32, 2, 3, 4], &number, 4)?;
    /// let request = engine.rput_typed(from, Rank(0), 0, (&every_second, 1), window)?;
    /// engine.wait_take(request)?;
    /// engine.win_fence_last(window)?;
    /// let mut own = [0; 8];
    /// engine.win_read(&mut own, 0, window)?;
    /// assert_eq!(own, [1, 0, 2, 0, 3, 0, 4, 0]);
    /// engine.win_free(window)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Engine::put_typed`], or no row is free; the buffer comes back.
    pub fn rput_typed<B: Elements + Send + 'static, T: Element>(
        &mut self,
        from: Typed<B>,
        target: Rank,
        displacement: usize,
        of: (&Datatype, usize),
        window: Window<T>,
    ) -> PostedUpdate<Typed<B>> {
        let call = OneSidedCall::moving("rput_typed", from.size(), target, window.handle);
        self.told_post(call, |engine| {
            let placed = engine.runs_in::<T>(target, displacement, of, from.size(), window.handle);
            engine.rput_placed(from, placed, target, window.handle)
        })
    }

    /// Posts a put of a message to runs of a target's memory, unless the check of these has failed.
    pub(crate) fn rput_placed<B: Elements + Send + 'static>(
        &mut self,
        from: Typed<B>,
        placed: Result<Vec<Placed>, WindowError>,
        rank: Rank,
        handle: u32,
    ) -> PostedUpdate<Typed<B>> {
        let placed = match placed {
            Ok(placed) => placed,
            Err(error) => return Err(RejectedUpdate { error, buffer: from }),
        };
        let moves = joint(&placed, &runs(&from), &[]);
        let posted = self.post_moves(RemoteKind::Put, &moves, rank, handle);
        self.token(posted, from, |engine, from| {
            engine.put_placed(from, &placed, rank, handle)?;
            engine.flush_puts(rank, handle)
        })
    }

    /// As [`Engine::get_typed`], with a request (`MPI_Rget`): it is done when all bytes are in the buffer.
    ///
    /// # Errors
    /// As [`Engine::rput_typed`].
    pub fn rget_typed<B: ElementsMut + Send + 'static, T: Element>(
        &mut self,
        into: Typed<B>,
        target: Rank,
        displacement: usize,
        of: (&Datatype, usize),
        window: Window<T>,
    ) -> PostedUpdate<Typed<B>> {
        let call = OneSidedCall::moving("rget_typed", into.size(), target, window.handle);
        self.told_post(call, |engine| {
            let placed = engine.runs_in::<T>(target, displacement, of, into.size(), window.handle);
            engine.rget_placed(into, placed, target, window.handle)
        })
    }

    /// Posts a get of runs of a target's memory into a message, unless the check of these has failed.
    pub(crate) fn rget_placed<B: ElementsMut + Send + 'static>(
        &mut self,
        into: Typed<B>,
        placed: Result<Vec<Placed>, WindowError>,
        rank: Rank,
        handle: u32,
    ) -> PostedUpdate<Typed<B>> {
        let placed = match placed {
            Ok(placed) => placed,
            Err(error) => return Err(RejectedUpdate { error, buffer: into }),
        };
        let posted = match into.has_overlap() {
            // Elements of the buffer overlap. Which of two bytes is written last depends on the way they take, so none is posted.
            true => Ok(Posted::Otherwise),
            false => self.post_moves(RemoteKind::Get, &joint(&placed, &[], &runs(&into)), rank, handle),
        };
        self.token(posted, into, |engine, into| engine.get_placed(into, &placed, rank, handle))
    }

    /// As [`Engine::accumulate_typed`], with a request (`MPI_Raccumulate`): it is done when all elements are updated.
    ///
    /// # Errors
    /// As [`Engine::accumulate_typed`], or no row is free; the buffer comes back.
    pub fn raccumulate_typed<B: Elements + Send + 'static, T: Number, O: Update<T>>(
        &mut self,
        from: Typed<B>,
        operation: O,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> PostedUpdate<Typed<B>> {
        let call = OneSidedCall::moving("raccumulate_typed", from.size(), target, window.handle);
        self.told_post(call, |engine| {
            engine.raccumulate_typed_now(from, operation, target, displacement, (of, count), window)
        })
    }

    fn raccumulate_typed_now<B: Elements + Send + 'static, T: Number, O: Update<T>>(
        &mut self,
        from: Typed<B>,
        operation: O,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> PostedUpdate<Typed<B>> {
        let placed = self.aligned_runs::<T>(target, displacement, (of, count), from.size(), window.handle);
        let moves = placed.map(|placed| joint(&placed, &runs(&from), &[]));
        let kind = RemoteKind::Update(Updater::of::<T, O>().code);
        let posted = moves.and_then(|moves| self.post_updates::<T>(kind, &moves, target, window.handle));
        self.token(posted, from, |engine, from| {
            if matches!(engine.way(target, window.handle)?, Way::Memory | Way::Kernel) {
                return engine.accumulate_typed(&*from, operation, target, displacement, (of, count), window);
            }
            // This returns only once the updates are done at the target, so that the request says how they have ended.
            let mut operands = engine.operands(from, target, displacement, (of, count), window)?;
            engine.run_answered(kind, &updates(&mut operands, Span::EMPTY), (target, window.handle))
        })
    }

    /// As [`Engine::get_accumulate_typed`], with a request (`MPI_Rget_accumulate`): it is done when the values from before are in the
    /// second buffer.
    ///
    /// # Errors
    /// As [`Engine::get_accumulate_typed`], or no row is free; the buffers come back.
    pub fn rget_accumulate_typed<B, C, T: Number, O: Update<T>>(
        &mut self,
        (from, into): (Typed<B>, Typed<C>),
        operation: O,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> PostedUpdate<TypedPair<B, C>>
    where
        B: Elements + Send + 'static,
        C: ElementsMut + Send + 'static,
    {
        let call = OneSidedCall::moving("rget_accumulate_typed", from.size(), target, window.handle);
        self.told_post(call, |engine| {
            engine.rget_accumulate_typed_now((from, into), operation, target, displacement, (of, count), window)
        })
    }

    fn rget_accumulate_typed_now<B, C, T: Number, O: Update<T>>(
        &mut self,
        (from, into): (Typed<B>, Typed<C>),
        operation: O,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> PostedUpdate<TypedPair<B, C>>
    where
        B: Elements + Send + 'static,
        C: ElementsMut + Send + 'static,
    {
        let (given, needed) = (into.size(), from.size());
        if given != needed {
            let error = WindowError::Elements { what: "receive buffer (in bytes)", given, needed };
            return Err(RejectedUpdate { error, buffer: TypedPair { from, into } });
        }
        let placed = self.aligned_runs::<T>(target, displacement, (of, count), needed, window.handle);
        let moves = placed.map(|placed| joint(&placed, &runs(&from), &runs(&into)));
        let kind = RemoteKind::FetchUpdate(Updater::of::<T, O>().code);
        let posted = moves.and_then(|moves| match into.has_overlap() {
            true => Ok(Posted::Otherwise),
            false => self.post_updates::<T>(kind, &moves, target, window.handle),
        });
        self.token(posted, TypedPair { from, into }, |engine, TypedPair { from, into }| {
            let buffers = (&*from, into);
            engine.get_accumulate_typed(buffers, operation, target, displacement, (of, count), window)
        })
    }

    /// Posts updates with one request, unless the origin's datatype divides elements: then they are done at once.
    fn post_updates<T>(
        &mut self,
        kind: RemoteKind,
        moves: &[RemoteMove],
        rank: Rank,
        handle: u32,
    ) -> Result<Posted, WindowError> {
        match moves.iter().all(|run| (run.at | run.length).is_multiple_of(size_of::<T>())) {
            true => self.post_moves(kind, moves, rank, handle),
            false => Ok(Posted::Otherwise),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_where_one_of_them_ends() {
        let mut bytes = [0u8; 64];
        let base = bytes.as_mut_ptr();
        // SAFETY: within the array; nobody reads or writes them.
        #[expect(unsafe_code, reason = "lends local bytes")]
        let span = |first: usize, length| unsafe { Span::new(base.wrapping_add(first), length) };
        let placed = [Placed { packed: 0..5, at: 100 }, Placed { packed: 5..12, at: 200 }];
        let (from, into) = ([span(0, 3), span(10, 9)], [span(30, 6), span(40, 6)]);
        let found: Vec<_> = joint(&placed, &from, &into)
            .into_iter()
            .map(|RemoteMove { at, from, into, length }| {
                assert_eq!((from.len(), into.len()), (length, length));
                (at, from.start().addr() - base.addr(), into.start().addr() - base.addr(), length)
            })
            .collect();
        assert_eq!(found, [(100, 0, 30, 3), (103, 10, 33, 2), (200, 12, 35, 1), (201, 13, 40, 6)]);
        let alone: Vec<_> = joint(&placed, &[], &[span(0, 12)]).iter().map(|run| (run.at, run.length)).collect();
        assert_eq!(alone, [(100, 5), (200, 7)]);
        assert!(joint(&[], &[], &[]).is_empty());
    }
}
