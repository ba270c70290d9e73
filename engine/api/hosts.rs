//! Where ranks run, and the end of the whole job.

use crate::run::engine::Engine;
use tickwire_components::{Comm, CommError, ProcId};
use tickwire_systems::procs::cards::card_of;

/// The transport whose reach is memory that ranks can share.
const SHARED: &str = "shm";

impl Engine {
    /// The number of hosts on which the ranks run, if the launcher tells.
    pub fn hosts(&self) -> Option<u32> {
        self.exchange.hosts()
    }

    /// The number of the host of a proc, from 0, if the launcher tells and there is such a proc.
    ///
    /// ```
    /// use tickwire::{Bootstrap, Engine, ProcId};
    /// let engine = Engine::builder().build(Bootstrap::solo())?;
    /// assert_eq!((engine.hosts(), engine.host_of(ProcId(0)), engine.host_of(ProcId(1))), (Some(1), Some(0), None));
    /// # Ok::<(), tickwire::BuildError>(())
    /// ```
    pub fn host_of(&self, proc: ProcId) -> Option<u32> {
        self.exchange.host_of(proc.0)
    }

    /// What connects the ranks, as text for people: a launcher, or an exchange of the application's own.
    pub fn launched_by(&self) -> String {
        self.exchange.describe()
    }

    /// Splits a communicator into those of members that can share memory (`MPI_Comm_split_type` with `MPI_COMM_TYPE_SHARED`).
    /// They run on one host, and in the same network and process namespaces. Ranks follow the keys; equal keys follow the
    /// ranks in `comm`.
    ///
    /// All members call it.
    ///
    /// # Errors
    /// As [`Engine::comm_split`].
    pub fn comm_split_shared(&mut self, comm: Comm, key: i32) -> Result<Comm, CommError> {
        let color = self.first_that_shares();
        self.comm_split(comm, Some(color), key)?.ok_or(CommError::Stale)
    }

    /// The lowest proc that can share memory with this one.
    fn first_that_shares(&mut self) -> u32 {
        let me = self.rank().0;
        let exchange = &self.exchange;
        let all = self.store.all();
        let shm = all.endpoints.iter_mut().map(|endpoint| endpoint.transport.get()).find(|of| of.name() == SHARED);
        let (procs, here) = (&all.procs, exchange.host_of(me));
        let first = (0..me).find(|&proc| match &shm {
            Some(shm) => shm.reaches(proc, card_of(procs.card(proc), SHARED).unwrap_or_default()).is_ok(),
            // Without that transport, only the launcher tells.
            None => here.is_some() && exchange.host_of(proc) == here,
        });
        first.unwrap_or(me)
    }

    /// Ends all ranks of the job, and this process, with an exit status (`MPI_Abort`). The launcher is asked to do so; nothing that is
    /// pending is sent, and nothing is dropped. `code` becomes 1 if its lowest 8 bits are 0: a job that was ended so has not succeeded.
    pub fn abort(&self, code: i32) -> ! {
        let code = if code & 0xff == 0 { 1 } else { code & 0xff };
        self.exchange.abort(code);
        std::process::exit(code)
    }
}
