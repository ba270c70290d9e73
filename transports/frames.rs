//! The data that an engine and a transport exchange: frames to send, memory to read, results, and events of links.

use tickwire_components::wire::Header;
use tickwire_components::{Row, Span};

/// The envelope of a receive or a probe for a transport that matches by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveEnvelope {
    /// The link that the message arrives on; [`tickwire_components::NIL`] for any.
    pub link: u32,
    /// Context word.
    pub context: u32,
    /// Rank of the sender, or [`tickwire_components::limits::ANY`].
    pub source: u32,
    /// Tag, or [`tickwire_components::limits::ANY`].
    pub tag: u32,
}

/// The result of a probe. See [`Matching::peek`](crate::Matching::peek).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peeked {
    /// There is no probe, or its result is not known yet.
    Pending,
    /// There is no such message.
    Nothing,
    /// The envelope of a message that is there, and its VC if that is known.
    Found(Header, Row),
}

/// A frame to send.
#[derive(Clone, Copy)]
pub struct Frame {
    /// Its header; `header.payload()` is the length of `payload`.
    pub header: Header,
    /// Its payload.
    pub payload: Span,
}

/// Bytes of a peer's memory to read.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRead {
    /// Their address, as the peer names it.
    pub address: u64,
    /// The run to fill, whose length is that of the read.
    pub into: Span,
}

/// The result of sending a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It was taken, and the payload may be reused.
    Done,
    /// No room now: try again later. Not an error.
    Blocked,
    /// The link has failed; [`Transport::control`](crate::Transport::control) tells why.
    Failed,
}

/// The traffic of a link since it was opened, in bytes. Frames count with their headers, rounded up as in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Frames written.
    pub sent: u64,
    /// Frames read.
    pub received: u64,
    /// Messages that this process has read out of the peer's memory. The peer does not count them.
    pub read: u64,
    /// Whether the frame that was refused last still waits for room.
    pub full: bool,
    /// Capacity of the rings to the peer and from it; 0 if there are none.
    pub rings: [u64; 2],
}

/// What happened to a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// A link that this engine asked for is open.
    Connected {
        /// Which link.
        link: u32,
    },
    /// A peer has opened a link.
    Accepted {
        /// The new link.
        link: u32,
        /// The proc number of the peer.
        proc: u32,
    },
    /// A peer has opened a link at the same time as this engine. The peer's link is used.
    Replaced {
        /// The link that this engine asked for.
        link: u32,
        /// The one that is used.
        by: u32,
    },
    /// A link has failed and carries nothing any more.
    Failed {
        /// Which link.
        link: u32,
        /// Why, in words.
        reason: String,
    },
}

impl LinkEvent {
    /// The link that a peer has opened, and the peer's proc number. `proc_of` returns the proc of an earlier link.
    pub(crate) fn opened(&self, proc_of: impl FnOnce(u32) -> u32) -> Option<(u32, u32)> {
        match *self {
            LinkEvent::Accepted { link, proc } => Some((link, proc)),
            LinkEvent::Replaced { link, by } => Some((by, proc_of(link))),
            LinkEvent::Connected { .. } | LinkEvent::Failed { .. } => None,
        }
    }
}
