//! How the ranks of a job find each other before any transport exists: a key-value exchange with fences, and the
//! news that a rank has ended.
//!
//! A [`Bootstrap`] is what a launcher offers ([`Bootstrap::from_env`]), a world of one ([`Bootstrap::solo`]), or an [`Exchange`] of
//! the application's own ([`Bootstrap::custom`]), for another launcher or for several engines in one process.
//!
//! [`Bootstrap::from_env`] asks the first launcher that it sees: `tickwire run`; one that speaks PMIx (prterun, mpirun of Open MPI,
//! srun); one that speaks PMI-1 (hydra's mpiexec, srun, flux run). Where none is seen, the process is alone. Where one is seen that cannot be spoken to, that is an error: as a world of one
//! the process would compute something else, without a word. [`ENV_BOOTSTRAP`] chooses one, and [`ENV_SOLO`] none.

mod chain;
mod error;
mod exchange;
#[cfg(test)]
pub(crate) mod fixed;
mod foreign;
mod hosted;
mod hosts;
mod inherit;
mod kvs;
mod launched;
mod name;
pub(crate) mod parsing;
mod place;
mod pmi;
mod pmix;
mod solo;
mod table;
mod wait;
pub(crate) mod wire;

use chain::Way;
use hosted::Hosted;
pub(crate) use name::job_is_valid;
use solo::Solo;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

pub use error::BootstrapError;
pub use exchange::{BootstrapEvent, EXITED, Exchange};
pub use name::JOB_BYTES_MAX;
pub use place::{ENV_APPNUM, ENV_BOOTSTRAP, ENV_FD, ENV_FENCE_MS, ENV_JOB, ENV_RANK, ENV_SIZE, ENV_SOLO};
pub use pmix::ENV_PMIX_LIBRARY;
pub use wire::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

pub(crate) use chain::OF_OTHERS;
pub(crate) use name::unique_job;

/// How this process takes part in a job; an engine is built from it.
pub struct Bootstrap {
    exchange: Box<dyn Exchange>,
}

impl Bootstrap {
    /// The connection to the launcher that started this process, or a world of one if none did. All ranks of a job call it.
    ///
    /// # Errors
    /// The launcher's variables are incomplete or malformed, the descriptor is not the launcher's socket, the
    /// connection was taken before in this process, or the launcher does not answer as it should; or a launcher has started
    /// this process as one of several ranks, and offers no way to find the others.
    pub fn from_env() -> Result<Self, BootstrapError> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let way = chain::find(&|name: &str| std::env::var_os(name), inherit::is_socket)?;
        if way == Way::Alone {
            return Ok(Self::solo());
        }
        if TAKEN.swap(true, Ordering::AcqRel) {
            return Err(BootstrapError::Taken);
        }
        let exchange: Box<dyn Exchange> = match way {
            Way::Alone => Box::new(Solo::new()),
            Way::Own(place) => Box::new(launched::Launched::inherit(place)?),
            Way::Pmix(patience) => Box::new(Hosted::meet(Box::new(pmix::Pmix::connect(patience)?), patience)?),
            Way::Pmi(place) => {
                let patience = place.patience;
                Box::new(Hosted::meet(Box::new(pmi::Pmi::inherit(place)?), patience)?)
            }
        };
        Ok(Self { exchange })
    }

    /// A world of one, with a job name of its own.
    #[must_use]
    pub fn solo() -> Self {
        Self { exchange: Box::new(Solo::new()) }
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

    /// Which launcher has started this process, and how many ranks and hosts there are, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let (rank, size) = (self.rank(), self.size());
        let hosts = match self.exchange.hosts() {
            Some(1) => "1 host".to_owned(),
            Some(hosts) => format!("{hosts} hosts"),
            None => "an unknown number of hosts".to_owned(),
        };
        format!("{}: rank {rank} of {size}, on {hosts}", self.exchange.describe())
    }

    /// The exchange itself.
    #[must_use]
    pub fn into_exchange(self) -> Box<dyn Exchange> {
        self.exchange
    }
}

/// Whether a launcher has started this process, ours or another: also one that has started no other process.
#[must_use]
pub fn is_launched() -> bool {
    chain::is_launched(&|name: &str| std::env::var_os(name))
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
