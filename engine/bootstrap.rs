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

mod error;
mod exchange;
#[cfg(test)]
pub(crate) mod fixed;
mod foreign;
mod launched;
mod name;
mod place;
mod solo;
pub(crate) mod wire;

use name::job_is_valid;
use place::Place;
use solo::Solo;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

pub use error::BootstrapError;
pub use exchange::{BootstrapEvent, EXITED, Exchange};
pub use name::JOB_BYTES_MAX;
pub use place::{ENV_APPNUM, ENV_FD, ENV_FENCE_MS, ENV_JOB, ENV_RANK, ENV_SIZE, ENV_SOLO};
pub use wire::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

pub(crate) use name::unique_job;

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

#[cfg(test)]
mod tests {
    use super::*;

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
        let _ = Bootstrap::custom(fixed::Fixed { rank: 3, size: 3, one_host: true });
    }
}
