//! Where the bytes of a graph's messages go, and who supplies the memory for bytes that messages pass on.

use super::builder::{InSketch, NodeSketch, OutSketch, Sketch};
use crate::run::engine::Engine;
use tickwire_components::limits::{COMBINED_BYTES, GRANT_BYTES, PASSED_WHOLE_MAX};
use tickwire_components::{
    Abilities, Blocks, Combine, Comm, Communicator, IncomingPassage, Inlet, InletMemory, NIL, NodeWork, Operand,
    OutgoingPassage, Part, PartKind, Passage, Question, Row, Side, Span, Supplier, Target, Temporary,
};
use tickwire_systems::procs::endpoint::Endpoint;
use tickwire_systems::steps::supply::decide::decide;

impl Engine {
    /// Plans where the bytes of all messages go, and through which memory.
    pub(super) fn plan(&mut self, comm: Comm, sketch: &Sketch, peers: &[Row]) -> Plan {
        let all = self.store.all();
        let me = all.communicators[Communicator::row(comm.0)].rank;
        let method = |node: usize| -> &Endpoint { &all.endpoints[all.vcs[peers[node] as usize].endpoint as usize] };
        let mut plan = Plan { work: vec![NodeWork::Message; sketch.nodes.len()], ..Plan::default() };
        let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
        // Outgoing messages first: an incoming part may go straight to the place where an outgoing message is put together.
        for (node, sketched) in sketch.nodes.iter().enumerate() {
            if let NodeSketch::Outgoing { parts, .. } = sketched {
                plan.work[node] = NodeWork::Outgoing(outgoing.len() as u32);
                outgoing.push(plan.outgoing(sketch, parts, method(node)));
            }
        }
        let (mut inlets, mut computed) = (Vec::new(), 0);
        for (node, sketched) in sketch.nodes.iter().enumerate() {
            match sketched {
                NodeSketch::Incoming { parts, from, .. } => {
                    let index = incoming.len() as u32;
                    let side = if from.0 < me { Side::Left } else { Side::Right };
                    let first = inlets.len() as u32;
                    for (number, part) in (0..).zip(parts) {
                        let mut inlet = inlet(part, index, side);
                        inlet.outgoing = part.to.iter().map(|&to| plan.outgoing_of(to)).collect();
                        let mut whole = None;
                        for (&to, &index) in part.to.iter().zip(&inlet.outgoing) {
                            let message = &mut outgoing[index as usize];
                            let place = adopt(message, sketch, to, (node as u32, number), first + number);
                            whole = message.is_whole.then_some(place);
                        }
                        match (&part.to[..], whole) {
                            ([], _) => {}
                            ([_], Some(place)) => inlet.memory = InletMemory::Place(place),
                            (&[to], None) => {
                                let waits = || starts_after(sketch, node as u32, to);
                                plan.connect(&mut inlet, (part, parts), waits, method(node), method(to as usize));
                            }
                            _ => plan.fan_out(&mut inlet, part),
                        }
                        inlets.push(inlet);
                    }
                    plan.work[node] = NodeWork::Incoming(index);
                    incoming.push(plan.incoming(parts, first));
                }
                NodeSketch::Outgoing { .. } => {}
                NodeSketch::Reduce { .. } | NodeSketch::Copy { .. } => {
                    plan.work[node] = NodeWork::Computation(computed);
                    computed += 1;
                }
            }
        }
        (plan.blocks.incoming, plan.blocks.outgoing) = (incoming.into(), outgoing.into());
        plan.blocks.inlets = inlets.into();
        plan
    }
}

/// The plan of a graph's memory, made before its rows are taken.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) blocks: Blocks,
    pub(super) temporaries: Vec<Temporary>,
    /// What each node does.
    pub(super) work: Vec<NodeWork>,
    /// Bytes for which there was no memory, if there was too little.
    pub(super) lacking: Option<u64>,
}

impl Plan {
    /// The index of a node's outgoing message.
    fn outgoing_of(&self, node: u32) -> u32 {
        match self.work[node as usize] {
            NodeWork::Outgoing(index) => index,
            _ => NIL,
        }
    }

    /// Allocates this many bytes, which live as long as the graph. If there is no memory for them, the plan says so, and is not used.
    fn temporary(&mut self, bytes: usize) -> Span {
        let words = bytes.div_ceil(size_of::<u128>());
        // What is short is always there. What is long is asked for first: `vec!` would end the process.
        if bytes > PASSED_WHOLE_MAX {
            let mut asked = Vec::<u128>::new();
            let is_there = asked.try_reserve_exact(words).is_ok();
            // The compiler may leave out an allocation that nobody uses.
            std::hint::black_box(&asked);
            if !is_there {
                self.lacking = Some(bytes as u64);
                return Span::EMPTY;
            }
        }
        let mut memory: Temporary = vec![0; words].into();
        // SAFETY: the plan keeps the memory, then the graph, for as long as its nodes.
        #[expect(unsafe_code, reason = "memory that nodes use by its address")]
        let span = unsafe { Span::new(memory.as_mut_ptr().cast(), bytes) };
        self.temporaries.push(memory);
        span
    }

    /// Plans an outgoing message.
    fn outgoing(&mut self, sketch: &Sketch, parts: &[OutSketch], method: &Endpoint) -> OutgoingPassage {
        let mut outgoing = OutgoingPassage::new(outgoing_parts(sketch, parts));
        let Passage { parts, bytes, .. } = &outgoing.passage;
        let passed = parts.iter().filter(|part| matches!(part.what, PartKind::Passed(_)));
        outgoing.passed = passed.map(|part| part.bytes).sum();
        let without_asking = method.eager_max.min(method.part_bytes);
        outgoing.is_whole = *bytes <= without_asking.min(PASSED_WHOLE_MAX as u64);
        if outgoing.is_whole {
            outgoing.packed = self.temporary(outgoing.passage.bytes as usize);
        }
        outgoing
    }

    /// Plans an incoming message, whose inlets begin at `first`.
    fn incoming(&mut self, parts: &[InSketch], first: u32) -> IncomingPassage {
        let mut incoming = IncomingPassage::new(incoming_parts(parts, first));
        let sizes = parts.iter().filter_map(|part| part.operation.as_ref()).map(|(_, size)| *size);
        if let Some(largest) = sizes.max() {
            incoming.scratch = self.temporary(COMBINED_BYTES.max(2 * largest));
        }
        incoming
    }

    /// Decides through which memory a part's bytes go from one transport to another. `waits` says that the outgoing message starts only
    /// when the incoming one is done: then there must be room for the whole part, since a window is emptied by the outgoing message.
    fn connect(
        &mut self,
        inlet: &mut Inlet,
        (part, message): (&InSketch, &[InSketch]),
        waits: impl Fn() -> bool,
        from: &Endpoint,
        to: &Endpoint,
    ) {
        let (receive, send) = (from.abilities, to.abilities);
        inlet.supplier = supplier(part, receive, send, to.eager_max);
        // If several messages share a window, each is granted at least one piece.
        let minimum = receive.minimum.max(send.minimum).max(to.piece_bytes).min(GRANT_BYTES as u64) as u32;
        let whole = part.operation.as_ref().map_or(Some(minimum), |(_, size)| whole_elements(minimum, *size));
        inlet.minimum = whole.unwrap_or(minimum);
        let bytes: u64 = message.iter().map(|part| part.bytes).sum();
        inlet.memory = match inlet.supplier {
            Supplier::Segment => InletMemory::Place(part.segment),
            // No grant has room for an element.
            _ if whole.is_none() => InletMemory::Place(self.temporary(part.bytes as usize)),
            _ if bytes <= PASSED_WHOLE_MAX as u64 || waits() => InletMemory::Place(self.temporary(part.bytes as usize)),
            _ => InletMemory::Window(NIL),
        };
        if inlet.supplier == Supplier::Segment && part.combine == Combine::Never {
            // The segment is the memory from which the part leaves.
            inlet.segment = Span::EMPTY;
        }
    }

    /// Gives a place to a part that goes on to several ranks: the segment where it stays, or memory of the graph.
    fn fan_out(&mut self, inlet: &mut Inlet, part: &InSketch) {
        let stays = part.combine != Combine::Send && !part.segment.is_empty();
        inlet.supplier = if stays { Supplier::Segment } else { Supplier::Temporary };
        let place = if stays { part.segment } else { self.temporary(part.bytes as usize) };
        inlet.memory = InletMemory::Place(place);
        if stays && part.combine == Combine::Never {
            // The segment is the memory from which the part leaves.
            inlet.segment = Span::EMPTY;
        }
    }
}

/// Whether a node starts only after another one is done: a path of edges leads from the one to the other, and at least one of these edges
/// makes its second node wait for the end of its first. Over the edges of bytes that are passed on, both nodes move at the same time. But
/// an incoming message may fill a window, so it does not end before the outgoing one that empties the window starts.
fn starts_after(sketch: &Sketch, first: u32, then: u32) -> bool {
    if sketch.edges.is_empty() {
        return false;
    }
    // For each node: whether it was reached, and whether by a path with a waiting edge.
    let mut reached = vec![[false; 2]; sketch.nodes.len()];
    let mut open = vec![(first, false)];
    while let Some((node, waits)) = open.pop() {
        if std::mem::replace(&mut reached[node as usize][usize::from(waits)], true) {
            continue;
        }
        if let NodeSketch::Incoming { parts, .. } = &sketch.nodes[node as usize] {
            open.extend(parts.iter().flat_map(|part| &part.to).map(|&to| (to, waits)));
        }
        if let (NodeSketch::Outgoing { parts, .. }, true) = (&sketch.nodes[node as usize], waits) {
            let passed = parts.iter().filter_map(|part| match part {
                OutSketch::Passed { message, .. } => Some((*message, true)),
                OutSketch::Given(_) => None,
            });
            open.extend(passed);
        }
        open.extend(sketch.edges.iter().filter(|(before, _)| *before == node).map(|&(_, after)| (after, true)));
    }
    reached[then as usize][1]
}

/// The length of a grant of about this many bytes that holds whole elements. Bytes are combined element by element. If the end of a grant
/// cut an element, its first part would stay there, and the grant would not be free for the next one. `None` if an element is longer than a
/// grant may be.
fn whole_elements(bytes: u32, element: usize) -> Option<u32> {
    let element = u32::try_from(element.max(1)).ok()?;
    let most = GRANT_BYTES as u32 / element * element;
    let more = bytes.checked_next_multiple_of(element).filter(|&more| more <= most).unwrap_or(most);
    (more > 0).then_some(more)
}

/// The parts of an outgoing message. In parts that are passed on, [`NIL`] stands for the inlet until it is known.
fn outgoing_parts(sketch: &Sketch, parts: &[OutSketch]) -> Box<[Part]> {
    let mut start = 0;
    let part = |part: &OutSketch| {
        let (bytes, what) = match *part {
            OutSketch::Given(span) => (span.len() as u64, PartKind::Given(span)),
            OutSketch::Passed { message, part } => match &sketch.nodes[message as usize] {
                NodeSketch::Incoming { parts, .. } => (parts[part as usize].bytes, PartKind::Passed(NIL)),
                _ => (0, PartKind::Passed(NIL)),
            },
        };
        start += bytes;
        Part { start: start - bytes, bytes, what }
    };
    parts.iter().map(part).collect()
}

/// The parts of an incoming message, whose inlets begin at `first`.
fn incoming_parts(parts: &[InSketch], first: u32) -> Box<[Part]> {
    let mut start = 0;
    let part = |(inlet, part): (u32, &InSketch)| {
        start += part.bytes;
        Part { start: start - part.bytes, bytes: part.bytes, what: PartKind::Inlet(inlet) }
    };
    (first..).zip(parts).map(part).collect()
}

/// An inlet of a message, which is not passed on yet. The received operand is on `side`.
fn inlet(part: &InSketch, message: u32, side: Side) -> Inlet {
    let operation = part.operation.clone().map(|(reduce, size)| Operand { reduce, size, side });
    Inlet {
        from: message,
        minimum: 1,
        segment: part.segment,
        combine: part.combine,
        operation,
        memory: InletMemory::None,
        supplier: Supplier::Segment,
        outgoing: Box::default(),
        come: 0,
    }
}

/// Who supplies the memory between an incoming part and the message that passes it on.
fn supplier(part: &InSketch, receive: Abilities, send: Abilities, frame: u64) -> Supplier {
    let target = if part.segment.is_empty() { Target::Nowhere } else { Target::Runs };
    let (receive, send) = (Some(receive), Some(send));
    decide(&Question { receive, send, target, combine: part.combine, bytes: part.bytes, frame, readable: false })
        .supplier
}

/// Notes in an outgoing message which inlet has the part that it passes on. Returns the part's place where the message is packed. It
/// is empty unless the message leaves as a whole.
fn adopt(outgoing: &mut OutgoingPassage, sketch: &Sketch, to: u32, part: (u32, u32), inlet: u32) -> Span {
    let NodeSketch::Outgoing { parts, .. } = &sketch.nodes[to as usize] else { return Span::EMPTY };
    let is_it = |sketched: &OutSketch| matches!(*sketched, OutSketch::Passed { message, part: number } if (message, number) == part);
    let mut place = Span::EMPTY;
    for (part, _) in outgoing.passage.parts.iter_mut().zip(parts).filter(|(_, sketched)| is_it(sketched)) {
        part.what = PartKind::Passed(inlet);
        place = outgoing.packed.part(part.start as usize, part.bytes as usize);
    }
    place
}
