//! Exchanges from all to all: allgather and alltoall.

use super::draft::{Draft, NodeId};
use tickwire_components::Span;

/// Every rank gets the blocks of all ranks, in the order of ranks. Its own block is in its place when `own` is done. `place` gives the
/// memory of the blocks from one rank up to another one.
///
/// In each round a rank sends the blocks that it has to the rank that is as many ranks ahead, so the number of blocks doubles. Returns the
/// nodes after which all blocks are there.
pub fn allgather(draft: &mut Draft, place: impl Fn(u32, u32) -> Span, own: NodeId) -> Vec<NodeId> {
    let (mut held, mut step): (u32, u32) = (1, 0);
    let mut came: Vec<NodeId> = vec![own];
    while held < draft.size {
        let count = held.min(draft.size - held);
        let (to, from) = (draft.ahead(held), draft.behind(held));
        // The last `count` blocks up to this rank's own; likewise at the sender.
        for (part, (first, end)) in around(draft.rank, count, draft.size).into_iter().enumerate() {
            draft.send(to, step + part as u32, place(first, end), &came);
        }
        let mut next = Vec::new();
        for (part, (first, end)) in around(from, count, draft.size).into_iter().enumerate() {
            next.push(draft.receive(from, step + part as u32, place(first, end), &[]));
        }
        came.extend(next);
        (held, step) = (held + count, step + 2);
    }
    came
}

/// The last `count` ranks up to `last`, wrapping around at rank 0: one or two runs of ranks.
fn around(last: u32, count: u32, size: u32) -> Vec<(u32, u32)> {
    if last + 1 >= count {
        return vec![(last + 1 - count, last + 1)];
    }
    vec![(size - (count - last - 1), size), (0, last + 1)]
}

/// Every rank has a run of bytes for each rank. `from` gives the run for a rank, `to` the place for the run of a rank. When `after` is
/// done, the former may be read and the latter written.
pub fn alltoall(draft: &mut Draft, from: impl Fn(u32) -> Span, to: impl Fn(u32) -> Span, after: &[NodeId]) {
    for distance in 1..draft.size {
        let source = draft.behind(distance);
        draft.receive(source, 0, to(source), after);
    }
    for distance in 1..draft.size {
        let receiver = draft.ahead(distance);
        draft.send(receiver, 0, from(receiver), after);
    }
    draft.copy(from(draft.rank), to(draft.rank), after);
}
