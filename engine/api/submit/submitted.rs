//! Operations that another thread has submitted, as futures of their buffers and statuses.

use crate::api::request::Failed;
use crate::run::park::block_on;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use tickwire_components::submission::{Answer, SlotState, Submissions};
use tickwire_components::{NIL, RequestError, Status};

/// An operation that was submitted: a future of its buffer and status. Dropping it does not withdraw the operation.
#[must_use = "dropping a submission abandons its outcome; await it or call wait"]
pub struct Submitted<B> {
    pub(super) shared: Arc<Submissions>,
    pub(super) slot: u32,
    /// How often the slot was used before: tells this use from later ones.
    pub(super) generation: u32,
    marker: PhantomData<B>,
}

impl<B> Submitted<B> {
    pub(super) fn new(shared: Arc<Submissions>, slot: u32, generation: u32) -> Self {
        Submitted { shared, slot, generation, marker: PhantomData }
    }
}

/// The result of a submitted operation: its buffer and status.
type Outcome<B> = Result<(B, Status), Failed<B>>;

impl<B: 'static> Submitted<B> {
    /// Blocks this thread until the operation has ended. The engine's owner must tick meanwhile.
    ///
    /// # Errors
    /// The error with which the operation ended.
    pub fn wait(self) -> Outcome<B> {
        block_on(self)
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
                let left = state.clear();
                drop(state);
                drop(left);
                self.slot = NIL;
                shared.put_back(slot);
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
            let left = state.clear();
            drop(state);
            drop(left);
            self.shared.put_back(self.slot);
        } else {
            state.abandoned = true;
            state.waker = None;
        }
    }
}
