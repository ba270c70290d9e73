//! Two engines, for tests that need no more.

use super::cluster::Cluster;
use crate::{Engine, Rank, Status, Tag};
use std::ops::{Deref, DerefMut};
use tickwire_transports::sim::SimNet;

/// Most rounds that a [`Pair`] may take for one step: two seconds of virtual time.
const BOUND: u32 = 20_000;
/// A [`Pair`] is quiet once each engine was ticked this many times and nothing has happened.
const QUIET: u32 = 3;

/// Two engines in one process, which are ticked in turn: rank 0 on the left, and rank 1 on the right. It is a [`Cluster`] of two.
pub struct Pair {
    cluster: Cluster,
}

impl Pair {
    /// A pair over loopback.
    pub fn loopback() -> Self {
        Pair { cluster: Cluster::loopback(2) }
    }

    /// A pair over shared memory.
    pub fn shm() -> Self {
        Pair { cluster: Cluster::shm(2) }
    }

    /// A pair over a simulated network of two procs.
    pub fn sim(net: &SimNet) -> Self {
        Pair { cluster: Cluster::sim(2, net) }
    }

    /// A pair of engines that the test has configured.
    ///
    /// # Panics
    /// If the cluster does not have two engines.
    pub fn of(cluster: Cluster) -> Self {
        assert_eq!(cluster.engines.len(), 2, "a pair has two engines");
        Pair { cluster }
    }

    /// The engine of rank 0.
    pub fn left(&mut self) -> &mut Engine {
        &mut self.engines[0]
    }

    /// The engine of rank 1.
    pub fn right(&mut self) -> &mut Engine {
        &mut self.engines[1]
    }

    /// Ticks both engines until neither does anything any more. Returns how many rounds that took. It does not wait for messages that are
    /// late on a simulated network: for these, tick until a condition holds.
    ///
    /// # Panics
    /// If the engines never come to rest.
    pub fn drive(&mut self) -> u32 {
        let mut quiet = 0;
        for round in 1..=BOUND {
            quiet = if self.tick_all() { 0 } else { quiet + 1 };
            if quiet == QUIET * self.slowest() {
                return round;
            }
        }
        panic!("not quiet after {BOUND} rounds\n{}", self.report());
    }

    /// Sends a message from one rank to the other, and receives it into a buffer of `room` bytes.
    ///
    /// # Panics
    /// If an operation fails, or does not end.
    pub fn pass(&mut self, from: u32, tag: u32, message: &[u8], room: usize) -> (Vec<u8>, Status) {
        let (sender, receiver) = (from as usize, 1 - from as usize);
        let world = self.engines[0].comm_world();
        let send = self.engines[sender].isend(message.to_vec(), Rank(1 - from), Tag(tag), world);
        let send = send.unwrap_or_else(|rejected| panic!("rank {from} does not send: {rejected:?}"));
        let receive = self.engines[receiver].irecv(vec![0u8; room], Rank(from), Tag(tag), world);
        let receive = receive.unwrap_or_else(|rejected| panic!("rank {receiver} does not receive: {rejected:?}"));
        let received = self.finish(BOUND, receiver, receive);
        let received = received.unwrap_or_else(|failed| panic!("the receive failed: {}", failed.error));
        self.finish(BOUND, sender, send).unwrap_or_else(|failed| panic!("the send failed: {}", failed.error));
        received
    }
}

impl Deref for Pair {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for Pair {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}
