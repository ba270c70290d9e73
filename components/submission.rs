//! Operations and calls that other threads submit to the engine, and the slots in which these threads await the results.

use crate::{Exclusive, Lease, Lent, Panic, PostError, Rank, RequestError, Row, Source, Status, Tag, TagFilter};
use bevy_ecs::component::Component;
use crossbeam_queue::ArrayQueue;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// An operation that another thread submits, and its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A send.
    Send {
        /// The destination.
        to: Rank,
        /// The tag.
        tag: Tag,
    },
    /// A receive.
    Receive {
        /// The source.
        source: Source,
        /// The tag, or any tag.
        tag: TagFilter,
    },
}

/// An operation that another thread has submitted.
pub struct Submission {
    /// The operation.
    pub operation: Operation,
    /// The mode of a send: flags of its CAR ([`car_flags`](crate::car_flags)).
    pub flags: u16,
    /// The priority of a send; `None` for that of its communicator.
    pub priority: Option<u8>,
    /// Communicator row.
    pub comm: u32,
    /// The addresses of the bytes.
    pub lent: Lent,
    /// The owner of the bytes.
    pub lease: Lease,
    /// The slot that gets the answer.
    pub slot: u32,
}

/// A function that another thread submits, to run on the engine's thread. It gets the engine, or the error if the engine is gone.
pub type Function = Box<dyn FnOnce(Result<&mut dyn Any, RequestError>) + Send>;

/// A task that another thread has submitted.
pub enum Task {
    /// An operation, which the engine posts.
    Operation(Submission),
    /// A function, which the engine calls.
    Call(Exclusive<Function>),
}

impl Task {
    /// Tells the submitting thread that the engine is closed: the slot of an operation gets the error, and a function is called with
    /// it.
    ///
    /// Returns the panic of a waker or of the function, if there was one.
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

/// The result of a submitted operation.
#[derive(Debug)]
pub enum Answer {
    /// It was posted, and its request has ended like this.
    Done(Result<Status, RequestError>),
    /// It could not be posted.
    Refused(PostError),
}

/// The state of a slot in which a thread awaits an operation.
#[derive(Default)]
pub struct SlotState {
    /// Counts the uses of the slot.
    pub generation: u32,
    /// The result and the buffer, once the operation has ended.
    pub answer: Option<(Answer, Lease)>,
    /// The waker of the thread or task that waits.
    pub waker: Option<Waker>,
    /// Nobody waits any more. When the answer comes, it is dropped, and the slot becomes free.
    pub abandoned: bool,
}

impl SlotState {
    /// Resets the slot for its next use. Returns the old state.
    #[must_use = "it is to be dropped where no lock is held"]
    pub fn clear(&mut self) -> SlotState {
        std::mem::replace(self, SlotState { generation: self.generation.wrapping_add(1), ..SlotState::default() })
    }
}

/// The part of an engine that is shared between all threads.
pub struct Submissions {
    /// Operations and calls that the engine has yet to take. It has room for as many operations as there are slots, and for as many
    /// calls.
    pub queue: ArrayQueue<Task>,
    /// How many more calls may be submitted now.
    pub calls: AtomicUsize,
    /// The slots.
    pub slots: Box<[Mutex<SlotState>]>,
    /// Free slots.
    pub free: ArrayQueue<u32>,
    /// Not 0 if the engine sleeps on its doorbell.
    pub armed: AtomicU32,
    /// The event descriptor that wakes the engine.
    pub doorbell: rustix::fd::OwnedFd,
    /// Not 0 once the engine accepts no more submissions: 1 if it was finalized, 2 if it is poisoned.
    pub closed: AtomicU32,
}

impl Submissions {
    /// Makes room for `slots` operations in flight.
    ///
    /// # Errors
    /// If no event descriptor can be created.
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

    /// Makes a slot free again. Not once the engine is closed: a late thread may still refuse the slot's task a second time, and another
    /// operation must not get this answer.
    pub fn put_back(&self, slot: u32) {
        if self.closed.load(Ordering::SeqCst) == 0 {
            let _ = self.free.push(slot);
        }
    }

    /// Wakes the engine if it sleeps.
    pub fn ring(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.armed.load(Ordering::SeqCst) != 0 {
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }

    /// Puts the result of an operation into its slot, and wakes the waiting thread. Returns the panic of the waker, or of a buffer that
    /// was dropped because nobody waits any more. The caller answers the other slots before it propagates a panic.
    #[must_use = "others are to be told before a panic goes on"]
    pub fn answer(&self, slot: u32, answer: Answer, lease: Lease) -> Option<Panic> {
        self.answer_unless(slot, answer, lease, |_| false)
    }

    /// As [`Submissions::answer`], unless something is true of the slot.
    fn answer_unless(
        &self,
        slot: u32,
        answer: Answer,
        lease: Lease,
        stays: impl FnOnce(&SlotState) -> bool,
    ) -> Option<Panic> {
        let cell = self.slots.get(slot as usize)?;
        let mut state = cell.lock().unwrap_or_else(PoisonError::into_inner);
        if stays(&state) {
            return None;
        }
        if state.abandoned {
            let left = state.clear();
            drop(state);
            self.put_back(slot);
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

    /// Answers all operations that were accepted and are not done. For the end of the engine, when no more submissions are accepted.
    /// Panics of wakers are dropped.
    pub fn refuse_rest(&self, error: &RequestError) {
        let mut free = vec![false; self.slots.len()];
        // The free slots are not put back, since nothing more is submitted.
        while let Some(slot) = self.free.pop() {
            free[slot as usize] = true;
        }
        for slot in (0..self.slots.len()).filter(|&slot| !free[slot]) {
            // The operation may still use the buffer, so the engine keeps the buffer. A thread that has refused its own task meanwhile has
            // its buffer.
            let answer = Answer::Done(Err(error.clone()));
            let _ = self.answer_unless(slot as u32, answer, Lease::default(), |slot| slot.answer.is_some());
        }
    }
}

/// The engine's end of the submissions; on the engine's one row.
#[derive(Component)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Inbound {
    /// Shared with the submitting threads. Private, so that a system of the application has no access: whoever answers a slot chooses
    /// the buffer that another thread then owns.
    shared: Arc<Submissions>,
    waiting: VecDeque<Task>,
    /// A call is running. The next call, and all tasks behind it, wait for its end.
    calling: bool,
}

impl Inbound {
    /// An inbound queue from which nothing was taken yet.
    pub fn new(shared: Arc<Submissions>) -> Self {
        Inbound { shared, waiting: VecDeque::new(), calling: false }
    }

    /// The part that is shared with the submitting threads.
    #[inline]
    pub fn shared(&mut self) -> &Arc<Submissions> {
        &self.shared
    }

    /// Tasks that were taken from the shared queue and wait for a row, for a first contact or for a call, in order.
    pub fn waiting(&mut self) -> &mut VecDeque<Task> {
        &mut self.waiting
    }

    /// Whether there is something to take.
    #[inline]
    pub fn ready(&self) -> bool {
        (!self.shared.queue.is_empty() || !self.waiting.is_empty()) && !self.calling
    }

    /// Takes the next task. Waiting tasks come first. While a call is running, no task is taken.
    pub fn pop(&mut self) -> Option<Task> {
        if self.calling { None } else { self.pop_any() }
    }

    /// As [`Inbound::pop`], also while a call is running: for the end of the engine.
    pub fn pop_any(&mut self) -> Option<Task> {
        self.waiting.pop_front().or_else(|| self.shared.queue.pop())
    }

    /// Takes the next waiting task if it is a call and no call is running. The caller calls [`Inbound::has_returned`] afterwards.
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

    /// Notes that the call that was taken last has returned.
    pub fn has_returned(&mut self) {
        self.calling = false;
    }
}

/// Something that another thread waits for, and that is done between passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwedToThread {
    /// To be told how the finished request of this row has ended.
    Outcome(Row),
    /// To have its call run, which is the next one in the inbound queue.
    Call,
}
