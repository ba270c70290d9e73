//! What other threads hand to the engine, and the slots in which they await the answer.

use crate::{Exclusive, Lease, Lent, Panic, PostError, Rank, RequestError, Source, Status, Tag, TagFilter};
use bevy_ecs::component::Component;
use crossbeam_queue::ArrayQueue;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// What another thread wants done, and with whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A send.
    Send {
        /// Where to.
        to: Rank,
        /// With which tag.
        tag: Tag,
    },
    /// A receive.
    Receive {
        /// From whom.
        source: Source,
        /// With which tags.
        tag: TagFilter,
    },
}

/// An operation that another thread wants done.
pub struct Submission {
    /// Which.
    pub operation: Operation,
    /// Bits of a send's CAR: its mode.
    pub flags: u16,
    /// A send's priority, unless it has that of its communicator.
    pub priority: Option<u8>,
    /// Communicator row.
    pub comm: u32,
    /// The bytes.
    pub lent: Lent,
    /// Their owner.
    pub lease: Lease,
    /// Where the answer goes.
    pub slot: u32,
}

/// A function that another thread wants to run on the engine's thread. It gets the engine, or why there is none any more.
pub type Function = Box<dyn FnOnce(Result<&mut dyn Any, RequestError>) + Send>;

/// What another thread has submitted.
pub enum Task {
    /// Is posted.
    Operation(Submission),
    /// Is called.
    Call(Exclusive<Function>),
}

impl Task {
    /// Tells who has submitted it that the engine is closed. `slot` is free then, or tells the answer.
    ///
    /// Returns what a waker has panicked with.
    #[must_use = "others are to be told before a panic goes on"]
    pub fn refuse(self, shared: &Submissions, error: &PostError) -> Option<Panic> {
        match self {
            Task::Operation(submission) => {
                shared.answer(submission.slot, Answer::Refused(error.clone()), submission.lease)
            }
            Task::Call(call) => {
                let function = call.into_inner();
                catch_unwind(AssertUnwindSafe(|| function(Err(RequestError::NotPosted(error.clone()))))).err()
            }
        }
    }
}

/// How a submitted operation ended.
#[derive(Debug)]
pub enum Answer {
    /// As a request does.
    Done(Result<Status, RequestError>),
    /// It was not even posted.
    Refused(PostError),
}

/// What a slot holds for the thread that awaits it.
#[derive(Default)]
pub struct SlotState {
    /// Which use of the slot this is.
    pub generation: u32,
    /// The outcome and the buffer, once there.
    pub answer: Option<(Answer, Lease)>,
    /// Whom to wake.
    pub waker: Option<Waker>,
    /// Nobody waits any more: the answer is dropped and the slot freed.
    pub abandoned: bool,
}

impl SlotState {
    /// Makes it ready for its next use. Returns what it had.
    #[must_use = "it is to be dropped where no lock is held"]
    pub fn clear(&mut self) -> SlotState {
        std::mem::replace(self, SlotState { generation: self.generation.wrapping_add(1), ..SlotState::default() })
    }
}

/// The part of an engine that all threads see.
pub struct Submissions {
    /// Operations and calls on their way in: room for as many calls, too, as there are slots.
    pub queue: ArrayQueue<Task>,
    /// How many more calls may come.
    pub calls: AtomicUsize,
    /// Answers, by slot.
    pub slots: Box<[Mutex<SlotState>]>,
    /// Free slots.
    pub free: ArrayQueue<u32>,
    /// Whether the engine sleeps on its doorbell.
    pub armed: AtomicU32,
    /// Rings when the engine sleeps.
    pub doorbell: rustix::fd::OwnedFd,
    /// Not 0 once the engine takes no more: 1 if it was finalized, 2 if it is poisoned.
    pub closed: AtomicU32,
}

impl Submissions {
    /// Room for `slots` operations in flight.
    ///
    /// # Errors
    /// If there are no more descriptors.
    pub fn new(slots: usize) -> Result<Arc<Self>, String> {
        use rustix::event::{EventfdFlags, eventfd};
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| format!("no event descriptor ({e}): raise the limit of open files"))?;
        let free = ArrayQueue::new(slots);
        for slot in 0..slots as u32 {
            let _ = free.push(slot);
        }
        Ok(Arc::new(Submissions {
            queue: ArrayQueue::new(2 * slots),
            calls: AtomicUsize::new(slots),
            slots: (0..slots).map(|_| Mutex::default()).collect(),
            free,
            armed: AtomicU32::new(0),
            doorbell,
            closed: AtomicU32::new(0),
        }))
    }

    /// Wakes the engine if it sleeps.
    pub fn ring(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.armed.load(Ordering::SeqCst) != 0 {
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }

    /// Gives an operation's outcome to whoever awaits it. Returns what its waker, or the end of a buffer that nobody wants,
    /// has panicked with: whoever answers several goes on with the others.
    #[must_use = "others are to be told before a panic goes on"]
    pub fn answer(&self, slot: u32, answer: Answer, lease: Lease) -> Option<Panic> {
        let cell = self.slots.get(slot as usize)?;
        let mut state = cell.lock().unwrap_or_else(PoisonError::into_inner);
        if state.abandoned {
            let left = state.clear();
            drop(state);
            let _ = self.free.push(slot);
            return catch_unwind(AssertUnwindSafe(|| drop((left, answer, lease)))).err();
        }
        let replaced = state.answer.replace((answer, lease));
        let waker = state.waker.take();
        drop(state);
        let wake = || {
            drop(replaced);
            if let Some(waker) = waker {
                waker.wake();
            }
        };
        catch_unwind(AssertUnwindSafe(wake)).err()
    }

    /// Answers, once nothing is taken in any more, all whose operation was taken in and is not done. What wakers panic with is
    /// dropped: the engine is at its end.
    pub fn refuse_rest(&self, error: &RequestError) {
        let mut free = vec![false; self.slots.len()];
        // They stay out of the list: nothing is submitted any more.
        while let Some(slot) = self.free.pop() {
            free[slot as usize] = true;
        }
        for slot in (0..self.slots.len()).filter(|&slot| !free[slot]) {
            let cell = &self.slots[slot];
            let answered = cell.lock().unwrap_or_else(PoisonError::into_inner).answer.is_some();
            if !answered {
                // Its operation may still point into the buffer: the engine keeps that.
                let _ = self.answer(slot as u32, Answer::Done(Err(error.clone())), Lease::default());
            }
        }
    }
}

/// The engine's end of its submissions; on the engine's one row.
#[derive(Component)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Inbound {
    /// Shared with the submitting threads. A system of the application does not get at it: who answers chooses the buffer that
    /// another thread takes for its own.
    shared: Arc<Submissions>,
    waiting: VecDeque<Task>,
    /// A call runs: the next one waits for its end, and all that comes behind it.
    calling: bool,
}

impl Inbound {
    /// Nothing has been taken in.
    pub fn new(shared: Arc<Submissions>) -> Self {
        Inbound { shared, waiting: VecDeque::new(), calling: false }
    }

    /// What is shared with the submitting threads.
    #[inline]
    pub fn shared(&mut self) -> &Arc<Submissions> {
        &self.shared
    }

    /// Taken from the queue but waiting for a row or a first contact, in order.
    pub fn waiting(&mut self) -> &mut VecDeque<Task> {
        &mut self.waiting
    }

    /// Whether there is something to take.
    #[inline]
    pub fn ready(&self) -> bool {
        !self.shared.queue.is_empty() || !self.waiting.is_empty()
    }

    /// Takes the next task, first those that have waited.
    pub fn pop(&mut self) -> Option<Task> {
        self.waiting.pop_front().or_else(|| self.shared.queue.pop())
    }

    /// Takes the call that comes next, if a call does and none runs. [`Inbound::has_returned`] is to be said behind it.
    pub fn pop_call(&mut self) -> Option<Function> {
        if self.calling {
            return None;
        }
        match self.waiting.pop_front()? {
            Task::Call(call) => {
                self.calling = true;
                self.shared.calls.fetch_add(1, Ordering::Relaxed);
                Some(call.into_inner())
            }
            operation => {
                self.waiting.push_front(operation);
                None
            }
        }
    }

    /// The call that was taken last has returned.
    pub fn has_returned(&mut self) {
        self.calling = false;
    }
}
