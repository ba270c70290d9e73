//! Watches over the ranks of a job. It continues ranks that have stopped, kills ranks that are to be killed, and kills
//! all ranks when the job takes too long.

use crate::plan::{Plan, What};
use crate::report::{get, now_ms, put};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks at the ranks.
const LOOK: Duration = Duration::from_millis(5);
/// How much longer than its patience a job may take. Usually a rank itself says that it takes too long. This is for a
/// rank that cannot.
const LONGER: Duration = Duration::from_secs(15);

/// A rank's process.
struct Process {
    rank: u32,
    pid: i32,
    pidfd: OwnedFd,
}

impl Process {
    /// The process of a rank, if it has started and has not ended.
    fn find(place: &Path, rank: u32) -> Option<Self> {
        let pid: i32 = get(place, &format!("started-{rank}"))?.parse().ok()?;
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // The process number may have been taken over by another process before the descriptor was opened. But only a
        // rank is a child of this process.
        let parent = stat(pid)?.split_ascii_whitespace().nth(1)?.parse::<u32>().ok()?;
        (parent == std::process::id()).then_some(Process { rank, pid, pidfd })
    }

    fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    fn is_stopped(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.starts_with('T'))
    }

    /// Whether the process still runs. A zombie does not.
    fn lives(&self) -> bool {
        stat(self.pid).is_some_and(|stat| !stat.starts_with(['Z', 'X']))
    }
}

/// The fields of `/proc/PID/stat` from the state on.
fn stat(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.trim_start().to_owned())
}

/// A rank that has said that it will stop.
struct Stop {
    rank: u32,
    time: Duration,
    since: Option<Instant>,
}

/// Watches over the ranks until `over`. Returns how many ranks it has continued and killed.
///
/// # Errors
/// If the job took too long. Then all ranks are killed.
pub(crate) fn watch(plan: &Plan, place: &Path, over: &AtomicBool) -> Result<(u64, u64), String> {
    let start = Instant::now();
    let (mut processes, mut stops): (Vec<Process>, Vec<Stop>) = (Vec::new(), Vec::new());
    let (mut seen, mut killed) = (BTreeSet::new(), BTreeSet::new());
    let mut continued = 0;
    while !over.load(Ordering::Acquire) {
        for rank in 0..plan.ranks {
            if !processes.iter().any(|process| process.rank == rank) {
                processes.extend(Process::find(place, rank));
            }
            for (at, _) in plan.troubles(rank).enumerate() {
                let name = format!("stop-{rank}-{at}");
                if let Some(ms) = get(place, &name).and_then(|ms| ms.parse().ok())
                    && seen.insert(name)
                {
                    stops.push(Stop { rank, time: Duration::from_millis(ms), since: None });
                }
            }
        }
        for process in &processes {
            let mut stops = stops.iter_mut().filter(|stop| stop.rank == process.rank);
            if let Some(stop) = stops.next() {
                match stop.since {
                    None if process.is_stopped() => stop.since = Some(Instant::now()),
                    Some(since) if since.elapsed() >= stop.time => {
                        process.signal(Signal::CONT);
                        stop.time = Duration::MAX;
                        continued += 1;
                    }
                    _ => {}
                }
            }
            let ready = ready_ms(place, process.rank);
            for trouble in plan.troubles(process.rank) {
                if let (What::Killed(ms), Some(since)) = (trouble.what, ready)
                    && now_ms() >= since + ms
                    && !killed.contains(&process.rank)
                    && process.lives()
                {
                    put(place, &format!("died-{}", process.rank), &now_ms().to_string());
                    process.signal(Signal::KILL);
                    killed.insert(process.rank);
                }
            }
        }
        stops.retain(|stop| stop.time != Duration::MAX);
        if start.elapsed() > plan.patience() + LONGER {
            let left: Vec<_> = processes.iter().filter(|process| process.lives()).map(|process| process.rank).collect();
            processes.iter().for_each(|process| process.signal(Signal::KILL));
            return Err(format!("ranks {left:?} did not end within {:.0?}, and said nothing", start.elapsed()));
        }
        std::thread::sleep(LOOK);
    }
    Ok((continued, killed.len() as u64))
}

/// The time at which a rank had built its engine.
fn ready_ms(place: &Path, rank: u32) -> Option<u64> {
    get(place, &format!("ready-{rank}"))?.parse().ok()
}
