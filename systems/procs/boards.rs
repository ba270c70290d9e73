//! The table of boards: for each communicator whose members are all on this host, the boards of its members and the operations that
//! run on them. What a board is: [`tickwire_transports::boards`]. How operations run: [`crate::protocols::board`].
//!
//! *Reads* nothing else. *Writes* its own table.
//! *Bound* the communicators with boards, or the persistent operations. What each poll needs takes one look ([`Boards::open`]).
//! *Why* boards belong to a communicator and outlive its operations. The row of a communicator may go to another one, so each entry keeps
//! the context word of its own.

use super::seats::Seats;
use crate::protocols::board::{Failure, Operation};
use bevy_ecs::component::Component;
use std::collections::VecDeque;
use tickwire_components::{Collective, Reduction, Row};

/// The boards of an engine. On its one row.
#[derive(Component, Default)]
#[component(immutable, on_discard = tickwire_components::refuse_removal)]
pub struct Boards {
    /// By the row of the communicator. For rows beyond the end, nobody has tried to open boards.
    pub comms: Vec<CommBoards>,
    /// Rows of communicators with operations in progress.
    pub busy: Vec<Row>,
    /// Persistent operations, by number; `None` is free.
    pub persistent: Vec<Option<PersistentCall>>,
    /// Room for values that are reduced on the way.
    pub scratch: Box<[u128]>,
    /// How often a long operation that has moved a chunk looks for the next chunk of the others before it returns: [`BOARD_POLLS`] where
    /// each member has its own processor, else 0. Written when boards are opened.
    ///
    /// [`BOARD_POLLS`]: tickwire_components::limits::BOARD_POLLS
    pub patience: u32,
}

/// A persistent operation that runs on boards, or will as soon as there are some.
pub struct PersistentCall {
    /// The row of its request.
    pub request: Row,
    /// How many persistent operations of its communicator were made before it.
    pub made: u32,
    /// How many times it has been started, by messages or on boards.
    pub starts: u32,
    /// The graph by which it runs over messages until somebody opens boards. `NIL` once it runs on boards.
    pub graph: u32,
    /// What it starts.
    pub call: Collective,
    /// How elements are reduced, if they are.
    pub reduction: Option<Reduction>,
    /// Where its buffers are.
    pub buffers: Box<[tickwire_components::Span]>,
    /// Room for a copy of its operand ([`Operation::copy`]), once a start has needed one. An operation in progress has it.
    pub copy: Option<Box<[u128]>>,
    /// Whether it has failed. Then it is not started again.
    pub failed: bool,
}

/// Whether a communicator has boards.
#[derive(Default)]
pub struct CommBoards {
    /// The context word of the communicator. It tells whether the row has gone to another communicator since.
    pub context: u32,
    /// Whether that communicator has boards.
    pub standing: Standing,
}

/// See [`CommBoards`].
#[derive(Default)]
pub enum Standing {
    /// Nobody has tried yet.
    #[default]
    Untried,
    /// It has none: not all members are on this host, one of them could make none, or one has failed while they were made. In the last
    /// case others may have made theirs; they have been told that this member takes no part.
    None,
    /// It has.
    Open(Box<Members>),
}

/// The members of a communicator with boards.
pub struct Members {
    /// Their boards.
    pub seats: Seats,
    /// Operations in progress, in the order of their numbers. The first one runs.
    pub queue: VecDeque<Operation>,
    /// How operations without a request have ended, by number. The caller that waits for one takes its entry out.
    pub ended: Vec<(u64, Result<(), Failure>)>,
}

impl Boards {
    /// The members of a communicator that has boards.
    #[inline(always)]
    pub fn open(&mut self, row: usize, context: u32) -> Option<&mut Members> {
        match self.comms.get_mut(row) {
            Some(CommBoards { context: of, standing: Standing::Open(members) }) if *of == context => Some(members),
            _ => None,
        }
    }

    /// Whether nobody has tried to open those of a communicator.
    pub fn is_untried(&self, row: usize, context: u32) -> bool {
        let known = self.comms.get(row).filter(|known| known.context == context);
        known.is_none_or(|known| matches!(known.standing, Standing::Untried))
    }

    /// Says whether a communicator has boards.
    pub fn set(&mut self, row: usize, context: u32, standing: Standing) {
        if self.comms.len() <= row {
            self.comms.resize_with(row + 1, CommBoards::default);
        }
        self.comms[row] = CommBoards { context, standing };
    }

    /// Takes the room for a copy back from an operation that has ended, if it is persistent.
    pub fn keep_copy(&mut self, operation: &mut Operation) {
        let request = operation.request;
        if operation.copy.is_some()
            && let Some(kept) = self.persistent.iter_mut().flatten().find(|kept| kept.request == request)
        {
            kept.copy = operation.copy.take();
        }
    }

    /// Removes the persistent operation of a request, if there is one. Returns the number of its graph, or `NIL` if it runs on boards.
    pub fn forget_persistent(&mut self, request: Row) -> Option<u32> {
        let is_its = |kept: &&mut Option<PersistentCall>| kept.as_ref().is_some_and(|kept| kept.request == request);
        self.persistent.iter_mut().find(is_its)?.take().map(|kept| kept.graph)
    }

    /// The members of all communicators with boards.
    pub fn open_ones(&self) -> impl Iterator<Item = &Members> {
        self.comms.iter().filter_map(|comm| match &comm.standing {
            Standing::Open(members) => Some(&**members),
            _ => None,
        })
    }

    /// How many communicators have boards.
    pub fn count(&self) -> usize {
        self.open_ones().count()
    }

    /// Forgets those of a communicator that is gone. The caller tells the other members that this one has left.
    pub fn forget(&mut self, row: usize) -> Option<Box<Members>> {
        match std::mem::take(self.comms.get_mut(row)?).standing {
            Standing::Open(members) => Some(members),
            _ => None,
        }
    }
}
