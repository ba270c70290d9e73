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
    #[error("rank {} is no neighbour: ranks go to {last}", Rank(*rank))]
    Rank {
        /// Which rank.
        rank: u32,
        /// The highest one.
        last: u32,
    },
    /// The grid or the communicator has no such rank.
    #[error("there is no rank {}: there are {ranks} ranks, from 0 on", Rank(*rank))]
    Outside {
        /// Which rank.
        rank: u32,
        /// Number of ranks.
        ranks: u64,
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

    /// The coordinates of a rank (`MPI_Cart_coords`).
    ///
    /// # Errors
    /// If the grid has no such rank.
    pub fn coordinates(&self, rank: Rank) -> Result<Vec<u32>, TopologyError> {
        let ranks = self.points();
        if u64::from(rank.0) >= ranks {
            return Err(TopologyError::Outside { rank: rank.0, ranks });
        }
        let (mut rest, mut found) = (rank.0, vec![0; self.dimensions.len()]);
        for (place, &(points, _)) in found.iter_mut().zip(&self.dimensions).rev() {
            (*place, rest) = (rest % points, rest / points);
        }
        Ok(found)
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
    /// If there is no such dimension, or no such rank.
    pub fn shift(&self, rank: Rank, dimension: usize, by: i64) -> Result<(Rank, Rank), TopologyError> {
        let dimensions = self.dimensions.len();
        if dimension >= dimensions {
            return Err(TopologyError::Dimension { given: dimension, dimensions });
        }
        let at: Vec<i64> = self.coordinates(rank)?.into_iter().map(i64::from).collect();
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
        if own.0 >= ranks {
            return Err(TopologyError::Outside { rank: own.0, ranks: ranks.into() });
        }
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

    /// The neighbours of a rank. In a grid these are, for each dimension, the previous and the next rank. In a graph they are those that
    /// the rank has named.
    ///
    /// # Errors
    /// If the grid has no such rank.
    pub fn neighbors(&self, rank: Rank) -> Result<Neighbors, TopologyError> {
        match self {
            Topology::Cartesian(grid) => {
                let mut ranks = Vec::with_capacity(2 * grid.dimensions.len());
                for dimension in 0..grid.dimensions.len() {
                    ranks.extend(<[Rank; 2]>::from(grid.shift(rank, dimension, 1)?));
                }
                let destinations: Vec<_> = (0..).zip(ranks).map(|(number, rank)| Neighbor { rank, number }).collect();
                // What comes from one side was sent to the other one.
                let sources =
                    destinations.iter().map(|&Neighbor { rank, number }| Neighbor { rank, number: number ^ 1 });
                Ok(Neighbors { sources: sources.collect(), destinations })
            }
            Topology::Graph { sources, destinations } => {
                Ok(Neighbors { sources: numbered(sources), destinations: numbered(destinations) })
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
mod tests;
