//! All have something for all: allgather and alltoall.

use super::draft::{Draft, NodeId};
use tickwire_components::Span;

/// Every rank gets the blocks of all, in the order of ranks; its own is at its place when `own` is done. `place` says where the
/// blocks of the ranks from one up to another one are.
///
/// In each round a rank passes on what it has to one as far ahead as it has blocks, so these double. Returns the nodes after which
/// all are there.
pub fn allgather(draft: &mut Draft, place: impl Fn(u32, u32) -> Span, own: NodeId) -> Vec<NodeId> {
    let (mut held, mut step): (u32, u32) = (1, 0);
    let mut came: Vec<NodeId> = vec![own];
    while held < draft.size {
        let count = held.min(draft.size - held);
        let (to, from) = (draft.ahead(held), draft.behind(held));
        // The last `count` of those up to the own one; of the sender likewise.
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

/// The last `count` ranks up to one, around the start: one run of ranks or two.
fn around(last: u32, count: u32, size: u32) -> Vec<(u32, u32)> {
    if last + 1 >= count {
        return vec![(last + 1 - count, last + 1)];
    }
    vec![(size - (count - last - 1), size), (0, last + 1)]
}

/// Every rank has a run of bytes for each: `from` says where those for a rank are, `to` where those of a rank go. When `after` is
/// done, the former are there and the latter may be written.
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
