//! Graphs of CARs: operations of several messages and computations, such as collectives. See `systems/protocols/graph.rs`.

use crate::{Blocks, Comm, NIL, Queue, Reduction, Row, Span};
use bevy_ecs::component::Component;
use std::any::TypeId;
use std::fmt;
use std::mem::ManuallyDrop;

/// The place of a CAR in a graph: a cold column of the CAR table. 24 B.
///
/// Written when a graph is built, and while it runs (`unmet`).
#[derive(Component, Clone, Copy, PartialEq, Eq, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Node {
    /// Which graph of [`Graphs`]; [`NIL`] for a CAR that is in none.
    pub graph: u32,
    /// Nodes that must be done before this one starts.
    pub needs: u32,
    /// Those of them that are not done yet; [`NIL`] once the node itself is done.
    pub unmet: u32,
    /// Its successors: so many of [`Graph::successors`], from `first` on.
    pub first: u32,
    /// See `first`.
    pub successors: u32,
    /// What it computes: index into [`Graph::computations`]. Of a message in parts its index in [`Graph::blocks`]; [`NIL`] for other
    /// messages.
    pub computation: u32,
}

const _: () = assert!(size_of::<Node>() == 24);

impl Node {
    /// Of a CAR in no graph.
    pub const NONE: Node = Node { graph: NIL, needs: 0, unmet: 0, first: 0, successors: 0, computation: NIL };
}

impl Default for Node {
    fn default() -> Self {
        Node::NONE
    }
}

/// On which side of an operation a run of elements stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The left operand: of lower ranks.
    Left,
    /// The right operand.
    Right,
}

impl Side {
    /// The other one.
    pub const fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// What a node does without a peer.
#[derive(Clone, Copy, Debug)]
pub enum Computation {
    /// Reduces `into` and `other` into `into`, which is the operand on this side.
    Reduce {
        /// Where the result goes.
        into: Span,
        /// The other operand.
        other: Span,
        /// The side of `into`.
        side: Side,
    },
    /// Reduces as [`Computation::Reduce`], by one of the operations of [`Blocks`].
    Apply {
        /// Where the result goes.
        into: Span,
        /// The other operand.
        other: Span,
        /// The side of `into`.
        side: Side,
        /// Which one.
        operation: u32,
    },
    /// Copies bytes; both runs are of the same length and do not overlap.
    Copy {
        /// Where they are.
        from: Span,
        /// Where they go.
        to: Span,
    },
}

/// Memory of a graph's own, aligned for elements of up to 16 bytes.
pub type Temporary = Box<[u128]>;

/// What tells a call of a collective operation from others: calls with one key have one graph.
#[derive(Clone, Copy, Debug)]
pub struct GraphKey {
    /// The name of the operation.
    pub name: &'static str,
    /// The communicator.
    pub comm: Comm,
    /// The root, if there is one.
    pub root: u32,
    /// The type of the elements, and of the operation that reduces them, which has no state.
    pub types: TypeId,
    /// Where the buffers are.
    pub buffers: [Span; 2],
}

impl PartialEq for GraphKey {
    fn eq(&self, other: &GraphKey) -> bool {
        let is_same = |(of, other): (&Span, &Span)| std::ptr::eq(of.start(), other.start()) && of.len() == other.len();
        self.buffers.iter().zip(&other.buffers).all(is_same)
            && (self.comm, self.root, self.types, self.name) == (other.comm, other.root, other.types, other.name)
    }
}

/// A graph: its nodes are CARs, and an edge says that a node starts when another one is done.
///
/// The request of a graph is on a CAR row of its own, of kind [`Graph`](crate::CarKind::Graph); it counts the nodes that are not done.
pub struct Graph {
    /// What it is, in the words of its caller.
    pub name: &'static str,
    /// The communicator.
    pub comm: Comm,
    /// The row of its request; [`NIL`] while it waits for a call.
    pub request: Row,
    /// Of a collective operation: how many its communicator had before it, persistent ones and others counted apart. All members count
    /// the same, since they call in the same order.
    pub call: u32,
    /// How often it has been started.
    pub starts: u32,
    /// When its member asks after messages. Written while that looks around.
    pub asking: Asking,
    /// Its CARs.
    pub nodes: Box<[Row]>,
    /// The successors of all nodes.
    pub successors: Box<[Row]>,
    /// What nodes compute.
    pub computations: Box<[Computation]>,
    /// How operands are reduced, if they are.
    pub reduce: Option<Reduction>,
    /// Messages in parts, if there are some.
    pub blocks: Option<Box<Blocks>>,
    /// Memory that its nodes use. Freed when the graph is dissolved, and never with the engine: a peer may be reading it then,
    /// as it may be with buffers of requests ([`Held`](crate::Held)).
    pub temporaries: ManuallyDrop<Vec<Temporary>>,
    /// Whether it stays when it is done, to be started again.
    pub persistent: bool,
    /// Where the buffers of a persistent one are: its nodes have these addresses.
    pub buffers: Box<[Span]>,
    /// What tells it from others, if it stays when it is done, for the next call that is the same. Between two such calls its
    /// request is [`NIL`].
    pub key: Option<GraphKey>,
    /// Which call was its last, by the order of all.
    pub used: u64,
    /// Whether a node of it has failed: it cannot be started any more.
    pub failed: bool,
}

/// A receive that a failed graph has left, for a message that may still come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftReceive {
    /// Its CAR, which has a request of its own.
    pub row: Row,
    /// The life of the row that is meant.
    pub generation: u64,
    /// See [`Graph::call`].
    pub call: u32,
    /// When its peer is asked after the message.
    pub asking: Asking,
}

/// When a member asks after messages of a graph that do not come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asking {
    /// The start of the graph that this is about.
    pub start: u32,
    /// Time between the last question and the next one, ns.
    pub interval_ns: u64,
    /// When that is due, ns by the engine's clock.
    pub next_ns: u64,
    /// The node that the next question begins with: not the first one while a round of questions goes on.
    pub cursor: u32,
}

impl Graph {
    /// Bytes of memory of its own.
    pub fn bytes(&self) -> usize {
        self.temporaries.iter().map(|memory| size_of_val(&**memory)).sum()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Graph { name, comm, request, nodes, failed, .. } = self;
        write!(f, "Graph({name} on {comm:?}, request {request}, {} nodes, failed: {failed})", nodes.len())
    }
}

/// The graphs of an engine.
#[derive(Debug)]
pub struct Graphs {
    /// By number; `None` is free.
    pub list: Vec<Option<Box<Graph>>>,
    /// Nodes that may start.
    pub staged: Queue,
    /// How many persistent operations each communicator has made, by its handle.
    pub made: Vec<(u32, u32)>,
    /// Calls so far that have left a graph for the next one.
    pub calls: u64,
    /// Which of those that ask after messages begins: half of it is a place in the list, and its lowest bit says whether receives that were
    /// left are before or behind.
    pub asks_first: u32,
    /// Receives that failed graphs have left.
    pub left: Vec<LeftReceive>,
    /// Whether there may be unexpected messages of collective operations.
    pub has_unexpected: bool,
    /// Graphs that wait for a call.
    pub kept: usize,
    /// Bytes of their own memory.
    pub kept_bytes: usize,
    /// Parts that all of them pass on through windows: as many supply rows there are at least.
    pub windows: usize,
}

impl Default for Graphs {
    fn default() -> Self {
        Graphs {
            list: Vec::new(),
            staged: Queue::EMPTY,
            made: Vec::new(),
            calls: 0,
            asks_first: 0,
            left: Vec::new(),
            has_unexpected: false,
            kept: 0,
            kept_bytes: 0,
            windows: 0,
        }
    }
}

impl Graphs {
    /// Adds a graph; its number.
    pub fn add(&mut self, graph: Graph) -> u32 {
        let graph = Some(Box::new(graph));
        match self.list.iter().position(Option::is_none) {
            Some(free) => {
                self.list[free] = graph;
                free as u32
            }
            None => {
                self.list.push(graph);
                self.list.len() as u32 - 1
            }
        }
    }

    /// A graph that is there.
    pub fn get(&self, number: u32) -> Option<&Graph> {
        self.list.get(number as usize)?.as_deref()
    }

    /// The graph that waits for a call like this.
    pub fn waiting(&self, key: &GraphKey) -> Option<u32> {
        let is_it = |graph: &Graph| graph.request == NIL && graph.key.as_ref() == Some(key);
        Some(self.list.iter().position(|graph| graph.as_deref().is_some_and(is_it))? as u32)
    }

    /// A graph that is there, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Graph> {
        self.list.get_mut(number as usize)?.as_deref_mut()
    }
}
