//! A value that is told once, and the future that awaits it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The receiving end: a future of the value.
pub(crate) struct Promise<T>(Arc<Mutex<Shared<T>>>);

/// The sending end. If it is dropped before it has told a value, it tells `untold`.
pub(crate) struct Teller<T> {
    shared: Arc<Mutex<Shared<T>>>,
    untold: Option<T>,
}

struct Shared<T>(State<T>);

enum State<T> {
    /// No value was told yet. Holds the waker of the task that waits, if any.
    Awaited(Option<Waker>),
    Told(T),
    Taken,
    /// The receiving end is gone.
    Abandoned,
}

/// Makes both ends. `untold` is the value if the sending end is dropped without telling one.
pub(crate) fn promise<T>(untold: T) -> (Teller<T>, Promise<T>) {
    let shared = Arc::new(Mutex::new(Shared(State::Awaited(None))));
    (Teller { shared: shared.clone(), untold: Some(untold) }, Promise(shared))
}

fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Teller<T> {
    pub(crate) fn tell(self, value: T) {
        self.tell_or_keep(value);
    }

    /// Tells the value. Returns it if the other end was [abandoned](Promise::abandon).
    pub(crate) fn tell_or_keep(mut self, value: T) -> Option<T> {
        self.untold = None;
        self.put(value)
    }

    fn put(&self, value: T) -> Option<T> {
        let before = {
            let mut shared = lock(&self.shared);
            if let State::Abandoned = shared.0 {
                return Some(value);
            }
            std::mem::replace(&mut shared.0, State::Told(value))
        };
        if let State::Awaited(Some(waker)) = before {
            waker.wake();
        }
        None
    }
}

impl<T> Promise<T> {
    /// Ends the wait. Returns the value if it was told and not taken.
    pub(crate) fn abandon(&self) -> Option<T> {
        match std::mem::replace(&mut lock(&self.0).0, State::Abandoned) {
            State::Told(value) => Some(value),
            State::Awaited(_) | State::Taken | State::Abandoned => None,
        }
    }
}

impl<T> Drop for Teller<T> {
    fn drop(&mut self) {
        if let Some(value) = self.untold.take() {
            // The waker is code of somebody else. If it panics, the drop must still go on.
            let _ = catch_unwind(AssertUnwindSafe(|| self.put(value)));
        }
    }
}

impl<T> Future for Promise<T> {
    type Output = Option<T>;

    /// Returns the value, or `None` if it was taken before.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut shared = lock(&self.0);
        if let State::Awaited(waker) = &mut shared.0 {
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut shared.0, State::Taken) {
            State::Told(value) => Poll::Ready(Some(value)),
            _ => Poll::Ready(None),
        }
    }
}
