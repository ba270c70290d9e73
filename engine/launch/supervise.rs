//! The launcher's loop. One thread handles exits, signals, the exchange and the output of all ranks.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::Signal;

use super::error::LaunchError;
use super::events::{EXIT, LEFT_BYTES_MAX, PIPES, READ_BYTES, SIGNAL, SOCKET, failed, wait, watch};
use super::exchange::Server;
use super::forward::Forward;
use super::job::{Job, OnFailure};
use super::outcome::{JobOutcome, RankStatus};
use super::ranks::{Rank, Starter};
use super::signals::{Meaning, Signals};
use crate::bootstrap::unique_job;
use crate::bootstrap::wire::Malformed;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Longest wait after SIGKILL. A process that is still there then cannot be ended by the kernel.
const KILLED: Duration = Duration::from_secs(10);
/// A signal that comes so soon after another one belongs to it: `timeout` sends two, and a terminal and a script's trap one each.
const SAME_STOP: Duration = Duration::from_millis(250);
/// How long an interrupted launcher tries to write the last output, if nobody reads it.
const FLUSH: Duration = Duration::from_secs(2);

pub(super) fn run(job: &Job, files: &[PathBuf]) -> Result<JobOutcome, LaunchError> {
    let name = unique_job("job");
    if job.print_name {
        // A single write, so that lines of several launchers do not mix. If stderr is closed, the line is lost, which is no error.
        let line = format!("tickwire run: job {name}, launcher {}\n", std::process::id());
        let _ = io::stderr().write_all(line.as_bytes());
    }
    let starter = Starter::new(job, &name, files)?;
    let mut supervisor = Supervisor::new(job, &name)?;
    for rank in 0..job.ranks() {
        supervisor.adopt(starter.start(rank)?)?;
        supervisor.turn(Some(Duration::ZERO))?;
        if supervisor.ending.is_some() {
            break;
        }
    }
    while !supervisor.is_done() {
        supervisor.turn(None)?;
    }
    Ok(supervisor.outcome())
}

/// The state of a job that is being ended.
struct Ending {
    /// When SIGKILL is due. After SIGKILL: when the launcher gives up.
    next: Instant,
    killed: bool,
    given_up: bool,
}

struct Supervisor<'a> {
    job: &'a Job,
    ranks: Vec<Rank>,
    running: usize,
    server: Server,
    signals: Signals,
    poll: OwnedFd,
    forward: Forward,
    ending: Option<Ending>,
    flush_until: Option<Instant>,
    /// When the job has taken too long. Not used while the job is being ended.
    overdue: Option<Instant>,
    timed_out: bool,
    failure: Option<(u32, RankStatus)>,
    /// The last signal that has stopped the job, and when it came.
    interrupted: Option<(Signal, Instant)>,
    buffer: Vec<u8>,
}

impl<'a> Supervisor<'a> {
    fn new(job: &'a Job, name: &str) -> Result<Self, LaunchError> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        let signals = Signals::catch(job).map_err(|source| LaunchError::System { operation: "sigaction", source })?;
        for fd in signals.descriptors() {
            watch(&poll, fd, SIGNAL, 0)?;
        }
        let forward = Forward::new(job.tag_output, &poll)?;
        Ok(Self {
            job,
            ranks: Vec::with_capacity(job.ranks() as usize),
            running: 0,
            server: Server::new(job.ranks() as usize, name.to_owned()),
            signals,
            poll,
            forward,
            ending: None,
            flush_until: None,
            overdue: job.timeout.and_then(|longest| Instant::now().checked_add(longest)),
            timed_out: false,
            failure: None,
            interrupted: None,
            buffer: vec![0; READ_BYTES],
        })
    }

    fn adopt(&mut self, rank: Rank) -> Result<(), LaunchError> {
        let number = self.ranks.len();
        watch(&self.poll, &rank.pidfd, EXIT, number)?;
        if let Some(socket) = &rank.socket {
            watch(&self.poll, socket, SOCKET, number)?;
        }
        self.forward.adopt(&rank, number)?;
        self.ranks.push(rank);
        self.running += 1;
        Ok(())
    }

    /// Whether all ranks were started and have ended.
    fn is_ended(&self) -> bool {
        self.running == 0 && self.ranks.len() == self.job.ranks() as usize
    }

    fn is_done(&self) -> bool {
        let too_late = self.flush_until.is_some_and(|until| Instant::now() >= until);
        let given_up = self.ending.as_ref().is_some_and(|ending| ending.given_up);
        given_up || (self.running == 0 && (self.forward.is_written() || too_late))
    }

    /// Waits for events, for at most `longest`, and handles them.
    fn turn(&mut self, longest: Option<Duration>) -> Result<(), LaunchError> {
        let timeout = self.timeout(longest);
        let events = wait(&self.poll, timeout.as_ref())?;
        // Signals before exits: Ctrl-C reaches the ranks too, and then their exits are no failures of their own.
        while let Some((signal, meaning)) = self.signals.take() {
            match meaning {
                Meaning::End => self.interrupt(signal),
                Meaning::PassOn => self.ranks.iter().for_each(|rank| rank.signal(signal)),
            }
        }
        for (about, rank, flags) in events {
            match about {
                EXIT => self.rank_ended(rank),
                SOCKET if flags.contains(epoll::EventFlags::OUT) => self.answer(rank),
                SOCKET => drop(self.receive(rank)),
                PIPES => self.forward.read_ready(&mut self.ranks)?,
                _ => {}
            }
        }
        while let Some(rank) = self.server.next_pending() {
            self.answer(rank as usize);
        }
        self.heed_abort();
        // Output that can be written is no reason to give the job up.
        self.forward.write(&mut self.ranks, &self.poll);
        if !self.is_done() {
            self.expire();
        }
        self.forward.write(&mut self.ranks, &self.poll);
        self.enforce();
        Ok(())
    }

    fn timeout(&self, longest: Option<Duration>) -> Option<Timespec> {
        let due = match self.running {
            0 => self.flush_until.or(self.overdue),
            _ => self.ending.as_ref().map_or(self.overdue, |ending| Some(ending.next)),
        };
        let due = due.into_iter().chain(self.forward.next_due()).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        // Older systems take no longer time. The caller waits again.
        let left = left.into_iter().chain(longest).min()?.min(Duration::from_secs(24 * 60 * 60));
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) })
    }

    fn interrupt(&mut self, signal: Signal) {
        let again = match self.interrupted {
            Some((_, at)) if at.elapsed() < SAME_STOP => return,
            earlier => earlier.is_some(),
        };
        self.interrupted = Some((signal, Instant::now()));
        if !again {
            let number = signal.as_raw();
            let name = signal_hook::low_level::signal_name(number).unwrap_or_default();
            self.forward.say(&format!("stopped by signal {number} ({name}); ending the ranks"));
        }
        self.flush_until = Some(Instant::now() + if again { Duration::ZERO } else { GRACE + FLUSH });
        self.end();
        // A user who interrupts twice does not want to wait.
        if let Some(ending) = self.ending.as_mut().filter(|ending| again && !ending.killed) {
            ending.next = Instant::now();
        }
    }

    /// Ends the job if a rank has asked for that.
    fn heed_abort(&mut self) {
        let Some((rank, code)) = self.server.abort().filter(|_| self.ending.is_none()) else { return };
        self.failure.get_or_insert((rank, RankStatus::Exited(code)));
        self.forward.say(&format!("rank {rank} ends the job with exit status {code}"));
        self.flush_until = Some(Instant::now() + GRACE + FLUSH);
        self.end();
    }

    /// Ends the job if it has taken too long. After the end of all ranks, gives up output that nobody reads.
    fn expire(&mut self) {
        let Some(longest) = self.job.timeout.filter(|_| !self.timed_out) else { return };
        if self.overdue.is_none_or(|due| Instant::now() < due) {
            return;
        }
        if self.is_ended() {
            // Nobody reads the last output.
            (self.timed_out, self.flush_until) = (true, Some(Instant::now()));
        } else if self.ending.is_none() && self.running > 0 {
            let (have, them) = if self.running == 1 { ("rank has", "it") } else { ("ranks have", "them") };
            self.forward.say(&format!("{} {have} not ended after {longest:?}; ending {them}", self.running));
            (self.timed_out, self.flush_until) = (true, Some(Instant::now() + GRACE + FLUSH));
            self.end();
        }
    }

    fn end(&mut self) {
        if self.ending.is_none() {
            self.ending = Some(Ending { next: Instant::now() + GRACE, killed: false, given_up: false });
            self.ranks.iter().for_each(|rank| rank.signal(Signal::TERM));
        }
    }

    fn enforce(&mut self) {
        let Some(ending) = self.ending.as_mut().filter(|ending| Instant::now() >= ending.next) else {
            return;
        };
        if self.running == 0 {
            return;
        }
        if ending.killed {
            ending.given_up = true;
            let lost: Vec<_> = (0..self.ranks.len()).filter(|&rank| self.ranks[rank].status.is_none()).collect();
            for &rank in &lost {
                self.ranks[rank].status = Some(RankStatus::Lost);
            }
            self.forward.say(&format!("ranks {lost:?} do not end although they were killed; they are left behind"));
            self.forward.write(&mut self.ranks, &self.poll);
        } else {
            *ending = Ending { next: Instant::now() + KILLED, killed: true, given_up: false };
            self.ranks.iter().for_each(|rank| rank.signal(Signal::KILL));
        }
    }

    fn rank_ended(&mut self, number: usize) {
        if self.ranks[number].status.is_some() {
            return;
        }
        // What the rank sent and wrote before its end is handled first.
        let mut bytes = 0;
        while bytes < LEFT_BYTES_MAX {
            match self.receive(number) {
                0 => break,
                more => bytes += more,
            }
        }
        self.forward.rank_ended(&mut self.ranks, number);
        let engaged = self.server.is_engaged(number as u32);
        let rank = &mut self.ranks[number];
        let status = rank.reap(engaged);
        let _ = epoll::delete(&self.poll, &rank.pidfd);
        self.running -= 1;
        self.hang_up(number);
        self.server.rank_ended(number as u32, status.to_string());
        self.heed_abort();
        if self.ending.is_none() && !status.is_success() {
            self.rank_failed(number as u32, status);
        }
    }

    fn rank_failed(&mut self, rank: u32, status: RankStatus) {
        self.failure.get_or_insert((rank, status));
        let how = match status {
            RankStatus::Exited(_) => format!("rank {rank} ended with {status}"),
            RankStatus::Killed(_) => format!("rank {rank} was {status}"),
            _ => format!("rank {rank} {status}"),
        };
        let then = match self.job.on_failure {
            _ if self.running == 0 => "",
            OnFailure::End => "; ending the other ranks",
            OnFailure::Continue => "; the other ranks go on",
        };
        self.forward.say(&format!("{how}{then}"));
        if self.job.on_failure == OnFailure::End {
            self.end();
        }
    }

    /// Reads once from a rank's socket. Returns how many bytes came.
    fn receive(&mut self, number: usize) -> usize {
        let Some(socket) = &self.ranks[number].socket else {
            return 0;
        };
        match recv(socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((bytes @ 1.., _)) => {
                if let Err(Malformed(what)) = self.server.receive(number as u32, &self.buffer[..bytes]) {
                    self.forward.say(&format!("rank {number} sent {what}; its bootstrap connection is closed"));
                    self.hang_up(number);
                }
                bytes
            }
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Ok(_) | Err(_) => {
                self.hang_up(number);
                0
            }
        }
    }

    /// Writes to a rank's socket as much as it takes.
    fn answer(&mut self, number: usize) {
        let number32 = number as u32;
        while let Some(socket) = &self.ranks[number].socket {
            let output = self.server.output(number32);
            let idle = output.is_empty();
            let sent =
                if idle { Err(Errno::AGAIN) } else { send(socket, output, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) };
            match sent {
                Ok(bytes) => self.server.sent(number32, bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let flags =
                        if idle { epoll::EventFlags::IN } else { epoll::EventFlags::IN | epoll::EventFlags::OUT };
                    let data = epoll::EventData::new_u64(SOCKET << 32 | number as u64);
                    let _ = epoll::modify(&self.poll, socket, data, flags);
                    return;
                }
                Err(_) => {
                    // The rank has closed its end. What it sent before, such as its farewell, can still be read.
                    while self.receive(number) > 0 {}
                    self.hang_up(number);
                }
            }
        }
    }

    fn hang_up(&mut self, number: usize) {
        if let Some(socket) = self.ranks[number].socket.take() {
            let _ = epoll::delete(&self.poll, &socket);
            self.server.closed(number as u32);
        }
    }

    fn outcome(mut self) -> JobOutcome {
        let statuses = self.ranks.iter().map(|rank| rank.status.unwrap_or(RankStatus::Lost)).collect();
        JobOutcome {
            first_failure: self.failure.take(),
            interrupted: self.interrupted.map(|(signal, _)| signal.as_raw()),
            timed_out: self.timed_out,
            statuses,
            trace_error: None,
            output_error: self.forward.lost(),
        }
    }
}
