//! All columns of a store at once, and the limits among them.

use crate::procs::boards::Boards;
use crate::procs::endpoint::Endpoint;
use crate::procs::windows::Windows;
use bevy_ecs::prelude::*;
use tickwire_components::limits::Limits;
use tickwire_components::submission::Inbound;
use tickwire_components::{
    Arrival, Buffer, Callbacks, Car, Communicator, Held, Large, Node, ProcTable, Progress, Request, Supply, Vc,
};

/// The limits, where systems and maintenance can read them. On the engine's singleton row.
#[derive(Component, Debug)]
#[component(immutable, on_discard = tickwire_components::refuse_removal)]
pub struct Settings(pub Limits);

/// All columns of a store, borrowed with it. This is not a system parameter: systems of an application read columns by
/// [`ReadColumn`](crate::views::ReadColumn) or a query.
///
/// ```compile_fail,E0277
/// # use bevy_ecs::system::IntoSystem;
/// fn clear(tables: tickwire_systems::store::Tables<'_>) {
///     tables.held[0].clear();
/// }
/// let _ = IntoSystem::into_system(clear);
/// ```
#[non_exhaustive]
pub struct Tables<'w> {
    /// The engine's singleton row.
    pub progress: &'w mut Progress,
    /// Known procs.
    pub procs: &'w mut ProcTable,
    /// Submissions of other threads.
    pub inbound: &'w mut Inbound,
    /// Limits.
    pub limits: &'w Settings,
    /// Callbacks to call when requests are done.
    pub callbacks: &'w mut Callbacks,
    /// Boards of communicators.
    pub boards: &'w mut Boards,
    /// Windows.
    pub windows: &'w mut Windows,
    /// Arrivals.
    pub arrivals: &'w mut [Arrival],
    /// CARs.
    pub cars: &'w mut [Car],
    /// Cold column of the CARs.
    pub large: &'w mut [Large],
    /// The CARs' places in graphs.
    pub nodes: &'w mut [Node],
    /// Requests.
    pub requests: &'w mut [Request],
    /// Buffers of requests.
    pub held: &'w mut [Held],
    /// Temporaries.
    pub buffers: &'w mut [Buffer],
    /// Supplies.
    pub supplies: &'w mut [Supply],
    /// Communicators.
    pub communicators: &'w mut [Communicator],
    /// Endpoints.
    pub endpoints: &'w mut [Endpoint],
    /// Contacted procs.
    pub vcs: &'w mut [Vc],
}
