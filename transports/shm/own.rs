//! The fixed data of an endpoint.

use super::config::ShmConfig;
use super::identity::HostCard;
use super::room::Room;
use super::segment;
use super::segment::Files;
use crate::handshake::Greeting;
use crate::watching::Watched;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The data that stays the same while an endpoint is open.
pub(super) struct Own {
    pub(super) config: ShmConfig,
    pub(super) uid: u32,
    pub(super) card: HostCard,
    pub(super) greeting: Greeting,
    pub(super) inbox: OwnedFd,
    pub(super) doorbell: Arc<OwnedFd>,
    pub(super) watched: Watched,
    /// The kind of files that segments are made of.
    pub(super) files: Files,
    /// Checks whether there is memory for a segment.
    pub(super) room: Room,
    /// Bytes of the segments that this endpoint has made.
    pub(super) made: Arc<AtomicU64>,
    /// Bytes of those segments that rings have grown into.
    pub(super) grown: Arc<AtomicU64>,
    /// The process's shared heap, if peers get it.
    pub(super) heap: Option<BorrowedFd<'static>>,
}

impl Own {
    /// The descriptors that a greeting passes: the segment of the pair, if given, and others.
    pub(super) fn passed<'a>(&'a self, pair: Option<BorrowedFd<'a>>) -> SmallVec<[BorrowedFd<'a>; 4]> {
        pair.into_iter().chain([self.inbox.as_fd(), self.doorbell.as_fd()]).chain(self.heap).collect()
    }

    pub(super) fn place(&self) -> segment::Place<'_> {
        let ShmConfig { job, me, directory, .. } = &self.config;
        segment::Place { files: self.files, directory, job, me: *me, room: &self.room, made: &self.made }
    }
}
