//! Operations of this side that are under way: by frames, which the target's engine serves, or by a fabric.

use std::any::Any;
use tickwire_components::{NIL, RemoteKind, Row, Span};
use tickwire_transports::{Channel, RemoteRun};

/// How an operation has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It is not within the target's part, or not aligned there.
    OutOfBounds,
    /// A member that holds a lock has failed.
    HolderFailed(u32),
    /// The target has failed.
    TargetFailed,
    /// The fabric could not do it: [`Windows::fabric_reason`](super::Windows::fabric_reason).
    Fabric,
}

/// An operation that goes by frames, one or several.
pub struct RemoteOperation {
    /// Its number.
    pub number: u64,
    /// What it does.
    pub kind: RemoteKind,
    /// Where in the target's part, bytes.
    pub at: u64,
    /// Bytes that are put, got or updated.
    pub length: u64,
    /// Bytes whose request has left.
    pub sent: u64,
    /// Bytes whose answer has come.
    pub answered: u64,
    /// Whether its last request has left: of an operation without bytes, its only one.
    pub all_sent: bool,
    /// Bytes of each request but the last one, once the first one has left.
    pub fragment: u64,
    /// How one of its requests has failed.
    pub failure: Option<Failure>,
    /// What is sent. The origin keeps it until all has left.
    pub from: Span,
    /// Where answers go. The origin keeps it until all have come.
    pub into: Span,
    /// Its request, or [`NIL`].
    pub request: Row,
    /// Somebody waits for its end without a request.
    pub awaited: bool,
    /// The state that a transport keeps for a frame of which it has taken a part.
    pub state: Option<Box<dyn Any + Send + Sync>>,
    /// Bytes of a request that a transport may have taken in part; what `from` names, once its caller has taken its memory back.
    pub in_part: Option<(u64, Vec<u8>)>,
}

impl RemoteOperation {
    /// One of which nothing has left.
    pub fn new(number: u64, kind: RemoteKind, at: u64, length: u64) -> Self {
        RemoteOperation {
            number,
            kind,
            at,
            length,
            sent: 0,
            answered: 0,
            all_sent: false,
            fragment: 0,
            failure: None,
            from: Span::EMPTY,
            into: Span::EMPTY,
            request: NIL,
            awaited: false,
            state: None,
            in_part: None,
        }
    }
}

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
