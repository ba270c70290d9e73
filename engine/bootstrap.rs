//! How the ranks of a job find each other before any transport exists: a key-value exchange with fences, and the
//! news that a rank has ended.
//!
//! A [`Bootstrap`] is one of three: the connection to the launcher that started this process
//! ([`Bootstrap::from_env`]), a world of one ([`Bootstrap::solo`]), or an [`Exchange`] of the application's own
//! ([`Bootstrap::custom`]), for another launcher or for several engines in one process.
//!
//! A process that another launcher (mpirun, srun, mpiexec, flux run and others) has started as one of several ranks is
//! refused by [`Bootstrap::from_env`]: as a world of one it would compute something else, without a word. Where that is what
//! is wanted, the program calls [`Bootstrap::solo`], or its user sets [`ENV_SOLO`].

mod foreign;
mod launched;
pub(crate) mod wire;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use thiserror::Error;
use tickwire_components::limits::LOCAL_RANKS_MAX;

pub use wire::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Environment variable with the number of this process in its job, from 0.
pub const ENV_RANK: &str = "TICKWIRE_RANK";
/// Environment variable with the number of ranks in the job.
pub const ENV_SIZE: &str = "TICKWIRE_SIZE";
/// Environment variable with the job's name, unique on this host.
pub const ENV_JOB: &str = "TICKWIRE_JOB";
/// Environment variable with the number of the inherited socket to the launcher.
pub const ENV_FD: &str = "TICKWIRE_FD";
/// Environment variable with the longest wait for an answer of the launcher, fences included, in ms.
pub const ENV_FENCE_MS: &str = "TICKWIRE_FENCE_MS";
/// Environment variable that says, with 1, that this process is to be a world of one, whoever has started it.
/// `tickwire run` does not hand it on to its ranks.
pub const ENV_SOLO: &str = "TICKWIRE_SOLO";
/// What is said of a rank whose process has ended in order.
pub const EXITED: &str = "exited";
/// Longest name of a job, bytes: it becomes part of names in /dev/shm and of socket names (108 bytes at most).
pub const JOB_BYTES_MAX: usize = 40;

/// Default of [`ENV_FENCE_MS`]: above the start of 4096 processes at 5 ms each, below a person's patience.
const FENCE_MS: u64 = 60_000;
/// A day: what is longer is a mistake, not a wait.
const FENCE_MS_MAX: u64 = 86_400_000;

/// What a rank uses to tell the others its addresses. All calls block for a bounded time, except
/// [`poll_event`](Self::poll_event), which never blocks.
pub trait Exchange: Send {
    /// The number of this rank, from 0 and below [`size`](Self::size).
    fn rank(&self) -> u32;
    /// Ranks in the job.
    fn size(&self) -> u32;
    /// The job's name, the same at every rank and unique on this host: 1 to [`JOB_BYTES_MAX`] of `[a-z0-9-]`.
    fn job(&self) -> &str;
    /// Publishes `value` under this rank and `key`; an earlier value of the key is replaced.
    ///
    /// # Errors
    /// Key or value longer than [`KEY_BYTES_MAX`] and [`VALUE_BYTES_MAX`], or the connection fails.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError>;
    /// Returns when every live rank has called it as often as this one; what they put before is visible after it.
    /// A rank that has ended or finished is not waited for.
    ///
    /// # Errors
    /// [`BootstrapError::Timeout`] when a live rank does not come, or the connection fails.
    fn fence(&mut self) -> Result<(), BootstrapError>;
    /// The value that `rank` has put under `key`, if it has.
    ///
    /// # Errors
    /// No such rank, or the connection fails.
    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError>;
    /// The values of every rank under `key`, in rank order.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn get_all(&mut self, key: &str) -> Result<Vec<Option<Vec<u8>>>, BootstrapError> {
        (0..self.size()).map(|rank| self.get(rank, key)).collect()
    }
    /// Readable when [`poll_event`](Self::poll_event) has something. None: there will never be an event.
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The next event, if one has come. Never blocks.
    fn poll_event(&mut self) -> Option<BootstrapEvent> {
        None
    }
    /// Whether [`poll_event`](Self::poll_event) tells of the ranks that end. Where it does not, receives from any source learn of
    /// ranks that were never contacted by asking the system, which knows those of this host only.
    fn tells_ends(&self) -> bool {
        false
    }
    /// Whether all ranks run on this host, so that no network is needed between them.
    fn one_host(&self) -> bool {
        true
    }
    /// Announces that this rank takes no further part: fences do not wait for it, its exit is no failure, and it may
    /// no longer be told of events.
    fn finish(&mut self) {}
    /// Ends this rank's part without [`finish`](Self::finish): its engine was dropped half way, or by a panic. What comes of the
    /// process is a failure.
    fn abandon(&mut self) {}
}

/// News about the rest of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BootstrapEvent {
    /// The process of a rank is gone; each rank is reported once.
    RankEnded {
        /// Which one.
        rank: u32,
        /// [`EXITED`] for a clean end; otherwise the cause, such as "killed by signal 9 (SIGKILL)".
        reason: String,
    },
    /// The launcher is gone: no further events will come and requests fail. Reported once.
    LauncherEnded,
}

/// Why the exchange with the other ranks failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// A variable has a value that the launcher does not write.
    #[error("{name} is `{found}`: expected {expected}; start the program with `tickwire run`, or unset {name}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// Some of the launcher's variables are set, but not all.
    #[error("{present} is set but {name} is not: start the program with `tickwire run`, or unset {present}")]
    Missing {
        /// The variable that is not set.
        name: &'static str,
        /// One that is.
        present: &'static str,
    },
    /// Another launcher has started this process as one of several ranks.
    #[error(
        "{name} is `{found}`: {launcher} has started this process as a rank, and tickwire cannot find the others through \
         it; start the program with `tickwire run`, or set TICKWIRE_SOLO=1 if each process is to be a world of its own"
    )]
    Foreign {
        /// The variable that says so.
        name: &'static str,
        /// Its value.
        found: String,
        /// The launcher.
        launcher: &'static str,
    },
    /// The launcher's connection serves one engine only.
    #[error(
        "the launcher's connection was already taken by an earlier Bootstrap::from_env in this process: call it once \
         and keep what it returns"
    )]
    Taken,
    /// The inherited descriptor is not the launcher's socket.
    #[error(
        "TICKWIRE_FD is {fd}, but that descriptor {found}: the program that `tickwire run` starts must pass it on; \
         unset the TICKWIRE_ variables for a process that is no rank"
    )]
    Descriptor {
        /// Its number.
        fd: RawFd,
        /// What was found instead.
        found: String,
    },
    /// The launcher is gone.
    #[error("the launcher has ended: nothing more can be exchanged")]
    LauncherEnded,
    /// No answer in time.
    #[error(
        "{operation} had no answer for {ms} ms: a rank does not come or the launcher is stopped; set \
         TICKWIRE_FENCE_MS to wait longer"
    )]
    Timeout {
        /// What waited.
        operation: &'static str,
        /// How long, ms.
        ms: u64,
    },
    /// An earlier request failed half-way, so that answers can no longer be told apart.
    #[error("an earlier request to the launcher failed: this connection can no longer be used")]
    Broken,
    /// The peer sent bytes that are not of the protocol.
    #[error("the launcher sent {0}: use the launcher and the library of the same version")]
    Protocol(&'static str),
    /// The launcher refused a request.
    #[error("the launcher refused: {0}")]
    Refused(String),
    /// A key is empty or too long.
    #[error("a key of {bytes} bytes: give 1 to {KEY_BYTES_MAX}")]
    Key {
        /// Its length.
        bytes: usize,
    },
    /// A value is too long.
    #[error("a value of {bytes} bytes: give at most {VALUE_BYTES_MAX}")]
    Value {
        /// Its length.
        bytes: usize,
    },
    /// There is no such rank.
    #[error("rank {rank} of a job of {size}: give a rank below {size}")]
    Rank {
        /// The rank asked for.
        rank: u32,
        /// Ranks in the job.
        size: u32,
    },
    /// This rank has announced its end.
    #[error("this rank has finished: it can no longer put values or reach a fence")]
    Finished,
    /// The system refused.
    #[error("{operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// For exchanges of the application's own.
    #[error("{0}")]
    Custom(String),
}

/// How this process takes part in a job; an engine is built from it.
pub struct Bootstrap {
    exchange: Box<dyn Exchange>,
}

impl Bootstrap {
    /// The connection to the launcher that started this process, or a world of one if none did, or [`ENV_SOLO`] is 1.
    ///
    /// # Errors
    /// The launcher's variables are incomplete or malformed, the descriptor is not the launcher's socket, the
    /// connection was taken before in this process, or the launcher does not answer; or another launcher has started
    /// this process as one of several ranks.
    pub fn from_env() -> Result<Self, BootstrapError> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let Some(place) = Place::read(|name| std::env::var_os(name))? else {
            return Ok(Self::solo());
        };
        if TAKEN.swap(true, Ordering::AcqRel) {
            return Err(BootstrapError::Taken);
        }
        Ok(Self { exchange: Box::new(launched::Launched::inherit(place)?) })
    }

    /// A world of one, with a job name of its own.
    #[must_use]
    pub fn solo() -> Self {
        Self { exchange: Box::new(Solo { job: unique_job("solo"), values: HashMap::new(), finished: false }) }
    }

    /// An exchange of the application's own.
    ///
    /// # Panics
    /// Its rank is not below its size, or its job name is not 1 to [`JOB_BYTES_MAX`] bytes of `[a-z0-9-]`.
    #[must_use]
    pub fn custom(exchange: impl Exchange + 'static) -> Self {
        let (rank, size) = (exchange.rank(), exchange.size());
        assert!(rank < size, "an exchange with rank {rank} of {size}: the rank must be below the size");
        assert!(job_is_valid(exchange.job()), "job {:?}: give 1 to 40 bytes of [a-z0-9-]", exchange.job());
        Self { exchange: Box::new(exchange) }
    }

    /// The number of this rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.exchange.rank()
    }

    /// Ranks in the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.exchange.size()
    }

    /// The job's name, see [`Exchange::job`].
    #[must_use]
    pub fn job(&self) -> &str {
        self.exchange.job()
    }

    /// The exchange itself.
    #[must_use]
    pub fn into_exchange(self) -> Box<dyn Exchange> {
        self.exchange
    }
}

impl fmt::Debug for Bootstrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Bootstrap");
        debug.field("rank", &self.rank()).field("size", &self.size()).field("job", &self.job());
        debug.finish_non_exhaustive()
    }
}

/// What the launcher says in the environment.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    rank: u32,
    size: u32,
    job: String,
    fd: RawFd,
    patience: Duration,
}

impl Place {
    /// None: a world of one. `get` stands for the environment, which a test must not change.
    fn read(get: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, BootstrapError> {
        if get(ENV_SOLO).is_some() && number(&get, ENV_SOLO, 0, 1)? == 1 {
            return Ok(None);
        }
        let names = [ENV_RANK, ENV_SIZE, ENV_JOB, ENV_FD];
        let Some(present) = names.into_iter().find(|name| get(name).is_some()) else {
            return foreign::refuse(get).map(|()| None);
        };
        if let Some(name) = names.into_iter().find(|name| get(name).is_none()) {
            return Err(BootstrapError::Missing { name, present });
        }
        let most = LOCAL_RANKS_MAX as u64;
        let size = number(&get, ENV_SIZE, 1, most)?;
        let rank = number(&get, ENV_RANK, 0, size - 1)?;
        // 0, 1 and 2 are the standard streams; the launcher never passes those.
        let fd = number(&get, ENV_FD, 3, i32::MAX as u64)?;
        let patience = match get(ENV_FENCE_MS) {
            Some(_) => number(&get, ENV_FENCE_MS, 1, FENCE_MS_MAX)?,
            None => FENCE_MS,
        };
        let job = get(ENV_JOB).unwrap_or_default().to_string_lossy().into_owned();
        if !job_is_valid(&job) {
            let expected = format!("1 to {JOB_BYTES_MAX} characters of a-z, 0-9 and -");
            return Err(BootstrapError::Variable { name: ENV_JOB, found: shorten(&job), expected });
        }
        let patience = Duration::from_millis(patience);
        Ok(Some(Self { rank: rank as u32, size: size as u32, job, fd: fd as RawFd, patience }))
    }
}

fn number(
    get: &impl Fn(&str) -> Option<OsString>,
    name: &'static str,
    least: u64,
    most: u64,
) -> Result<u64, BootstrapError> {
    let text = get(name).unwrap_or_default().to_string_lossy().into_owned();
    match text.parse::<u64>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => {
            let expected = format!("a number from {least} to {most}");
            Err(BootstrapError::Variable { name, found: shorten(&text), expected })
        }
    }
}

/// An error message must stay one readable line, whatever the environment holds.
fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

pub(crate) fn job_is_valid(job: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=JOB_BYTES_MAX).contains(&job.len()) && job.bytes().all(allowed)
}

/// A job name that no other job on this host has: the process, and 64 bits that nobody can guess.
pub(crate) fn unique_job(kind: &str) -> String {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    SystemTime::now().hash(&mut hasher);
    std::process::id().hash(&mut hasher);
    format!("{kind}-{}-{:016x}", std::process::id(), hasher.finish())
}

pub(crate) fn check_key(key: &str) -> Result<(), BootstrapError> {
    match key.len() {
        1..=KEY_BYTES_MAX => Ok(()),
        bytes => Err(BootstrapError::Key { bytes }),
    }
}

pub(crate) fn check_value(value: &[u8]) -> Result<(), BootstrapError> {
    match value.len() {
        0..=VALUE_BYTES_MAX => Ok(()),
        bytes => Err(BootstrapError::Value { bytes }),
    }
}

/// A world of one: what is put is there, and nobody is waited for.
struct Solo {
    job: String,
    values: HashMap<String, Vec<u8>>,
    finished: bool,
}

impl Exchange for Solo {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn job(&self) -> &str {
        &self.job
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        if self.finished {
            return Err(BootstrapError::Finished);
        }
        check_key(key)?;
        check_value(value)?;
        self.values.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        if self.finished { Err(BootstrapError::Finished) } else { Ok(()) }
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        if rank != 0 {
            return Err(BootstrapError::Rank { rank, size: 1 });
        }
        check_key(key)?;
        Ok(self.values.get(key).cloned())
    }

    fn finish(&mut self) {
        self.finished = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<Place>, BootstrapError> {
        Place::read(|name| pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| OsString::from(v)))
    }

    fn good() -> Vec<(&'static str, &'static str)> {
        vec![(ENV_RANK, "2"), (ENV_SIZE, "4"), (ENV_JOB, "job-1-ab"), (ENV_FD, "7")]
    }

    #[test]
    fn a_complete_environment_is_a_place_and_an_empty_one_is_none() {
        let place = read(&good()).unwrap().unwrap();
        let patience = Duration::from_millis(FENCE_MS);
        assert_eq!(place, Place { rank: 2, size: 4, job: "job-1-ab".into(), fd: 7, patience });
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[(ENV_FENCE_MS, "5")]).unwrap().is_none());
    }

    #[test]
    fn a_rank_of_another_launcher_is_alone_only_if_it_is_told_to_be() {
        let foreign = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let with = |more: &[(&'static str, &'static str)]| read(&[&foreign[..], more].concat());
        assert!(matches!(with(&[]), Err(BootstrapError::Foreign { name: "OMPI_COMM_WORLD_SIZE", .. })));
        assert!(matches!(with(&[(ENV_SOLO, "0")]), Err(BootstrapError::Foreign { .. })));
        assert!(with(&[(ENV_SOLO, "1")]).unwrap().is_none());
        assert_eq!(with(&good()).unwrap().unwrap().rank, 2, "our own launcher was nearer");
        let told = [&good()[..], &[(ENV_SOLO, "1")]].concat();
        assert!(read(&told).unwrap().is_none(), "who says so within a rank means it");
    }

    #[test]
    fn each_missing_variable_is_named() {
        for (name, _) in good() {
            let rest: Vec<_> = good().into_iter().filter(|(k, _)| *k != name).collect();
            let error = read(&rest).unwrap_err();
            assert!(matches!(error, BootstrapError::Missing { name: n, .. } if n == name), "{error}");
            assert!(error.to_string().contains(&format!("{name} is not")));
        }
    }

    #[test]
    fn each_malformed_variable_is_named_with_what_was_expected() {
        let long = "a".repeat(JOB_BYTES_MAX + 1);
        let bad = [
            (ENV_RANK, "4"),
            (ENV_RANK, "-1"),
            (ENV_RANK, ""),
            (ENV_SIZE, "0"),
            (ENV_SIZE, "4097"),
            (ENV_SIZE, "four"),
            (ENV_JOB, ""),
            (ENV_JOB, "Job"),
            (ENV_JOB, "a/../b"),
            (ENV_JOB, long.as_str()),
            (ENV_FD, "2"),
            (ENV_FD, "99999999999"),
            (ENV_FENCE_MS, "0"),
            (ENV_FENCE_MS, "soon"),
            (ENV_SOLO, "yes"),
        ];
        for (name, value) in bad {
            let mut all: Vec<(&str, &str)> = good().into_iter().filter(|(k, _)| *k != name).collect();
            all.push((name, value));
            let error = read(&all).unwrap_err();
            assert!(matches!(error, BootstrapError::Variable { name: n, .. } if n == name), "{name}={value}: {error}");
            assert!(error.to_string().contains("expected"), "{error}");
        }
    }

    #[test]
    fn a_value_with_line_breaks_still_makes_one_line() {
        let error = read(&[(ENV_RANK, "1\n2"), (ENV_SIZE, "4"), (ENV_JOB, "a"), (ENV_FD, "7")]).unwrap_err();
        assert_eq!(error.to_string().lines().count(), 1);
    }

    #[test]
    fn solo_is_a_world_of_one() {
        let solo = Bootstrap::solo();
        assert_eq!((solo.rank(), solo.size()), (0, 1));
        assert!(job_is_valid(solo.job()), "{}", solo.job());
        assert_ne!(solo.job(), Bootstrap::solo().job());
        let mut exchange = solo.into_exchange();
        exchange.put("address", b"here").unwrap();
        exchange.fence().unwrap();
        assert_eq!(exchange.get_all("address").unwrap(), [Some(b"here".to_vec())]);
        assert_eq!(exchange.get(0, "nothing").unwrap(), None);
        assert!(matches!(exchange.get(1, "address"), Err(BootstrapError::Rank { .. })));
        assert!(matches!(exchange.put("", b""), Err(BootstrapError::Key { bytes: 0 })));
        assert!(matches!(exchange.put("k", &vec![0; VALUE_BYTES_MAX + 1]), Err(BootstrapError::Value { .. })));
        assert!(exchange.event_fd().is_none() && exchange.poll_event().is_none());
        exchange.finish();
        assert!(matches!(exchange.fence(), Err(BootstrapError::Finished)));
    }

    #[test]
    #[should_panic(expected = "the rank must be below the size")]
    fn a_custom_exchange_with_a_wrong_rank_is_a_programmers_error() {
        struct Wrong;
        impl Exchange for Wrong {
            fn rank(&self) -> u32 {
                3
            }
            fn size(&self) -> u32 {
                3
            }
            fn job(&self) -> &str {
                "wrong"
            }
            fn put(&mut self, _: &str, _: &[u8]) -> Result<(), BootstrapError> {
                Ok(())
            }
            fn fence(&mut self) -> Result<(), BootstrapError> {
                Ok(())
            }
            fn get(&mut self, _: u32, _: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
                Ok(None)
            }
        }
        let _ = Bootstrap::custom(Wrong);
    }
}
