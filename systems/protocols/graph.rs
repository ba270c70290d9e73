//! Graphs of CARs (reference: communication agent notes, "collective case"): messages and computations that depend on each other.
//!
//! An edge leads from a node to one that waits for it. Complete counts a node that is done, for the graph's request and for its
//! successors. A node can start when all nodes that it waits for are done. It then sends its message, posts its receive, or computes.
//! The call that starts a graph starts its first nodes, and Complete starts the others. Post starts those that exceed the number for one
//! run, and those that waited for bytes. A message that cannot leave at once goes through Post as every other message does.
//!
//! Messages in parts, which go on as they come, have progress edges besides: see `graph/blocks.rs`.

mod asking;
pub(crate) mod blocks;
pub mod failure;
pub mod inquiry;
mod intake;
pub mod kept;
pub(crate) mod messages;
pub(crate) mod passing;
pub mod remains;

use crate::rows::{Rows, Wire};
use crate::steps::finish::finish_car;
use crate::steps::posting::send_whole;
use crate::steps::registering;
use crate::steps::send::send_now;
use failure::give_up;
use kept::leave_ended;
use messages::{passage_of, start_message};
use tickwire_components::limits::STARTS_A_PASS;
use tickwire_components::wire::Header;
use tickwire_components::{
    Car, CarKind, CarState, Communicator, Computation, Large, NIL, Node, NodeWork, Pending, Pieces, Reduction,
    RequestState, Row, Side, Span, VcState, car_flags,
};

/// Starts a graph: activates its request, and starts the nodes that wait for no other. A graph that was started before needs only its
/// counts written.
pub fn start(rows: &mut Rows<'_>, wire: &mut Wire<'_>, number: u32) {
    let Rows { progress, cars, nodes, requests, communicators, .. } = rows;
    let progress = &mut **progress;
    let stamp = progress.stamp();
    let Some(graph) = progress.graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut) else { return };
    graph.starts = graph.starts.wrapping_add(1);
    let graph = &*graph;
    let request = &mut requests[graph.request as usize];
    (request.state, request.counter) = (RequestState::Active, graph.nodes.len() as u32);
    let owner = &mut cars[graph.request as usize];
    (owner.state, owner.flags) = (CarState::Waiting, 0);
    progress.active += 1;
    progress.work.posted += 1;
    progress.stamps.set(graph.request, stamp);
    if graph.persistent
        && let Some(of) = communicators.get(Communicator::row(graph.comm.0))
    {
        // It may have changed since the last start.
        graph.nodes.iter().for_each(|&row| cars[row as usize].priority = of.priority);
    }
    for &row in &graph.nodes {
        let node = &mut nodes[row as usize];
        node.unmet = node.needs;
        cars[row as usize].state = CarState::Waiting;
        if node.needs == 0 {
            cars[row as usize].state = CarState::Startable;
            progress.graphs.startable.push(cars, row);
        }
    }
    if graph.blocks.is_some() {
        blocks::start(rows, wire, number);
    }
    start_nodes(rows, wire);
}

/// Starts nodes that can start, up to a number for each run. Post goes on with the rest.
pub(crate) fn start_nodes(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    for _ in 0..STARTS_A_PASS {
        let Rows { progress, cars, .. } = rows;
        let Some(row) = progress.graphs.startable.pop(cars) else { return };
        let kind = cars[row as usize].kind;
        match kind {
            CarKind::Computation => compute(rows, row),
            CarKind::Send if cars[row as usize].chain == NIL && send_at_once(rows, wire, row) => {}
            _ => start_message(rows, row),
        }
    }
    if !rows.progress.graphs.startable.is_empty() {
        rows.progress.pending |= Pending::POST;
    }
}

/// Sends the message of a node if nothing is before it.
fn send_at_once(rows: &mut Rows<'_>, wire: &mut Wire<'_>, row: Row) -> bool {
    let Rows { progress, cars, large, vcs, .. } = rows;
    let car = &mut cars[row as usize];
    let vc_row = car.vc;
    let vc = &mut vcs[vc_row as usize];
    if vc.state != VcState::Connected {
        return false;
    }
    let stamp = progress.stamp();
    progress.stamps.set(row, stamp);
    let (endpoint, length) = (&mut wire.endpoints[vc.endpoint as usize], car.span.len() as u64);
    (car.flags, car.done) = (0, length);
    if length < endpoint.inline_end_mapped {
        let header = Header::eager(car.context, car.source, car.tag, length);
        let bytes = NodeBytes(car.span);
        if send_whole(progress, vc, endpoint, header, &bytes) {
            end_now(rows, row);
            return true;
        }
    }
    (car.done, car.state) = (0, CarState::Queued);
    large[row as usize] = Large::of(length);
    // SAFETY: whoever has built the graph keeps what its nodes send until its request is done.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe {
        send_now(rows, endpoint, vc_row, row)
    }
}

/// The bytes that a node sends.
struct NodeBytes(Span);

// SAFETY: whoever has built the graph keeps what its nodes send until its request is done.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for NodeBytes {
    #[inline(always)]
    fn piece(&self, _: usize) -> Span {
        self.0
    }
}

/// Ends a node that is done as soon as it has started. The last node of a graph is left to Complete, which ends the request.
fn end_now(rows: &mut Rows<'_>, row: Row) {
    let car = &rows.cars[row as usize];
    if rows.requests[car.request as usize].counter > 1 {
        ended(rows, row);
    } else {
        let length = car.done;
        finish_car(&mut rows.progress, &mut rows.cars, row, length, false);
    }
}

/// Does what a node computes.
fn compute(rows: &mut Rows<'_>, row: Row) {
    let Node { graph: number, work: NodeWork::Computation(computation), .. } = rows.nodes[row as usize] else { return };
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
        Computation::Reduce { into, other, side } => reduce(graph.reduce.as_ref(), into, other, side),
        Computation::Apply { into, other, side, operation } => {
            let operations = graph.blocks.as_deref().map_or(&[][..], |blocks| &blocks.operations);
            reduce(operations.get(operation as usize), into, other, side)
        }
    };
    let car = &mut rows.cars[row as usize];
    (car.flags, car.done) = (0, length as u64);
    end_now(rows, row);
}

/// Combines two runs. Returns the length of the result, bytes.
#[inline]
fn reduce(reduction: Option<&Reduction>, into: Span, other: Span, side: Side) -> usize {
    if let Some(reduction) = reduction {
        // A panic of the application's function leaves the node unfinished, and poisons the engine.
        // SAFETY: whoever has built the graph gives it runs of elements that do not overlap, and keeps them.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        unsafe {
            reduction.combine_into(into, other, side);
        }
    }
    into.len()
}

/// Counts a node that is done, and lists the nodes that waited only for this one as startable. Returns the graph's request if this was its
/// last node.
pub(crate) fn ended(rows: &mut Rows<'_>, row: Row) -> Option<Row> {
    if rows.progress.registered != 0 {
        registering::release(&mut rows.progress, row);
    }
    let Rows { progress, cars, nodes, requests, .. } = rows;
    let mut expected = cars[row as usize].span.len() as u64;
    if let Some(passage) = passage_of(progress, nodes, row) {
        expected = passage.bytes;
    }
    let (car, node) = (&mut cars[row as usize], &nodes[row as usize]);
    if car.kind == CarKind::Receive && car.flags & car_flags::ERRORS == 0 && car.done < expected {
        car.flags |= car_flags::SHORT;
    }
    car.state = CarState::Resting;
    let (owner, number, failed) = (car.request, node.graph, *car);
    requests[owner as usize].counter -= 1;
    let Node { first, successors, .. } = *node;
    let graphs = &mut *progress.graphs;
    let graph = graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut)?;
    if failed.flags & car_flags::ERRORS == 0 {
        // The nodes that wait for this one. The caller starts those that can start now.
        let waiting = if graph.failed { &[] } else { &graph.successors[first as usize..(first + successors) as usize] };
        for &next in waiting {
            let node = &mut nodes[next as usize];
            node.unmet -= 1;
            if node.unmet == 0 {
                cars[next as usize].state = CarState::Startable;
                graphs.startable.push(cars, next);
            }
        }
    } else if !std::mem::replace(&mut graph.failed, true) {
        note_failure(rows, owner, &failed, expected);
        give_up(rows, number);
    }
    if matches!(rows.nodes[row as usize].work, NodeWork::Outgoing(_)) {
        blocks::release_windows(rows, number, Some(row));
    }
    if rows.requests[owner as usize].counter != 0 {
        return None;
    }
    rows.cars[owner as usize].state = CarState::Done;
    leave_ended(rows, number);
    Some(owner)
}

/// Copies how the first failed node of a graph has ended to the graph's request.
fn note_failure(rows: &mut Rows<'_>, owner: Row, failed: &Car, expected: u64) {
    let Car { flags, source, tag, vc, done, .. } = *failed;
    let car = &mut rows.cars[owner as usize];
    car.flags |= flags & car_flags::ERRORS;
    (car.source, car.tag, car.vc, car.done) = (source, tag, vc, done);
    rows.large[owner as usize] = Large { room: expected, ..Large::of(done) };
}
