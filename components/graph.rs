//! Graphs of CARs: operations of several messages and computations, such as collectives. See `systems/protocols/graph.rs`.

use crate::{Blocks, Comm, NIL, Queue, Reduction, Row, Side, Span};
use bevy_ecs::component::Component;
use std::any::TypeId;
use std::fmt;
use std::mem::ManuallyDrop;

/// The node of a graph that a CAR is: a cold column of the CAR table. 28 B.
///
/// Written when a graph is built, and while it runs (`unmet`).
#[derive(Component, Clone, Copy, PartialEq, Eq, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Node {
    /// The number of its graph in [`Graphs`]; [`NIL`] for a CAR that is in no graph.
    pub graph: u32,
    /// How many nodes must be done before this one starts.
    pub needs: u32,
    /// How many of these nodes are not done yet.
    pub unmet: u32,
    /// Index of its first successor in [`Graph::successors`].
    pub first: u32,
    /// Number of its successors.
    pub successors: u32,
    /// What it does.
    pub work: NodeWork,
}

const _: () = assert!(size_of::<Node>() == 28);

/// What a node of a graph does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NodeWork {
    /// It is a message in one piece.
    #[default]
    Message,
    /// It is a message in parts that comes in: its index in [`Blocks::incoming`].
    Incoming(u32),
    /// It is a message in parts that leaves: its index in [`Blocks::outgoing`].
    Outgoing(u32),
    /// It is a computation: its index in [`Graph::computations`].
    Computation(u32),
}

impl Node {
    /// The value for a CAR that is in no graph.
    pub const NONE: Node = Node { graph: NIL, needs: 0, unmet: 0, first: 0, successors: 0, work: NodeWork::Message };

    /// Of a message in parts that comes in: its index in [`Blocks::incoming`]. [`NIL`] for other nodes.
    #[inline]
    pub const fn incoming(&self) -> u32 {
        match self.work {
            NodeWork::Incoming(index) => index,
            _ => NIL,
        }
    }

    /// Of a message in parts that leaves: its index in [`Blocks::outgoing`]. [`NIL`] for other nodes.
    #[inline]
    pub const fn outgoing(&self) -> u32 {
        match self.work {
            NodeWork::Outgoing(index) => index,
            _ => NIL,
        }
    }
}

impl Default for Node {
    fn default() -> Self {
        Node::NONE
    }
}

/// What a node does if it is a computation, which needs no peer.
#[derive(Clone, Copy, Debug)]
pub enum Computation {
    /// Reduces `into` and `other`, and writes the result to `into`.
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
        /// Which operation: its index in [`Blocks::operations`].
        operation: u32,
    },
    /// Copies bytes. Both runs have the same length and do not overlap.
    Copy {
        /// The source.
        from: Span,
        /// The destination.
        to: Span,
    },
}

impl Computation {
    /// Has it use these runs, which are lent anew at the addresses that it uses. See [`Span::derived_from`].
    pub fn derive_from(&mut self, runs: &[Span]) {
        match self {
            Computation::Reduce { into, other, .. } | Computation::Apply { into, other, .. } => {
                (*into, *other) = (into.derived_from(runs), other.derived_from(runs));
            }
            Computation::Copy { from, to } => (*from, *to) = (from.derived_from(runs), to.derived_from(runs)),
        }
    }
}

/// Memory that a graph owns, aligned for elements of up to 16 bytes.
pub type Temporary = Box<[u128]>;

/// The properties by which a call of a collective operation finds a kept graph: calls with equal keys use the same graph.
#[derive(Clone, Copy, Debug)]
pub struct GraphKey {
    /// The name of the operation.
    pub name: &'static str,
    /// The communicator.
    pub comm: Comm,
    /// The root, if there is one.
    pub root: u32,
    /// The type of the elements and of the reduction, which has no state.
    pub types: TypeId,
    /// The addresses and lengths of the buffers.
    pub buffers: [Span; 2],
}

impl PartialEq for GraphKey {
    fn eq(&self, other: &GraphKey) -> bool {
        let is_same = |(of, other): (&Span, &Span)| std::ptr::eq(of.start(), other.start()) && of.len() == other.len();
        self.buffers.iter().zip(&other.buffers).all(is_same)
            && (self.comm, self.root, self.types, self.name) == (other.comm, other.root, other.types, other.name)
    }
}

/// A graph: its nodes are CARs. An edge means that a node starts when another node is done.
///
/// The request of a graph is on a CAR row of its own, of kind [`Graph`](crate::CarKind::Graph). The request counts the nodes that are
/// not done.
pub struct Graph {
    /// The name of the operation, as the caller gave it.
    pub name: &'static str,
    /// The communicator.
    pub comm: Comm,
    /// The row of its request; [`NIL`] while the graph is kept and waits for the next call.
    pub request: Row,
    /// Of a collective operation: its number among the operations of the communicator, from 0 on. Persistent operations and others are
    /// counted separately. All members count the same, since they call in the same order.
    pub call: u32,
    /// How many times it has been started.
    pub starts: u32,
    /// When this rank next asks its peers about messages that do not come. Written when it asks.
    pub asking: Asking,
    /// Its CARs.
    pub nodes: Box<[Row]>,
    /// The successors of all nodes.
    pub successors: Box<[Row]>,
    /// The computations of its nodes.
    pub computations: Box<[Computation]>,
    /// The reduction, if the operation has one.
    pub reduce: Option<Reduction>,
    /// Its messages in parts, if there are any.
    pub blocks: Option<Box<Blocks>>,
    /// Memory that its nodes use. It is freed when the graph is dissolved, but never when the engine is dropped: a peer may still be
    /// reading it then, as it may still read buffers of requests ([`Held`](crate::Held)).
    pub temporaries: ManuallyDrop<Vec<Temporary>>,
    /// Whether it is persistent: it stays when it is done, and can be started again.
    pub persistent: bool,
    /// Of a persistent graph: the addresses and lengths of its buffers, which its nodes use.
    pub buffers: Box<[Span]>,
    /// The key by which the next equal call finds the graph, if it is kept when it is done. Between two such calls its request is
    /// [`NIL`].
    pub key: Option<GraphKey>,
    /// The number of the last call that used it: the least recently used graph has the lowest number.
    pub used: u64,
    /// Whether a node of it has failed. Such a graph cannot be started again.
    pub failed: bool,
}

/// A receive that a failed graph has abandoned. Its message may still come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftReceive {
    /// The row of its CAR, which has a request of its own.
    pub row: Row,
    /// The generation of the row when the receive was abandoned.
    pub generation: u64,
    /// See [`Graph::call`].
    pub call: u32,
    /// When this rank next asks the peer about the message.
    pub asking: Asking,
}

/// When this rank asks its peers about messages of a graph that do not come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asking {
    /// The start of the graph that this is about.
    pub start: u32,
    /// Time between the last question and the next one, ns.
    pub interval_ns: u64,
    /// When the next question is due, ns of the engine's clock.
    pub next_ns: u64,
    /// Index of the node with which the next question begins. It is not 0 while a round of questions is in progress.
    pub cursor: u32,
}

impl Graph {
    /// Bytes of memory that the graph owns.
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
    /// The graphs, by number; `None` if the number is free.
    pub list: Vec<Option<Box<Graph>>>,
    /// Nodes that can start, in the order in which they will.
    pub startable: Queue,
    /// Pairs of a communicator's context word, and how many persistent operations were made on it. By the word and not by the handle: a
    /// communicator that is being freed has no handle any more, and its operations go on.
    pub made: Vec<(u32, u32)>,
    /// Calls so far that have left a kept graph for the next equal call.
    pub calls: u64,
    /// Rounds of questions about messages so far. Graphs take turns at being asked for first: every second round begins with another
    /// one.
    pub rounds: u32,
    /// Receives that failed graphs have abandoned.
    pub left: Vec<LeftReceive>,
    /// Whether there may be unexpected messages of collective operations.
    pub has_unexpected: bool,
    /// Number of kept graphs that wait for a call.
    pub kept: usize,
    /// Bytes of memory that these graphs own.
    pub kept_bytes: usize,
    /// How many parts all graphs together forward through windows. There are at least as many supply rows.
    pub windows: usize,
}

impl Default for Graphs {
    fn default() -> Self {
        Graphs {
            list: Vec::new(),
            startable: Queue::EMPTY,
            made: Vec::new(),
            calls: 0,
            rounds: 0,
            left: Vec::new(),
            has_unexpected: false,
            kept: 0,
            kept_bytes: 0,
            windows: 0,
        }
    }
}

impl Graphs {
    /// Adds a graph. Returns its number.
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

    /// The graph of a number; `None` if there is none.
    pub fn get(&self, number: u32) -> Option<&Graph> {
        self.list.get(number as usize)?.as_deref()
    }

    /// The number of the kept graph that waits for a call with this key.
    pub fn waiting(&self, key: &GraphKey) -> Option<u32> {
        let is_it = |graph: &Graph| graph.request == NIL && graph.key.as_ref() == Some(key);
        Some(self.list.iter().position(|graph| graph.as_deref().is_some_and(is_it))? as u32)
    }

    /// The graph of a number, to be changed; `None` if there is none.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Graph> {
        self.list.get_mut(number as usize)?.as_deref_mut()
    }
}
