//! The engine as a descriptor in an application's own event loop: how to prepare a sleep on it, and how to end the sleep. The engine's own
//! waits sleep in the same way.

use crate::run::engine::Engine;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;
use tickwire_components::Pending;
use tickwire_components::limits::SLEEP_POLL_MS;
use tickwire_systems::store::Tables;

impl AsFd for Engine {
    /// A descriptor for an application's own poll set or runtime. It is readable when there is something to tick for, from an
    /// [`Engine::prepare_wait`] that returned `true` until [`Engine::end_wait`]. [`Engine::prepare_wait`] describes the whole protocol. The
    /// descriptor stays the same for as long as the engine lives.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.epoll.as_fd()
    }
}

impl AsRawFd for Engine {
    /// The same descriptor, for runtimes that ask for its number (tokio's `AsyncFd`, mio's `SourceFd`).
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Engine {
    /// Prepares to sleep on the engine's descriptor. Returns `true` if the caller may sleep, `false` if there is something to tick for.
    ///
    /// An application with its own event loop cannot block in [`Engine::wait`] and similar calls. It repeats these steps instead:
    ///
    /// 1. *Tick*, until the application has nothing more to do either.
    /// 2. *Prepare*: call this. If it returns `false`, go back to 1. If it returns `true`, the engine's descriptor is silent now, and
    ///    becomes readable with anything that comes from here on, including what came just before: nothing is missed. From now on peers,
    ///    transports and submitting threads pay a system call to ring the doorbell.
    /// 3. *Sleep* on the descriptor beside all others, for at most [`Engine::wait_timeout`]. Make no other call of the engine between 2 and
    ///    the sleep: it may end the sleep before it begins.
    /// 4. *End the sleep*: call [`Engine::end_wait`], whatever has ended the sleep. The descriptor is silent again, and nobody rings any
    ///    more. Go back to 1.
    ///
    /// Leaving out step 4 causes no false wake-up, since step 2 makes up for it. But until then each frame of a peer rings the doorbell.
    ///
    /// ```
    /// use rustix::event::{PollFd, PollFlags, Timespec, poll};
    /// use tickwire::{Bootstrap, Engine, Rank, Tag};
    ///
    /// let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// let world = engine.comm_world();
    /// let receive = engine.irecv(vec![0u8; 8], Rank(0), Tag(1), world)?;
    /// // Whatever else the program is woken by, here another thread, is in the same poll set.
    /// let submitter = engine.submitter();
    /// let other = std::thread::spawn(move || drop(submitter.isend(vec![7u8; 8], Rank(0), Tag(1), world)));
    /// loop {
    ///     engine.tick();
    ///     if engine.test(&receive)?.is_done() {
    ///         break;
    ///     }
    ///     if engine.prepare_wait() {
    ///         let most = Timespec::try_from(engine.wait_timeout())?;
    ///         poll(&mut [PollFd::new(&engine, PollFlags::IN)], Some(&most))?;
    ///         engine.end_wait();
    ///     }
    /// }
    /// assert_eq!(engine.take(receive)?.0, [7; 8]);
    /// # other.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare_wait(&mut self) -> bool {
        // Doorbells that rang for the previous sleep would end this one at once.
        self.end_wait();
        self.sample_clock();
        self.look_around();
        let inbound = self.store.all().inbound;
        inbound.shared().armed.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let Tables { progress, inbound, .. } = self.store.all();
        // A fabric wakes nobody when it performs an operation.
        let mut quiet = progress.pending == Pending::NONE && !inbound.ready() && !self.fabric_busy;
        self.waiter.armed = true;
        for endpoint in self.store.endpoints() {
            quiet &= endpoint.transport.get().arm();
        }
        // A peer may have put something on its board before it could see that this rank sleeps.
        if quiet && self.boards_busy {
            quiet = !self.look_at_boards() && self.store.progress().pending == Pending::NONE;
        }
        if !quiet {
            self.end_wait();
        }
        quiet
    }

    /// The longest time for a sleep on the engine's descriptor. It is shorter where something has to be polled. See
    /// [`Engine::prepare_wait`].
    pub fn wait_timeout(&mut self) -> Duration {
        let progress = self.store.progress();
        let (blocked, refused) = (!progress.senders.is_empty(), !progress.control.is_empty());
        let endpoints = self.store.endpoints();
        let unknown = endpoints.iter().any(|e| e.rows.is_some());
        let polls = self.waiter.polls
            || self.waiter.on_memory
            || self.observer.has_visitors()
            || endpoints.iter_mut().any(|e| e.transport.get().must_poll());
        let ms = if (blocked && unknown) || refused || polls { SLEEP_POLL_MS } else { self.limits.sleep_ms_max };
        Duration::from_millis(ms.into())
    }

    /// Whether `wait` must poll, because a transport has no descriptor to sleep on.
    pub fn must_poll(&self) -> bool {
        self.waiter.polls
    }

    /// Ends the sleep that [`Engine::prepare_wait`] has allowed: the descriptor is silent, and peers ring no more. Call it before the next
    /// tick, whatever has ended the sleep. Does nothing if no sleep was prepared.
    pub fn end_wait(&mut self) {
        if std::mem::take(&mut self.waiter.armed) {
            self.disarm();
        }
    }

    fn disarm(&mut self) {
        let inbound = self.store.all().inbound;
        inbound.shared().armed.store(0, Ordering::Relaxed);
        let mut count = [0; 8];
        let _ = rustix::io::read(&inbound.shared().doorbell, &mut count);
        for endpoint in self.store.endpoints() {
            endpoint.transport.get().disarm();
        }
    }
}
