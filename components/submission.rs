//! What other threads hand to the engine, and the slots in which they await the answer.

use crate::{Lease, Lent, NIL, PostError, RequestError, Status};
use bevy_ecs::component::Component;
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// An operation that another thread wants done.
pub struct Submission {
    /// Send or receive.
    pub receive: bool,
    /// Communicator row.
    pub comm: u32,
    /// Destination, or source, or [`crate::limits::ANY`].
    pub rank: u32,
    /// Tag, or [`crate::limits::ANY`].
    pub tag: u32,
    /// The bytes.
    pub lent: Lent,
    /// Their owner.
    pub lease: Lease,
    /// Where the answer goes.
    pub slot: u32,
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
    /// The outcome and the buffer, once there.
    pub answer: Option<(Answer, Lease)>,
    /// Whom to wake.
    pub waker: Option<Waker>,
    /// Nobody waits any more: the answer is dropped and the slot freed.
    pub abandoned: bool,
}

/// The part of an engine that all threads see.
pub struct Submissions {
    /// Operations on their way in.
    pub queue: ArrayQueue<Submission>,
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
            queue: ArrayQueue::new(slots),
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

    /// Gives an operation's outcome to whoever awaits it.
    pub fn answer(&self, slot: u32, answer: Answer, lease: Lease) {
        let Some(cell) = self.slots.get(slot as usize) else { return };
        let mut state = cell.lock().unwrap_or_else(PoisonError::into_inner);
        if state.abandoned {
            *state = SlotState::default();
            drop(state);
            let _ = self.free.push(slot);
            return;
        }
        state.answer = Some((answer, lease));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The engine's end of its submissions; on the engine's one row.
#[derive(Component)]
#[component(on_remove = crate::car::refuse_removal)]
pub struct Inbound {
    /// Shared with the submitting threads.
    pub shared: Arc<Submissions>,
    /// Taken from the queue but waiting for a row or a first contact, in order.
    pub waiting: VecDeque<Submission>,
}

impl Inbound {
    /// No slot.
    pub const NO_SLOT: u32 = NIL;

    /// Whether there is something to take.
    #[inline]
    pub fn ready(&self) -> bool {
        !self.shared.queue.is_empty() || !self.waiting.is_empty()
    }
}
