//! The operations that make a new communicator.

use super::message::Entry;
use tickwire_components::{Group, Topology};

/// An operation that makes a new communicator.
pub(super) enum Operation {
    /// With the topology of the communicator, if it has one.
    Dup(Option<Topology>),
    Split {
        color: Option<u32>,
        key: i32,
    },
    Create(Group),
    CreateGroup(Group),
}

impl Operation {
    pub(super) fn number(&self) -> u32 {
        match self {
            Operation::Dup(_) => 1,
            Operation::Split { .. } => 2,
            Operation::Create(_) => 3,
            Operation::CreateGroup(_) => 4,
        }
    }

    /// The name of the call, for errors.
    pub(super) fn name(&self) -> &'static str {
        ["comm_dup", "comm_split", "comm_create", "comm_create_group"][self.number() as usize - 1]
    }

    /// Whether a proc that calls this operation will be in the new communicator.
    pub(super) fn takes_part(&self, proc: u32) -> bool {
        match self {
            Operation::Dup(_) | Operation::CreateGroup(_) => true,
            Operation::Split { color, .. } => color.is_some(),
            Operation::Create(group) => group.rank_of(proc).is_some(),
        }
    }

    /// The members of the new communicator, by their ranks in it. For a split, `entries` has the color and key of each member of the
    /// parent.
    pub(super) fn members(&self, parent: &Group, entries: &[Entry]) -> Group {
        match self {
            Operation::Dup(_) => parent.clone(),
            Operation::Create(group) | Operation::CreateGroup(group) => group.clone(),
            Operation::Split { color, .. } => {
                let asked = (0u32..).zip(entries).filter(|(_, entry)| entry.0 == *color);
                let mut ranks: Vec<(i32, u32)> = asked.map(|(rank, entry)| (entry.1, rank)).collect();
                ranks.sort_unstable();
                let ranks: Vec<u32> = ranks.into_iter().map(|(_, rank)| rank).collect();
                parent.include(&ranks).unwrap_or(Group::EMPTY)
            }
        }
    }
}
