//! Receives at a transport that matches by itself, and what waits for them to come back.

use crate::credit::Credit;
use crate::{NIL, Queue, Row};

/// What is at the one transport of an engine that matches by itself. Empty where there is none.
///
/// Written by posting (in), Post (given and asked back), Match (out) and probes.
#[derive(Clone, Debug)]
pub struct ProviderMatching {
    /// The endpoint; [`NIL`] for none.
    pub endpoint: u32,
    /// What each peer over it may have outstanding: less than of others, as its messages take more memory there.
    pub window: Credit,
    /// Receives that are to be given to it, oldest first: those behind one that it has no room for wait.
    pub queue: Queue,
    /// Receives that are to be asked back.
    pub recalls: Vec<Row>,
    /// Synchronous messages that have met their receive, which their senders are to be told: VC and the sender's CAR.
    pub acknowledgements: Vec<(Row, Row)>,
    /// Receives that it has.
    pub count: u32,
    /// Messages of other transports whose receive is being asked back, and those of the same senders behind them, oldest
    /// first. Few.
    pub deferred: Vec<DeferredMessage>,
    /// Messages that were claimed for a probe and have arrived while that waits: their entries among the unexpected.
    pub claimed: Vec<Row>,
    /// A message was claimed for a probe and has not arrived.
    pub claims: bool,
    /// Whether a message is being moved from the transport into the engine's own queue.
    pub pull: Pull,
    /// What is known of peers over it, by row of their VCs.
    pub peers: Vec<MatchedPeer>,
}

/// A peer whose messages the transport matches. Offers are numbered as they are given to it; numbers wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MatchedPeer {
    /// Offers that were given to the peer's transport.
    pub given: u32,
    /// The same, as the peer was told last.
    pub told: u32,
    /// Offers of the peer that have met a receive or a probe here.
    pub paired: u32,
    /// Offers of the peer that wait at the transport here, by the peer's last word: a part of
    /// [`Vc::offers_kept`](crate::Vc::offers_kept).
    pub there: u32,
    /// Receives from this peer alone that the transport has.
    pub receives: u32,
}

/// Where the move of a message stands. While there is one, no receive is given to the transport: it could be paired with a younger
/// message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pull {
    /// There is none.
    #[default]
    No,
    /// Whoever has asked for it looks what comes of it.
    Awaited,
    /// Nobody does any more, or a probe has not waited for the message that it has claimed. It ends when the message arrives, or when the
    /// transport says that there is none.
    Left,
}

/// A message that waits until it is known whether the receive that takes it was paired elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeferredMessage {
    /// Its entry among the unexpected, which is not in their queue.
    pub entry: Row,
    /// Its VC: row of the proc.
    pub vc: Row,
    /// The receive; [`NIL`] while it waits behind another one of its sender, and once its receive was paired elsewhere.
    pub receive: Row,
    /// The receive has come back: it is this message's.
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
            claimed: Vec::new(),
            claims: false,
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

    /// What is known of the peer of a VC.
    pub fn peer(&mut self, vc: Row) -> &mut MatchedPeer {
        let index = vc as usize;
        if self.peers.len() <= index {
            self.peers.resize(index + 1, MatchedPeer::default());
        }
        &mut self.peers[index]
    }

    /// Whether the transport has a receive from the peer of a VC alone.
    pub fn awaits(&self, vc: Row) -> bool {
        self.peers.get(vc as usize).is_some_and(|peer| peer.receives > 0)
    }
}
