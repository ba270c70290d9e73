//! The table of all connections of an endpoint.

use super::call::Call;
use super::line::Line;
use super::parts::Parts;
use crate::LinkEvent;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::ops::Range;

/// The stage of a link.
pub(crate) enum Stage<M: Parts> {
    /// The number is unused.
    Free,
    /// A connection that this process asks for.
    Calling(Box<Call<M>>),
    /// An open connection.
    Open(Line<M>),
    /// A connection whose peer has gone, and whose last frames are still to be read.
    Ending(Ending<M>),
    /// The connection is over. The number is reused once the engine has closed the link.
    Gone,
}

/// A connection whose peer has closed it or has gone.
pub(crate) struct Ending<M: Parts> {
    /// The reason to report to the engine.
    pub(super) reason: String,
    /// Its socket, if the peer waits for a goodbye.
    pub(super) line: Option<Line<M>>,
    /// What this medium keeps besides.
    pub(super) more: M::Ending,
}

/// A peer that has not sent its greeting.
pub(crate) struct Visitor<M: Parts> {
    /// The socket over which the greeting will arrive.
    pub(super) socket: M::Socket,
    /// Until when it may be silent, in ns.
    pub(super) deadline_ns: u64,
}

/// A row: one link.
pub(crate) struct Peer<M: Parts> {
    /// The proc number of the peer.
    pub(super) proc: u32,
    /// The stage of the link.
    pub(crate) stage: Stage<M>,
}

/// All connections of an endpoint.
pub(crate) struct Connections<M: Parts> {
    /// The listening socket, while the endpoint is open.
    pub(crate) listener: Option<OwnedFd>,
    /// The rows, by link number.
    pub(crate) table: Vec<Peer<M>>,
    /// The link of each proc that has one.
    pub(crate) procs: BTreeMap<u32, u32>,
    /// Numbers that may be used again.
    pub(super) free: Vec<u32>,
    /// Links that are calls.
    pub(crate) calls: Vec<u32>,
    /// Links that have ended and are not reported yet.
    pub(super) endings: Vec<u32>,
    /// Links whose peers had said more than one pass hears. Their descriptors may stay silent.
    pub(super) unheard: Vec<u32>,
    /// Connections of peers that have not said who they are.
    pub(crate) visitors: Vec<Option<Visitor<M>>>,
    /// Whether the listener is not watched, since there are too many visitors.
    pub(crate) crowded: bool,
    /// Events to be reported.
    pub(super) queued: Vec<LinkEvent>,
    /// When processes without descriptors were last checked, in ns.
    pub(super) asked_ns: u64,
}

impl<M: Parts> Connections<M> {
    /// A table without connections.
    pub(crate) fn new(listener: OwnedFd) -> Self {
        Connections {
            listener: Some(listener),
            table: Vec::new(),
            procs: BTreeMap::new(),
            free: Vec::new(),
            calls: Vec::new(),
            endings: Vec::new(),
            unheard: Vec::new(),
            visitors: Vec::new(),
            crowded: false,
            queued: Vec::new(),
            asked_ns: 0,
        }
    }

    /// Whether the endpoint is open.
    pub(crate) fn is_open(&self) -> bool {
        self.listener.is_some()
    }

    /// The numbers of all links, whatever their stage.
    pub(crate) fn links(&self) -> Range<u32> {
        0..self.table.len() as u32
    }

    /// The proc number of a link's peer.
    pub(crate) fn proc(&self, link: u32) -> u32 {
        self.table[link as usize].proc
    }

    /// The stage of a link.
    pub(crate) fn stage(&mut self, link: u32) -> Option<&mut Stage<M>> {
        self.table.get_mut(link as usize).map(|peer| &mut peer.stage)
    }

    /// An open connection.
    #[inline]
    pub(crate) fn line(&self, link: u32) -> Option<&Line<M>> {
        match &self.table.get(link as usize)?.stage {
            Stage::Open(line) => Some(line),
            _ => None,
        }
    }

    /// As [`Connections::line`], to change it.
    #[inline]
    pub(crate) fn line_mut(&mut self, link: u32) -> Option<&mut Line<M>> {
        match &mut self.table.get_mut(link as usize)?.stage {
            Stage::Open(line) => Some(line),
            _ => None,
        }
    }

    /// All open connections.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line<M>> {
        self.links().filter_map(|link| self.line(link))
    }

    /// Whether the link belongs to a connection, in whatever stage.
    pub(crate) fn is_used(&self, link: u32) -> bool {
        let stage = self.table.get(link as usize).map(|peer| &peer.stage);
        matches!(stage, Some(Stage::Calling(_) | Stage::Open(_) | Stage::Ending(_)))
    }

    /// Whether there is work to do before a descriptor is ready.
    #[inline]
    pub(crate) fn wants_control(&self) -> bool {
        !self.calls.is_empty() || self.has_news()
    }

    /// Whether there is something to report, now or soon.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.endings.is_empty() || !self.queued.is_empty() || !self.unheard.is_empty()
    }

    /// Reports the queued events.
    pub(crate) fn report_queued(&mut self, events: &mut Vec<LinkEvent>) {
        events.append(&mut self.queued);
    }

    /// Behaves as if the kernel had no descriptor for the process.
    #[cfg(all(test, not(miri)))]
    pub(crate) fn forget_process(&mut self, link: u32, watched: &crate::watching::Watched) {
        self.line_mut(link).expect("open").lose_process(watched);
    }

    /// Whether there is a number for a new connection.
    pub(super) fn has_number(&self) -> bool {
        self.table.len() < M::LINKS_MAX
            || !self.free.is_empty()
            || self.table.iter().any(|peer| matches!(peer.stage, Stage::Gone))
    }

    /// Takes a call out of its row meanwhile, so that the endpoint can work with it.
    pub(super) fn take_call(&mut self, link: u32) -> Option<(u32, Box<Call<M>>)> {
        let peer = self.table.get_mut(link as usize)?;
        match std::mem::replace(&mut peer.stage, Stage::Gone) {
            Stage::Calling(call) => Some((peer.proc, call)),
            other => {
                peer.stage = other;
                None
            }
        }
    }

    /// Sets the stage of a link.
    pub(super) fn put(&mut self, link: u32, stage: Stage<M>) {
        if let Some(place) = self.stage(link) {
            *place = stage;
        }
    }
}
