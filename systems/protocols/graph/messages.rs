//! The messages of a graph's nodes: one is posted or queued when its node starts.

use super::passing::gather;
use crate::rows::Rows;
use crate::steps::credit::forget;
use crate::steps::dismiss::dismiss;
use crate::steps::finish::abort;
use crate::steps::posted::key;
use crate::steps::posting::{queue_receive, queue_send};
use tickwire_components::index::EnvelopeKey;
use tickwire_components::{
    Blocks, CarKind, CarState, Kept, NIL, Node, NodeWork, Passage, Progress, Row, Unexpected, Vc, VcState, car_flags,
    context,
};

/// Posts the message of a node, or queues it.
pub(super) fn start_message(rows: &mut Rows<'_>, row: Row) {
    let Rows { progress, cars, large, vcs, nodes, .. } = rows;
    let car = &mut cars[row as usize];
    let stamp = progress.stamp();
    progress.stamps.set(row, stamp);
    (car.flags, car.done, car.counter) = (0, 0, progress.counter);
    if car.kind == CarKind::Receive {
        if !take_abandoned(rows, row) {
            let Rows { progress, cars, vcs, .. } = rows;
            cars[row as usize].state = CarState::Posted;
            queue_receive(progress, cars, vcs, row);
        }
    } else if vcs[car.vc as usize].state == VcState::Failed {
        abort(progress, cars, row, car_flags::PEER_FAILED);
    } else {
        car.state = CarState::Queued;
        let mut length = car.span.len() as u64;
        if car.chain != NIL
            && let NodeWork::Outgoing(index) = nodes[row as usize].work
            && let Some(blocks) = blocks_of(progress, nodes, row)
        {
            let outgoing = &blocks.outgoing[index as usize];
            length = outgoing.passage.bytes;
            if outgoing.is_whole {
                gather(blocks, outgoing);
            }
        }
        queue_send(progress, cars, large, vcs, row, length);
    }
}

/// The messages in parts of a node's graph.
fn blocks_of<'a>(progress: &'a Progress, nodes: &[Node], row: Row) -> Option<&'a Blocks> {
    progress.graphs.get(nodes[row as usize].graph)?.blocks.as_deref()
}

/// The message in parts that a node is.
pub(super) fn passage_of<'a>(progress: &'a Progress, nodes: &[Node], row: Row) -> Option<&'a Passage> {
    match nodes[row as usize].work {
        NodeWork::Incoming(index) => Some(&blocks_of(progress, nodes, row)?.incoming[index as usize].passage),
        NodeWork::Outgoing(index) => Some(&blocks_of(progress, nodes, row)?.outgoing[index as usize].passage),
        NodeWork::Message | NodeWork::Computation(_) => None,
    }
}

/// Whether a kept message has no bytes, and none to come.
pub(crate) fn is_empty(entry: &Unexpected) -> bool {
    entry.length == 0 && (entry.message() != NIL || matches!(entry.kept, Kept::Whole { buffer: NIL }))
}

/// Gives back what a message has taken that was sent in the place of another one, and ends its sender's send.
pub(crate) fn forget_abandonment(progress: &mut Progress, vcs: &mut [Vc], found: &Unexpected) {
    forget(progress, vcs, found);
    if found.message() != NIL {
        dismiss(progress, vcs, found.vc, found.context, found.message());
    }
}

/// A receive that is to be posted ends at once if its peer has said that it cannot go on with the message. But an older message that the
/// receive matches goes first: another operation of the same tag was abandoned then.
pub(crate) fn take_abandoned(rows: &mut Rows<'_>, row: Row) -> bool {
    let Rows { progress, cars, vcs, .. } = rows;
    if progress.unexpected.count == 0 {
        return false;
    }
    let usual = key(&cars[row as usize]);
    let wanted = EnvelopeKey { context: context::abandoned(usual.context), ..usual };
    let Some(entry) = progress.unexpected.find(&wanted) else { return false };
    if progress.unexpected.find(&usual).is_some_and(|message| progress.unexpected.is_before(message, entry)) {
        return false;
    }
    // A message that replaces another has no bytes. One with bytes is not from an engine like this one, and nobody takes it.
    if !is_empty(&progress.unexpected.entries[entry as usize]) {
        return false;
    }
    let found = progress.unexpected.remove(entry);
    forget_abandonment(progress, vcs, &found);
    abort(progress, cars, row, car_flags::ABANDONED);
    true
}
