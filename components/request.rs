//! The request: what an application waits for.

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
    /// Nobody will ask for it: freed when done.
    Detached,
    // From here on there is nothing to wait for: one comparison tells.
    /// Done; the application has not taken it yet.
    Done,
    /// Of a persistent request that has not been started since its last end was told, or at all. Its CAR still has the status.
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
///
/// A row counts its lives in 64 bits. The free list is last in, first out, so that one row can be used by every operation
/// of a program: 10⁸ times a second, by what a message to oneself costs. 32 bits would wrap within a minute, and a handle
/// that was kept would name another request; 64 bits take 5800 years.
#[derive(Component, Clone, Copy, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Request {
    /// Counts the lives of the row: a handle with another number is stale.
    pub generation: u64,
    /// CARs that are not done yet; the request is done at 0.
    pub counter: u32,
    /// See [`RequestState`].
    pub state: RequestState,
    /// Whether its buffer is borrowed by an open scope.
    pub scoped: bool,
    /// Whether a peer's failure that may concern this any-source receive has not been acknowledged yet.
    pub disturbed: bool,
    /// Whether Complete tells somebody when it is done: callbacks, or another thread. See [`crate::Callbacks`].
    pub notified: bool,
}

const _: () = assert!(size_of::<Request>() == 16);

impl Request {
    /// A free row.
    pub const FREE: Request = Request {
        generation: 0,
        counter: 0,
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
///
/// A row that is dropped leaves its buffer to whoever has the address, for good: what drops rows is the end of a world, and
/// that may come while a transport or a peer is at the buffer. An engine [clears](Held::clear) its rows before.
///
/// As all columns of the engine it is written by the engine alone: two buffers in flight cannot be exchanged.
///
/// ```compile_fail,E0271
/// # use bevy_ecs::prelude::*;
/// # use tickwire_components::Held;
/// fn exchange(mut held: Query<&mut Held>) {}
/// ```
#[derive(Component, Default)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Held(pub crate::Lease);

impl Held {
    /// Drops the buffer, if there is one.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.leak();
    }
}
