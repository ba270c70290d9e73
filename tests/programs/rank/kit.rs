//! Helpers of several tests: time limits, words that ranks leave for each other in files, and counts of copied bytes.

use rustix::process::{Signal, getpid, kill_process};
use std::path::Path;
use std::time::{Duration, Instant};
use tickwire::{ENV_TRANSPORTS, Engine};
use tickwire_tests::clocks::monotonic_ms;
/// Longer than any wait on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long peers may still wait after a death, ms: 1 s, and half a second for a loaded machine.
pub(crate) const NOTICE_MS_MAX: u64 = 1500;
/// How long a link may be without an answer in these tests, ms.
pub(crate) const DEAD_LINK_MS: u32 = 2000;

/// Kills this process, after writing the time into a file.
pub(crate) fn die(place: &Path) -> ! {
    // The time is written first. The rename shows the file only when it is complete.
    std::fs::write(place.join("dying"), monotonic_ms().to_string()).unwrap();
    std::fs::rename(place.join("dying"), place.join("died")).unwrap();
    let _ = kill_process(getpid(), Signal::KILL);
    unreachable!("killed")
}

/// Milliseconds since [`die`] was called by another rank.
pub(crate) fn since_death_ms(place: &Path) -> u64 {
    let died_ms: u64 = std::fs::read_to_string(place.join("died")).unwrap().parse().unwrap();
    monotonic_ms() - died_ms
}

/// Leaves a signal for the other ranks: an empty file.
pub(crate) fn say(place: &Path, word: &str) {
    std::fs::write(place.join(word), []).unwrap();
}

/// Calls `go_on` until another rank has left the signal.
pub(crate) fn until(place: &Path, word: &str, mut go_on: impl FnMut()) {
    let start = Instant::now();
    while !place.join(word).exists() {
        assert!(start.elapsed() < PATIENCE, "nobody says {word}");
        go_on();
    }
}

/// Bytes that Transfer has moved.
pub(crate) fn copied(engine: &mut Engine) -> u64 {
    engine.accounting().systems.iter().find(|(system, _)| system == "transfer").unwrap().1.bytes
}

/// Whether long messages are to go straight from memory to memory.
pub(crate) fn goes_direct() -> bool {
    std::env::var(ENV_TRANSPORTS).is_ok_and(|names| names.ends_with("ofi:net"))
}
