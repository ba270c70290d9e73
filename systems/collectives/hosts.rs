//! The hosts of the ranks of a communicator. Messages within a host are cheap, those between hosts are not.

use std::collections::HashSet;
use std::ops::Range;

/// Which ranks run on one host. The ranks of a host are consecutive, and the lowest one is the leader of the host.
#[derive(PartialEq, Eq, Debug)]
pub struct Hosts {
    /// The leader of each host, ascending. The first one is 0.
    leaders: Box<[u32]>,
    /// How many ranks there are.
    size: u32,
}

impl Hosts {
    /// From the number of the host of each rank, in the order of ranks. `None` if operations need not tell hosts apart: there is one
    /// host, each rank has a host of its own, the ranks of a host are not consecutive, or the host of a rank is not known.
    ///
    /// All members must come to the same result.
    pub fn of(hosts: impl IntoIterator<Item = Option<u32>>) -> Option<Self> {
        let (mut leaders, mut size, mut seen, mut last) = (Vec::new(), 0, HashSet::new(), None);
        for host in hosts {
            if last != host {
                if !seen.insert(host?) {
                    return None;
                }
                (last, _) = (host, leaders.push(size));
            }
            size += 1;
            host?;
        }
        let count = leaders.len() as u32;
        (count > 1 && count < size).then(|| Hosts { leaders: leaders.into(), size })
    }

    /// The number of hosts.
    pub fn count(&self) -> u32 {
        self.leaders.len() as u32
    }

    /// The number of the host of a rank: hosts are numbered in the order of their ranks, from 0.
    pub fn host(&self, rank: u32) -> u32 {
        self.leaders.partition_point(|&leader| leader <= rank) as u32 - 1
    }

    /// The leader of a host. Behind the last host: the number of ranks.
    pub fn leader(&self, host: u32) -> u32 {
        self.leaders.get(host as usize).copied().unwrap_or(self.size)
    }

    /// The ranks of a host.
    pub fn ranks(&self, host: u32) -> Range<u32> {
        self.leader(host)..self.leader(host + 1)
    }

    /// The hosts of consecutive ranks; at least one rank.
    pub(super) fn hosts(&self, ranks: &Range<u32>) -> Range<u32> {
        self.host(ranks.start)..self.host(ranks.end - 1) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_ranks_of_a_host_follow_its_leader() {
        let hosts = Hosts::of([7, 7, 7, 2, 5, 5].map(Some)).expect("hosts of consecutive ranks");
        assert_eq!((hosts.count(), [0, 1, 2, 3].map(|host| hosts.ranks(host))), (3, [0..3, 3..4, 4..6, 6..6]));
        assert_eq!([0, 2, 3, 4, 5].map(|rank| hosts.host(rank)), [0, 0, 1, 2, 2]);
        assert_eq!([0..3, 2..4, 0..6, 5..6].map(|ranks| hosts.hosts(&ranks)), [0..1, 0..2, 0..3, 2..3]);
    }

    #[test]
    fn hosts_that_make_no_difference_are_not_told_apart() {
        for hosts in [vec![], vec![1], vec![1, 1], vec![1, 2], vec![1, 1, 2, 1], vec![1, 2, 1, 2]] {
            assert_eq!(Hosts::of(hosts.iter().copied().map(Some)), None, "{hosts:?}");
        }
        assert_eq!(Hosts::of([Some(1), Some(1), None]), None, "a host that is not known");
        assert_eq!(Hosts::of([None, None]), None);
    }
}
