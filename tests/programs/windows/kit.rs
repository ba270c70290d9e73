//! Helpers of ranks in tests of deaths: words that are left in files, and time limits.

use rustix::process::{Signal, getpid, kill_process};
use std::path::Path;
use std::time::{Duration, Instant};
use tickwire::{Engine, WindowError};

/// Longer than any wait on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time of a call that needs a dead rank.
pub(crate) const NOTICE_MAX: Duration = Duration::from_secs(10);

/// Kills this process.
pub(crate) fn die(place: &Path) -> ! {
    say(place, "died");
    let _ = kill_process(getpid(), Signal::KILL);
    unreachable!("killed")
}

/// Kills this process after a while, whatever it is doing then.
pub(crate) fn die_later(place: &Path, after: Duration) {
    let place = place.to_owned();
    std::thread::spawn(move || {
        let start = Instant::now();
        while start.elapsed() < after {
            std::thread::yield_now();
        }
        die(&place);
    });
}

/// Leaves a word for the other ranks, as an empty file.
pub(crate) fn say(place: &Path, word: &str) {
    std::fs::write(place.join(word), []).unwrap();
}

/// Whether a word was left.
pub(crate) fn said(place: &Path, word: &str) -> bool {
    place.join(word).exists()
}

/// Ticks until all of these words have been left.
pub(crate) fn until(engine: &mut Engine, place: &Path, words: &[&str]) {
    let start = Instant::now();
    while !words.iter().all(|word| said(place, word)) {
        assert!(start.elapsed() < PATIENCE, "nobody says one of {words:?}");
        engine.tick();
        std::thread::yield_now();
    }
}

/// Ticks for a while.
pub(crate) fn tick_for(engine: &mut Engine, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        engine.tick();
        std::thread::yield_now();
    }
}

/// Makes a call. It must return in time.
#[track_caller]
pub(crate) fn in_time<R>(what: &str, call: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = call();
    assert!(start.elapsed() < NOTICE_MAX, "{what} took {:?}", start.elapsed());
    result
}

/// Makes a call. It must fail in time, with an error that names a failure.
#[track_caller]
pub(crate) fn fails<R: std::fmt::Debug>(what: &str, call: impl FnOnce() -> Result<R, WindowError>) {
    let error = in_time(what, call).expect_err(what).to_string();
    println!("{what}: {error}");
    assert!(error.contains("failed") || error.contains("has lost another member"), "{what}: {error}");
}
