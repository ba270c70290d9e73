//! Virtual topologies (MPI 4.1 chapter 8): the neighbours of each rank in a communicator.

use crate::Rank;
use thiserror::Error;

/// Edges between two ranks at most: the messages of one collective operation can be told apart for so many.
const PARALLEL_MAX: usize = 256;

/// A virtual topology: the neighbours of each rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Topology {
    /// Ranks are the points of a grid.
    Cartesian(Cartesian),
    /// Every rank knows its own neighbours.
    Graph {
        /// The ranks that send to it.
        sources: Vec<Rank>,
        /// The ranks that it sends to.
        destinations: Vec<Rank>,
    },
}

/// What is wrong with a topology.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The number of points of the grid does not fit the number of ranks.
    #[error("a grid of {points} points for {ranks} ranks: give as many points as ranks, or fewer")]
    Points {
        /// Points of the grid; [`u64::MAX`] if there are more.
        points: u64,
        /// Ranks of the communicator.
        ranks: u32,
    },
    /// A neighbour is not a rank of the communicator.
    #[error("rank {rank} is no neighbour: ranks go to {last}")]
    Rank {
        /// Which rank.
        rank: u32,
        /// The highest one.
        last: u32,
    },
    /// A rank names itself more often as a source than as a destination, or less often.
    #[error(
        "this rank is its own source {sources} times, and its own destination {destinations} times: name both equally often"
    )]
    Own {
        /// How often it is its own source.
        sources: usize,
        /// How often it is its own destination.
        destinations: usize,
    },
    /// Too many edges from one rank to another.
    #[error("{0} edges between two ranks: 256 are possible")]
    Parallel(usize),
    /// There is no such dimension.
    #[error("dimension {given} of a grid that has {dimensions}")]
    Dimension {
        /// The dimension that was given.
        given: usize,
        /// Number of dimensions.
        dimensions: usize,
    },
}

/// A grid of ranks (Cartesian topology). The last dimension varies fastest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cartesian {
    dimensions: Vec<(u32, bool)>,
}

impl Cartesian {
    /// A grid with these dimensions. For each: the number of points, and whether it is periodic (the last point is next to the first).
    pub fn new(dimensions: &[(u32, bool)]) -> Self {
        Cartesian { dimensions: dimensions.to_vec() }
    }

    /// Divides ranks among dimensions as evenly as possible, larger dimensions first (`MPI_Dims_create`). Dimensions that are not 0
    /// stay as they are.
    ///
    /// ```
    /// # use tickwire_components::Cartesian;
    /// assert_eq!(Cartesian::balanced(12, &[0, 0])?, [4, 3]);
    /// assert_eq!(Cartesian::balanced(6, &[0, 3, 0])?, [2, 3, 1]);
    /// # Ok::<(), tickwire_components::TopologyError>(())
    /// ```
    ///
    /// # Errors
    /// If the fixed dimensions do not divide the number of ranks, or if there are no ranks.
    pub fn balanced(ranks: u32, dimensions: &[u32]) -> Result<Vec<u32>, TopologyError> {
        let fixed = dimensions.iter().filter(|&&points| points > 0);
        let points = fixed.fold(1u64, |product, &points| product.saturating_mul(points.into()));
        let free = dimensions.iter().filter(|&&points| points == 0).count();
        let divides = u64::from(ranks).is_multiple_of(points);
        if !divides || ranks == 0 || (free == 0 && points != u64::from(ranks)) {
            return Err(TopologyError::Points { points, ranks });
        }
        let mut shares = shares((u64::from(ranks) / points) as u32, free).into_iter();
        Ok(dimensions.iter().map(|&points| if points > 0 { points } else { shares.next().unwrap_or(1) }).collect())
    }

    /// The dimensions. For each: the number of points, and whether it is periodic.
    pub fn dimensions(&self) -> &[(u32, bool)] {
        &self.dimensions
    }

    /// Number of points; [`u64::MAX`] if there are more.
    pub fn points(&self) -> u64 {
        self.dimensions.iter().fold(1, |product, &(points, _)| product.saturating_mul(points.into()))
    }

    /// The coordinates of a rank (`MPI_Cart_coords`); 0 in a dimension without points.
    pub fn coordinates(&self, rank: Rank) -> Vec<u32> {
        let (mut rest, mut found) = (rank.0, vec![0; self.dimensions.len()]);
        for (place, &(points, _)) in found.iter_mut().zip(&self.dimensions).rev() {
            (*place, rest) = (rest.checked_rem(points).unwrap_or(0), rest.checked_div(points).unwrap_or(0));
        }
        found
    }

    /// The rank at coordinates (`MPI_Cart_rank`). In a periodic dimension, coordinates wrap around. [`Rank::NULL`] beyond the end of
    /// another dimension, for a wrong number of coordinates, and where the rank would be too large.
    pub fn rank(&self, place: &[i64]) -> Rank {
        if place.len() != self.dimensions.len() {
            return Rank::NULL;
        }
        let mut rank = 0u32;
        for (&at, &(points, periodic)) in place.iter().zip(&self.dimensions) {
            let at = if periodic { at.checked_rem_euclid(points.into()).unwrap_or(-1) } else { at };
            let next = rank.checked_mul(points).and_then(|rank| rank.checked_add(at as u32));
            match next {
                Some(next) if (0..i64::from(points)).contains(&at) => rank = next,
                _ => return Rank::NULL,
            }
        }
        Rank(rank)
    }

    /// The source and the destination of a shift by `by` along a dimension (`MPI_Cart_shift`). [`Rank::NULL`] beyond the end of a
    /// dimension that is not periodic.
    ///
    /// # Errors
    /// If there is no such dimension.
    pub fn shift(&self, rank: Rank, dimension: usize, by: i64) -> Result<(Rank, Rank), TopologyError> {
        let dimensions = self.dimensions.len();
        if dimension >= dimensions {
            return Err(TopologyError::Dimension { given: dimension, dimensions });
        }
        let at: Vec<i64> = self.coordinates(rank).into_iter().map(i64::from).collect();
        let moved = |by: i64| {
            let mut to = at.clone();
            to[dimension] = to[dimension].saturating_add(by);
            self.rank(&to)
        };
        Ok((moved(by.saturating_neg()), moved(by)))
    }
}

/// Factors of a number, as even as possible, in descending order: the first factor is as small as it can be, then the second one, and
/// so on.
fn shares(number: u32, count: usize) -> Vec<u32> {
    let small: Vec<u32> = (1..=number.isqrt()).filter(|&divisor| number.is_multiple_of(divisor)).collect();
    let mut divisors: Vec<u32> = small.iter().flat_map(|&divisor| [divisor, number / divisor]).collect();
    divisors.sort_unstable();
    factors(number, count, number, &divisors).unwrap_or_default()
}

/// `count` factors of a number in descending order, none greater than `most`; `None` if there are none. `divisors` are the divisors of
/// a multiple of the number, in ascending order.
fn factors(number: u32, count: usize, most: u32, divisors: &[u32]) -> Option<Vec<u32>> {
    if count == 0 {
        return (number == 1).then(Vec::new);
    }
    // All further factors are at most as great, so the first factor must be great enough for their product to reach the number.
    let is_enough = |divisor: u32| u64::from(divisor).saturating_pow(count as u32) >= u64::from(number);
    let fits = |&divisor: &u32| divisor <= most && number.is_multiple_of(divisor) && is_enough(divisor);
    divisors.iter().copied().filter(fits).find_map(|first| {
        let rest = factors(number / first, count - 1, first, divisors)?;
        Some([vec![first], rest].concat())
    })
}

/// A neighbour, and the number of the message between it and this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbor {
    /// The neighbour's rank; [`Rank::NULL`] at the end of a grid.
    pub rank: Rank,
    /// The number of the message. It is the same on both sides.
    pub number: u32,
}

/// The neighbours of a rank, in the order of its buffers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Neighbors {
    /// The ranks that send to it.
    pub sources: Vec<Neighbor>,
    /// The ranks that it sends to.
    pub destinations: Vec<Neighbor>,
}

impl Topology {
    /// Checks that the topology fits the rank `own` in a communicator of `ranks` ranks.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn check(&self, own: Rank, ranks: u32) -> Result<(), TopologyError> {
        match self {
            Topology::Cartesian(grid) if grid.points() != u64::from(ranks) => {
                Err(TopologyError::Points { points: grid.points(), ranks })
            }
            Topology::Cartesian(grid) if 2 * grid.dimensions.len() > PARALLEL_MAX => {
                Err(TopologyError::Parallel(2 * grid.dimensions.len()))
            }
            Topology::Cartesian(_) => Ok(()),
            Topology::Graph { sources, destinations } => {
                let last = ranks - 1;
                if let Some(&Rank(rank)) = sources.iter().chain(destinations).find(|rank| rank.0 > last) {
                    return Err(TopologyError::Rank { rank, last });
                }
                let [from, to] = [sources, destinations].map(|of| of.iter().filter(|&&rank| rank == own).count());
                if from != to {
                    return Err(TopologyError::Own { sources: from, destinations: to });
                }
                let most = [sources, destinations].map(|of| numbered(of).iter().map(|of| of.number + 1).max());
                let most = most.into_iter().flatten().max().unwrap_or(0) as usize;
                if most > PARALLEL_MAX { Err(TopologyError::Parallel(most)) } else { Ok(()) }
            }
        }
    }

    /// The neighbours of a rank. In a grid these are, for each dimension, the previous and the next rank.
    pub fn neighbors(&self, rank: Rank) -> Neighbors {
        match self {
            Topology::Cartesian(grid) => {
                let pair = |dimension| grid.shift(rank, dimension, 1).unwrap_or((Rank::NULL, Rank::NULL));
                let ranks = (0..grid.dimensions.len()).flat_map(|dimension| <[Rank; 2]>::from(pair(dimension)));
                let destinations: Vec<_> = (0..).zip(ranks).map(|(number, rank)| Neighbor { rank, number }).collect();
                // What comes from one side was sent to the other one.
                let sources =
                    destinations.iter().map(|&Neighbor { rank, number }| Neighbor { rank, number: number ^ 1 });
                Neighbors { sources: sources.collect(), destinations }
            }
            Topology::Graph { sources, destinations } => {
                Neighbors { sources: numbered(sources), destinations: numbered(destinations) }
            }
        }
    }
}

/// The neighbours of these ranks. If a rank is named several times, its messages are numbered.
fn numbered(ranks: &[Rank]) -> Vec<Neighbor> {
    let mut counts: Vec<(Rank, u32)> = Vec::new();
    let number = |&rank: &Rank| {
        let place = counts.binary_search_by_key(&rank.0, |(rank, _)| rank.0).unwrap_or_else(|place| {
            counts.insert(place, (rank, 0));
            place
        });
        counts[place].1 += 1;
        Neighbor { rank, number: counts[place].1 - 1 }
    };
    ranks.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_places_of_a_grid_are_one_to_one() {
        let grid = Cartesian::new(&[(3, true), (4, false), (2, true)]);
        for rank in 0..grid.points() as u32 {
            let place = grid.coordinates(Rank(rank));
            let place: Vec<i64> = place.into_iter().map(i64::from).collect();
            assert_eq!(grid.rank(&place), Rank(rank));
            assert_eq!(grid.rank(&[place[0] - 3, place[1], place[2] + 4]), Rank(rank), "around the ends");
            assert_eq!(grid.rank(&[place[0], place[1] + 4, place[2]]), Rank::NULL);
        }
        assert_eq!(grid.coordinates(Rank(1)), [0, 0, 1], "the last dimension varies fastest");
        assert_eq!(grid.rank(&[0, 0]), Rank::NULL);
        assert_eq!(grid.shift(Rank(0), 0, 1), Ok((Rank(16), Rank(8))));
        assert_eq!(grid.shift(Rank(0), 1, 1), Ok((Rank::NULL, Rank(2))));
        assert!(grid.shift(Rank(0), 3, 1).is_err());
    }

    #[test]
    fn grids_without_points_or_with_too_many_have_no_ranks_there() {
        let empty = Cartesian::new(&[(0, true), (3, false)]);
        assert_eq!((empty.coordinates(Rank(2)), empty.rank(&[0, 1])), (vec![0, 2], Rank::NULL));
        let large = Cartesian::new(&[(1 << 16, false), (1 << 16, false), (2, false)]);
        assert_eq!(large.rank(&[0, 0, 1]), Rank(1));
        assert_eq!(large.rank(&[65_535, 65_535, 1]), Rank::NULL);
    }

    #[test]
    fn ranks_are_divided_evenly() {
        let cases: [(u32, &[u32], &[u32]); 8] = [
            (1, &[0, 0, 0], &[1, 1, 1]),
            (7, &[0, 0], &[7, 1]),
            (16, &[0, 0], &[4, 4]),
            (24, &[0, 0, 0], &[3, 4, 2]),
            (36, &[0, 0], &[6, 6]),
            (12, &[2, 0], &[2, 6]),
            (100, &[0, 5, 0], &[5, 5, 4]),
            (6, &[], &[]),
        ];
        for (ranks, given, expected) in cases {
            let mut found = match Cartesian::balanced(ranks, given) {
                Ok(found) => found,
                Err(error) => {
                    assert!(given.is_empty(), "{error}");
                    continue;
                }
            };
            let mut expected = expected.to_vec();
            if given.iter().all(|&points| points == 0) {
                found.sort_unstable();
                expected.sort_unstable();
            }
            assert_eq!(found, expected, "{ranks} ranks");
        }
        // The greatest first, and as even as can be.
        for (ranks, expected) in
            [(24, [4, 3, 2]), (60, [5, 4, 3]), (20, [5, 2, 2]), (7, [7, 1, 1]), (1, [1; 3]), (64, [4; 3])]
        {
            assert_eq!(Cartesian::balanced(ranks, &[0, 0, 0]), Ok(expected.to_vec()));
        }
        assert!(Cartesian::balanced(0, &[0, 0]).is_err());
        assert_eq!(Cartesian::balanced(u32::MAX, &[0, 0]), Ok(vec![65_537, 65_535]));
        assert_eq!(Cartesian::balanced(6, &[4, 0]), Err(TopologyError::Points { points: 4, ranks: 6 }));
        assert!(Cartesian::balanced(6, &[2, 2]).is_err());
    }

    /// What a rank sends to another one, that one expects, under the same number.
    #[test]
    fn both_ends_of_an_edge_give_it_one_number() {
        let grids = [&[(2, true), (2, true)][..], &[(1, true), (3, false)], &[(4, true)], &[(1, true)]];
        for grid in grids {
            let topology = Topology::Cartesian(Cartesian::new(grid));
            let points = Cartesian::new(grid).points() as u32;
            topology.check(Rank(0), points).expect("it fits");
            for rank in 0..points {
                for sent in topology.neighbors(Rank(rank)).destinations {
                    if sent.rank != Rank::NULL {
                        let there = topology.neighbors(sent.rank).sources;
                        let expected = Neighbor { rank: Rank(rank), number: sent.number };
                        assert_eq!(there.iter().filter(|&&of| of == expected).count(), 1, "{grid:?}: {sent:?}");
                    }
                }
            }
        }
        let ranks = [Rank(1), Rank(0), Rank(1)];
        let graph = Topology::Graph { sources: ranks.to_vec(), destinations: vec![] };
        let numbers: Vec<_> = graph.neighbors(Rank(0)).sources.iter().map(|of| of.number).collect();
        assert_eq!(numbers, [0, 0, 1]);
        assert_eq!(graph.check(Rank(0), 1), Err(TopologyError::Rank { rank: 1, last: 0 }));
        let many = Topology::Graph { sources: vec![Rank(0); 257], destinations: vec![] };
        assert_eq!(many.check(Rank(1), 2), Err(TopologyError::Parallel(257)));
        assert_eq!(many.check(Rank(0), 2), Err(TopologyError::Own { sources: 257, destinations: 0 }));
    }
}
