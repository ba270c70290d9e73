//! Trees of consecutive ranks. A place is a distance from the top of the tree; places wrap around behind the last rank.

use std::ops::Range;

/// The parent of a place that is not the top of a binomial tree: its lowest set bit is cleared.
pub(super) fn parent(place: u32) -> u32 {
    place & place.wrapping_sub(1)
}

/// The children of a place in a binomial tree, those with the largest subtrees first.
pub(super) fn children(place: u32, size: u32) -> Vec<u32> {
    let bits = if place == 0 { u32::BITS - 1 } else { place.trailing_zeros() };
    (0..bits).rev().map(|bit| place + (1 << bit)).filter(|&child| child < size).collect()
}

/// Number of places in the subtree of a place of a binomial tree, with the place itself. They are consecutive.
pub(super) fn subtree(place: u32, size: u32) -> u32 {
    if place == 0 { size } else { (1 << place.trailing_zeros()).min(size - place) }
}

/// How the bytes of a broadcast go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// Along a binomial tree.
    Binomial,
    /// From each rank to the next one.
    Chain,
}

impl Shape {
    /// The faster tree for a message of this many pieces.
    pub(super) fn of(pieces: usize, ranks: u32) -> Self {
        if pieces >= ranks as usize { Shape::Chain } else { Shape::Binomial }
    }
}

/// The neighbours of a rank in a tree: ranks.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Links {
    /// `None` at the top.
    pub(super) parent: Option<u32>,
    pub(super) children: Vec<u32>,
}

/// The links of a rank in a tree of these ranks, whose top is the rank `top`.
pub(super) fn links(ranks: &Range<u32>, top: u32, rank: u32, shape: Shape) -> Links {
    let (count, up) = (u64::from(ranks.end - ranks.start), u64::from(top - ranks.start));
    let place = ((u64::from(rank - ranks.start) + count - up) % count) as u32;
    let at = |place: u32| ranks.start + ((u64::from(place) + up) % count) as u32;
    let (above, below) = match shape {
        Shape::Binomial => (parent(place), children(place, count as u32)),
        Shape::Chain => (place.wrapping_sub(1), Vec::from_iter((u64::from(place) + 1 < count).then_some(place + 1))),
    };
    Links { parent: (place != 0).then(|| at(above)), children: below.into_iter().map(at).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_but_the_top_is_the_child_of_its_parent() {
        for (ranks, shape) in [0..1, 3..4, 0..6, 5..14, 2..18]
            .into_iter()
            .flat_map(|ranks| [Shape::Binomial, Shape::Chain].map(|shape| (ranks.clone(), shape)))
        {
            for top in ranks.clone() {
                let mut reached = 1;
                for rank in ranks.clone() {
                    let of = links(&ranks, top, rank, shape);
                    assert_eq!(of.parent.is_none(), rank == top);
                    for child in &of.children {
                        assert_eq!(links(&ranks, top, *child, shape).parent, Some(rank), "{ranks:?}, top {top}");
                    }
                    reached += of.children.len();
                }
                assert_eq!(reached, ranks.len());
            }
        }
    }
}
