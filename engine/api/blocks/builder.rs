//! Graphs that an application builds: messages with parts, computations, and edges between them.

use super::handles::{Elements, GraphNode, Incoming, Outgoing, Outgoings, Place};
use crate::api::persistent::Persistent;
use crate::api::request::{Posted, Rejected};
use crate::api::scope::Scope;
use crate::run::engine::Engine;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use tickwire_components::{
    Combine, Comm, Element, LeasedBytes, NoLayout, Operation, PostError, Rank, Reduction, Sequence, Span, Tag, reduce,
};

/// Tells builders apart.
static BUILDERS: AtomicU64 = AtomicU64::new(0);

impl Engine {
    /// Builds a graph: messages that consist of parts, computations, and edges that say which of them wait for others. [Scatter
    /// blocks](Engine::scatter_block) and [gather blocks](Engine::gather_block) are graphs, too.
    ///
    /// An incoming message is dealt out to its parts, in the order in which they were added. An outgoing message is the concatenation of
    /// its parts. Bytes that are passed on from one to the other leave as they arrive (a progress edge). [`GraphBuilder::after`] adds the
    /// other kind of edge: one node starts when another one is done.
    ///
    /// The bytes of a message arrive in order. If one of its parts waits for a peer that does not take it, the parts behind it wait too.
    /// Messages of two graphs to one rank may arrive in either order if they have the same tag: give them different tags.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, Tag, op};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// # let (me, world) = (engine.rank(), engine.comm_world());
    /// let (graph, own) = engine.graph(world).with_place(vec![1u64, 2, 3]);
    /// let (mut graph, sums) = graph.with_place(vec![10u64; 3]);
    /// let (out, back) = (graph.send(me, Tag(1)), graph.receive(me, Tag(1)));
    /// graph.give(out, own.part(1..3).elements());
    /// graph.take_op(back, sums.part(0..2), op::Sum);
    /// let double = graph.reduce(own.part(0..1), sums.part(2..3).elements(), op::Product);
    /// graph.after(back, double);
    /// let request = graph.start()?;
    /// let (((_, own), sums), _) = engine.wait_take(request)?;
    /// assert_eq!((own, sums), (vec![10, 2, 3], vec![12, 13, 10]));
    /// # Ok::<(), tickwire::Error>(())
    /// ```
    pub fn graph(&mut self, comm: Comm) -> GraphBuilder<'_, 'static, ()> {
        GraphBuilder::new(self, "graph", comm, false)
    }
}

impl<'env, L> Scope<'_, 'env, L> {
    /// As [`Engine::graph`], with borrowed buffers.
    pub fn graph(&mut self, comm: Comm) -> GraphBuilder<'_, 'env, ()> {
        GraphBuilder::new(self.engine, "graph", comm, self.lends)
    }
}

/// A graph that is being built. See [`Engine::graph`].
#[must_use = "a graph does nothing before it is started"]
pub struct GraphBuilder<'e, 'b, B> {
    engine: &'e mut Engine,
    name: &'static str,
    comm: Comm,
    scoped: bool,
    buffers: B,
    sketch: Sketch,
    number: u64,
    /// The first error found while building.
    wrong: Option<PostError>,
    _lent: PhantomData<fn(&'b ())>,
}

/// A graph as it was built so far.
#[derive(Default)]
pub(super) struct Sketch {
    pub(super) nodes: Vec<NodeSketch>,
    /// Pairs of nodes: the second one starts when the first one is done.
    pub(super) edges: Vec<(u32, u32)>,
    pub(super) operations: Vec<Reduction>,
}

pub(super) enum NodeSketch {
    Incoming {
        from: Rank,
        tag: Tag,
        parts: Vec<InSketch>,
    },
    Outgoing {
        to: Rank,
        tag: Tag,
        parts: Vec<OutSketch>,
    },
    /// Reduces two runs of elements into the first one by an operation. The first run has the left operands.
    Reduce {
        into: Span,
        other: Span,
        operation: u32,
    },
    Copy {
        from: Span,
        to: Span,
    },
}

/// A part of an incoming message.
pub(super) struct InSketch {
    pub(super) bytes: u64,
    pub(super) segment: Span,
    pub(super) combine: Combine,
    pub(super) operation: Option<(Reduction, usize)>,
    /// The outgoing messages that pass it on.
    pub(super) to: Vec<u32>,
}

/// A part of an outgoing message.
pub(super) enum OutSketch {
    Given(Span),
    /// Passed on from a part of an incoming message.
    Passed {
        message: u32,
        part: u32,
    },
}

impl<'e, 'b> GraphBuilder<'e, 'b, ()> {
    pub(super) fn new(engine: &'e mut Engine, name: &'static str, comm: Comm, scoped: bool) -> Self {
        let number = BUILDERS.fetch_add(1, Ordering::Relaxed);
        let sketch = Sketch::default();
        GraphBuilder { engine, name, comm, scoped, buffers: (), sketch, number, wrong: None, _lent: PhantomData }
    }
}

impl<'e, 'b, B: NoLayout> GraphBuilder<'e, 'b, B> {
    /// Adds a buffer whose elements are only read.
    pub fn with<P: Sequence + Send + 'b>(self, buffer: P) -> (GraphBuilder<'e, 'b, (B, P)>, Elements<P::Item>) {
        let GraphBuilder { engine, name, comm, scoped, buffers, sketch, number, wrong, .. } = self;
        let elements = Elements { span: buffer.piece(0), element: buffer.element(), number, _type: PhantomData };
        let buffers = (buffers, buffer);
        let _lent = PhantomData;
        (GraphBuilder { engine, name, comm, scoped, buffers, sketch, number, wrong, _lent }, elements)
    }

    /// Adds a buffer whose elements may be written.
    pub fn with_place<P: LeasedBytes + Sequence + Send + 'b>(
        self,
        buffer: P,
    ) -> (GraphBuilder<'e, 'b, (B, P)>, Place<P::Item>) {
        let (graph, elements) = self.with(buffer);
        (graph, Place(elements))
    }

    /// Adds a message that is received from a rank.
    pub fn receive(&mut self, from: Rank, tag: Tag) -> Incoming {
        Incoming(self.add(NodeSketch::Incoming { from, tag, parts: Vec::new() }))
    }

    /// Adds a message that is sent to a rank.
    pub fn send(&mut self, to: Rank, tag: Tag) -> Outgoing {
        Outgoing(self.add(NodeSketch::Outgoing { to, tag, parts: Vec::new() }))
    }

    /// Receives the next part of a message into a buffer.
    pub fn take<T: Element>(&mut self, from: Incoming, into: Place<T>) {
        self.add_in(from, into.0, Combine::Never, None, Outgoings::default());
    }

    /// Combines the next part of a message with the elements of a buffer, into the buffer. The left operand is that of the lower rank.
    pub fn take_op<T: Element>(&mut self, from: Incoming, into: Place<T>, operation: impl Operation<T>) {
        self.add_in(from, into.0, Combine::Receive, Some(operand(operation)), Outgoings::default());
    }

    /// Receives the next part of a message into a buffer, and adds it as the next part to one or several outgoing messages.
    pub fn take_pass<T: Element>(&mut self, from: Incoming, into: Place<T>, to: impl Into<Outgoings>) {
        self.add_in(from, into.0, Combine::Never, None, to.into());
    }

    /// As [`GraphBuilder::take_op`], and adds the result as the next part to one or several outgoing messages.
    pub fn take_op_pass<T: Element>(
        &mut self,
        from: Incoming,
        into: Place<T>,
        operation: impl Operation<T>,
        to: impl Into<Outgoings>,
    ) {
        self.add_in(from, into.0, Combine::Receive, Some(operand(operation)), to.into());
    }

    /// Combines the next part of a message with the elements of a buffer, and adds the result as the next part to one or several outgoing
    /// messages. The buffer stays as it is.
    pub fn pass_op<T: Element>(
        &mut self,
        from: Incoming,
        own: Elements<T>,
        operation: impl Operation<T>,
        to: impl Into<Outgoings>,
    ) {
        self.add_in(from, own, Combine::Send, Some(operand(operation)), to.into());
    }

    /// Adds the next `bytes` bytes of a message as the next part to one or several outgoing messages.
    pub fn pass(&mut self, from: Incoming, bytes: usize, to: impl Into<Outgoings>) {
        let segment = Span::EMPTY;
        let to = self.outgoing(to.into());
        let part = InSketch { bytes: bytes as u64, segment, combine: Combine::Never, operation: None, to };
        self.push_in(from, part);
    }

    /// Adds elements of a buffer as the next part to an outgoing message. They are read when the message leaves.
    pub fn give<T: Element>(&mut self, to: Outgoing, elements: Elements<T>) {
        self.check(elements.number);
        if let Some(NodeSketch::Outgoing { parts, .. }) = self.node(to.0) {
            parts.push(OutSketch::Given(elements.span));
        }
    }

    /// Combines the elements of two buffers into the first one. The first buffer has the left operands.
    pub fn reduce<T: Element>(
        &mut self,
        into: Place<T>,
        other: Elements<T>,
        operation: impl Operation<T>,
    ) -> GraphNode {
        self.check_pair(into.0, other);
        self.check_elements(into.0, operation.element());
        let number = self.sketch.operations.len() as u32;
        self.sketch.operations.push(reduce(operation));
        self.add(NodeSketch::Reduce { into: into.0.span, other: other.span, operation: number })
    }

    /// Copies the elements of one buffer to another one.
    pub fn copy<T: Element>(&mut self, from: Elements<T>, to: Place<T>) -> GraphNode {
        self.check_pair(to.0, from);
        self.add(NodeSketch::Copy { from: from.span, to: to.0.span })
    }

    /// Adds an edge: the second node starts when the first one is done.
    pub fn after(&mut self, first: impl Into<GraphNode>, then: impl Into<GraphNode>) {
        let (first, then) = (first.into(), then.into());
        self.check(first.number);
        self.check(then.number);
        self.sketch.edges.push((first.index, then.index));
    }

    /// Starts the graph. The request is done when all nodes of the graph are. It holds the buffers in nested pairs: each buffer stands
    /// beside the pair of those before it.
    ///
    /// # Errors
    /// A wrong rank or tag, a handle of another graph, buffers of different lengths, a message that is too long, a circle, no memory for what
    /// is passed on, or no free row. The error gives the buffers back.
    pub fn start(self) -> Posted<B> {
        let GraphBuilder { engine, name, comm, scoped, buffers, sketch, wrong, .. } = self;
        engine.post_blocks(name, comm, buffers, sketch, wrong, scoped)
    }

    /// Makes a persistent request of the graph. [`Engine::start`] starts it, and allocates nothing.
    ///
    /// # Errors
    /// As [`GraphBuilder::start`].
    pub fn persistent(self) -> Result<Persistent<B>, Rejected<B>> {
        let GraphBuilder { engine, name, comm, scoped, buffers, sketch, wrong, .. } = self;
        engine.init_blocks(name, comm, buffers, sketch, wrong, scoped)
    }

    fn add(&mut self, node: NodeSketch) -> GraphNode {
        self.sketch.nodes.push(node);
        GraphNode { index: self.sketch.nodes.len() as u32 - 1, number: self.number }
    }

    fn check(&mut self, number: u64) {
        if number != self.number {
            self.wrong.get_or_insert(PostError::OtherGraph);
        }
    }

    /// Checks that two runs of elements can be operands of one computation.
    fn check_pair<T: Element>(&mut self, into: Elements<T>, other: Elements<T>) {
        self.check(into.number);
        self.check(other.number);
        let (given, needed) = (other.count(), into.count());
        if given != needed {
            self.wrong.get_or_insert(PostError::Elements { what: "other buffer", given, needed });
        }
        let start = |span: Span| span.start().addr();
        let (one, two) = (into.span, other.span);
        if start(one) < start(two) + two.len() && start(two) < start(one) + one.len() {
            self.wrong.get_or_insert(PostError::Overlap);
        }
    }

    /// Checks that a run consists of whole elements of the bytes that an operation takes.
    fn check_elements<T: Element>(&mut self, of: Elements<T>, needed: usize) {
        let given = of.element;
        if given != needed {
            self.wrong.get_or_insert(PostError::Elements { what: "element of the buffer, bytes,", given, needed });
        }
        let (given, element) = (of.span.len(), needed.max(1));
        if !given.is_multiple_of(element) {
            let needed = given.next_multiple_of(element);
            self.wrong.get_or_insert(PostError::Elements { what: "part, bytes,", given, needed });
        }
    }

    fn node(&mut self, node: GraphNode) -> Option<&mut NodeSketch> {
        self.check(node.number);
        self.sketch.nodes.get_mut(node.index as usize).filter(|_| node.number == self.number)
    }

    fn outgoing(&mut self, to: Outgoings) -> Vec<u32> {
        to.0.iter().for_each(|to| self.check(to.0.number));
        to.0.into_iter().map(|to| to.0.index).collect()
    }

    fn add_in<T: Element>(
        &mut self,
        from: Incoming,
        own: Elements<T>,
        combine: Combine,
        operation: Option<(Reduction, usize)>,
        to: Outgoings,
    ) {
        self.check(own.number);
        let to = self.outgoing(to);
        if let Some((_, element)) = operation {
            self.check_elements(own, element);
        }
        self.push_in(from, InSketch { bytes: own.span.len() as u64, segment: own.span, combine, operation, to });
    }

    fn push_in(&mut self, from: Incoming, part: InSketch) {
        if part.bytes == 0 {
            return self.check(from.0.number);
        }
        let to = part.to.clone();
        let mut index = 0;
        if let Some(NodeSketch::Incoming { parts, .. }) = self.node(from.0) {
            index = parts.len() as u32;
            parts.push(part);
        }
        let message = from.0.index;
        for to in to {
            if let Some(NodeSketch::Outgoing { parts, .. }) = self.sketch.nodes.get_mut(to as usize) {
                parts.push(OutSketch::Passed { message, part: index });
            }
        }
    }
}

/// The reduction of an operation, and the bytes of its elements.
fn operand<T: Element>(operation: impl Operation<T>) -> (Reduction, usize) {
    let element = operation.element();
    (reduce(operation), element)
}
