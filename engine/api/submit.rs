//! Other threads: they submit operations through a lock-free queue and await them.

use crate::api::request::Failed;
use crate::run::engine::Engine;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use tickwire_components::submission::{Answer, Operation, SlotState, Submission, Submissions};
use tickwire_components::{
    Comm, IntoBuffer, Lease, LeasedBytes, Lent, NIL, Panic, Pieces, PostError, Rank, RequestError, RequestId, Source,
    Status, Tag, TagFilter,
};
use tickwire_systems::steps::finish::free_request;

/// Values of `Submissions::closed`.
const CLOSED_FINALIZED: u32 = 1;
/// See [`CLOSED_FINALIZED`].
const CLOSED_POISONED: u32 = 2;

/// A handle by which any thread submits operations to an engine. Clones are the same handle.
///
/// The engine takes them in when its owner ticks or waits. Order is that of submission, per thread.
#[derive(Clone)]
pub struct Submitter {
    shared: Arc<Submissions>,
}

/// An operation that was submitted: a future of its buffer and status. Dropping it leaves the operation to the engine.
#[must_use = "dropping a submission abandons its outcome; await it or call wait"]
pub struct Submitted<B> {
    shared: Arc<Submissions>,
    slot: u32,
    marker: PhantomData<B>,
}

impl Engine {
    /// A handle for other threads.
    pub fn submitter(&mut self) -> Submitter {
        Submitter { shared: self.submissions.clone() }
    }

    /// Tells other threads how their operations ended, all of them; what a waker has panicked with meanwhile.
    #[cold]
    pub(crate) fn answer_submissions(&mut self) -> Option<Panic> {
        let mut panicked = None;
        let answers = std::mem::take(&mut self.store.progress().answers);
        for row in answers {
            let all = self.store.all();
            let (slot, generation) = (all.callbacks.take_slot(row), all.requests[row as usize].generation);
            let outcome = self.outcome(RequestId { row, generation });
            let tables = self.store.all();
            let lease = std::mem::take(&mut tables.held[row as usize].0);
            free_request(tables.progress, tables.cars, tables.requests, row);
            let Some(slot) = slot else { continue };
            panicked = panicked.or(self.submissions.answer(slot, Answer::Done(outcome), lease));
        }
        panicked
    }

    /// Refuses what was submitted and is not done, and all that comes. The engine is closed: what wakers panic with changes
    /// nothing.
    pub(crate) fn refuse_submissions(&mut self) {
        let error = self.closed.post_error();
        let why = if matches!(error, PostError::Poisoned(_)) { CLOSED_POISONED } else { CLOSED_FINALIZED };
        let closed = self.submissions.closed.swap(why, Ordering::SeqCst) != 0;
        let inbound = self.store.all().inbound;
        while let Some(submission) = inbound.pop() {
            let _ = self.submissions.answer(submission.slot, Answer::Refused(error.clone()), submission.lease);
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
    /// If all slots are in use or the engine is closed; the buffer comes back.
    pub fn isend<B: IntoBuffer<Buffer: Send + 'static>>(
        &self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Submitted<B::Buffer>, crate::Rejected<B::Buffer>> {
        self.submit(buffer.into_buffer(), Operation::Send { to, tag }, comm)
    }

    /// Submits a receive. See [`Engine::irecv`]. One from any source ends with [`RequestError::PeerFailed`] if a member of the
    /// communicator fails, or has failed, and the engine's owner has not acknowledged that: there is no other way to tell.
    ///
    /// # Errors
    /// If all slots are in use or the engine is closed; the buffer comes back.
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
        self.submit(buffer, Operation::Receive { source: source.into(), tag: tag.into() }, comm)
    }

    /// Why the engine takes nothing any more, if so.
    fn refusal(&self) -> Option<PostError> {
        match self.shared.closed.load(Ordering::SeqCst) {
            0 => None,
            CLOSED_POISONED => Some(PostError::Poisoned("a system has panicked".into())),
            _ => Some(PostError::Finalized),
        }
    }

    fn submit<B: Pieces + Send + 'static>(
        &self,
        buffer: B,
        operation: Operation,
        comm: Comm,
    ) -> Result<Submitted<B>, crate::Rejected<B>> {
        if let Some(error) = self.refusal() {
            return Err(crate::Rejected { error, buffer });
        }
        let Some(slot) = self.shared.free.pop() else {
            let rows = self.shared.slots.len();
            let error = PostError::Full { table: "submission", rows, limit: "SUBMISSION_SLOTS" };
            return Err(crate::Rejected { error, buffer });
        };
        // SAFETY: the buffer goes with its addresses, and neither is used without the other.
        #[expect(unsafe_code, reason = "addresses apart from their buffer")]
        let lent = unsafe { Lent::of(&buffer) };
        let mut lease = Lease::default();
        lease.put(buffer);
        let submission = Submission { operation, comm: comm.0, lent, lease, slot };
        // As many places as slots: there is room for whoever holds a slot.
        let pushed = self.shared.queue.push(submission);
        debug_assert!(pushed.is_ok());
        if let Some(error) = self.refusal() {
            // Closed meanwhile: whoever still finds it in the queue refuses it.
            while let Some(late) = self.shared.queue.pop() {
                // The panic of another one's waker is not this caller's.
                let _ = self.shared.answer(late.slot, Answer::Refused(error.clone()), late.lease);
            }
        }
        self.shared.ring();
        Ok(Submitted { shared: self.shared.clone(), slot, marker: PhantomData })
    }
}

/// What a submitted operation gives: its buffer and status.
type Outcome<B> = Result<(B, Status), Failed<B>>;

impl<B: 'static> Submitted<B> {
    /// Blocks this thread until the operation has ended. The engine's owner must tick meanwhile.
    ///
    /// # Errors
    /// How the operation ended if not well.
    pub fn wait(mut self) -> Outcome<B> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    fn take(&mut self, state: &mut SlotState) -> Option<Outcome<B>> {
        let (answer, mut lease) = state.answer.take()?;
        // SAFETY: the token's type is the one its buffer was put with.
        #[expect(unsafe_code, reason = "type-erased ownership")]
        let buffer = unsafe { lease.take::<B>() };
        let error = match answer {
            Answer::Done(Ok(status)) => match buffer {
                Some(buffer) => return Some(Ok((buffer, status))),
                None => return Some(Err(Failed::ended(RequestError::Stale, None))),
            },
            Answer::Done(Err(error)) => error,
            Answer::Refused(error) => RequestError::NotPosted(error),
        };
        Some(Err(Failed::ended(error, buffer)))
    }
}

impl<B: 'static> Future for Submitted<B> {
    type Output = Outcome<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<B>> {
        let slot = self.slot;
        if slot == NIL {
            return Poll::Ready(Err(Failed::ended(RequestError::Stale, None)));
        }
        let shared = self.shared.clone();
        let mut state = shared.slots[slot as usize].lock().unwrap_or_else(PoisonError::into_inner);
        match self.take(&mut state) {
            Some(outcome) => {
                drop(state);
                self.slot = NIL;
                let _ = shared.free.push(slot);
                Poll::Ready(outcome)
            }
            None => {
                if !state.waker.as_ref().is_some_and(|w| w.will_wake(context.waker())) {
                    state.waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl<B> Unpin for Submitted<B> {}

impl<B> Drop for Submitted<B> {
    fn drop(&mut self) {
        if self.slot == NIL {
            return;
        }
        let mut state = self.shared.slots[self.slot as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if state.answer.is_some() {
            *state = SlotState::default();
            drop(state);
            let _ = self.shared.free.push(self.slot);
        } else {
            state.abandoned = true;
            state.waker = None;
        }
    }
}
