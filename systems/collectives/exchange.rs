//! Exchanges from all to all: allgather and alltoall.

use super::around::{Around, gather_around};
use super::draft::{Draft, NodeId};
use super::leaders;
use tickwire_components::Span;

/// Every rank gets the blocks of all ranks, in the order of ranks. Its own block is in its place when `own` is done. `place` gives the
/// memory of the blocks from one rank up to another one. Returns the nodes after which all blocks are there.
pub fn allgather(draft: &mut Draft, place: &dyn Fn(u32, u32) -> Span, own: NodeId) -> Vec<NodeId> {
    if let Some(hosts) = draft.hosts.clone() {
        return leaders::allgather(draft, &hosts, place, own);
    }
    let mut came = vec![own];
    gather_around(draft, Around::all(draft), &|rank| rank, place, &mut came);
    came
}

/// Every rank has a run of bytes for each rank. `from` gives the run for a rank, `to` the place for the run of a rank. When `after` is
/// done, the former may be read and the latter written.
pub fn alltoall(draft: &mut Draft, from: &dyn Fn(u32) -> Span, to: &dyn Fn(u32) -> Span, after: &[NodeId]) {
    for distance in 1..draft.size {
        let source = Around::all(draft).behind(distance);
        draft.receive(source, 0, to(source), after);
    }
    for distance in 1..draft.size {
        let receiver = Around::all(draft).ahead(distance);
        draft.send(receiver, 0, from(receiver), after);
    }
    draft.copy(from(draft.rank), to(draft.rank), after);
}
