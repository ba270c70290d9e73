//! The sets of a tick: the system of each, and what it reads and writes.

use crate::rows::{Rows, Wire};
use crate::store::ColumnName;
use crate::tick;
use bevy_ecs::prelude::*;
use tickwire_components::Pending;

/// The sets of a tick. They run in the order of [`ProgressSystems::ORDER`], in a schedule of bevy ([`configure`](crate::configure)) and in
/// the engine's own loop. A tick enters the cycle at [`ProgressSystems::DrainCq`] when something has arrived, and goes around until nothing
/// is pending or its pass budget is spent: an eager message arrives in one tick.
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
    /// All sets, in the order in which they run. They are declared in the same order.
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

    /// Runs the system of the set.
    #[inline]
    pub fn run(self, rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
        match self {
            Self::Post => tick::post::post(rows, wire),
            Self::Match => tick::match_cars::match_cars(rows, wire),
            Self::SupplyBuffers => tick::supply_buffers::supply_buffers(rows, wire),
            Self::Transfer => tick::transfer::transfer(rows, wire),
            Self::DrainCq => tick::drain_cq::drain_cq(rows, wire),
            Self::Complete => tick::complete::complete(rows, wire),
        }
    }

    /// What the system of the set reads and writes.
    pub(crate) const fn access(self) -> &'static ColumnAccess {
        use ColumnName::*;
        match self {
            Self::Post => &ColumnAccess {
                reads: &[ProcTable, Communicator],
                writes: &[Progress, Inbound, Callbacks, Car, Large, Request, Held, Vc, Buffer, Node, Supply, Windows],
            },
            Self::Match => &ColumnAccess {
                reads: &[ProcTable, Communicator],
                writes: &[Progress, Car, Large, Vc, Request, Buffer, Node, Supply, Windows],
            },
            Self::SupplyBuffers => &ColumnAccess {
                reads: &[Communicator],
                writes: &[Progress, Buffer, Supply, Car, Large, Vc, Node, Windows],
            },
            Self::Transfer => &ColumnAccess {
                reads: &[Communicator],
                writes: &[Progress, Car, Large, Request, Buffer, Vc, Node, Supply, Windows],
            },
            Self::DrainCq => &ColumnAccess { reads: &[], writes: &[Progress] },
            Self::Complete => &ColumnAccess {
                reads: &[ProcTable, Communicator],
                writes: &[Progress, Callbacks, Car, Large, Request, Held, Vc, Buffer, Node, Supply],
            },
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

/// The columns that a system of the engine reads and writes. All systems write endpoints and arrivals.
pub(crate) struct ColumnAccess {
    /// Columns that it reads.
    pub(crate) reads: &'static [ColumnName],
    /// Columns that it writes.
    pub(crate) writes: &'static [ColumnName],
}
