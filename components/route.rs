//! Routes: the transports by which a proc can be reached, and what has become of those that were tried.

use crate::{NIL, Row};

/// What a route is for. Each class takes the best route that there is for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TrafficClass {
    /// Messages, and all that goes in frames: collectives, and one-sided operations that the target's engine does.
    PointToPoint,
    /// Puts and gets.
    OneSided,
    /// Updates of a target's memory: fetches, compare and swap, accumulates. A fabric does those of exposed memory where it is named for
    /// them; else they follow from the other routes.
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

/// How far the call of a VC that is connecting has come. See [`Kind::Call`](crate::wire::Kind::Call).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallStage {
    /// The transport connects.
    Calling,
    /// The link is open. The peer is still to be asked whether it is used.
    Open,
    /// The peer has been asked.
    Asked,
}

/// The routes of a VC that have been tried, kept for as long as it is connecting or some have failed.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The VC.
    pub vc: Row,
    /// Endpoints that could not connect, and why.
    pub failed: Vec<(u8, String)>,
    /// Of the call over the VC's own link.
    pub stage: CallStage,
}

/// A link to a proc beside that of its VC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SideLink {
    /// The VC.
    pub vc: Row,
    /// The endpoint, another one than the VC's.
    pub endpoint: u8,
    /// The transport's number of it.
    pub link: u32,
    /// Whether it is connected.
    pub is_open: bool,
    /// Whether the peer would use it for messages, and waits for the answer.
    pub is_asked: bool,
}

/// What a peer has said of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallWord {
    /// The VC.
    pub vc: Row,
    /// The number of the transport's name.
    pub transport: u32,
    /// Whether it answers a call, or makes one.
    pub accepts: bool,
}

/// What is known of the routes of contacted procs, but for the links of their VCs.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// VCs that are connecting, or were not connected by their first route. Few.
    pub attempts: Vec<Attempt>,
    /// Links beside those of VCs. Few.
    pub sides: Vec<SideLink>,
    /// VCs whose peers have called over the link that is used, and are owed the answer. Each once.
    pub owed: Vec<Row>,
    /// Endpoint and link of one-sided traffic, by VC, once that is known; link [`NIL`] until then and afterwards. Written when a link is
    /// looked for, and when one ends.
    one_sided: Vec<(u8, u32)>,
}

impl Routes {
    /// The attempt of a VC.
    pub fn attempt(&mut self, vc: Row) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.vc == vc)
    }

    /// The attempt of a VC, a new one if it has none.
    pub fn attempt_of(&mut self, vc: Row) -> &mut Attempt {
        let at = self.attempts.iter().position(|attempt| attempt.vc == vc).unwrap_or_else(|| {
            self.attempts.push(Attempt { vc, failed: Vec::new(), stage: CallStage::Calling });
            self.attempts.len() - 1
        });
        &mut self.attempts[at]
    }

    /// What has failed of a VC's routes, and why.
    pub fn failed(&self, vc: Row) -> &[(u8, String)] {
        self.attempts.iter().find(|attempt| attempt.vc == vc).map_or(&[], |attempt| &attempt.failed)
    }

    /// An endpoint could not connect to a VC's proc.
    pub fn note_failed(&mut self, vc: Row, endpoint: u8, reason: String) {
        let failed = &mut self.attempt_of(vc).failed;
        failed.retain(|(of, _)| *of != endpoint);
        failed.push((endpoint, reason));
    }

    /// The endpoint and link of a VC for one-sided traffic, if they are known.
    pub fn one_sided(&self, vc: Row) -> Option<(u8, u32)> {
        self.one_sided.get(vc as usize).copied().filter(|(_, link)| *link != NIL)
    }

    /// Notes the endpoint and link of a VC for one-sided traffic, or that they must be looked for.
    pub fn set_one_sided(&mut self, vc: Row, link: Option<(u8, u32)>) {
        let at = vc as usize;
        if link.is_some() && self.one_sided.len() <= at {
            self.one_sided.resize(at + 1, (0, NIL));
        }
        if let Some(known) = self.one_sided.get_mut(at) {
            *known = link.unwrap_or((0, NIL));
        }
    }

    /// The link of a VC over an endpoint, beside its own.
    pub fn side(&self, vc: Row, endpoint: u8) -> Option<SideLink> {
        self.sides.iter().find(|side| side.vc == vc && side.endpoint == endpoint).copied()
    }
}
