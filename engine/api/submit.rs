//! Other threads submit operations through a lock-free queue, and await them.

mod call;
mod submitted;

pub use call::Called;
pub use submitted::Submitted;

use crate::api::send_options::SendOptions;
use crate::run::engine::Engine;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tickwire_components::submission::{Answer, Operation, OwedToThread, Submission, Submissions, Task};
use tickwire_components::{
    Comm, IntoBuffer, Lease, LeasedBytes, Lent, Panic, Pieces, PostError, Rank, RequestError, RequestId, Row, Source,
    Tag, TagFilter,
};
use tickwire_systems::steps::finish::free_request;
use tickwire_systems::store::words_of;

/// Values of `Submissions::closed`.
const CLOSED_FINALIZED: u32 = 1;
/// See [`CLOSED_FINALIZED`].
const CLOSED_POISONED: u32 = 2;

/// A handle by which any thread submits operations to an engine. Clones are the same handle.
///
/// The engine takes submitted operations in when its owner ticks or waits. Operations of one thread are posted in the order of their
/// submission.
#[derive(Clone)]
pub struct Submitter {
    shared: Arc<Submissions>,
}

impl Engine {
    /// A handle for other threads.
    pub fn submitter(&mut self) -> Submitter {
        Submitter { shared: self.submissions.clone() }
    }

    /// Tells other threads how all of their finished operations ended. Returns the panic of a waker, if one has panicked.
    #[cold]
    pub(crate) fn answer_submissions(&mut self) -> Option<Panic> {
        let mut panicked = None;
        // A call that is run here may end operations that other threads await.
        while !self.store.progress().owed_to_threads.is_empty() {
            let mut owed = std::mem::take(&mut self.store.progress().owed_to_threads);
            // Calls come last. They may wait for what a thread does after it has heard of the end of an earlier operation.
            owed.sort_by_key(|owed| matches!(owed, OwedToThread::Call));
            for owed in owed {
                panicked = panicked.or(match owed {
                    OwedToThread::Outcome(row) => self.answer(row),
                    OwedToThread::Call => self.run_call(),
                });
                if self.is_lost() {
                    return panicked;
                }
            }
        }
        panicked
    }

    /// Tells another thread how the operation of a row has ended.
    fn answer(&mut self, row: Row) -> Option<Panic> {
        let all = self.store.all();
        let (slot, generation) = (all.callbacks.take_slot(row), all.requests[row as usize].generation);
        // A sink or an error handler of the application may panic in it. The thread that waits must be told all the same.
        let told = catch_unwind(AssertUnwindSafe(|| self.outcome(RequestId { row, generation })));
        let (outcome, panicked) = match told {
            Ok(outcome) => (outcome, None),
            Err(panic) => (Err(RequestError::Poisoned(words_of(&*panic))), Some(panic)),
        };
        if self.is_lost() {
            return panicked;
        }
        let tables = self.store.all();
        let lease = std::mem::take(&mut tables.held[row as usize].0);
        free_request(tables.progress, tables.cars, tables.requests, row);
        let Some(slot) = slot else { return panicked };
        panicked.or(self.submissions.answer(slot, Answer::Done(outcome), lease))
    }

    /// Refuses all operations that were submitted and are not done, and all later ones. The engine is closed, so panics of wakers change
    /// nothing.
    pub(crate) fn refuse_submissions(&mut self) {
        let error = self.closed.post_error();
        let why = if matches!(error, PostError::Poisoned(_)) { CLOSED_POISONED } else { CLOSED_FINALIZED };
        let closed = self.submissions.closed.swap(why, Ordering::SeqCst) != 0;
        let inbound = self.store.all().inbound;
        while let Some(task) = inbound.pop_any() {
            let _ = task.refuse(&self.submissions, &error);
        }
        if !closed {
            self.submissions.refuse_rest(&self.closed.request_error());
        }
    }
}

impl Submitter {
    /// Submits a send. See [`Engine::isend`].
    ///
    /// # Errors
    /// If all slots are in use or the engine is closed. The error gives the buffer back.
    pub fn isend<B: IntoBuffer<Buffer: Send + 'static>>(
        &self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Submitted<B::Buffer>, crate::Rejected<B::Buffer>> {
        self.isend_with(buffer, to, tag, comm, SendOptions::new())
    }

    /// Submits a send with a mode and a priority. See [`Engine::isend_with`].
    ///
    /// # Errors
    /// As [`Submitter::isend`].
    pub fn isend_with<B: IntoBuffer<Buffer: Send + 'static>>(
        &self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        options: SendOptions,
    ) -> Result<Submitted<B::Buffer>, crate::Rejected<B::Buffer>> {
        self.enqueue(buffer.into_buffer(), Operation::Send { to, tag }, comm, options)
    }

    /// Submits a receive. See [`Engine::irecv`]. A receive from any source ends with
    /// [`RequestError::PeerFailed`](crate::RequestError::PeerFailed) if a member of the communicator has failed or fails, and the engine's
    /// owner has not acknowledged the failure: there is no other way to tell the submitter.
    ///
    /// # Errors
    /// If all slots are in use or the engine is closed. The error gives the buffer back.
    pub fn irecv<B: IntoBuffer<Buffer: LeasedBytes + Send + 'static>>(
        &self,
        buffer: B,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Submitted<B::Buffer>, crate::Rejected<B::Buffer>> {
        let buffer = buffer.into_buffer();
        if buffer.has_overlap() {
            return Err(crate::Rejected { error: PostError::Overlap, buffer });
        }
        let operation = Operation::Receive { source: source.into(), tag: tag.into() };
        self.enqueue(buffer, operation, comm, SendOptions::new())
    }

    /// Why the engine takes nothing any more, if it is closed.
    fn refusal(&self) -> Option<PostError> {
        match self.shared.closed.load(Ordering::SeqCst) {
            0 => None,
            CLOSED_POISONED => Some(PostError::Poisoned("a system has panicked".into())),
            _ => Some(PostError::Finalized),
        }
    }

    fn enqueue<B: Pieces + Send + 'static>(
        &self,
        buffer: B,
        operation: Operation,
        comm: Comm,
        options: SendOptions,
    ) -> Result<Submitted<B>, crate::Rejected<B>> {
        if let Some(error) = self.refusal() {
            return Err(crate::Rejected { error, buffer });
        }
        let Some(slot) = self.shared.free.pop() else {
            let rows = self.shared.slots.len();
            let error = PostError::Full { table: "submission", rows, limit: "submissions_max" };
            return Err(crate::Rejected { error, buffer });
        };
        // SAFETY: the buffer goes with its addresses, and neither is used without the other.
        #[expect(unsafe_code, reason = "addresses apart from their buffer")]
        let lent = unsafe { Lent::of(&buffer) };
        let mut lease = Lease::default();
        lease.put(buffer);
        let (flags, priority) = (options.flags(), options.own_priority());
        let submission = Submission { operation, flags, priority, comm: comm.0, lent, lease, slot };
        let generation = self.shared.slots[slot as usize].lock().unwrap_or_else(PoisonError::into_inner).generation;
        // A thread that holds a slot always finds room in the queue.
        self.push(Task::Operation(submission));
        Ok(Submitted::new(self.shared.clone(), slot, generation))
    }

    /// Hands a task to the engine. The queue has room for it.
    fn push(&self, task: Task) {
        let pushed = self.shared.queue.push(task);
        debug_assert!(pushed.is_ok());
        if let Some(error) = self.refusal() {
            // The engine was closed meanwhile. Whoever still finds the task in the queue refuses it.
            while let Some(late) = self.shared.queue.pop() {
                // A panic of another submitter's waker does not concern this caller.
                let _ = late.refuse(&self.shared, &error);
            }
        }
        self.shared.ring();
    }
}
