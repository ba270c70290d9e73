//! Persistent collective operations: making them, and starting those that run by messages.

use super::choice::Choice;
use super::{AnyCall, Call, Draw};
use crate::api::persistent::{Persistent, What};
use crate::api::request::Rejected;
use crate::run::engine::Engine;
use tickwire_components::{Comm, Lease, NIL, Pieces, PostError, Row, Span};
use tickwire_systems::tick::complete::start_graph;

impl Engine {
    /// Makes a persistent operation.
    pub(crate) fn init_collective<B: Pieces>(
        &mut self,
        call: Call<B, impl Draw<B>>,
        comm: Comm,
        scoped: bool,
    ) -> Result<Persistent<B>, Rejected<B>> {
        let name = call.name;
        let (buffer, built) = call.with(comm, |call| self.init_any(call));
        match built {
            Ok((row, what)) => Ok(Persistent::collective(self.hold(row, buffer, scoped), what, comm)),
            Err(error) => Err(Rejected { error: self.raise_post(comm, name, error), buffer }),
        }
    }

    /// Makes a persistent operation. Returns the row of its request, and what a start starts.
    fn init_any(&mut self, call: &mut AnyCall<'_>) -> Result<(Row, What), PostError> {
        let comm = call.comm;
        self.lending(|engine| {
            let buffers: Box<[Span]> = (0..call.buffer.pieces()).map(|index| call.buffer.piece(index)).collect();
            let mut draft = match engine.choose_boards(call)? {
                Choice::Boards(collective, reduction) => {
                    let row = engine.request_row(comm)?;
                    // By messages it has such a number too: all members count alike.
                    let (made, _) = engine.next_call(comm, true);
                    let number = engine.keep_on_boards((row, NIL, made), (collective, reduction), buffers);
                    return Ok((row, What::Boards(number)));
                }
                Choice::Drawn(draft) => draft,
                Choice::NotYet => engine.draw(call)?,
            };
            if draft.acts.is_empty() {
                // Every graph ends by Complete, so it has at least one node.
                draft.copy(Span::EMPTY, Span::EMPTY, &[]);
            }
            let (row, context) = engine.context_of(comm);
            let may_open = engine.store.all().boards.is_untried(row, context);
            let later = draft.on_boards.filter(|_| may_open).map(|call| (call, draft.reduction.clone()));
            let number = engine.build_graph(call.name, comm, draft, None, Some(buffers.clone()))?;
            let graph = engine.store.progress().graphs.get(number);
            let (row, made) = graph.map_or((NIL, 0), |graph| (graph.request, graph.call));
            Ok(match later {
                None => (row, What::Graph(number)),
                // It runs on boards as soon as there are some.
                Some(later) => (row, What::Boards(engine.keep_on_boards((row, number, made), later, buffers))),
            })
        })
    }

    /// Starts a persistent operation whose request has this row, and notes that if a sink is told.
    pub(crate) fn start_noted(
        &mut self,
        (row, comm): (Row, Comm),
        name: fn(&mut Engine, u32) -> &'static str,
        number: u32,
        start: impl FnOnce(&mut Engine) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        if !self.watching.tells() {
            return start(self);
        }
        let name = name(self, number);
        let noted = self.note_start(name, comm);
        let started = start(self);
        if let Some(noted) = noted {
            self.note_started(noted, started.is_ok().then_some(row));
        }
        started
    }

    /// The name of a persistent operation, by its graph.
    pub(crate) fn name_of_graph(&mut self, number: u32) -> &'static str {
        self.store.progress().graphs.get(number).map_or("", |graph| graph.name)
    }

    /// The name of a persistent operation, by its number among those on boards.
    pub(crate) fn name_of_kept(&mut self, number: u32) -> &'static str {
        let kept = self.store.all().boards.persistent.get(number as usize).and_then(Option::as_ref);
        kept.map_or("", |kept| kept.call.kind.name())
    }

    /// Starts the graph of a persistent operation that is not active. `row` is its request, `number` its graph.
    ///
    /// # Safety
    /// `check` is for the type of the buffer that the row holds.
    #[expect(unsafe_code, reason = "type-erased ownership")]
    pub(crate) unsafe fn start_graph(&mut self, row: Row, number: u32, check: BufferCheck) -> Result<(), PostError> {
        let tables = self.store.all();
        let graph = tables.progress.graphs.get(number).ok_or(PostError::Stale)?;
        // SAFETY: by the same contract.
        unsafe { check(&tables.held[row as usize].0, &graph.buffers) }?;
        let (comm, has_failed, is_collective) = (graph.comm, graph.failed, graph.blocks.is_none());
        if is_collective {
            // Others may run the operation on boards, so it takes a number there, as a call by messages does.
            self.refuse_on_boards(comm);
        }
        if has_failed {
            return Err(PostError::HasFailed);
        }
        // A function of the application may panic in it.
        self.lending(|engine| engine.store.with(|rows, wire| start_graph(rows, wire, number)));
        Ok(())
    }
}

/// [`check_buffer`] for one type of buffer. It spares the functions that take it a copy for each type.
pub(crate) type BufferCheck = unsafe fn(&Lease, &[Span]) -> Result<(), PostError>;

/// Checks that the buffer of a request still consists of these runs: the application may have replaced it.
///
/// # Safety
/// The lease holds a buffer of this type, if any.
#[expect(unsafe_code, reason = "type-erased ownership")]
pub(crate) unsafe fn check_buffer<B: Pieces>(lease: &Lease, runs: &[Span]) -> Result<(), PostError> {
    // SAFETY: by the same contract.
    let buffer = unsafe { lease.get::<B>() }.ok_or(PostError::Stale)?;
    let is_there = |(index, run): (usize, &Span)| {
        let now = buffer.piece(index);
        std::ptr::eq(now.start(), run.start()) && now.len() == run.len()
    };
    let is_unmoved = buffer.pieces() == runs.len() && runs.iter().enumerate().all(is_there);
    if is_unmoved { Ok(()) } else { Err(PostError::Moved) }
}
