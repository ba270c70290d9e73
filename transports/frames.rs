//! What an engine and a transport tell each other: frames to send, memory to read, what became of them, and of links.

use tickwire_components::wire::Header;
use tickwire_components::{Row, Span};

/// What a receive or a probe asks a transport for that matches by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveEnvelope {
    /// The link that the message comes on; [`tickwire_components::NIL`] for any.
    pub link: u32,
    /// Context word.
    pub context: u32,
    /// Rank of the sender, or [`tickwire_components::limits::ANY`].
    pub source: u32,
    /// Tag, or [`tickwire_components::limits::ANY`].
    pub tag: u32,
}

/// What has come of a look for a message. See [`Matching::peek`](crate::Matching::peek).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peeked {
    /// Nobody has looked, or it is not known yet.
    Pending,
    /// There is no such message.
    Nothing,
    /// The envelope of one that is there, and its VC if that is known.
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
    /// Where they are, by the peer's word.
    pub address: u64,
    /// Where they go, and how many.
    pub into: Span,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is on its way, and the payload may be used again.
    Done,
    /// No room now: try again later. Not an error.
    Blocked,
    /// The link has failed; [`Transport::control`](crate::Transport::control) tells why.
    Failed,
}

/// What a link has carried since it was opened, bytes. Frames count with their headers and rounded up, as a ring holds them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Frames written.
    pub sent: u64,
    /// Frames read.
    pub received: u64,
    /// Messages that this side has read out of the peer's memory; the peer counts nothing for them.
    pub read: u64,
    /// Whether the frame that was refused last still waits for room.
    pub full: bool,
    /// What the rings to the peer and from it hold at most; 0 where there are none.
    pub rings: [u64; 2],
}

/// What happened to a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// A link that this side asked for is open.
    Connected {
        /// Which link.
        link: u32,
    },
    /// A peer has opened a link.
    Accepted {
        /// The new link.
        link: u32,
        /// Who it is.
        proc: u32,
    },
    /// A peer has opened a link at the same time as this side, and its link is the one that is used.
    Replaced {
        /// The link that this side asked for.
        link: u32,
        /// The one that is used.
        by: u32,
    },
    /// A link will carry nothing any more.
    Failed {
        /// Which link.
        link: u32,
        /// Why, in words.
        reason: String,
    },
}

impl LinkEvent {
    /// The link that a peer has opened, and whose it is; `proc_of` knows of the links so far.
    pub(crate) fn opened(&self, proc_of: impl FnOnce(u32) -> u32) -> Option<(u32, u32)> {
        match *self {
            LinkEvent::Accepted { link, proc } => Some((link, proc)),
            LinkEvent::Replaced { link, by } => Some((by, proc_of(link))),
            LinkEvent::Connected { .. } | LinkEvent::Failed { .. } => None,
        }
    }
}
