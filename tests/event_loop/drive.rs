//! The driver future: in two executors, asleep while nothing happens, and at the end of its engine.

use crate::PATIENCE;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tickwire::testing::Board;
use tickwire::{Bootstrap, Engine, Error, ProgressSystems, Rank, RequestError, Submitter, Tag};
use tickwire_tests::cases::content;

/// Lengths of the messages in each direction. The last one is long.
const LENGTHS: [usize; 5] = [1, 100, 0x8000, 64, 300_000];

/// Sends to the other rank and receives from it, one message after another.
async fn exchange(submitter: Submitter, me: u32) -> Result<(), Error> {
    let (other, world) = (Rank(1 - me), tickwire::Comm(0));
    for (number, length) in LENGTHS.into_iter().enumerate() {
        let incoming = submitter.irecv(vec![0u8; length], other, Tag(number as u32), world)?;
        submitter.isend(content(number as u64, length), other, Tag(number as u32), world)?.await?;
        let (bytes, status) = incoming.await?;
        assert!(bytes == content(number as u64, length) && status.length == length);
    }
    Ok(())
}

/// Two ranks exchange messages, each in an executor of this kind.
fn exchange_in(run: impl Fn(&mut Engine, Submitter, u32) -> Result<(), Error> + Sync) {
    let board = Board::new(2);
    std::thread::scope(|threads| {
        for me in 0..2 {
            let (bootstrap, run) = (board.bootstrap(me), &run);
            threads.spawn(move || {
                let mut engine = Engine::builder().build(bootstrap).unwrap();
                let submitter = engine.submitter();
                run(&mut engine, submitter, me).unwrap();
                engine.finalize(PATIENCE).unwrap();
            });
        }
    });
}

#[test]
fn messages_go_without_any_executor() {
    exchange_in(|engine, submitter, me| engine.drive_until(exchange(submitter, me)));
}

#[test]
fn messages_go_in_tokio() {
    exchange_in(|engine, submitter, me| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        runtime.block_on(async {
            tokio::time::timeout(PATIENCE, engine.drive_with(exchange(submitter, me))).await.unwrap()?
        })
    });
}

/// An executor of a single task. It counts how often the task was woken.
#[derive(Default)]
struct Task {
    woken: Mutex<bool>,
    bell: Condvar,
    wakes: AtomicU32,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        *self.woken.lock().unwrap() = true;
        self.bell.notify_all();
    }
}

impl Task {
    /// Polls until the future is ready, or is pending and not woken.
    fn poll<F: Future>(self: &Arc<Self>, mut future: Pin<&mut F>) -> Poll<F::Output> {
        let waker = Waker::from(self.clone());
        for _ in 0..1_000_000 {
            *self.woken.lock().unwrap() = false;
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
            if !*self.woken.lock().unwrap() {
                return Poll::Pending;
            }
        }
        panic!("it never sleeps");
    }

    fn sleep(&self) {
        let asleep = self.bell.wait_timeout_while(self.woken.lock().unwrap(), PATIENCE, |woken| !*woken).unwrap();
        assert!(!asleep.1.timed_out(), "nobody has woken it");
    }
}

#[test]
fn it_sleeps_until_something_comes() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let (submitter, world) = (engine.submitter(), engine.comm_world());
    let task = Arc::new(Task::default());
    let incoming = submitter.irecv(vec![0u8; 8], Rank(0), Tag(1), world).unwrap();
    let mut driven = pin!(engine.drive_with(incoming));
    assert!(task.poll(driven.as_mut()).is_pending());
    // The engine asks to be woken now and then: ten times a second, and it polls at most a hundred times each.
    let before = task.wakes.load(Ordering::Relaxed);
    task.sleep();
    assert!(task.poll(driven.as_mut()).is_pending());
    assert!(task.wakes.load(Ordering::Relaxed) - before <= 2, "what has found nothing once sleeps again at once");
    let other = std::thread::spawn(move || submitter.isend(vec![5u8; 8], Rank(0), Tag(1), world).map(drop));
    let ended = loop {
        task.sleep();
        if let Poll::Ready(ended) = task.poll(driven.as_mut()) {
            break ended;
        }
    };
    assert_eq!(ended.unwrap().unwrap().0, [5; 8]);
    other.join().unwrap().unwrap();
}

#[test]
fn it_ends_with_its_engine() {
    let fails = |mut left: bevy_ecs::prelude::Local<u32>| {
        *left += 1;
        assert!(*left < 3, "as it should");
    };
    let builder = Engine::builder().systems(move |schedule| {
        schedule.add_systems(bevy_ecs::prelude::IntoScheduleConfigs::after(fails, ProgressSystems::DrainCq));
    });
    let mut engine = builder.build(Bootstrap::solo()).unwrap();
    let submitter = engine.submitter();
    let world = engine.comm_world();
    let error = engine
        .drive_until(async move {
            loop {
                submitter.isend(vec![1u8], Rank(0), Tag(1), world)?.await?;
            }
            #[expect(unreachable_code, reason = "says what the loop cannot")]
            Ok::<(), Error>(())
        })
        .unwrap_err();
    assert!(
        matches!(error, Error::Request(RequestError::Poisoned(_) | RequestError::NotPosted(_)) | Error::Post(_)),
        "{error}"
    );
}
