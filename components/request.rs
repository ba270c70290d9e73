//! The request: what an application waits for.

use crate::NIL;
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
    /// Of a persistent request that has not been started since its last end was seen, or at all.
    Inactive,
}

impl RequestState {
    /// Whether there is nothing to wait for: done, or inactive.
    #[inline]
    pub fn is_over(self) -> bool {
        matches!(self, RequestState::Done | RequestState::Inactive)
    }
}

/// What a request waits for, on the row of its envelope CAR, which holds its status once it is done. 16 B.
///
/// Written by posting, by Complete and Deliver (`counter`, `state`) and by taking.
#[derive(Component, Clone, Copy, Debug)]
#[component(on_remove = crate::car::refuse_removal)]
pub struct Request {
    /// Counts the lives of the row: a handle with another number is stale.
    pub generation: u32,
    /// CARs that are not done yet; the request is done at 0.
    pub counter: u32,
    /// Slot of another thread that awaits it, or [`NIL`].
    pub submission: u32,
    /// See [`RequestState`].
    pub state: RequestState,
    /// Whether its buffer is borrowed by an open scope.
    pub scoped: bool,
    /// Whether a peer's failure that may concern this any-source receive has not been acknowledged yet.
    pub disturbed: bool,
    /// Whether Complete calls somebody when it is done.
    pub notified: bool,
}

const _: () = assert!(size_of::<Request>() == 16);

impl Request {
    /// A free row.
    pub const FREE: Request = Request {
        generation: 0,
        counter: 0,
        submission: NIL,
        state: RequestState::Free,
        scoped: false,
        disturbed: false,
        notified: false,
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
