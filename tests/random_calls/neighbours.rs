//! Topologies of random programs, and the serial model of operations among neighbours.

use super::items::{Item, scramble};
use super::program::Kind;
use super::serial::{Part, View};
use std::ops::Range;
use tickwire::{Cartesian, Rank, Topology, consecutive};

/// The topology of a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Net {
    /// A grid of so many dimensions. A bit for each of them says whether it is periodic.
    Grid(usize, u8),
    /// A graph that a seed draws, with up to so many edges for each rank. Ranks may be neighbours of each other several times, and of
    /// themselves.
    Graph(usize, u8),
}

/// The neighbours of a rank, in the order of its buffers.
#[derive(Default)]
pub(crate) struct Ends {
    /// The ranks that send to it, and which of its destinations it is for each of them. `None` at the end of a grid.
    sources: Vec<Option<(usize, usize)>>,
    /// The ranks that it sends to.
    destinations: Vec<Option<usize>>,
}

impl Net {
    /// The sides of a grid for so many ranks.
    fn sides(self, ranks: usize) -> Vec<usize> {
        let Net::Grid(dimensions, _) = self else { return vec![] };
        let sides = Cartesian::balanced(ranks as u32, &vec![0; dimensions]).expect("free dimensions");
        sides.into_iter().map(|side| side as usize).collect()
    }

    fn is_periodic(self, dimension: usize) -> bool {
        matches!(self, Net::Grid(_, periodic) if periodic >> dimension & 1 == 1)
    }

    /// The edges of a graph of so many ranks: from where, and to where.
    fn edges(self, ranks: usize) -> Vec<(usize, usize)> {
        let Net::Graph(most, seed) = self else { return vec![] };
        let draw = |number: usize| scramble(u64::from(seed) << 32 | number as u64) as usize;
        let edges = draw(0) % (most * ranks + 1);
        (1..=edges).map(|edge| (draw(2 * edge) % ranks, draw(2 * edge + 1) % ranks)).collect()
    }

    /// The ranks that send to a rank of a graph (side 0), or that it sends to (side 1), in an order of its own.
    fn named(self, rank: usize, ranks: usize, side: usize) -> Vec<usize> {
        let edges = self.edges(ranks).into_iter().enumerate();
        let mut own: Vec<(u64, usize)> = edges
            .filter_map(|(number, (from, to))| {
                let (own, other) = if side == 0 { (to, from) } else { (from, to) };
                (own == rank).then_some((scramble((number << 8 | rank << 1 | side) as u64), other))
            })
            .collect();
        own.sort_unstable();
        own.into_iter().map(|(_, other)| other).collect()
    }

    /// The topology as a rank gives it to its engine.
    pub(crate) fn topology(self, rank: usize, ranks: usize) -> Topology {
        let all = |side: usize| self.named(rank, ranks, side).into_iter().map(|other| Rank(other as u32)).collect();
        match self {
            Net::Grid(..) => {
                let sides = self.sides(ranks).into_iter().enumerate();
                let dimensions: Vec<_> = sides.map(|(at, side)| (side as u32, self.is_periodic(at))).collect();
                Topology::Cartesian(Cartesian::new(&dimensions))
            }
            Net::Graph(..) => Topology::Graph { sources: all(0), destinations: all(1) },
        }
    }

    /// The neighbours of a rank.
    fn ends(self, rank: usize, ranks: usize) -> Ends {
        match self {
            Net::Grid(..) => self.around(rank, ranks),
            Net::Graph(..) => {
                let sources = self.named(rank, ranks, 0);
                let source = |(place, &from): (usize, &usize)| {
                    // The first edge from a rank is the first one of that rank to here, and so on.
                    let nth = sources[..place].iter().filter(|&&other| other == from).count();
                    let theirs = self.named(from, ranks, 1).into_iter().enumerate();
                    let (there, _) = theirs.filter(|&(_, to)| to == rank).nth(nth).expect("both know the edge");
                    Some((from, there))
                };
                let destinations = self.named(rank, ranks, 1).into_iter().map(Some).collect();
                Ends { sources: sources.iter().enumerate().map(source).collect(), destinations }
            }
        }
    }

    /// The neighbours of a point of a grid: for each dimension the one before it and the one behind it. The last dimension varies fastest.
    fn around(self, rank: usize, ranks: usize) -> Ends {
        let sides = self.sides(ranks);
        let mut ends = Ends::default();
        for (dimension, &side) in sides.iter().enumerate() {
            let stride: usize = sides[dimension + 1..].iter().product();
            let at = rank / stride % side;
            for (way, step) in [side - 1, 1].into_iter().enumerate() {
                let is_inside = if way == 0 { at > 0 } else { at + 1 < side };
                let there = (at + step) % side;
                let other = (is_inside || self.is_periodic(dimension)).then_some(rank - at * stride + there * stride);
                // What comes from before was sent behind.
                ends.sources.push(other.map(|other| (other, 2 * dimension + 1 - way)));
                ends.destinations.push(other);
            }
        }
        ends
    }

    /// Most neighbours that a rank has on one side.
    pub(crate) fn degree(self, ranks: usize) -> usize {
        let of = |rank: usize| {
            let ends = self.ends(rank, ranks);
            ends.sources.len().max(ends.destinations.len())
        };
        (0..ranks).map(of).max().unwrap_or(0)
    }
}

/// A rank's part in an operation among neighbours.
pub(super) fn among_neighbours<T: Item>(view: &View, count: usize) -> Part<T> {
    let (kind, own, ranks) = (view.call.kind, view.own, view.members.len());
    let ends = view.net.ends(own, ranks);
    let gathers = matches!(kind, Kind::NeighborAllgather | Kind::NeighborAllgatherv);
    let varies = !matches!(kind, Kind::NeighborAllgather | Kind::NeighborAlltoall);
    let has_places = matches!(kind, Kind::NeighborAllgatherv | Kind::NeighborAlltoallv);
    // Each rank has one part for all, or one for each destination.
    let part_of = |place: usize| if gathers { 0 } else { place };
    let length = |rank: usize, place: usize| match varies {
        true => view.length(1000 + rank * 100 + part_of(place), count),
        false => count,
    };
    // At the end of a grid, a buffer may have any length, and nothing happens to it.
    let nothing = |place: usize| if varies { view.length(900 + place, count) } else { count };
    let layout = |counts: &[usize], side: usize| match has_places {
        true => view.places(counts, own * 2 + side),
        false => (consecutive(counts), counts.iter().sum()),
    };
    let expected = |(place, source): (usize, &Option<(usize, usize)>)| match *source {
        Some((from, there)) => length(from, there),
        None => nothing(place),
    };
    let counts: Vec<usize> = ends.sources.iter().enumerate().map(expected).collect();
    let (to, end) = layout(&counts, 0);
    let receive: Vec<T> = view.untouched(end);
    let mut after = receive.clone();
    for (place, source) in to.iter().zip(&ends.sources) {
        if let Some((from, there)) = *source {
            after[place.clone()].copy_from_slice(&view.data(from, part_of(there), length(from, there)));
        }
    }
    let (send, from) =
        if gathers { (view.data(own, 0, length(own, 0)), vec![]) } else { given(view, &ends, length, layout) };
    Part { send, receive, after, from, to, ..Part::default() }
}

/// The buffer from which a rank sends a part to each destination, and the places of these parts.
fn given<T: Item>(
    view: &View,
    ends: &Ends,
    length: impl Fn(usize, usize) -> usize,
    layout: impl Fn(&[usize], usize) -> (Vec<Range<usize>>, usize),
) -> (Vec<T>, Vec<Range<usize>>) {
    let counts: Vec<usize> = (0..ends.destinations.len()).map(|place| length(view.own, place)).collect();
    let (from, end) = layout(&counts, 1);
    let mut send: Vec<T> = view.untouched(end);
    for (number, place) in from.iter().enumerate() {
        send[place.clone()].copy_from_slice(&view.data(view.own, number, counts[number]));
    }
    (send, from)
}
