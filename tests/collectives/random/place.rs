//! Where the ranks of a program are, and so over what they talk.

use tickwire::internals::transports::sim::{Provider, ProviderConfig, Sim};
use tickwire::testing::{SimConfig, SimNet};
use tickwire::transport::{Hub, Loopback};
use tickwire::{Builder, Engine};

/// Bytes of a ring between two engines of a process.
const RING_BYTES: usize = 1 << 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    /// In one process that hands over messages.
    Loopback,
    /// In processes that share memory.
    Shm,
    /// Each on a host of its own.
    Sim,
    /// The same, over a transport that matches by itself.
    Provider,
    /// Some in two processes, some in processes that share memory, and a network between them.
    Mixed,
}

impl Placement {
    pub(crate) const ALL: [Placement; 5] =
        [Placement::Loopback, Placement::Shm, Placement::Sim, Placement::Provider, Placement::Mixed];
}

/// What the engines of a program have in common.
pub(crate) struct Place {
    placement: Placement,
    near: [Hub; 2],
    far: Hub,
    net: SimNet,
}

impl Place {
    pub(crate) fn new(placement: Placement, size: u32) -> Self {
        let hub = || Hub::new(size, RING_BYTES);
        Place { placement, near: [hub(), hub()], far: hub(), net: SimNet::new(size, SimConfig::calm(1)) }
    }

    fn sim(&self, rank: u32) -> Sim<Loopback> {
        Sim::new(Loopback::join(&self.far, rank).unwrap(), rank, &self.net)
    }

    /// What builds the engine of a rank.
    pub(crate) fn builder(&self, rank: u32) -> Builder {
        let builder = Engine::builder();
        match self.placement {
            Placement::Loopback => builder.hub(self.near[0].clone()).exclude(["shm"]),
            Placement::Shm => builder,
            Placement::Sim => builder.exclude(["loopback", "shm"]).transport(self.sim(rank)),
            Placement::Provider => {
                let provider = Provider::new(self.sim(rank), rank, ProviderConfig::calm(1));
                builder.hub(self.near[0].clone()).transport(provider.unwrap())
            }
            Placement::Mixed => match rank % 3 {
                0 => builder.transport(self.sim(rank)),
                other => builder.hub(self.near[other as usize - 1].clone()).exclude(["shm"]).transport(self.sim(rank)),
            },
        }
    }
}
