//! The transport with its own matching: the receives that it has, and the messages that wait until a receive comes back from it.

use crate::credit::Credit;
use crate::{NIL, Queue, Row};

/// State of the one transport of an engine that matches messages itself. Empty if there is none.
///
/// Written by posting (adds receives), Post (gives receives to the transport and asks for them back), Match (removes receives) and
/// probes.
#[derive(Clone, Debug)]
pub struct ProviderMatching {
    /// The endpoint of the transport; [`NIL`] if there is none.
    pub endpoint: u32,
    /// The credit that each peer over it may have. It is less than for other transports, since kept messages take more memory there.
    pub window: Credit,
    /// Receives that are to be given to the transport, oldest first. If it has no room for a receive, the receives behind it wait too.
    pub queue: Queue,
    /// Receives that the engine is to ask back from the transport.
    pub recalls: Vec<Row>,
    /// Synchronous messages that have met their receive, and whose senders are to be told: VC, and the sender's CAR row.
    pub acknowledgements: Vec<(Row, Row)>,
    /// Number of receives that the transport has.
    pub count: u32,
    /// Messages from other transports whose receive is being asked back, and later messages of the same senders; oldest first. Few.
    pub deferred: Vec<DeferredMessage>,
    /// Whether a message is being moved from the transport into the engine's own unexpected queue.
    pub pull: Pull,
    /// State of the peers over this transport, by the row of their VC.
    pub peers: Vec<MatchedPeer>,
}

/// A peer whose messages the transport matches. Offers count up in the order in which the transport gets them; the counts wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MatchedPeer {
    /// Offers that this side has sent over the transport to the peer.
    pub given: u32,
    /// The value of `given` that the peer was last told.
    pub told: u32,
    /// Offers of the peer that were matched here with a receive or a probe.
    pub paired: u32,
    /// Offers of the peer that wait at this side's transport, according to the peer's last count: a part of
    /// [`Vc::offers_kept`](crate::Vc::offers_kept).
    pub there: u32,
    /// Receives for this peer as the only source that the transport has.
    pub receives: u32,
}

/// State of a move of a message from the transport into the unexpected queue. During a move the transport gets no receive, since it
/// could match the receive with a younger message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pull {
    /// No move is in progress.
    #[default]
    No,
    /// A move is in progress, and the call that has asked for it still waits for the result.
    Awaited,
    /// A move is in progress, but nothing waits for it any more. It ends when the message arrives, or when the transport reports that
    /// there is none.
    Left,
}

/// A deferred message: it waits until the transport says whether it has matched the receive with another message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeferredMessage {
    /// Its row among the unexpected entries. It is not in their queue.
    pub entry: Row,
    /// Its VC: row of the proc.
    pub vc: Row,
    /// The receive that it matches. [`NIL`] while it waits behind another message of the same sender, and after its receive was matched
    /// with another message.
    pub receive: Row,
    /// Whether the receive has come back. Then it takes this message.
    pub came_back: bool,
}

impl Default for ProviderMatching {
    fn default() -> Self {
        ProviderMatching {
            endpoint: NIL,
            window: Credit::NONE,
            queue: Queue::EMPTY,
            recalls: Vec::new(),
            acknowledgements: Vec::new(),
            count: 0,
            deferred: Vec::new(),
            pull: Pull::No,
            peers: Vec::new(),
        }
    }
}

impl ProviderMatching {
    /// Whether a VC has a message that is deferred.
    pub fn defers(&self, vc: Row) -> bool {
        self.deferred.iter().any(|deferred| deferred.vc == vc)
    }

    /// The state of the peer of a VC.
    pub fn peer(&mut self, vc: Row) -> &mut MatchedPeer {
        let index = vc as usize;
        if self.peers.len() <= index {
            self.peers.resize(index + 1, MatchedPeer::default());
        }
        &mut self.peers[index]
    }

    /// Whether the transport has a receive with the peer of a VC as its only source.
    pub fn awaits(&self, vc: Row) -> bool {
        self.peers.get(vc as usize).is_some_and(|peer| peer.receives > 0)
    }
}
