//! Calls that wait for other ranks. Each engine makes them in its own thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tickwire::internals::systems::procs::boards::Boards;
use tickwire::{Engine, Window};

/// Longer than any wait on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `part` on each engine. Engines that are done go on ticking to serve the others.
fn each(engines: &mut [Engine], part: impl Fn(&mut Engine) -> Window<u64> + Sync) -> Vec<Window<u64>> {
    let (left, start) = (AtomicUsize::new(engines.len()), Instant::now());
    let run = |engine: &mut Engine| {
        let result = part(engine);
        left.fetch_sub(1, Ordering::AcqRel);
        while left.load(Ordering::Acquire) > 0 {
            assert!(start.elapsed() < PATIENCE, "another rank waits");
            engine.tick();
            std::thread::yield_now();
        }
        result
    };
    std::thread::scope(|threads| {
        let run = &run;
        let parts: Vec<_> = engines.iter_mut().map(|engine| threads.spawn(move || run(engine))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect()
    })
}

/// All engines open the boards of the world, if they can, and make a window with `words` words each. All ranks lock all
/// parts.
pub(crate) fn open_boards_and_window(engines: &mut [Engine], words: usize) -> Window<u64> {
    let windows = each(engines, |engine| {
        let world = engine.comm_world();
        engine.barrier(world).unwrap();
        let window = engine.win_allocate(words, world).unwrap();
        engine.win_lock_all(window).unwrap();
        window
    });
    assert!(windows.iter().all(|window| *window == windows[0]), "all call it the same");
    windows[0]
}

/// How many communicators of an engine have boards.
pub(crate) fn with_boards(engine: &mut Engine) -> usize {
    let mut query = engine.world().try_query::<&Boards>().unwrap();
    query.iter(engine.world()).map(Boards::count).sum()
}
