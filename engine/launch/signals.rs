//! Signals as readable descriptors while a job runs. While none runs, they have their usual effect.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;
use signal_hook::SigId;

use super::job::Job;
use crate::observe::ENV_DUMP_SIGNAL;

/// What a signal that comes to the launcher means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The job is to be ended.
    End,
    /// The ranks are meant, and get it.
    PassOn,
}

/// The signals that are caught, each with the descriptor that announces it.
pub(super) struct Signals {
    caught: Vec<(Signal, Meaning, UnixStream, SigId)>,
}

impl Signals {
    /// Catches signals for a job. Those other than SIGINT and SIGTERM stay ignored if they are, as SIGHUP is for a command under `nohup`:
    /// the ranks inherit that.
    pub(super) fn catch(job: &Job) -> io::Result<Self> {
        let mut idle = lock();
        let mut signals = Self { caught: Vec::new() };
        idle.jobs += 1;
        let mut result = idle.keep_statuses();
        for (signal, meaning) in meanings(job) {
            if ![Signal::INT, Signal::TERM].contains(&signal) && in_mask("SigIgn:", signal) {
                continue;
            }
            result = result.and_then(|()| idle.prepare(signal)).and_then(|()| signals.add(signal, meaning));
        }
        // Only now: a signal between these steps ends the process, as before, and is not lost.
        idle.flag.store(false, Ordering::SeqCst);
        drop(idle);
        result.map(|()| signals)
    }

    fn add(&mut self, signal: Signal, meaning: Meaning) -> io::Result<()> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        let id = signal_hook::low_level::pipe::register(signal.as_raw(), write)?;
        self.caught.push((signal, meaning, read, id));
        Ok(())
    }

    /// The descriptors that become readable when a signal comes.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.caught.iter().map(|(.., read, _)| read.as_fd())
    }

    /// A signal that has come since the last call, and what it means.
    pub(super) fn take(&mut self) -> Option<(Signal, Meaning)> {
        let mut bytes = [0; 64];
        let mut has_come = |mut from: &UnixStream| from.read(&mut bytes).is_ok_and(|times| times > 0);
        self.caught.iter().find(|(.., stream, _)| has_come(stream)).map(|(signal, meaning, ..)| (*signal, *meaning))
    }
}

/// The signals of a job. SIGHUP tells of a terminal that is gone, unless it asks the ranks for dumps.
fn meanings(job: &Job) -> [(Signal, Meaning); 6] {
    let hup_dumps = |value: &std::ffi::OsStr| value == "HUP" || value == "SIGHUP";
    let all_dump =
        job.programs().all(|program| program.variable(ENV_DUMP_SIGNAL).is_some_and(|value| hup_dumps(&value)));
    [
        (Signal::INT, Meaning::End),
        (Signal::TERM, Meaning::End),
        (Signal::QUIT, Meaning::End),
        (Signal::HUP, if all_dump { Meaning::PassOn } else { Meaning::End }),
        (Signal::USR1, Meaning::PassOn),
        (Signal::USR2, Meaning::PassOn),
    ]
}

impl Drop for Signals {
    fn drop(&mut self) {
        let mut idle = lock();
        idle.jobs -= 1;
        idle.flag.store(idle.jobs == 0, Ordering::SeqCst);
        for (.., id) in &self.caught {
            signal_hook::low_level::unregister(*id);
        }
    }
}

/// An installed handler stays for ever. While no job runs, it must do what the signal would have done without it.
struct Idle {
    jobs: usize,
    flag: Arc<AtomicBool>,
    prepared: Vec<Signal>,
}

static IDLE: LazyLock<Mutex<Idle>> =
    LazyLock::new(|| Mutex::new(Idle { jobs: 0, flag: Arc::new(AtomicBool::new(true)), prepared: Vec::new() }));

fn lock() -> MutexGuard<'static, Idle> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Idle {
    /// Makes sure that ranks' statuses can be read. Some parents leave SIGCHLD ignored, and then the kernel would drop them.
    fn keep_statuses(&mut self) -> io::Result<()> {
        if in_mask("SigIgn:", Signal::CHILD) {
            signal_hook::flag::register(Signal::CHILD.as_raw(), Arc::new(AtomicBool::new(false)))?;
        }
        Ok(())
    }

    fn prepare(&mut self, signal: Signal) -> io::Result<()> {
        if !self.prepared.contains(&signal) {
            if !in_mask("SigIgn:", signal) && !in_mask("SigCgt:", signal) {
                signal_hook::flag::register_conditional_default(signal.as_raw(), Arc::clone(&self.flag))?;
            }
            self.prepared.push(signal);
        }
        Ok(())
    }
}

/// Whether `signal` is in one of the masks of this process. `false` if there is no /proc.
fn in_mask(name: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let mask = mask.and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}
