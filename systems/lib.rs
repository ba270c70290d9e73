//! The transforms of tickwire: one file is one system, and this file alone says in which order they run.

pub mod communicators;
pub mod complete;
pub mod connections;
pub mod credits;
pub mod deliver;
pub mod drain_cq;
pub mod endpoint;
pub mod lodging;
pub mod match_cars;
pub mod matching;
pub mod post;
pub mod posting;
pub mod priorities;
pub mod receipts;
pub mod registering;
mod row_system;
pub mod supply_buffers;
pub mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transfer;
pub mod views;

use bevy_ecs::prelude::*;
use row_system::row_system;
use std::any::TypeId;
use tables::Tables;
use tickwire_components::Pending;

/// The sets of a tick, in their order. A tick enters the cycle at [`ProgressSystems::DrainCq`] when something has
/// arrived, and goes around until nothing is pending or its pass budget is spent: an eager message arrives in one tick.
#[derive(SystemSet, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProgressSystems {
    /// Takes what other threads submitted into CARs, and sends the envelopes that may go.
    Post,
    /// Pairs new receives with the unexpected messages, and arrivals with the posted receives.
    Match,
    /// Decides where bytes go: a segment of the application, or a temporary.
    SupplyBuffers,
    /// Moves bytes, and only then gives space back to the transports.
    Transfer,
    /// Reads completions and headers from the transports into arrival rows.
    DrainCq,
    /// Completes requests and tells those who wait.
    Complete,
}

impl ProgressSystems {
    /// All sets, in order.
    pub const ORDER: [ProgressSystems; 6] =
        [Self::Post, Self::Match, Self::SupplyBuffers, Self::Transfer, Self::DrainCq, Self::Complete];

    /// The bit that says that the set has something to do.
    pub const fn pending(self) -> Pending {
        match self {
            Self::Post => Pending::POST,
            Self::Match => Pending::MATCH,
            Self::SupplyBuffers => Pending::SUPPLY,
            Self::Transfer => Pending::TRANSFER,
            Self::DrainCq => Pending::DRAIN,
            Self::Complete => Pending::COMPLETE,
        }
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Post => "post",
            Self::Match => "match",
            Self::SupplyBuffers => "supply_buffers",
            Self::Transfer => "transfer",
            Self::DrainCq => "drain_cq",
            Self::Complete => "complete",
        }
    }
}

/// Puts the systems of an engine with these tables into a schedule, in order. Returns the type of each, by which an executor
/// knows it.
pub fn configure(schedule: &mut Schedule, tables: &Tables) -> [(TypeId, ProgressSystems); 6] {
    use ProgressSystems::*;
    schedule.configure_sets((Post, Match, SupplyBuffers, Transfer, DrainCq, Complete).chain());
    [
        (add(schedule, Post, row_system(post::post, tables)), Post),
        (add(schedule, Match, row_system(match_cars::match_cars, tables)), Match),
        (add(schedule, SupplyBuffers, row_system(supply_buffers::supply_buffers, tables)), SupplyBuffers),
        (add(schedule, Transfer, row_system(transfer::transfer, tables)), Transfer),
        (add(schedule, DrainCq, row_system(drain_cq::drain_cq, tables)), DrainCq),
        (add(schedule, Complete, row_system(complete::complete, tables)), Complete),
    ]
}

fn add<S: System<In = (), Out = ()>>(schedule: &mut Schedule, set: ProgressSystems, system: S) -> TypeId {
    schedule.add_systems(system.in_set(set));
    TypeId::of::<S>()
}
