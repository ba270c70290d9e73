//! Posting the graph of a block: takes its rows. `plan.rs` plans its memory.

use super::builder::{NodeSketch, OutSketch, Sketch};
use super::plan::Plan;
use crate::api::collectives::request::own_request;
use crate::api::graphs::{add_edges, add_graph};
use crate::api::persistent::{Persistent, What};
use crate::api::request::{Posted, Rejected};
use crate::run::engine::Engine;
use std::mem::ManuallyDrop;
use tickwire_components::limits::{MESSAGE_MAX, TAG_MAX};
use tickwire_components::{
    Asking, Blocks, Car, CarKind, CarState, Comm, Communicator, Computation, Graph, NIL, NoLayout, Node, NodeWork,
    PostError, Row, Side, Span, Tag, context,
};
use tickwire_systems::procs::communicators::live;
use tickwire_systems::steps::signatures::note;
use tickwire_systems::store::Tables;
use tickwire_systems::tick::complete::start_graph;

impl Engine {
    /// Starts a graph.
    pub(super) fn post_blocks<B: NoLayout>(
        &mut self,
        name: &'static str,
        comm: Comm,
        buffer: B,
        sketch: Sketch,
        wrong: Option<PostError>,
        scoped: bool,
    ) -> Posted<B> {
        let posted = self.lending(|engine| {
            let number = engine.build_blocks(name, comm, sketch, wrong, None)?;
            let request = engine.store.progress().graphs.get(number).map_or(NIL, |graph| graph.request);
            engine.store.with(|rows, wire| start_graph(rows, wire, number));
            Ok(request)
        });
        self.token_of(posted, (name, comm), buffer, scoped)
    }

    /// Makes a persistent graph.
    pub(super) fn init_blocks<B: NoLayout>(
        &mut self,
        name: &'static str,
        comm: Comm,
        buffer: B,
        sketch: Sketch,
        wrong: Option<PostError>,
        scoped: bool,
    ) -> Result<Persistent<B>, Rejected<B>> {
        let places = (0..buffer.pieces()).map(|index| buffer.piece(index)).collect();
        let built = self.lending(|engine| engine.build_blocks(name, comm, sketch, wrong, Some(places)));
        match built {
            Ok(number) => {
                let row = self.store.progress().graphs.get(number).map_or(NIL, |graph| graph.request);
                Ok(Persistent::collective(self.hold(row, buffer, scoped), What::Graph(number), comm))
            }
            Err(error) => Err(Rejected { error: self.raise_post(comm, name, error), buffer }),
        }
    }

    /// Takes the rows of a graph. A persistent graph also keeps the addresses of its buffers.
    fn build_blocks(
        &mut self,
        name: &'static str,
        comm: Comm,
        mut sketch: Sketch,
        wrong: Option<PostError>,
        buffers: Option<Box<[Span]>>,
    ) -> Result<u32, PostError> {
        self.closed.check_post()?;
        live(self.store.all().communicators, comm.0)?;
        wrong.map_or(Ok(()), Err)?;
        check_circle(&sketch)?;
        check_lengths(&sketch)?;
        if sketch.nodes.is_empty() {
            // Every graph ends by Complete, so it has at least one node.
            sketch.nodes.push(NodeSketch::Copy { from: Span::EMPTY, to: Span::EMPTY });
        }
        let peers = self.reach_block_peers(comm, &sketch)?;
        let count = sketch.nodes.len();
        self.need_rows(2 * count + 1)?;
        let mut plan = self.plan(comm, &sketch, &peers);
        if let Some(bytes) = plan.lacking {
            return Err(PostError::NoMemory { bytes });
        }
        let windows = plan.blocks.inlets.iter().filter(|inlet| inlet.is_window()).count();
        self.need_windows(windows)?;
        let mut all = self.store.all();
        let Communicator { context: word, rank: me, priority, .. } = all.communicators[Communicator::row(comm.0)];
        let word = word | context::BLOCK;
        let mut rows = Vec::with_capacity(count + 1);
        // `need_rows` has made sure that there are as many.
        rows.extend(std::iter::from_fn(|| all.progress.free_cars.pop(all.cars)).take(count + 1));
        let Some(request) = rows.pop().filter(|_| rows.len() == count) else { return Err(self.full()) };
        let (needs, successors) = edges(&sketch, &rows, &plan);
        let car = Car { source: me, request, priority, context: word, ..Car::default() };
        set_nodes(&mut all, &mut plan, &sketch.nodes, (&rows, &peers), (&needs, &successors), car);
        own_request(all.cars, all.requests, request, word);
        all.progress.graphs.windows += windows;
        let graph = Graph {
            call: 0,
            starts: 0,
            asking: Asking::default(),
            name,
            comm,
            request,
            nodes: rows.into(),
            successors: successors.concat().into(),
            computations: computations(&sketch),
            reduce: None,
            blocks: Some(Box::new(Blocks { operations: sketch.operations.into(), ..plan.blocks })),
            temporaries: ManuallyDrop::new(plan.temporaries),
            persistent: buffers.is_some(),
            buffers: buffers.unwrap_or_default(),
            key: None,
            used: 0,
            failed: false,
        };
        Ok(add_graph(&mut all, graph))
    }

    /// Makes sure that there are supply rows for this many more windows.
    fn need_windows(&mut self, more: usize) -> Result<(), PostError> {
        while self.store.all().supplies.len() < self.store.progress().graphs.windows + more {
            if !self.store.as_mut().grow_supplies() {
                return Err(if self.is_lost() { self.closed.post_error() } else { self.full() });
            }
        }
        Ok(())
    }

    /// The VC of each node's peer. [`NIL`] for nodes without a peer.
    fn reach_block_peers(&mut self, comm: Comm, sketch: &Sketch) -> Result<Vec<Row>, PostError> {
        let mut peers = Vec::with_capacity(sketch.nodes.len());
        for node in &sketch.nodes {
            let (NodeSketch::Incoming { from: rank, tag, .. } | NodeSketch::Outgoing { to: rank, tag, .. }) = node
            else {
                peers.push(NIL);
                continue;
            };
            let Tag(tag) = *tag;
            if tag > TAG_MAX {
                return Err(PostError::Tag { tag });
            }
            peers.push(self.reach_member(comm, rank.0)?);
        }
        Ok(peers)
    }
}

/// Makes rows the nodes of a graph. `car` has the fields that are the same in all nodes, with this rank as the source.
fn set_nodes(
    all: &mut Tables<'_>,
    plan: &mut Plan,
    nodes: &[NodeSketch],
    (rows, peers): (&[Row], &[Row]),
    (needs, successors): (&[u32], &[Vec<Row>]),
    car: Car,
) {
    let mut first = 0;
    for (index, node) in nodes.iter().enumerate() {
        let row = rows[index];
        let chain = chained(all, plan, row, index);
        all.cars[row as usize] = Car { chain, vc: peers[index], ..node_car(node, car) };
        let (needs, successors) = (needs[index], successors[index].len() as u32);
        let work = plan.work[index];
        all.nodes[row as usize] = Node { graph: NIL, needs, unmet: 0, first, successors, work };
        first += successors;
        note(all.progress, row, None);
    }
}

/// The CAR of a node. `car` has the fields that are the same in all nodes, with this rank as the source.
fn node_car(node: &NodeSketch, car: Car) -> Car {
    let (kind, source, tag) = match *node {
        NodeSketch::Incoming { from, tag, .. } => (CarKind::Receive, from.0, tag.0),
        NodeSketch::Outgoing { tag, .. } => (CarKind::Send, car.source, tag.0),
        _ => (CarKind::Computation, car.source, 0),
    };
    Car { kind, source, tag, state: CarState::Resting, ..car }
}

/// Notes a message's row. Returns the row that is chained under it, which says where the message's bytes are. [`NIL`] for computations.
fn chained(all: &mut Tables<'_>, plan: &mut Plan, row: Row, index: usize) -> Row {
    let (kind, span) = match plan.work[index] {
        NodeWork::Incoming(index) => {
            plan.blocks.incoming[index as usize].passage.row = row;
            (CarKind::Passage, Span::EMPTY)
        }
        NodeWork::Outgoing(index) => {
            let outgoing = &mut plan.blocks.outgoing[index as usize];
            outgoing.passage.row = row;
            match outgoing.is_whole {
                true => (CarKind::Data, outgoing.packed),
                false => (CarKind::Passage, Span::EMPTY),
            }
        }
        NodeWork::Message | NodeWork::Computation(_) => return NIL,
    };
    // `need_rows` has made sure that there are as many.
    let chain = all.progress.free_cars.pop(all.cars).unwrap_or(NIL);
    if let Some(car) = all.cars.get_mut(chain as usize) {
        *car = Car { kind, span, state: CarState::Chained, ..Car::default() };
    }
    chain
}

/// How many things each node waits for, and the rows of the nodes that wait for it. An outgoing message also waits for what it passes on: a
/// message that leaves as a whole for all those bytes, another one for the first envelope.
fn edges(sketch: &Sketch, rows: &[Row], plan: &Plan) -> (Vec<u32>, Vec<Vec<Row>>) {
    let passes = |node: usize| match plan.work[node] {
        NodeWork::Outgoing(index) => plan.blocks.outgoing[index as usize].passed > 0,
        _ => false,
    };
    let mut needs: Vec<u32> = (0..rows.len()).map(|node| passes(node).into()).collect();
    let successors = add_edges(&sketch.edges, rows, &mut needs);
    (needs, successors)
}

/// The computations of the nodes, in the nodes' order.
fn computations(sketch: &Sketch) -> Box<[Computation]> {
    let computation = |node: &NodeSketch| match *node {
        NodeSketch::Reduce { into, other, operation } => {
            Some(Computation::Apply { into, other, side: Side::Left, operation })
        }
        NodeSketch::Copy { from, to } => Some(Computation::Copy { from, to }),
        _ => None,
    };
    sketch.nodes.iter().filter_map(computation).collect()
}

/// Checks that no node waits for itself, directly or through other nodes.
fn check_circle(sketch: &Sketch) -> Result<(), PostError> {
    let mut next: Vec<Vec<u32>> = vec![Vec::new(); sketch.nodes.len()];
    let mut before = vec![0u32; sketch.nodes.len()];
    let progress = (0u32..).zip(&sketch.nodes).flat_map(|(index, node)| match node {
        NodeSketch::Incoming { parts, .. } => {
            parts.iter().flat_map(|part| part.to.iter().map(|&to| (index, to))).collect::<Vec<_>>()
        }
        _ => Vec::new(),
    });
    for (first, then) in progress.chain(sketch.edges.iter().copied()) {
        next[first as usize].push(then);
        before[then as usize] += 1;
    }
    let mut free: Vec<u32> = (0u32..).zip(&before).filter(|(_, count)| **count == 0).map(|(node, _)| node).collect();
    let mut seen = 0;
    while let Some(node) = free.pop() {
        seen += 1;
        for &then in &next[node as usize] {
            before[then as usize] -= 1;
            if before[then as usize] == 0 {
                free.push(then);
            }
        }
    }
    if seen == sketch.nodes.len() { Ok(()) } else { Err(PostError::Circle) }
}

/// Checks that no message is too long.
fn check_lengths(sketch: &Sketch) -> Result<(), PostError> {
    let passed = |message: u32, part: u32| match &sketch.nodes[message as usize] {
        NodeSketch::Incoming { parts, .. } => parts[part as usize].bytes,
        _ => 0,
    };
    let sent = |part: &OutSketch| match *part {
        OutSketch::Given(span) => span.len() as u64,
        OutSketch::Passed { message, part } => passed(message, part),
    };
    for node in &sketch.nodes {
        let length = match node {
            NodeSketch::Incoming { parts, .. } => parts.iter().fold(0, |all: u64, part| all.saturating_add(part.bytes)),
            NodeSketch::Outgoing { parts, .. } => parts.iter().fold(0, |all: u64, part| all.saturating_add(sent(part))),
            NodeSketch::Reduce { .. } | NodeSketch::Copy { .. } => 0,
        };
        if length > MESSAGE_MAX {
            return Err(PostError::Length { length, most: MESSAGE_MAX });
        }
    }
    Ok(())
}
