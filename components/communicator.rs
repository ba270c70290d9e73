//! Communicators: who may talk to whom under which context.

use bevy_ecs::component::Component;

/// The procs of a communicator, by rank.
#[derive(Clone, Debug)]
pub enum Members {
    /// Rank r is proc r, for all procs of the world. Takes no memory.
    World,
    /// Rank r is proc `0[r]`.
    List(Box<[u32]>),
}

/// A row of the communicator table.
#[derive(Component, Clone, Debug)]
#[component(on_remove = crate::car::refuse_removal)]
pub struct Communicator {
    /// The context id that keeps its messages apart.
    pub context: u32,
    /// How many procs it has.
    pub size: u32,
    /// The own rank in it.
    pub rank: u32,
    /// Who they are.
    pub members: Members,
}

impl Communicator {
    /// The proc of a rank; `None` if there is no such rank.
    #[inline]
    pub fn proc(&self, rank: u32) -> Option<u32> {
        if rank >= self.size {
            return None;
        }
        match &self.members {
            Members::World => Some(rank),
            Members::List(list) => list.get(rank as usize).copied(),
        }
    }

    /// The rank of a proc; `None` if it is not a member.
    #[inline]
    pub fn rank_of(&self, proc: u32) -> Option<u32> {
        match &self.members {
            Members::World => (proc < self.size).then_some(proc),
            Members::List(list) => list.iter().position(|&p| p == proc).map(|r| r as u32),
        }
    }
}
