//! Operations with a request that a fabric does.

use super::{Failure, Reach, Windows};
use tickwire_components::{Row, Span};
use tickwire_transports::{Channel, FailedOperation, RemoteRun};

/// A put or a get with a request, which a fabric does.
pub struct FabricOperation {
    /// Its number, by which the fabric tells that it has failed.
    pub number: u64,
    /// The window's handle.
    pub handle: u32,
    /// The target's rank.
    pub target: u32,
    /// The target's VC.
    pub vc: Row,
    /// Its request.
    pub request: Row,
    /// The endpoint.
    pub endpoint: u8,
    /// Where it goes.
    pub channel: Channel,
    /// The target's bytes.
    pub remote: RemoteRun,
    /// The origin's bytes, which the engine keeps until the request is done.
    pub run: Span,
    /// A put.
    pub writes: bool,
    /// Its number on the channel, once the fabric has taken it.
    pub turn: Option<u64>,
    /// When it was seen to have failed, ns.
    pub failed_ns: Option<u64>,
}

impl Windows {
    /// An operation by a fabric has failed: its request ends so, or the next flush of its target says so.
    #[cold]
    pub fn note_failure(&mut self, endpoint: u8, failed: FailedOperation, now_ns: u64) {
        let FailedOperation { channel, number, reason } = failed;
        self.fabric_reason = reason;
        if let Some(operation) = self.by_fabric.iter_mut().find(|operation| operation.number == number) {
            operation.failed_ns = Some(now_ns);
            return;
        }
        for target in self.list.iter_mut().flatten().flat_map(|window| &mut window.targets) {
            if let Reach::Fabric { endpoint: of, link, .. } = target.reach
                && (of, link) == (endpoint, channel.link)
            {
                target.failure = target.failure.or(Some(Failure::Fabric));
            }
        }
    }
}
