//! The driver future: progress of an engine in any executor, without a runtime of its own.

use crate::api::error::Error;
use crate::run::engine::Engine;
use crate::run::park::block_on;
use crate::run::sleeper::Sleeper;
use std::future::Future;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;
use tickwire_components::limits::{FUTURE_POLLS, FUTURE_TICKS};

/// A future that makes an engine's progress: see [`Engine::drive`]. It ends only if the engine can make no more progress, and returns why.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Drive<'e> {
    engine: &'e mut Engine,
    /// Ticks in a row that have found nothing.
    looks: u32,
    /// Started by the first sleep.
    sleeper: Option<Sleeper>,
}

impl Engine {
    /// A future that ticks the engine while there is work, lets other tasks run, and sleeps when there is no work. It needs no async
    /// runtime. The first sleep starts a thread, which waits on the engine's descriptor and wakes the future. The thread ends with the
    /// future.
    ///
    /// Other tasks use the engine through a [`Submitter`](crate::Submitter), and await futures that [`Engine::completion`] and
    /// [`Engine::agreed`] returned before. The future never ends successfully: combine it with one that does (`select!` of any library), or
    /// use [`Engine::drive_with`].
    pub fn drive(&mut self) -> Drive<'_> {
        Drive { engine: self, looks: 0, sleeper: None }
    }

    /// Drives the engine until another future is ready. Any executor can run it. [`Engine::drive_until`] has an example.
    ///
    /// # Errors
    /// Why the engine can make no more progress, if that happens before the future is ready.
    pub async fn drive_with<F: Future>(&mut self, future: F) -> Result<F::Output, Error> {
        let mut future = pin!(future);
        let mut drive = self.drive();
        std::future::poll_fn(move |context| {
            // Ticks before it polls the future, so that the future sees at once what a message has made ready.
            let driven = Pin::new(&mut drive).poll(context);
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            driven.map(Err)
        })
        .await
    }

    /// Drives the engine until a future is ready, and blocks the thread meanwhile. For programs without an executor.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, Tag};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// let (me, world, submitter) = (engine.rank(), engine.comm_world(), engine.submitter());
    /// let greeted = engine.drive_until(async move {
    ///     let incoming = submitter.irecv([0u32; 3], me, Tag(1), world)?;
    ///     submitter.isend([1u32, 2, 3], me, Tag(1), world)?.await?;
    ///     Ok::<_, tickwire::Error>(incoming.await?.0)
    /// })?;
    /// assert_eq!(*greeted, [1, 2, 3]);
    /// # Ok::<(), tickwire::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Engine::drive_with`], and the error that the future returns.
    pub fn drive_until<T, E: Into<Error>>(&mut self, future: impl Future<Output = Result<T, E>>) -> Result<T, Error> {
        block_on(self.drive_with(future))?.map_err(Into::into)
    }
}

impl Future for Drive<'_> {
    type Output = Error;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Error> {
        let Drive { engine, looks, sleeper } = self.get_mut();
        // Another future of the same task may have woken it, so the sleep ends here whatever the reason.
        engine.end_wait();
        if let Some(sleeper) = sleeper {
            sleeper.rest();
        }
        for _ in 0..FUTURE_TICKS {
            if engine.tick().is_idle() {
                *looks = looks.saturating_add(1);
                break;
            }
            *looks = 0;
        }
        if let Err(error) = engine.closed.check_request() {
            return Poll::Ready(error.into());
        }
        if *looks < FUTURE_POLLS || !engine.prepare_wait() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let until = Instant::now() + engine.wait_timeout();
        if sleeper.is_none() {
            match engine.as_fd().try_clone_to_owned().and_then(Sleeper::new) {
                Ok(started) => *sleeper = Some(started),
                Err(error) => {
                    engine.end_wait();
                    return Poll::Ready(error.into());
                }
            }
        }
        if let Some(sleeper) = sleeper {
            sleeper.sleep(until, context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Drive<'_> {
    fn drop(&mut self) {
        self.engine.end_wait();
    }
}
