//! Clusters with two transports whose connections succeed or fail as a test says.

pub(crate) use crate::barred::{Calls, Gate, gate};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tickwire::internals::transports::Hub;
use tickwire::testing::{Cluster, ROWS};
use tickwire::{Builder, Engine};

/// Bytes of a ring.
const RING_BYTES: usize = 64 << 10;

/// The settings of an engine: the priorities of its two transports, and the outcome of connections over each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) priorities: [u8; 2],
    pub(crate) calls: [Calls; 2],
}

/// A cluster with two transports, "upper" and "lower". Both reach all procs.
pub(crate) struct TwoWays {
    pub(crate) cluster: Cluster,
    /// By rank: number of frames of messages that were sent over each transport.
    sent: Vec<[Arc<AtomicU64>; 2]>,
}

impl TwoWays {
    pub(crate) fn new(sides: &[Side]) -> Self {
        Self::with(sides, |builder| builder)
    }

    pub(crate) fn with(sides: &[Side], change: impl Fn(Builder) -> Builder + Sync) -> Self {
        let procs = sides.len() as u32;
        let hubs = [0; 2].map(|_| Hub::new(procs, RING_BYTES));
        let sent = Mutex::new(vec![[(); 2].map(|()| Arc::default()); sides.len()]);
        let cluster = Cluster::build(procs, |rank| {
            let Side { priorities, calls } = sides[rank as usize];
            let counts: [Arc<AtomicU64>; 2] = [(); 2].map(|()| Arc::default());
            sent.lock().unwrap()[rank as usize] = counts.clone();
            let gate = |way: usize| {
                let name = ["upper", "lower"][way];
                gate(name, &hubs[way], rank, priorities[way], calls[way], counts[way].clone())
            };
            let builder = Engine::builder().exclude(["shm"]).initial_rows(ROWS);
            change(builder.transport(gate(0)).transport(gate(1)))
        });
        TwoWays { cluster, sent: sent.into_inner().unwrap() }
    }

    /// How many frames of messages a rank has sent over each transport.
    pub(crate) fn sent(&self, rank: usize) -> [u64; 2] {
        [0, 1].map(|way| self.sent[rank][way].load(Ordering::Relaxed))
    }
}
