//! The request: what an application waits for.

use crate::{NIL, Row};
use bevy_ecs::component::Component;

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum RequestState {
    /// In the free list.
    #[default]
    Free,
    /// Some of its CARs are not done.
    Active,
    /// Done; the application has not taken it yet.
    Done,
    /// Nobody will ask for it: freed when done.
    Detached,
}

/// A row of request state, 48 B.
///
/// Written by posting, by Complete (`counter`, `state`, the status) and by taking.
#[derive(Component, Clone, Copy, Debug)]
#[component(on_remove = crate::car::refuse_removal)]
pub struct Request {
    /// Counts the lives of the row: a handle with another number is stale.
    pub generation: u32,
    /// CARs that are not done yet; the request is done at 0.
    pub counter: u32,
    /// Its envelope CAR while active. Of a request that failed, where it did: the [`context`](crate::context) word, with
    /// the plane [`SENT`](crate::context::SENT) for a send.
    pub car: Row,
    /// Next row of the free list.
    pub next: Row,
    /// See [`RequestState`].
    pub state: RequestState,
    /// [`crate::car_flags`] of the CARs that failed.
    pub flags: u8,
    /// Whether its buffer is borrowed by an open scope.
    pub scoped: bool,
    /// Whether a peer's failure that may concern this any-source receive has not been acknowledged yet.
    pub disturbed: bool,
    /// Status: rank of the sender.
    pub source: u32,
    /// Status: tag.
    pub tag: u32,
    /// Slot of another thread that awaits it, or [`NIL`].
    pub submission: u32,
    /// Status: bytes of the message; of a truncated receive, all that were sent.
    pub length: u64,
    /// Of a request that failed: the row of the VC, or for a truncated receive the bytes it could take.
    pub detail: u64,
}

const _: () = assert!(size_of::<Request>() <= 48);

impl Request {
    /// A free row.
    pub const FREE: Request = Request {
        generation: 0,
        counter: 0,
        car: NIL,
        next: NIL,
        state: RequestState::Free,
        flags: 0,
        scoped: false,
        disturbed: false,
        source: 0,
        tag: 0,
        submission: NIL,
        length: 0,
        detail: 0,
    };
}

impl Default for Request {
    fn default() -> Self {
        Request::FREE
    }
}

/// The column that owns the buffers of requests.
#[derive(Component, Default)]
#[component(on_remove = crate::car::refuse_removal)]
pub struct Held(pub crate::Lease);
