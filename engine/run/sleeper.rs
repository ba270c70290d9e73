//! A thread that sleeps on an engine's descriptor for a future, which must not block.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read, write};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Instant;

/// Owns the thread, which ends when this is dropped.
pub(super) struct Sleeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// The engine's descriptor.
    descriptor: OwnedFd,
    /// Ends the thread's sleep when there is a new order.
    bell: OwnedFd,
    order: Mutex<Order>,
}

/// What the thread has to do.
enum Order {
    /// Nothing.
    Rest,
    /// Sleep until the engine's descriptor is readable, at most until the given time. Then wake the task.
    Sleep(Instant, Waker),
    /// End.
    End,
}

impl Sleeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there is no room for a descriptor or a thread.
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { descriptor, bell, order: Mutex::new(Order::Rest) });
        let run = { shared.clone() };
        let thread = std::thread::Builder::new().name("tickwire-sleeper".to_owned()).spawn(move || run.run())?;
        Ok(Sleeper { shared, thread: Some(thread) })
    }

    /// Wakes a task when the descriptor is readable, or at `until` at the latest.
    pub(super) fn sleep(&self, until: Instant, waker: Waker) {
        self.shared.give(Order::Sleep(until, waker));
    }

    /// Takes back the order to sleep: nobody is woken any more.
    pub(super) fn rest(&self) {
        // The thread reads the order when it next wakes up.
        *self.shared.lock() = Order::Rest;
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.shared.give(Order::End);
        // A waker may hold the last reference to the task that owns this. Then this runs on the thread itself, which ends with its next look.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, order: Order) {
        *self.lock() = order;
        // The write fails only if the counter is full. Then the bell is readable anyhow.
        let _ = write(&self.bell, &1u64.to_ne_bytes());
    }

    fn run(&self) {
        loop {
            let until = match &*self.lock() {
                Order::Rest => None,
                Order::Sleep(until, _) => Some(*until),
                Order::End => return,
            };
            self.await_something(until);
            // Silences the bell. The read fails if the bell has not rung.
            let _ = read(&self.bell, &mut [0; 8]);
            self.wake_if_due();
        }
    }

    /// Sleeps until the bell rings. With a time given, sleeps at most until then, or until the engine's descriptor is readable.
    fn await_something(&self, until: Option<Instant>) {
        let mut descriptors = [PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&self.descriptor, PollFlags::IN)];
        let polled = match until {
            None => poll(&mut descriptors[..1], None),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                poll(&mut descriptors, Timespec::try_from(left).ok().as_ref())
            }
        };
        debug_assert!(matches!(polled, Ok(_) | Err(Errno::INTR | Errno::NOMEM)), "two descriptors of its own");
    }

    fn wake_if_due(&self) {
        let mut order = self.lock();
        let due = match &*order {
            Order::Sleep(until, _) => *until <= Instant::now() || self.is_readable(),
            Order::Rest | Order::End => false,
        };
        if due && let Order::Sleep(_, waker) = std::mem::replace(&mut *order, Order::Rest) {
            drop(order);
            // A waker that panics must not end this thread, which has other futures to wake later.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    fn is_readable(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], Some(&now)) != Ok(0)
    }
}
