//! The processes of a job: starting, signalling and reaping them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, getppid, getrlimit, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::sched_setaffinity;

use super::error::LaunchError;
use super::job::{Job, Output};
use super::outcome::RankStatus;
use super::output::Line;
use super::processors::Processors;
use super::programs::Program;
use crate::bootstrap::OF_OTHERS;
use crate::bootstrap::{ENV_APPNUM, ENV_BOOTSTRAP, ENV_FD, ENV_JOB, ENV_RANK, ENV_SIZE, ENV_SOLO};

/// Descriptors beside those of the ranks: standard streams, two epolls, signals, descriptors that are open only during a start, and those
/// that the calling process has open.
const FILES_BESIDE: u64 = 64;

/// The soft limit of open files with which this process was started. The ranks start with this limit again.
static FILE_LIMIT: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit of open files for the job, before anything is started.
pub(super) fn raise_file_limit(job: &Job) -> Result<(), LaunchError> {
    // A rank that is bound to a processor has a socket that claims this processor.
    let per_rank = if job.output == Output::Forward { 4 } else { 2 } + u64::from(job.pin);
    let needed = u64::from(job.ranks()) * per_rank + FILES_BESIDE;
    let found = getrlimit(Resource::Nofile);
    FILE_LIMIT.get_or_init(|| found);
    if found.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(limit) = found.maximum.filter(|limit| *limit < needed) {
        return Err(LaunchError::Files { ranks: job.ranks(), needed, limit });
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..found })
        .map_err(|source| LaunchError::System { operation: "setrlimit(RLIMIT_NOFILE)", source: source.into() })
}

/// One of the streams to which a rank writes.
#[derive(Default)]
pub(super) struct Stream {
    /// `None` if the stream is inherited, at its end, or given up.
    pub(super) pipe: Option<OwnedFd>,
    pub(super) line: Line,
    /// Bytes that may still be read. Limited once the rank has ended.
    pub(super) left: Option<usize>,
}

/// A rank that was started.
pub(super) struct Rank {
    child: Child,
    pub(super) pidfd: OwnedFd,
    pub(super) socket: Option<OwnedFd>,
    /// stdout and stderr.
    pub(super) streams: [Stream; 2],
    pub(super) status: Option<RankStatus>,
}

impl Rank {
    pub(super) fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // The process may have ended meanwhile. Then the signal reaches nobody.
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// Reaps the process, which must have ended.
    pub(super) fn reap(&mut self, engaged: bool) -> RankStatus {
        let status = RankStatus::new(self.child.wait(), engaged);
        self.status = Some(status);
        status
    }
}

impl Drop for Rank {
    /// Kills and reaps the process, so that a job that is given up leaves neither a process nor a zombie.
    fn drop(&mut self) {
        if self.status.is_none() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Starts the ranks of one job.
pub(super) struct Starter<'a> {
    job: &'a Job,
    name: &'a str,
    /// For each rank: the number of its program, the program, and its file.
    runs: Vec<(usize, &'a Program, &'a Path)>,
    /// The processors that ranks are bound to, in turn. Empty if ranks are not bound.
    processors: Processors,
    launcher: Pid,
}

impl<'a> Starter<'a> {
    pub(super) fn new(job: &'a Job, name: &'a str, files: &'a [PathBuf]) -> Result<Self, LaunchError> {
        let mut runs = Vec::with_capacity(job.ranks() as usize);
        for (appnum, (program, file)) in job.programs().zip(files).enumerate() {
            runs.extend((0..program.ranks).map(|_| (appnum, program, file.as_path())));
        }
        let processors = if job.pin { Processors::choose(runs.len())? } else { Processors::default() };
        Ok(Self { job, name, runs, processors, launcher: getpid() })
    }

    pub(super) fn start(&self, rank: u32) -> Result<Rank, LaunchError> {
        self.spawn(rank).map_err(|source| LaunchError::Spawn { rank, source })
    }

    fn spawn(&self, rank: u32) -> io::Result<Rank> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let (appnum, program, file) = self.runs[rank as usize];
        let mut command = Command::new(file);
        command.arg0(&program.name).args(&program.args);
        if let Some(directory) = &program.directory {
            // `PWD` has the directory as it was named here, as in a shell, not as its links resolve.
            command.current_dir(directory).env("PWD", std::path::absolute(directory)?);
        }
        // These variables are for processes without a launcher, or of another launcher.
        for name in [ENV_SOLO, ENV_BOOTSTRAP].iter().chain(&OF_OTHERS) {
            command.env_remove(name);
        }
        command.envs(program.env.iter().map(|(name, value)| (name, value)));
        command.env(ENV_RANK, rank.to_string()).env(ENV_SIZE, self.runs.len().to_string());
        command.env(ENV_APPNUM, appnum.to_string());
        command.env(ENV_JOB, self.name).env(ENV_FD, theirs.as_raw_fd().to_string());
        command.envs(super::trace::variables(self.job.trace.as_deref(), rank));
        command.stdin(if rank == 0 { Stdio::inherit() } else { Stdio::null() });
        if self.job.output == Output::Forward {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        self.prepare(&mut command, rank, theirs);
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.into());
            }
        };
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        let streams = [stdout, stderr].map(|pipe| Stream { pipe, line: Line::default(), left: None });
        let rank = Rank { child, pidfd, socket: Some(ours), streams, status: None };
        for pipe in rank.streams.iter().filter_map(|stream| stream.pipe.as_ref()) {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(rank)
    }

    /// Prepares what the new process does before it becomes the rank's program.
    fn prepare(&self, command: &mut Command, rank: u32, socket: OwnedFd) {
        let launcher = self.launcher;
        let limit = FILE_LIMIT.get().copied();
        let processors = self.processors.of(rank as usize);
        let in_child = move || {
            // The kernel ends the rank when the launcher ends, in whatever way.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The launcher may have ended before the line above. Then nobody would end this process.
            if getppid() != Some(launcher) {
                return Err(Errno::SRCH.into());
            }
            // The launcher's end stays close-on-exec. So only this process inherits the rank's end.
            rustix::io::fcntl_setfd(&socket, FdFlags::empty())?;
            if let Some(limit) = &limit {
                setrlimit(Resource::Nofile, *limit)?;
            }
            if let Some(processors) = &processors {
                sched_setaffinity(None, processors)?;
            }
            Ok(())
        };
        #[expect(unsafe_code, reason = "only the new process can ask for its death signal and pass on its socket")]
        // SAFETY: between fork and exec only async-signal-safe calls are allowed: the closure makes system calls
        // on values that were prepared before the fork, and neither allocates nor locks.
        unsafe {
            command.pre_exec(in_child)
        };
    }
}
