//! The engine as a descriptor of an application's own event loop: how a sleep on it is prepared, and how it ends. The engine's
//! own waits sleep in the same way.

use crate::run::engine::Engine;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;
use tickwire_components::Pending;
use tickwire_systems::store::Tables;

/// Longest sleep when something must be polled for: a transport without a descriptor, or room in one that may not tell, ms.
const POLL_MS: u32 = 1;

impl AsFd for Engine {
    /// A descriptor for an application's own poll set or runtime: readable when there is something to tick for, from a
    /// [`Engine::prepare_wait`] that has returned `true` until [`Engine::end_wait`]. See the former for the whole protocol.
    /// It is the same one for as long as the engine lives.
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
    /// Prepares to sleep on the engine's descriptor: `true` if the caller may, `false` if there is something to tick for.
    ///
    /// An application with an event loop of its own, in which [`Engine::wait`] and its kin have no place, goes in rounds:
    ///
    /// 1. *Tick*, until there is nothing more to do for the application either.
    /// 2. *Prepare*: this call. Where it returns `false`, go back to 1. Where it returns `true`, the engine's descriptor is
    ///    silent now and becomes readable with whatever comes from here on, including what came just before: nothing is
    ///    missed. Peers, transports and submitting threads then pay a system call to ring.
    /// 3. *Sleep* on the descriptor beside all others, for [`Engine::wait_timeout`] at most. No other call of the engine may
    ///    stand between 2 and the sleep: it may end that before it has begun.
    /// 4. *End the sleep*: [`Engine::end_wait`], whatever has ended it. Bells are silent again, and nobody rings any more.
    ///    Go back to 1.
    ///
    /// Whoever leaves out 4 is not woken for nothing either, since 2 makes up for it; but until then each frame of a peer
    /// rings.
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
        // Bells that have rung for the sleep before would end this one at once.
        self.end_wait();
        self.sample_clock();
        self.look_around();
        let inbound = self.store.all().inbound;
        inbound.shared().armed.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let Tables { progress, inbound, .. } = self.store.all();
        // A fabric tells of what it does by nothing that wakes.
        let mut quiet = progress.pending == Pending::NONE && !inbound.ready() && !self.fabric_busy;
        self.waiter.armed = true;
        for endpoint in self.store.endpoints() {
            quiet &= endpoint.transport.get().arm();
        }
        // What a peer has shown before it could see that this one sleeps.
        if quiet && self.boards_busy {
            quiet = !self.look_at_boards() && self.store.progress().pending == Pending::NONE;
        }
        if !quiet {
            self.end_wait();
        }
        quiet
    }

    /// How long a sleep on the engine's descriptor may be: shorter where something has to be polled for. See
    /// [`Engine::prepare_wait`].
    pub fn wait_timeout(&mut self) -> Duration {
        let progress = self.store.progress();
        let (blocked, refused) = (!progress.senders.is_empty(), !progress.control.is_empty());
        let endpoints = self.store.endpoints();
        let unknown = endpoints.iter().any(|e| e.rows.is_some());
        let polls = self.waiter.polls || endpoints.iter_mut().any(|e| e.transport.get().must_poll());
        let ms = if (blocked && unknown) || refused || polls { POLL_MS } else { self.limits.sleep_ms_max };
        Duration::from_millis(ms.into())
    }

    /// Whether `wait` must poll because a transport has nothing to sleep on.
    pub fn must_poll(&self) -> bool {
        self.waiter.polls
    }

    /// Ends the sleep that [`Engine::prepare_wait`] has allowed: the descriptor is silent, and peers ring no more. To be called
    /// whatever has ended the sleep, before the next tick. Nothing if none was prepared.
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
