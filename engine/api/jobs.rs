//! Looking at running jobs from outside: which jobs there are on this host, what their statistics pages say, and what is pending in them.
//! [`report_all`] and [`Hosts`] also ask the other hosts of a job. The commands `tickwire top`, `dump` and `whowaits` offer this on the
//! command line.
//!
//! Finding a process takes no answer from it: its page is among its descriptors in `/proc`, and the launcher's variables are in its
//! environment. A user sees only processes of the same user; root sees all.

mod hosts;
mod reports;

pub use hosts::{Hosts, Told};
pub use reports::{report, report_all, report_one, together};

use crate::bootstrap::{ENV_JOB, ENV_RANK, ENV_SIZE, job_is_valid};
use crate::observe::door::{DUMPS, name_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;
use tickwire_components::limits::PROCS_MAX;
use tickwire_traces::dump::Dump;
use tickwire_traces::hosts::ANSWER_BYTES_MAX;
use tickwire_traces::page::{NAME, Snapshot};
use tickwire_transports::peer_of;

/// Most hosts that are asked at the same time.
const HOSTS_AT_ONCE: usize = 64;
/// Most engines that are asked at the same time. Each takes a descriptor.
const ASKED_AT_ONCE: usize = 256;

/// A process that takes part in a job.
#[derive(Debug)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The job.
    pub job: String,
    /// The process's rank in the job.
    pub rank: u32,
    /// The number of ranks in the job.
    pub size: u32,
    /// Where its statistics pages are, one for each engine. There are none before the first engine is built and after the last is dropped.
    pub pages: Vec<PathBuf>,
}

impl Process {
    /// What its statistics pages say now. One is open at a time: there may be more engines than this process may have files open.
    pub fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        self.pages.iter().filter_map(|page| read_page(page))
    }
}

/// Why a process has given no dump.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// The process has no engine.
    #[error("process {pid} has no engine: it is no rank, has not built one yet, or has closed it")]
    NoEngine {
        /// The process.
        pid: u32,
    },
    /// The process is in another network namespace, where the name of its socket cannot be reached from here.
    #[error("process {pid} is in another network namespace, as in a container: ask there")]
    Apart {
        /// The process.
        pid: u32,
    },
    /// The process has closed its engine.
    #[error("process {pid} has closed its engine")]
    Closed {
        /// The process.
        pid: u32,
    },
    /// The process is building its engine, and waits for the other ranks.
    #[error("process {pid} is building its engine, and waits for the other ranks to do so")]
    Starting {
        /// The process.
        pid: u32,
    },
    /// The process does not tick.
    #[error("process {pid} does not tick: last seen ticking {} ago", tickwire_traces::words::Nanoseconds(*.ns))]
    Silent {
        /// The process.
        pid: u32,
        /// Time since the process last sampled its clock, ns.
        ns: u64,
    },
    /// The process ticks, but too rarely to have looked at its sockets, which it does once in 64 ticks.
    #[error("process {pid} has not answered in {ms} ms; it ticks, {ticks} times meanwhile: wait longer")]
    Slow {
        /// The process.
        pid: u32,
        /// How long the caller has waited, ms.
        ms: u64,
        /// How often the process has ticked meanwhile.
        ticks: u64,
    },
    /// The process's answer is not a dump.
    #[error(
        "process {pid} has answered what is no dump ({words}): use the command and the library of the same version"
    )]
    Strange {
        /// The process.
        pid: u32,
        /// What is wrong with the answer.
        words: String,
    },
    /// The system refused.
    #[error("process {pid} cannot be asked: {source}")]
    System {
        /// The process.
        pid: u32,
        /// The system's answer.
        source: io::Error,
    },
}

/// The time of the pages' clock, ns.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// All processes on this host that take part in a job, as far as the caller can see them. Sorted by job, rank and process id.
///
/// # Errors
/// If there is no `/proc`.
pub fn processes() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let pid = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse().ok());
        found.extend(pid.and_then(process));
    }
    found.sort_by(|a, b| (&a.job, a.rank, a.pid).cmp(&(&b.job, b.rank, b.pid)));
    Ok(found)
}

/// One process, if it takes part in a job.
pub fn process(pid: u32) -> Option<Process> {
    let place = Path::new("/proc").join(pid.to_string());
    let own = names(&place, pid);
    let mut first = None;
    let mut pages = pages(&place);
    // A process that watches a rank, or was forked by one, has that rank's page open too.
    pages.retain(|page| {
        let page = read_page(page).filter(|page| own.contains(&page.identity.pid));
        let is_own = page.is_some();
        first = first.take().or(page);
        is_own
    });
    if let Some(page) = first {
        let (rank, size) = (page.identity.rank as u32, page.identity.size as u32);
        let is_possible = rank < size && size as usize <= PROCS_MAX && job_is_valid(&page.job);
        return is_possible.then_some(Process { pid, job: page.job, rank, size, pages });
    }
    let environment = std::fs::read(place.join("environ")).ok()?;
    let get = |name: &str| {
        let mut variables = environment.split(|&byte| byte == 0);
        let value = variables.find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        String::from_utf8(value.to_vec()).ok()
    };
    let (rank, size): (u32, u32) = (get(ENV_RANK)?.parse().ok()?, get(ENV_SIZE)?.parse().ok()?);
    // Any process can have such variables, with any values.
    let job = get(ENV_JOB).filter(|job| job_is_valid(job))?;
    (rank < size && size as usize <= PROCS_MAX).then_some(Process { pid, job, rank, size, pages })
}

/// The ids of a process in all PID namespaces that it is in. Its page has the id of the innermost one.
fn names(place: &Path, pid: u32) -> Vec<u64> {
    let status = std::fs::read_to_string(place.join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_whitespace().flat_map(str::parse).chain([pid.into()]).collect()
}

/// The pages among a process's descriptors, in the order of their paths.
fn pages(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(place.join("fd")) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|path| is_page(path)).collect();
    paths.sort();
    paths
}

/// Whether a descriptor in `/proc` is a page.
fn is_page(path: &Path) -> bool {
    let is_named = |link: &str| link.strip_prefix("/memfd:").is_some_and(|name| name.starts_with(NAME));
    std::fs::read_link(path).is_ok_and(|link| link.to_str().is_some_and(is_named))
}

/// What a page says, if it is still there. The process may have another descriptor of the same number meanwhile.
fn read_page(path: &Path) -> Option<Snapshot> {
    is_page(path).then(|| Snapshot::read(&File::open(path).ok()?).ok())?
}

/// Whether a word names a process's job: the start of the job's name, its launcher's process id, or the id of this process.
pub fn is_named(process: &Process, word: &str) -> bool {
    let numbers = |c: char| c.is_ascii_digit();
    if !word.is_empty() && word.chars().all(numbers) {
        return process.pid.to_string() == word || process.job.split('-').nth(1) == Some(word);
    }
    !word.is_empty() && process.job.starts_with(word)
}

/// Asks a process for the dumps of its engines. Waits for at most `patience`.
///
/// # Errors
/// Why the process gave no dump.
pub fn ask(process: &Process, patience: Duration) -> Result<Vec<Dump>, AskError> {
    ask_all(&[process], patience).pop().unwrap_or(Err(AskError::NoEngine { pid: process.pid }))
}

/// Asks processes for the dumps of their engines. Waits for at most `patience` altogether. Each process has a result.
///
/// Many engines are asked before any answer is awaited: they may depend on each other, and one that is silent must not hide others.
fn ask_all(processes: &[&Process], patience: Duration) -> Vec<Result<Vec<Dump>, AskError>> {
    let end = Instant::now() + patience;
    let pages: Vec<_> = processes.iter().map(|process| open_pages(process)).collect();
    let engines = processes.iter().zip(&pages).flat_map(|(process, pages)| {
        let pages = pages.as_deref().unwrap_or_default();
        pages.iter().map(|(page, _)| (process.pid, page))
    });
    let mut answers = ask_engines(&engines.collect::<Vec<_>>(), DUMPS, end).into_iter();
    let mut results = Vec::with_capacity(processes.len());
    for (process, pages) in processes.iter().zip(pages) {
        results.push(pages.and_then(|pages| {
            // The answers of all engines of a process are taken, so that those of the next process follow.
            let answers: Vec<_> = answers.by_ref().take(pages.len()).collect();
            pages.iter().zip(answers).map(|(page, answer)| dump_of(process.pid, page, answer, patience)).collect()
        }));
    }
    results
}

/// The pages of the engines of a process that are not closed: a closed engine does not tick, so it would not answer.
fn open_pages(process: &Process) -> Result<Vec<(Snapshot, &Path)>, AskError> {
    let pid = process.pid;
    let pages = process.pages.iter().filter_map(|path| Some((read_page(path)?, path.as_path())));
    let mut pages: Vec<(Snapshot, &Path)> = pages.collect();
    if pages.is_empty() {
        return Err(AskError::NoEngine { pid });
    }
    pages.retain(|(page, _)| page.figures.closed == 0);
    if pages.is_empty() { Err(AskError::Closed { pid }) } else { Ok(pages) }
}

/// What an engine has answered. `page` is what its page said before.
fn dump_of(
    pid: u32,
    (page, path): &(Snapshot, &Path),
    answer: io::Result<Vec<u8>>,
    patience: Duration,
) -> Result<Dump, AskError> {
    match answer {
        Ok(answer) if !answer.is_empty() => Dump::parse(&answer).map_err(|words| AskError::Strange { pid, words }),
        Ok(_) => Err(AskError::NoEngine { pid }),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            let now = read_page(path).unwrap_or_else(|| page.clone());
            let ticks = now.ticks.saturating_sub(page.ticks);
            let ns = now_ns().saturating_sub(now.figures.written_ns);
            if now.figures.written_ns == 0 {
                return Err(AskError::Starting { pid });
            }
            let ms = patience.as_millis() as u64;
            Err(if ticks == 0 { AskError::Silent { pid, ns } } else { AskError::Slow { pid, ms, ticks } })
        }
        Err(source) if source.kind() == io::ErrorKind::ConnectionRefused => {
            Err(if is_apart(pid) { AskError::Apart { pid } } else { AskError::NoEngine { pid } })
        }
        Err(source) => Err(AskError::System { pid, source }),
    }
}

/// Whether a process is in another network namespace than this one.
fn is_apart(pid: u32) -> bool {
    let space = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net")).ok();
    matches!((space("self"), space(&pid.to_string())), (Some(own), Some(other)) if own != other)
}

/// Connects to an engine, and checks that the process on the other side is the right one. Does not wait: an engine at which too many have
/// called already has not answered in time.
fn call(pid: u32, page: &Snapshot, kind: &str) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = UnixStream::from(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?);
    let address = name_of(kind, page.identity.pid, page.identity.engine);
    match connect(&stream, &SocketAddrUnix::new_abstract_name(address.as_bytes())?) {
        Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
        connected => connected?,
    }
    if peer_of(&stream)?.pid != Some(pid) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another process answers in its name"));
    }
    Ok(stream)
}

/// Calls engines, and reads from each until it closes the connection, but only until `end`. Each engine has a result. If there are too many
/// to be asked at once, each part of them has an equal share of the time.
fn ask_engines(engines: &[(u32, &Snapshot)], kind: &str, end: Instant) -> Vec<io::Result<Vec<u8>>> {
    let parts = engines.chunks(ASKED_AT_ONCE);
    let mut left = parts.len() as u32;
    let mut answers = Vec::with_capacity(engines.len());
    for part in parts {
        let now = Instant::now();
        answers.extend(ask_part(part, kind, now + end.saturating_duration_since(now) / left));
        left -= 1;
    }
    answers
}

/// As [`ask_engines`], of so few that all are asked at once.
fn ask_part(engines: &[(u32, &Snapshot)], kind: &str, end: Instant) -> Vec<io::Result<Vec<u8>>> {
    let mut answers: Vec<io::Result<Vec<u8>>> = engines.iter().map(|_| Err(io::ErrorKind::TimedOut.into())).collect();
    let mut open = Vec::new();
    for (engine, &(pid, page)) in engines.iter().enumerate() {
        match call(pid, page, kind) {
            Ok(stream) => open.push((engine, stream, Vec::new())),
            Err(error) => answers[engine] = Err(error),
        }
    }
    let mut part = vec![0; 1 << 16];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if open.is_empty() || left.is_zero() {
            return answers;
        }
        let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds: Vec<_> = open.iter().map(|(_, stream, _)| PollFd::new(stream, PollFlags::IN)).collect();
        if let Err(error) =
            poll(&mut fds, Some(&time)).or_else(|error| if error == Errno::INTR { Ok(0) } else { Err(error) })
        {
            open.iter().for_each(|(engine, ..)| answers[*engine] = Err(error.into()));
            return answers;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        open.retain_mut(|(engine, stream, answer)| {
            if ready.next() != Some(true) {
                return true;
            }
            match read_more(stream, answer, &mut part) {
                Ok(true) => return true,
                Ok(false) => answers[*engine] = Ok(std::mem::take(answer)),
                Err(error) => answers[*engine] = Err(error),
            }
            false
        });
    }
}

/// Reads what is there, at most once. Returns whether more may come.
fn read_more(stream: &mut UnixStream, answer: &mut Vec<u8>, part: &mut [u8]) -> io::Result<bool> {
    match stream.read(part) {
        Ok(0) => Ok(false),
        Ok(read) if answer.len() + read > ANSWER_BYTES_MAX => {
            let words = format!("its answer has over {ANSWER_BYTES_MAX} bytes");
            Err(io::Error::new(io::ErrorKind::InvalidData, words))
        }
        Ok(read) => {
            answer.extend_from_slice(&part[..read]);
            Ok(true)
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_job(job: &str) -> Process {
        Process { pid: 77, job: job.to_owned(), rank: 0, size: 1, pages: Vec::new() }
    }

    #[test]
    fn a_job_has_several_names() {
        let process = of_job("job-4711-0a1b");
        let named =
            ["4711", "77", "job-4711", "job-4711-0a1b", "4", "", "job-9", "0a1b"].map(|w| is_named(&process, w));
        assert_eq!(named, [true, true, true, true, false, false, false, false]);
    }

    #[test]
    fn a_process_without_an_engine_says_so() {
        let error = ask(&of_job("job-1"), Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().starts_with("process 77 has no engine"), "{error}");
    }
}
