//! Helpers of ranks in tests of deaths: words that are left in files, and time limits.

use rustix::process::{Pid, Signal, getpid, kill_process, test_kill_process};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::path::Path;
use std::time::{Duration, Instant};
use tickwire::internals::components::limits::FAILURE_MS_MAX;
use tickwire::{Engine, Rank, Tag, WindowError};

/// Longer than any wait on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time of a call on a loaded machine, if nobody knows when the rank dies that it may need: a host that is cut
/// off is noticed only by probes, and a lock may pass from one dying holder to the next.
pub(crate) const NOTICE_MAX: Duration = Duration::from_secs(10);
/// What a loaded machine may add to [`FAILURE_MS_MAX`].
const SLACK_MS: u64 = 4_000;
/// Longest time after the death of a rank that a call which needs it goes on.
pub(crate) const LIVENESS_MAX: Duration = Duration::from_millis(FAILURE_MS_MAX as u64 + SLACK_MS);
/// The word that a rank leaves just before it dies.
const DIED: &str = "died";
/// The file with the process number of the rank that is killed.
const DOOMED: &str = "doomed";

/// Kills this process.
pub(crate) fn die(place: &Path) -> ! {
    say(place, DIED);
    let _ = kill_process(getpid(), Signal::KILL);
    unreachable!("killed")
}

/// Kills this process after a while, whatever it is doing then.
pub(crate) fn die_later(place: &Path, after: Duration) {
    let place = place.to_owned();
    std::thread::spawn(move || {
        compute_for(after);
        die(&place);
    });
}

/// Kills this process, by SIGSYS, when it next has the kernel write into the memory of another process. If that is part
/// of an operation under a lock, the process dies with the lock.
pub(crate) fn die_at_write(place: &Path) {
    let rules = [(libc::SYS_process_vm_writev, Vec::new())].into();
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::KillProcess, architecture).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
    say(place, DIED);
    leave_number(place);
}

/// Leaves the number of this process, which is about to die, for [`until_dead`].
pub(crate) fn leave_number(place: &Path) {
    // The file is renamed, so that it is seen only when it is complete.
    let pid = place.join("pid");
    std::fs::write(&pid, std::process::id().to_string()).unwrap();
    std::fs::rename(&pid, place.join(DOOMED)).unwrap();
}

/// Waits until the rank that has left its number is dead. The engine does nothing meanwhile, so it does not notice.
pub(crate) fn until_dead(place: &Path) {
    compute_until(place, DOOMED);
    let pid = std::fs::read_to_string(place.join(DOOMED)).unwrap().parse().unwrap();
    let (pid, start) = (Pid::from_raw(pid).unwrap(), Instant::now());
    // A process that nobody has waited for yet still counts. Its launcher waits for it.
    while test_kill_process(pid) != Err(rustix::io::Errno::SRCH) {
        assert!(start.elapsed() < PATIENCE, "it has not died");
        std::thread::yield_now();
    }
}

/// Waits for a word. The engine does nothing meanwhile.
pub(crate) fn compute_until(place: &Path, word: &str) {
    let start = Instant::now();
    while !said(place, word) {
        assert!(start.elapsed() < PATIENCE, "nobody says {word}");
        std::thread::yield_now();
    }
}

/// Does nothing for a while. The engine does nothing meanwhile.
pub(crate) fn compute_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::thread::yield_now();
    }
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
pub(crate) fn until(engine: &mut Engine, place: &Path, words: &[impl AsRef<str> + std::fmt::Debug]) {
    let start = Instant::now();
    while !words.iter().all(|word| said(place, word.as_ref())) {
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

/// Makes a call that may need the rank that is killed. Once that rank is dead, the call must return in time.
#[track_caller]
pub(crate) fn outlives<R>(place: &Path, what: &str, call: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = call();
    // The time of the file is that of the death.
    let died = std::fs::metadata(place.join(DIED)).and_then(|word| word.modified());
    let (took, longest) = match died.map(|died| died.elapsed().unwrap_or_default()) {
        Ok(since_death) => (start.elapsed().min(since_death), LIVENESS_MAX),
        Err(_) => (start.elapsed(), NOTICE_MAX),
    };
    assert!(took < longest, "{what} took {took:?}");
    result
}

/// Makes a call that needs the rank that has died or is about to. It must fail in time, with an error that names a
/// failure.
#[track_caller]
pub(crate) fn fails<R: std::fmt::Debug>(place: &Path, what: &str, call: impl FnOnce() -> Result<R, WindowError>) {
    names_failure(what, &outlives(place, what, call).expect_err(what));
}

/// The error of a call names a failure. A fabric's own words do not do.
#[track_caller]
pub(crate) fn names_failure(what: &str, error: &WindowError) {
    let words = error.to_string();
    assert!(!matches!(error, WindowError::Fabric { .. }), "{what}: {words}");
    println!("{what}: {words}");
    assert!(words.contains("failed") || words.contains("has lost another member"), "{what}: {words}");
}

/// The survivors, ranks 0 and 1, can still exchange messages.
pub(crate) fn others_go_on(engine: &mut Engine) {
    let (me, world) = (engine.rank(), engine.comm_world());
    let other = Rank(1 - me.0);
    let sent = engine.isend(vec![me.0 as u8; 100_000], other, Tag(6), world).unwrap();
    let got = engine.irecv(vec![9u8; 100_000], other, Tag(6), world).unwrap();
    engine.wait_for(&got, PATIENCE).unwrap();
    assert_eq!(engine.take(got).unwrap().0, vec![other.0 as u8; 100_000]);
    engine.wait_for(&sent, PATIENCE).unwrap();
}
