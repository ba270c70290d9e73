//! Routes: the transports by which a proc can be reached, and the results of those that were tried.

use crate::{NIL, Row};
use std::collections::BTreeMap;

/// A class of traffic. Each class uses the best route that exists for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TrafficClass {
    /// Messages, and everything else that goes in frames: collectives, and one-sided operations that the target's engine does.
    PointToPoint,
    /// Puts and gets.
    OneSided,
    /// Updates of a target's memory: accumulate, fetch and update, compare and swap. A fabric does the updates of exposed memory if the
    /// configuration names it for them; otherwise they follow the other routes.
    Atomics,
}

impl TrafficClass {
    /// All classes, in the order of their numbers.
    pub const ALL: [TrafficClass; 3] = [TrafficClass::PointToPoint, TrafficClass::OneSided, TrafficClass::Atomics];

    /// Its name in configuration and reports.
    pub const fn name(self) -> &'static str {
        match self {
            TrafficClass::PointToPoint => "messages",
            TrafficClass::OneSided => "one-sided",
            TrafficClass::Atomics => "atomics",
        }
    }
}

/// The stage of the call of a VC that is connecting. See [`Kind::Call`](crate::wire::Kind::Call).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallStage {
    /// The transport connects.
    Calling,
    /// The link is open. This side has yet to ask the peer whether the link is used.
    Open,
    /// The peer has been asked.
    Asked,
}

/// The routes of a VC that were tried. Kept as long as the VC is connecting, or some routes have failed.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Endpoints that could not connect, and why.
    pub failed: Vec<(u8, String)>,
    /// The stage of the call over the VC's own link.
    pub stage: CallStage,
}

/// An additional link to a proc, beside the link of its VC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SideLink {
    /// The VC.
    pub vc: Row,
    /// The endpoint of the link, which is not that of the VC.
    pub endpoint: u8,
    /// The transport's number of the link.
    pub link: u32,
    /// Whether it is connected.
    pub is_open: bool,
    /// Whether the peer has asked to use the link for messages, and waits for the answer.
    pub is_asked: bool,
}

/// A call, or an answer to a call, that a peer has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallWord {
    /// The VC.
    pub vc: Row,
    /// The number of the transport.
    pub transport: u32,
    /// Whether it is an answer that accepts a call, rather than a call.
    pub accepts: bool,
}

/// The state of the routes to contacted procs, except for the links of their VCs.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// The attempts of VCs that are connecting, or that were not connected by their first route; by VC. Usually few, but an application
    /// may contact all procs before one of them answers.
    pub attempts: BTreeMap<Row, Attempt>,
    /// Additional links, beside those of VCs. Few.
    pub sides: Vec<SideLink>,
    /// VCs whose peers have called over the link that is used, and wait for the answer. Each VC is listed once.
    pub owed: Vec<Row>,
    /// Endpoint and link of one-sided traffic, by VC row; the link is [`NIL`] if it is not known. Written when a link is looked for,
    /// and when a link ends.
    one_sided: Vec<(u8, u32)>,
}

impl Routes {
    /// The attempt of a VC, if there is one.
    pub fn attempt(&mut self, vc: Row) -> Option<&mut Attempt> {
        self.attempts.get_mut(&vc)
    }

    /// The attempt of a VC. Adds one if there is none.
    pub fn attempt_of(&mut self, vc: Row) -> &mut Attempt {
        let new = || Attempt { failed: Vec::new(), stage: CallStage::Calling };
        self.attempts.entry(vc).or_insert_with(new)
    }

    /// Ends the attempt of a VC that is connected or has ended. What has failed is kept.
    pub fn end_attempt(&mut self, vc: Row) {
        if self.failed(vc).is_empty() {
            self.attempts.remove(&vc);
        }
    }

    /// The endpoints of a VC that could not connect, and why.
    pub fn failed(&self, vc: Row) -> &[(u8, String)] {
        self.attempts.get(&vc).map_or(&[], |attempt| &attempt.failed)
    }

    /// Records that an endpoint could not connect to a VC's proc.
    pub fn note_failed(&mut self, vc: Row, endpoint: u8, reason: String) {
        let failed = &mut self.attempt_of(vc).failed;
        failed.retain(|(of, _)| *of != endpoint);
        failed.push((endpoint, reason));
    }

    /// The endpoint and link of a VC for one-sided traffic, if they are known.
    pub fn one_sided(&self, vc: Row) -> Option<(u8, u32)> {
        self.one_sided.get(vc as usize).copied().filter(|(_, link)| *link != NIL)
    }

    /// Records the endpoint and link of a VC for one-sided traffic; with `None`, that they must be looked for.
    pub fn set_one_sided(&mut self, vc: Row, link: Option<(u8, u32)>) {
        let at = vc as usize;
        if link.is_some() && self.one_sided.len() <= at {
            self.one_sided.resize(at + 1, (0, NIL));
        }
        if let Some(known) = self.one_sided.get_mut(at) {
            *known = link.unwrap_or((0, NIL));
        }
    }

    /// Forgets a link that ends, wherever one-sided traffic uses it.
    pub fn forget_one_sided(&mut self, endpoint: u8, link: u32) {
        self.one_sided.iter_mut().filter(|known| **known == (endpoint, link)).for_each(|known| *known = (0, NIL));
    }

    /// The additional link of a VC over an endpoint, if there is one.
    pub fn side(&self, vc: Row, endpoint: u8) -> Option<SideLink> {
        self.sides.iter().find(|side| side.vc == vc && side.endpoint == endpoint).copied()
    }
}
