//! Calls submitted to an engine that take every row that becomes free, as another thread may.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tickwire::{Engine, Owned, Request, Scope, Submitter, Tag};

/// Tag of messages that nobody sends.
const TAG: Tag = Tag(4711);

/// An engine, as a submitted function sees it.
pub type Inside<'a> = Scope<'a, 'static, Owned>;

/// Runs `part` while a submitted function posts receives in every tick, so that every row that is free is taken: from when `begins` is
/// first true on. The receives are cancelled behind `part`.
///
/// # Panics
/// If no row was taken, or the receives cannot be cancelled.
pub fn with_crowd<T>(
    engine: &mut Engine,
    begins: impl Fn(&mut Inside<'_>) -> bool + Send + Sync + 'static,
    part: impl FnOnce(&mut Engine) -> T,
) -> T {
    let (has_begun, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let crowd = Arc::new(Crowd { begins, has_begun, is_over, taken: Mutex::default() });
    submit(engine.submitter(), crowd.clone());
    let done = part(engine);
    crowd.is_over.store(true, Ordering::Relaxed);
    while Arc::strong_count(&crowd) > 1 {
        engine.tick();
    }
    let taken = std::mem::take(&mut *crowd.taken.lock().unwrap());
    assert!(!taken.is_empty(), "no row was taken");
    for receive in taken {
        engine.cancel(&receive).unwrap();
        let _ = engine.wait(&receive);
    }
    done
}

/// What takes the rows.
struct Crowd<F> {
    begins: F,
    has_begun: AtomicBool,
    is_over: AtomicBool,
    taken: Mutex<Vec<Request<Vec<u8>>>>,
}

/// Submits a function that takes all free rows, and then submits itself for the next tick.
fn submit<F: Fn(&mut Inside<'_>) -> bool + Send + Sync + 'static>(submitter: Submitter, crowd: Arc<Crowd<F>>) {
    let again = submitter.clone();
    // Its end is not waited for.
    drop(submitter.call(move |engine| {
        if !crowd.is_over.load(Ordering::Relaxed) {
            crowd.take_rows(engine);
            submit(again, crowd);
        }
    }));
}

impl<F: Fn(&mut Inside<'_>) -> bool> Crowd<F> {
    /// Takes all rows that are free.
    fn take_rows(&self, engine: &mut Inside<'_>) {
        if !self.has_begun.load(Ordering::Relaxed) && !(self.begins)(engine) {
            return;
        }
        self.has_begun.store(true, Ordering::Relaxed);
        let (me, world) = (engine.rank(), engine.comm_world());
        while let Ok(receive) = engine.irecv(vec![0u8], me, TAG, world) {
            self.taken.lock().unwrap().push(receive);
        }
    }
}
