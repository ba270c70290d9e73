//! Graphs of CARs (reference: communication agent notes, "collective case"): messages and computations that depend on each other.
//!
//! An edge leads from a node to one that starts when the first is done. A node whose last edge is met is staged; Post starts it:
//! a message is sent or its receive posted, a computation is done at once. Complete counts a node that is done for the graph's
//! request, and for its successors.
//!
//! *Failure.* A graph ends as a whole. Each member owes its peers a message for every one that they expect. So a member whose
//! graph fails sends in place of each message that has not begun to leave one that says so ([`context::ABANDONED`]), and
//! leaves its receives posted, without a buffer, for what its peers send meanwhile. These CARs are the graph's no more, and
//! end by themselves. What is at work on the application's memory is waited for. If lengths differ so much that two members have
//! drawn different graphs, receives of messages that the peer never sends are left until the connection ends: a row each.

use crate::rows::Rows;
use crate::steps::credit::{forget, owe_lines};
use crate::steps::finish::{abort, finish_car, free_car};
use crate::steps::matching::find_posted;
use crate::steps::posted::key;
use crate::steps::posting::{queue_receive, queue_send};
use std::mem::ManuallyDrop;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::limits::STAGED_A_PASS;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Arrival, ArrivalState, Car, CarKind, CarState, Computation, Graph, Kept, Large, NIL, Node, Pending, Request,
    RequestState, Row, Span, Unexpected, VcState, Way, car_flags, context,
};

/// Starts a graph: all nodes that need no other one are staged. Its request is active. Of what an earlier start has left only
/// counts are written.
pub fn start(rows: &mut Rows<'_>, number: u32) {
    let Rows { progress, cars, nodes, requests, .. } = rows;
    let progress = &mut **progress;
    let Some(graph) = progress.graphs.list.get(number as usize).and_then(Option::as_deref) else { return };
    let request = &mut requests[graph.request as usize];
    (request.state, request.counter) = (RequestState::Active, graph.nodes.len() as u32);
    let owner = &mut cars[graph.request as usize];
    (owner.state, owner.flags) = (CarState::Waiting, 0);
    progress.active += 1;
    progress.work.posted += 1;
    let stamp = progress.stamp();
    progress.stamps.set(graph.request, stamp);
    for &row in &graph.nodes {
        let node = &mut nodes[row as usize];
        node.unmet = node.needs;
        if node.needs == 0 {
            cars[row as usize].state = CarState::Staged;
            progress.graphs.staged.push(cars, row);
        }
    }
    progress.pending |= Pending::POST;
}

/// Post's part: starts nodes that are staged.
pub(crate) fn start_staged(rows: &mut Rows<'_>) {
    for _ in 0..STAGED_A_PASS {
        let Rows { progress, cars, .. } = rows;
        let Some(row) = progress.graphs.staged.pop(cars) else { return };
        match cars[row as usize].kind {
            CarKind::Computation => compute(rows, row),
            _ => start_message(rows, row),
        }
    }
    rows.progress.pending |= Pending::POST;
}

/// Posts the message of a node.
fn start_message(rows: &mut Rows<'_>, row: Row) {
    let Rows { progress, cars, large, vcs, .. } = rows;
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
        let length = car.span.len() as u64;
        queue_send(progress, cars, large, vcs, row, length);
    }
}

/// Does what a node computes.
fn compute(rows: &mut Rows<'_>, row: Row) {
    let Node { graph: number, computation, .. } = rows.nodes[row as usize];
    let Some(graph) = rows.progress.graphs.get(number) else { return };
    let length = match graph.computations[computation as usize] {
        Computation::Copy { from, to } => {
            // SAFETY: whoever has built the graph keeps both runs until its request is done.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            unsafe {
                to.copy_from(&from);
            }
            to.len()
        }
        Computation::Reduce { into, other, side } => {
            if let Some(reduce) = &graph.reduce {
                // A panic of the application's function leaves the node unfinished, and poisons the engine.
                reduce(into, other, side);
            }
            into.len()
        }
    };
    finish_car(&mut rows.progress, &mut rows.cars, row, length as u64, false);
}

/// Complete's part: a node is done. Returns the graph's request if it was the last one.
#[cold]
pub(crate) fn ended(rows: &mut Rows<'_>, row: Row) -> Option<Row> {
    let number = rows.nodes[row as usize].graph;
    let expected = rows.cars[row as usize].span.len() as u64;
    let car = &mut rows.cars[row as usize];
    if car.kind == CarKind::Receive && car.flags & car_flags::ERRORS == 0 && car.done < expected {
        car.flags |= car_flags::SHORT;
    }
    car.state = CarState::Waiting;
    let failed = *car;
    rows.nodes[row as usize].unmet = NIL;
    let owner = rows.progress.graphs.get(number)?.request;
    rows.requests[owner as usize].counter -= 1;
    let graph = rows.progress.graphs.get_mut(number)?;
    if failed.flags & car_flags::ERRORS == 0 {
        if !graph.failed {
            release_successors(rows, row);
        }
    } else if !std::mem::replace(&mut graph.failed, true) {
        note_failure(rows, owner, &failed, expected);
        give_up(rows, number);
    }
    if rows.requests[owner as usize].counter != 0 {
        return None;
    }
    rows.cars[owner as usize].state = CarState::Done;
    leave_ended(rows, number);
    Some(owner)
}

/// Counts a node that is done for those that wait for it.
fn release_successors(rows: &mut Rows<'_>, row: Row) {
    let Rows { progress, cars, nodes, .. } = rows;
    let Node { graph, first, successors, .. } = nodes[row as usize];
    let progress = &mut **progress;
    let graphs = &mut *progress.graphs;
    let Some(graph) = graphs.list.get(graph as usize).and_then(Option::as_deref) else { return };
    for &next in &graph.successors[first as usize..(first + successors) as usize] {
        let node = &mut nodes[next as usize];
        node.unmet -= 1;
        if node.unmet == 0 {
            cars[next as usize].state = CarState::Staged;
            graphs.staged.push(cars, next);
            progress.pending |= Pending::POST;
        }
    }
}

/// The request of a graph ends as the first node that has failed.
fn note_failure(rows: &mut Rows<'_>, owner: Row, failed: &Car, expected: u64) {
    let Car { flags, source, tag, vc, done, .. } = *failed;
    let car = &mut rows.cars[owner as usize];
    car.flags |= flags & car_flags::ERRORS;
    (car.source, car.tag, car.vc, car.done) = (source, tag, vc, done);
    rows.large[owner as usize] = Large { wanted: expected, ..Large::of(done) };
}

/// A graph fails: nodes that have not begun leave it.
fn give_up(rows: &mut Rows<'_>, number: u32) {
    let Some(graph) = rows.progress.graphs.get_mut(number) else { return };
    let (owner, nodes) = (graph.request, std::mem::take(&mut graph.nodes));
    let mut left = Vec::with_capacity(nodes.len());
    for &row in &nodes {
        let (car, node) = (rows.cars[row as usize], rows.nodes[row as usize]);
        let idle = car.state == CarState::Waiting && node.unmet != NIL;
        if !(idle || car.state == CarState::Staged || is_only_queued(rows, row)) {
            left.push(row);
            continue;
        }
        if car.state == CarState::Staged {
            rows.progress.graphs.staged.remove(&mut rows.cars, row);
        }
        rows.requests[owner as usize].counter -= 1;
        rows.nodes[row as usize] = Node::NONE;
        match car.kind {
            CarKind::Computation => free_car(&mut rows.progress, &mut rows.cars, row),
            CarKind::Receive => leave_receive(rows, row),
            _ => leave_send(rows, row),
        }
    }
    if let Some(graph) = rows.progress.graphs.get_mut(number) {
        graph.nodes = left.into();
    }
}

/// Whether nobody but a queue knows of a node's message yet.
fn is_only_queued(rows: &Rows<'_>, row: Row) -> bool {
    let car = &rows.cars[row as usize];
    match car.state {
        CarState::Posted | CarState::New => true,
        CarState::Queued => {
            let begun = car_flags::STARTED | car_flags::REFUSED;
            car.kind == CarKind::Send && rows.large[row as usize].way == Way::Undecided && car.flags & begun == 0
        }
        _ => false,
    }
}

/// A request of its own, which nobody asks for, takes a node's CAR over.
fn detach(rows: &mut Rows<'_>, row: Row) {
    let request = &mut rows.requests[row as usize];
    let generation = request.generation;
    *request = Request { generation, counter: 1, state: RequestState::Detached, ..Request::FREE };
    let car = &mut rows.cars[row as usize];
    (car.request, car.span) = (row, Span::EMPTY);
    rows.progress.active += 1;
}

/// A receive stays for what its peer sends, and takes none of it.
fn leave_receive(rows: &mut Rows<'_>, row: Row) {
    detach(rows, row);
    if matches!(rows.cars[row as usize].state, CarState::Waiting | CarState::Staged) {
        start_message(rows, row);
    }
}

/// A send tells its peer that there is nothing to come.
fn leave_send(rows: &mut Rows<'_>, row: Row) {
    detach(rows, row);
    let car = &mut rows.cars[row as usize];
    car.context = context::base(car.context) | context::ABANDONED;
    match car.state {
        CarState::Queued => rows.large[row as usize] = Large::of(0),
        _ => start_message(rows, row),
    }
}

/// A graph whose last node is done stays if it is persistent and somebody may start it again.
fn leave_ended(rows: &mut Rows<'_>, number: u32) {
    let Some(Graph { persistent, request, .. }) = rows.progress.graphs.get(number) else { return };
    if !persistent || rows.requests[*request as usize].state == RequestState::Detached {
        dissolve(rows, number);
    }
}

/// Frees the graph of a request that is freed, if it has one.
pub fn release(rows: &mut Rows<'_>, request: Row) {
    if rows.cars[request as usize].kind == CarKind::Graph {
        let list = &rows.progress.graphs.list;
        let is_of = |graph: &Option<Box<Graph>>| graph.as_ref().is_some_and(|graph| graph.request == request);
        if let Some(number) = list.iter().position(is_of) {
            dissolve(rows, number as u32);
        }
    }
}

/// Frees a graph whose request is done or inactive: its CARs, its memory and its number.
fn dissolve(rows: &mut Rows<'_>, number: u32) {
    let Rows { progress, cars, nodes, .. } = rows;
    let Some(graph) = progress.graphs.list.get_mut(number as usize).and_then(Option::take) else { return };
    for &row in &graph.nodes {
        nodes[row as usize] = Node::NONE;
        free_car(progress, cars, row);
    }
    let Graph { temporaries, .. } = *graph;
    drop(ManuallyDrop::into_inner(temporaries));
}

/// Whether a message is in place of one of a collective operation that its sender cannot go on with.
pub(crate) fn is_abandonment(header: &Header) -> bool {
    let empty = header.kind() == Some(Kind::Eager) && header.length == 0;
    empty && context::plane(header.context()) == context::ABANDONED
}

/// Such a message ends the receive of the one in whose place it is; `false` if that is not posted.
#[cold]
pub(crate) fn abandon(rows: &mut Rows<'_>, arrival: &mut Arrival) -> bool {
    let header = arrival.header;
    let word = context::base(header.context()) | context::COLLECTIVE;
    let meant = Header::new(Kind::Eager, word, header.source(), header.tag(), 0, 0);
    let Rows { progress, cars, vcs, .. } = rows;
    let Some(row) = find_posted(progress, arrival.vc, &meant, cars, vcs) else { return false };
    owe_lines(progress, vcs, arrival.vc, header.length);
    abort(progress, cars, row, car_flags::ABANDONED);
    arrival.state = ArrivalState::Handled;
    progress.pending |= Pending::TRANSFER;
    true
}

/// A receive that is to be posted ends at once if such a message has come for it.
fn take_abandoned(rows: &mut Rows<'_>, row: Row) -> bool {
    let Rows { progress, cars, vcs, .. } = rows;
    if progress.unexpected.count == 0 {
        return false;
    }
    let wanted = key(&cars[row as usize]);
    let wanted = EnvelopeKey { context: context::base(wanted.context) | context::ABANDONED, ..wanted };
    let Some(entry) = progress.unexpected.find(&wanted) else { return false };
    // What has bytes was not sent by an engine like this one: nobody takes it.
    let Unexpected { length, kept, .. } = progress.unexpected.entries[entry as usize];
    if length != 0 || !matches!(kept, Kept::Whole { buffer: NIL }) {
        return false;
    }
    let found = progress.unexpected.remove(entry);
    forget(progress, vcs, &found);
    abort(progress, cars, row, car_flags::ABANDONED);
    true
}

/// Ends a graph before its time: it fails as if a node had. Complete ends its request, at once or with the last of its nodes
/// that are at work.
pub fn cancel(rows: &mut Rows<'_>, number: u32) {
    let Some(graph) = rows.progress.graphs.get_mut(number) else { return };
    let owner = graph.request;
    if rows.requests[owner as usize].counter == 0 || std::mem::replace(&mut graph.failed, true) {
        return;
    }
    rows.cars[owner as usize].flags |= car_flags::CANCELLED;
    give_up(rows, number);
    if rows.requests[owner as usize].counter == 0 {
        leave_ended(rows, number);
        rows.requests[owner as usize].counter = 1;
        abort(&mut rows.progress, &mut rows.cars, owner, car_flags::CANCELLED);
    }
}
