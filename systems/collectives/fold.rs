//! The canonical tree of reductions: its leaves, and the ranks that belong to each leaf.

/// How P ranks become q leaves, where q is a power of two: each of the first `pairs` pairs of neighbours is one leaf, and each other rank
/// is a leaf of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fold {
    /// Number of leaves.
    pub leaves: u32,
    /// Number of leaves of two ranks.
    pub pairs: u32,
}

impl Fold {
    /// The fold of `ranks` ranks; at least one.
    pub fn of(ranks: u32) -> Self {
        let leaves = 1 << ranks.ilog2();
        Fold { leaves, pairs: ranks - leaves }
    }

    /// Number of levels of the tree above its leaves.
    pub fn levels(&self) -> u32 {
        self.leaves.ilog2()
    }

    /// The leaf of a rank.
    pub fn leaf(&self, rank: u32) -> u32 {
        if rank < 2 * self.pairs { rank / 2 } else { rank - self.pairs }
    }

    /// The first rank of a leaf.
    pub fn first(&self, leaf: u32) -> u32 {
        if leaf < self.pairs { 2 * leaf } else { leaf + self.pairs }
    }

    /// The other rank of a rank's leaf, if there is one.
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
