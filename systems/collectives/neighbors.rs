//! Exchanges among the neighbours in a topology.

use super::draft::Draft;
use tickwire_components::{Neighbors, Rank, Span};

/// Every rank sends a run of bytes to each of its destinations, and receives one from each of its sources. `from` gives the former, `to`
/// the places for the latter, by their indices in the lists of neighbours.
pub fn exchange(draft: &mut Draft, neighbors: &Neighbors, from: &dyn Fn(usize) -> Span, to: &dyn Fn(usize) -> Span) {
    let own = Rank(draft.rank);
    for (place, source) in neighbors.sources.iter().enumerate() {
        if source.rank != Rank::NULL && source.rank != own {
            draft.receive(source.rank.0, source.number, to(place), &[]);
        }
    }
    for (place, destination) in neighbors.destinations.iter().enumerate() {
        if destination.rank == own {
            if let Some(there) = neighbors.sources.iter().position(|source| source == destination) {
                draft.copy(from(place), to(there), &[]);
            }
        } else if destination.rank != Rank::NULL {
            draft.send(destination.rank.0, destination.number, from(place), &[]);
        }
    }
}
