//! The request: the state of an operation that an application waits for.

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
    /// No handle is left. The request is freed when it is done.
    Detached,
    // In the states from here on there is nothing to wait for, so one comparison is enough.
    /// Done. The application has not taken it yet.
    Done,
    /// Of a persistent request: it was never started, or its completion was returned and it has not been started again. Its CAR still
    /// has the status.
    Inactive,
}

impl RequestState {
    /// Whether there is nothing to wait for: done, or inactive.
    #[inline]
    pub fn is_over(self) -> bool {
        matches!(self, RequestState::Done | RequestState::Inactive)
    }
}

/// A request. It is on the row of its envelope CAR, which holds its status once it is done. 16 B.
///
/// Written by posting, by Complete and Deliver (`counter`, `state`), and by the call that takes the request.
///
/// A row counts its lives in 64 bits. The free list is last in, first out, so one row may be used by every operation of a program: up
/// to 10⁸ times a second, since a message to the own rank takes so little. 32 bits would wrap within a minute, and a stale handle would
/// name another request. 64 bits last 5800 years.
#[derive(Component, Clone, Copy, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Request {
    /// Counts the lives of the row: a handle with another number is stale.
    pub generation: u64,
    /// Number of its CARs that are not done yet. The request is done at 0.
    pub counter: u32,
    /// See [`RequestState`].
    pub state: RequestState,
    /// Whether its buffer is borrowed by an open scope.
    pub scoped: bool,
    /// Whether a peer has failed that this receive from any source might wait for, and the application has not acknowledged the
    /// failure.
    pub disturbed: bool,
    /// Whether Complete notifies callbacks, or another thread, when it is done. See [`crate::Callbacks`].
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
/// Dropping a row leaks its buffer. Rows are dropped when a world ends, and a transport or a peer may still use the buffer then. An
/// engine [clears](Held::clear) its rows before.
///
/// As with all columns of the engine, only the engine writes it: a system cannot exchange two buffers in flight.
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
