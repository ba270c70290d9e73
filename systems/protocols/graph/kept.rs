//! Graphs whose last node is done: freed, or kept for the next start of a persistent request or for the next call that is the same.
//!
//! Two calls that are the same have the same graph, node by node. Only the request and the tag of the messages differ. So the graphs of
//! the last calls are kept, a few of them and with little memory. A call that is the same as one of these builds nothing.

use super::blocks::release_windows;
use crate::rows::Rows;
use crate::steps::finish::free_car;
use std::mem::ManuallyDrop;
use tickwire_components::limits::{GRAPH_BYTES_KEPT, GRAPHS_KEPT};
use tickwire_components::{CarKind, Communicator, Graph, NIL, Node, RequestState, Row, Span};

/// A graph whose last node is done stays if somebody may start it again.
pub(super) fn leave_ended(rows: &mut Rows<'_>, number: u32) {
    let Rows { progress, cars, communicators, requests, .. } = rows;
    let graphs = &mut *progress.graphs;
    let Some(graph) = graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut) else { return };
    let comm = graph.comm.0;
    let stays = match graph.persistent {
        true => requests[graph.request as usize].state != RequestState::Detached,
        false => graph.key.is_some() && !graph.failed && communicators[Communicator::row(comm)].handle == comm,
    };
    if !stays {
        if graph.persistent {
            rows.boards.forget_persistent(graph.request);
        }
        return dissolve(rows, number);
    }
    if graph.persistent {
        return;
    }
    // The request's row is another one's soon.
    graph.nodes.iter().for_each(|&row| cars[row as usize].request = NIL);
    graphs.calls += 1;
    (graph.request, graph.used) = (NIL, graphs.calls);
    graphs.kept += 1;
    graphs.kept_bytes += graph.bytes();
    if graphs.kept > GRAPHS_KEPT || graphs.kept_bytes > GRAPH_BYTES_KEPT {
        forget_oldest(rows);
    }
}

/// Frees the kept graphs whose last call is longest ago, until the others are few enough.
#[cold]
fn forget_oldest(rows: &mut Rows<'_>) {
    while rows.progress.graphs.kept > GRAPHS_KEPT || rows.progress.graphs.kept_bytes > GRAPH_BYTES_KEPT {
        let waits = |graph: &&Graph| graph.request == NIL;
        let list = (0u32..).zip(&rows.progress.graphs.list);
        let kept = list.filter_map(|(number, graph)| Some((number, graph.as_deref().filter(waits)?)));
        match kept.min_by_key(|(_, graph)| graph.used) {
            Some((oldest, _)) => dissolve(rows, oldest),
            None => return,
        }
    }
}

/// The next call that uses a kept graph.
#[derive(Debug)]
pub struct NextCall {
    /// The row of its request.
    pub request: Row,
    /// See [`Graph::call`].
    pub call: u32,
    /// The tag of its first step.
    pub first_tag: u32,
    /// How many steps a call may have. A power of two.
    pub steps: u32,
    /// The priority of its messages.
    pub priority: u8,
    /// Its buffers. They have the addresses and lengths of those of the call before.
    pub buffers: [Span; 2],
}

/// Gives a kept graph the request and the buffers of a new call, and its messages the tags of that call.
pub fn renew(rows: &mut Rows<'_>, number: u32, next: &NextCall) {
    let &NextCall { request, call, first_tag, steps, priority, buffers } = next;
    let Rows { progress, cars, .. } = rows;
    let graphs = &mut *progress.graphs;
    let Some(graph) = graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut) else { return };
    graphs.kept -= 1;
    graphs.kept_bytes -= graph.bytes();
    (graph.request, graph.call) = (request, call);
    graph.computations.iter_mut().for_each(|computation| computation.derive_from(&buffers));
    for &row in &graph.nodes {
        let car = &mut cars[row as usize];
        (car.request, car.priority) = (request, priority);
        car.span = car.span.derived_from(&buffers);
        if car.kind != CarKind::Computation {
            car.tag = first_tag | car.tag & (steps - 1);
        }
    }
}

/// Frees the kept graphs that `whose` picks. Returns whether there was one.
pub fn forget(rows: &mut Rows<'_>, whose: impl Fn(&Graph) -> bool) -> bool {
    let mut found = false;
    for number in 0..rows.progress.graphs.list.len() as u32 {
        if rows.progress.graphs.get(number).is_some_and(|graph| graph.request == NIL && whose(graph)) {
            dissolve(rows, number);
            found = true;
        }
    }
    found
}

/// Frees all graphs that are not in progress, at the engine's end: nobody reads their memory.
pub fn free_idle(rows: &mut Rows<'_>) {
    for number in 0..rows.progress.graphs.list.len() as u32 {
        let Some(Graph { request, .. }) = rows.progress.graphs.get(number) else { continue };
        if rows.requests.get(*request as usize).is_none_or(|request| request.state.is_over()) {
            dissolve(rows, number);
        }
    }
}

/// Frees the graph of a persistent request that is freed, if it has one.
pub fn release(rows: &mut Rows<'_>, request: Row) {
    if rows.cars[request as usize].kind == CarKind::Graph {
        match rows.boards.forget_persistent(request) {
            None => {}
            Some(NIL) => return,
            Some(number) => return dissolve(rows, number),
        }
        let list = &rows.progress.graphs.list;
        let is_of = |graph: &Option<Box<Graph>>| {
            graph.as_ref().is_some_and(|graph| graph.request == request && graph.persistent)
        };
        if let Some(number) = list.iter().position(is_of) {
            dissolve(rows, number as u32);
        }
    }
}

/// Frees a graph: its CARs, its memory and its number.
pub fn dissolve(rows: &mut Rows<'_>, number: u32) {
    release_windows(rows, number, None);
    let Rows { progress, cars, nodes, .. } = rows;
    let graphs = &mut *progress.graphs;
    let Some(graph) = graphs.list.get_mut(number as usize).and_then(Option::take) else { return };
    let blocks = graph.blocks.as_deref();
    graphs.windows -= blocks.map_or(0, |blocks| blocks.inlets.iter().filter(|inlet| inlet.is_window()).count());
    if graph.request == NIL {
        graphs.kept -= 1;
        graphs.kept_bytes -= graph.bytes();
    }
    for &row in &graph.nodes {
        nodes[row as usize] = Node::NONE;
        let data = std::mem::replace(&mut cars[row as usize].chain, NIL);
        if data != NIL {
            free_car(progress, cars, data);
        }
        free_car(progress, cars, row);
    }
    let Graph { temporaries, .. } = *graph;
    drop(ManuallyDrop::into_inner(temporaries));
}
