//! The canonical tree of reductions: its leaves, and who has them.

/// How P ranks become q leaves, with q a power of two: the first `rem` pairs of neighbours are one leaf each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fold {
    /// Leaves.
    pub leaves: u32,
    /// Leaves that are of two ranks.
    pub pairs: u32,
}

impl Fold {
    /// Of so many ranks, at least one.
    pub fn of(ranks: u32) -> Self {
        let leaves = 1 << ranks.ilog2();
        Fold { leaves, pairs: ranks - leaves }
    }

    /// Levels of the tree above its leaves.
    pub fn levels(&self) -> u32 {
        self.leaves.ilog2()
    }

    /// The leaf that a rank is of.
    pub fn leaf(&self, rank: u32) -> u32 {
        if rank < 2 * self.pairs { rank / 2 } else { rank - self.pairs }
    }

    /// The first rank of a leaf.
    pub fn first(&self, leaf: u32) -> u32 {
        if leaf < self.pairs { 2 * leaf } else { leaf + self.pairs }
    }

    /// The other rank of the leaf that a rank is of, if there is one.
    pub fn partner(&self, rank: u32) -> Option<u32> {
        (rank < 2 * self.pairs).then_some(rank ^ 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_of_one_leaf_and_leaves_are_in_the_order_of_ranks() {
        for ranks in 1..=70 {
            let fold = Fold::of(ranks);
            assert!(fold.leaves.is_power_of_two() && fold.leaves <= ranks && ranks < 2 * fold.leaves);
            let mut rank = 0;
            for leaf in 0..fold.leaves {
                assert_eq!((fold.first(leaf), fold.leaf(rank)), (rank, leaf));
                let partner = fold.partner(rank);
                assert_eq!(partner, (leaf < fold.pairs).then_some(rank + 1));
                if let Some(other) = partner {
                    assert_eq!((fold.leaf(other), fold.partner(other)), (leaf, Some(rank)));
                    rank += 1;
                }
                rank += 1;
            }
            assert_eq!(rank, ranks);
        }
    }
}
