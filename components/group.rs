//! Groups: ordered lists of distinct procs, and the set operations on them (MPI 4.1 §7.3).

use crate::Rank;
use std::sync::Arc;
use thiserror::Error;

/// Why a group cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum GroupError {
    /// No such rank.
    #[error("rank {} is not in a group of {size}: give ranks below {size}", Rank(*rank))]
    Rank {
        /// What was given.
        rank: u32,
        /// Procs in the group.
        size: u32,
    },
    /// A rank is in a list twice, or in two ranges.
    #[error("rank {0} is given twice: a group has each proc once")]
    Twice(u32),
    /// A proc is in a list twice.
    #[error("proc {0} is given twice: a group has each proc once")]
    ProcTwice(u32),
    /// A range that does not lead from its first to its last rank.
    #[error("a range from {first} to {last} with stride {stride} leads nowhere: give a stride towards the last rank")]
    Range {
        /// First rank.
        first: u32,
        /// Last rank.
        last: u32,
        /// Step.
        stride: i32,
    },
}

/// How two groups, or two communicators, compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// Identical: the same procs in the same order, and for communicators also the same context.
    Identical,
    /// Only for communicators: the same procs in the same order, under different contexts.
    Congruent,
    /// The same procs in different orders.
    Similar,
    /// Different procs.
    Unequal,
}

/// An ordered list of distinct procs, given by their ranks in the world. A rank in the group is an index in the list.
///
/// A list of equally spaced procs, such as all procs of the world or a row of a grid, takes no memory. Clones share their memory.
#[derive(Clone, Debug)]
pub struct Group {
    procs: Procs,
}

#[derive(Clone, Debug)]
enum Procs {
    /// Rank r is proc `first + r * stride`; the stride is not 0.
    Range { first: u32, count: u32, stride: i64 },
    /// Rank r is proc `0[r]`.
    List(Arc<[u32]>),
}

impl Group {
    /// No procs (`MPI_GROUP_EMPTY`).
    pub const EMPTY: Group = Group::all(0);

    /// The procs from 0 to `procs` − 1, in order: all procs of a world of that size.
    pub const fn all(procs: u32) -> Self {
        Group { procs: Procs::Range { first: 0, count: procs, stride: 1 } }
    }

    /// A list of procs.
    ///
    /// # Errors
    /// If a proc is in the list twice.
    pub fn from_procs(procs: &[u32]) -> Result<Self, GroupError> {
        match twice(procs) {
            Some(proc) => Err(GroupError::ProcTwice(proc)),
            None => Ok(Group::distinct(procs.to_vec())),
        }
    }

    /// The members of a communicator, which are distinct.
    pub(crate) fn of_distinct(procs: &[u32]) -> Self {
        Group::distinct(procs.to_vec())
    }

    /// A group of procs that are known to be distinct.
    fn distinct(procs: Vec<u32>) -> Self {
        let (first, stride) = match procs[..] {
            [] => return Group::EMPTY,
            [only] => (only, 1),
            [first, second, ..] => (first, i64::from(second) - i64::from(first)),
        };
        if procs.windows(2).all(|pair| i64::from(pair[1]) - i64::from(pair[0]) == stride) {
            return Group { procs: Procs::Range { first, count: procs.len() as u32, stride } };
        }
        Group { procs: Procs::List(procs.into()) }
    }

    /// Number of procs.
    #[inline]
    pub fn size(&self) -> u32 {
        match &self.procs {
            Procs::Range { count, .. } => *count,
            Procs::List(list) => list.len() as u32,
        }
    }

    /// Whether the group is empty.
    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }

    /// The proc of a rank; `None` if there is no such rank.
    #[inline]
    pub fn proc(&self, rank: u32) -> Option<u32> {
        match &self.procs {
            Procs::Range { first, count, stride } => {
                (rank < *count).then(|| (i64::from(*first) + i64::from(rank) * stride) as u32)
            }
            Procs::List(list) => list.get(rank as usize).copied(),
        }
    }

    /// The rank of a proc; `None` if it is not in the group.
    pub fn rank_of(&self, proc: u32) -> Option<u32> {
        match &self.procs {
            Procs::Range { first, count, stride } => {
                let distance = i64::from(proc) - i64::from(*first);
                let rank = distance / stride;
                (distance % stride == 0 && (0..i64::from(*count)).contains(&rank)).then_some(rank as u32)
            }
            Procs::List(list) => list.iter().position(|&p| p == proc).map(|rank| rank as u32),
        }
    }

    /// The procs, by rank.
    pub fn procs(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.size()).filter_map(|rank| self.proc(rank))
    }

    /// The procs of this group, then those of the other that are not in it (`MPI_Group_union`).
    #[must_use]
    pub fn union(&self, other: &Group) -> Group {
        let here = Lookup::of(self);
        Group::distinct(self.procs().chain(other.procs().filter(|&proc| here.rank_of(proc).is_none())).collect())
    }

    /// The procs that are in both, in this group's order (`MPI_Group_intersection`).
    #[must_use]
    pub fn intersection(&self, other: &Group) -> Group {
        let there = Lookup::of(other);
        Group::distinct(self.procs().filter(|&proc| there.rank_of(proc).is_some()).collect())
    }

    /// The procs that are not in the other, in this group's order (`MPI_Group_difference`).
    #[must_use]
    pub fn difference(&self, other: &Group) -> Group {
        let there = Lookup::of(other);
        Group::distinct(self.procs().filter(|&proc| there.rank_of(proc).is_none()).collect())
    }

    /// The procs of these ranks, in the order of the list (`MPI_Group_incl`).
    ///
    /// # Errors
    /// If a rank does not exist, or is in the list twice.
    pub fn include(&self, ranks: &[u32]) -> Result<Group, GroupError> {
        self.check(ranks)?;
        Ok(Group::distinct(ranks.iter().filter_map(|&rank| self.proc(rank)).collect()))
    }

    /// The procs of all other ranks, in this group's order (`MPI_Group_excl`).
    ///
    /// # Errors
    /// If a rank does not exist, or is in the list twice.
    pub fn exclude(&self, ranks: &[u32]) -> Result<Group, GroupError> {
        self.check(ranks)?;
        let mut stays = vec![true; self.size() as usize];
        ranks.iter().for_each(|&rank| stays[rank as usize] = false);
        Ok(Group::distinct(self.procs().zip(stays).filter(|(_, stays)| *stays).map(|(proc, _)| proc).collect()))
    }

    /// [`Group::include`] of the ranks of these ranges, each (first, last, stride) (`MPI_Group_range_incl`).
    ///
    /// # Errors
    /// As [`Group::include`], or a range whose stride does not lead from first to last.
    pub fn range_include(&self, ranges: &[(u32, u32, i32)]) -> Result<Group, GroupError> {
        self.include(&self.expand(ranges)?)
    }

    /// [`Group::exclude`] of the ranks of these ranges, each (first, last, stride) (`MPI_Group_range_excl`).
    ///
    /// # Errors
    /// As [`Group::exclude`], or a range whose stride does not lead from first to last.
    pub fn range_exclude(&self, ranges: &[(u32, u32, i32)]) -> Result<Group, GroupError> {
        self.exclude(&self.expand(ranges)?)
    }

    /// For procs given by their ranks in this group, their ranks in another group; `None` for procs that are not in the other group
    /// (`MPI_Group_translate_ranks`).
    ///
    /// # Errors
    /// A rank that does not exist.
    pub fn translate(&self, ranks: &[u32], other: &Group) -> Result<Vec<Option<u32>>, GroupError> {
        let there = Lookup::of(other);
        let size = self.size();
        let one = |&rank: &u32| match self.proc(rank) {
            Some(proc) => Ok(there.rank_of(proc)),
            None => Err(GroupError::Rank { rank, size }),
        };
        ranks.iter().map(one).collect()
    }

    /// Compares this group with another one (`MPI_Group_compare`). The result is never [`Comparison::Congruent`].
    pub fn compare(&self, other: &Group) -> Comparison {
        if self == other {
            return Comparison::Identical;
        }
        let there = Lookup::of(other);
        match self.size() == other.size() && self.procs().all(|proc| there.rank_of(proc).is_some()) {
            true => Comparison::Similar,
            false => Comparison::Unequal,
        }
    }

    /// Checks that each rank exists and is in the list only once.
    fn check(&self, ranks: &[u32]) -> Result<(), GroupError> {
        let size = self.size();
        if let Some(&rank) = ranks.iter().find(|&&rank| rank >= size) {
            return Err(GroupError::Rank { rank, size });
        }
        twice(ranks).map_or(Ok(()), |rank| Err(GroupError::Twice(rank)))
    }

    /// The ranks of ranges. First and last rank of each range are checked before it is expanded, so its length is bounded.
    fn expand(&self, ranges: &[(u32, u32, i32)]) -> Result<Vec<u32>, GroupError> {
        let mut ranks = Vec::new();
        for &(first, last, stride) in ranges {
            self.check(&[first])?;
            self.check(&[last])?;
            let distance = i64::from(last) - i64::from(first);
            let stride_wide = i64::from(stride);
            if stride == 0 || distance.signum() * stride_wide.signum() < 0 {
                return Err(GroupError::Range { first, last, stride });
            }
            ranks.extend((0..=distance / stride_wide).map(|step| (i64::from(first) + step * stride_wide) as u32));
        }
        Ok(ranks)
    }
}

impl PartialEq for Group {
    /// The same procs in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.size() == other.size() && self.procs().eq(other.procs())
    }
}

impl Eq for Group {}

/// Finds the rank of a proc, for many look-ups in one group.
enum Lookup<'a> {
    /// The rank is computed.
    Range(&'a Group),
    /// The rank is found by binary search in (proc, rank) pairs, sorted by proc.
    Sorted(Vec<(u32, u32)>),
}

impl<'a> Lookup<'a> {
    fn of(group: &'a Group) -> Self {
        match &group.procs {
            Procs::Range { .. } => Lookup::Range(group),
            Procs::List(list) => {
                let mut sorted: Vec<(u32, u32)> = list.iter().copied().zip(0..).collect();
                sorted.sort_unstable();
                Lookup::Sorted(sorted)
            }
        }
    }

    fn rank_of(&self, proc: u32) -> Option<u32> {
        match self {
            Lookup::Range(group) => group.rank_of(proc),
            Lookup::Sorted(sorted) => {
                let place = sorted.binary_search_by_key(&proc, |&(proc, _)| proc).ok()?;
                Some(sorted[place].1)
            }
        }
    }
}

/// A number that is in a list twice, if there is one.
fn twice(numbers: &[u32]) -> Option<u32> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests;
