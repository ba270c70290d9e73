//! Persistent collective operations: making them, and starting those that run by messages.

use super::choice::Choice;
use super::{Call, Draw};
use crate::api::persistent::Persistent;
use crate::api::request::Rejected;
use crate::run::engine::Engine;
use tickwire_components::{Comm, NIL, Pieces, PostError, Row, Span};
use tickwire_systems::tick::complete::start_graph;

impl Engine {
    /// Makes a persistent operation.
    pub(crate) fn init_collective<B: Pieces>(
        &mut self,
        call: Call<B, impl Draw<B>>,
        comm: Comm,
        scoped: bool,
    ) -> Result<Persistent<B>, Rejected<B>> {
        let Call { name, buffer, draw, .. } = call;
        let built = self.lending(|engine| {
            let mut draft = match engine.choose_boards(comm, &buffer, draw)? {
                Choice::Boards(call, reduction) => {
                    let buffers = (0..buffer.pieces()).map(|index| buffer.piece(index)).collect();
                    let row = engine.request_row(comm)?;
                    // By messages it has such a number too: all members count alike.
                    let (made, _) = engine.next_call(comm, true);
                    return Ok(Built::Boards(row, engine.keep_on_boards((row, NIL, made), (call, reduction), buffers)));
                }
                Choice::Drawn(draft) => draft,
                Choice::NotYet(draw) => engine.draw(comm, &buffer, draw)?,
            };
            if draft.acts.is_empty() {
                // Every graph ends by Complete, so it has at least one node.
                draft.copy(Span::EMPTY, Span::EMPTY, &[]);
            }
            let (row, context) = engine.context_of(comm);
            let may_open = engine.store.all().boards.is_untried(row, context);
            let later = draft.on_boards.filter(|_| may_open).map(|call| (call, draft.reduction.clone()));
            let buffers: Box<[Span]> = (0..buffer.pieces()).map(|index| buffer.piece(index)).collect();
            let number = engine.build_graph(name, comm, draft, None, Some(buffers.clone()))?;
            Ok(match later {
                None => Built::Graph(number),
                Some(call) => {
                    let graph = engine.store.progress().graphs.get(number);
                    let (row, made) = graph.map_or((NIL, 0), |graph| (graph.request, graph.call));
                    Built::Boards(row, engine.keep_on_boards((row, number, made), call, buffers))
                }
            })
        });
        match built {
            Ok(Built::Boards(row, number)) => Ok(Persistent::on_boards(self.hold(row, buffer, scoped), number, comm)),
            Ok(Built::Graph(number)) => {
                let row = self.store.progress().graphs.get(number).map_or(NIL, |graph| graph.request);
                Ok(Persistent::of_graph(self.hold(row, buffer, scoped), number, comm))
            }
            Err(error) => Err(Rejected { error: self.raise_post(comm, name, error), buffer }),
        }
    }

    /// Starts a persistent operation whose request has this row, and notes that if a sink is told.
    pub(crate) fn start_noted(
        &mut self,
        (row, comm): (Row, Comm),
        name: impl FnOnce(&mut Engine) -> &'static str,
        start: impl FnOnce(&mut Engine) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        if !self.watching.tells() {
            return start(self);
        }
        let name = name(self);
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
    /// The row holds a buffer of this type.
    #[expect(unsafe_code, reason = "type-erased ownership")]
    pub(crate) unsafe fn start_graph<B: Pieces>(&mut self, row: Row, number: u32) -> Result<(), PostError> {
        let tables = self.store.all();
        // SAFETY: by the same contract.
        let buffer = unsafe { tables.held[row as usize].0.get::<B>() }.ok_or(PostError::Stale)?;
        let graph = tables.progress.graphs.get(number).ok_or(PostError::Stale)?;
        if !is_unmoved(buffer, &graph.buffers) {
            return Err(PostError::Moved);
        }
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

/// A persistent operation that was made.
enum Built {
    /// The row of its request, and its number among the persistent operations on boards. It runs on boards as soon as there are some.
    Boards(Row, u32),
    /// The number of its graph.
    Graph(u32),
}

/// Whether a buffer still consists of these runs.
pub(super) fn is_unmoved<B: Pieces>(buffer: &B, runs: &[Span]) -> bool {
    let is_there = |(index, run): (usize, &Span)| {
        let now = buffer.piece(index);
        std::ptr::eq(now.start(), run.start()) && now.len() == run.len()
    };
    buffer.pieces() == runs.len() && runs.iter().enumerate().all(is_there)
}
