//! Drafts: one rank's part of a graph.

use super::hosts::Hosts;
use std::fmt;
use std::sync::Arc;
use tickwire_components::{Collective, Computation, Reduction, Side, Span, Temporary};

/// A node of a draft.
pub type NodeId = u32;

/// What a node does. A message matches the receive by sender and step. Nodes start in no particular order, so two messages from one rank to
/// another one must have different steps.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Sends a run of bytes.
    Send {
        /// Rank of the receiver.
        to: u32,
        /// Number of the step: below [`STEPS_MAX`].
        step: u32,
        /// The bytes to send.
        bytes: Span,
    },
    /// Receives a run of bytes.
    Receive {
        /// Rank of the sender.
        from: u32,
        /// Number of the step: below [`STEPS_MAX`].
        step: u32,
        /// Where the bytes go.
        bytes: Span,
    },
    /// Computes something, without a peer.
    Compute(Computation),
}

/// Number of steps that an operation may have: steps are the low bits of the tags of its messages.
pub const STEPS_MAX: u32 = 1 << STEP_BITS;
/// See [`STEPS_MAX`].
pub const STEP_BITS: u32 = 8;
/// The lowest tag of messages of persistent operations. These live while other operations come and go.
pub const PERSISTENT_TAG: u32 = 1 << 30;

/// One rank's part of a graph, as it is drawn.
#[derive(Default)]
pub struct Draft {
    /// This rank.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// The hosts of the ranks, if they make a difference.
    pub hosts: Option<Arc<Hosts>>,
    /// What the nodes do.
    pub acts: Vec<Act>,
    /// Edges: the second node starts when the first one is done.
    pub edges: Vec<(NodeId, NodeId)>,
    /// Temporary memory of the graph.
    pub temporaries: Vec<Temporary>,
    /// Added to all steps, so that each part of an operation has steps of its own.
    pub first_step: u32,
    /// How operands are reduced, if the operation is a reduction.
    pub reduction: Option<Reduction>,
    /// The operation that runs instead of the graph where all members have boards, if there is one.
    pub on_boards: Option<Collective>,
    /// Whether it is only drawn to be counted, and never run. Then its temporary memory has addresses but no bytes.
    pub only_counted: bool,
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Draft { rank, size, acts, edges, .. } = self;
        write!(f, "Draft(rank {rank} of {size}: {acts:?}, {edges:?})")
    }
}

impl Draft {
    /// An empty draft.
    pub fn new(rank: u32, size: u32) -> Self {
        Draft { rank, size, ..Draft::default() }
    }

    /// Sends bytes in a step, once the nodes `after` are done.
    pub fn send(&mut self, to: u32, step: u32, bytes: Span, after: &[NodeId]) -> NodeId {
        self.add(Act::Send { to, step: self.first_step + step, bytes }, after)
    }

    /// Receives bytes in a step, once the nodes `after` are done.
    pub fn receive(&mut self, from: u32, step: u32, bytes: Span, after: &[NodeId]) -> NodeId {
        self.add(Act::Receive { from, step: self.first_step + step, bytes }, after)
    }

    /// Combines two runs of elements into the first, which is the operand on this `side`, once the nodes `after` are done.
    pub fn reduce(&mut self, into: Span, other: Span, side: Side, after: &[NodeId]) -> NodeId {
        self.add(Act::Compute(Computation::Reduce { into, other, side }), after)
    }

    /// Copies bytes, once the nodes `after` are done.
    pub fn copy(&mut self, from: Span, to: Span, after: &[NodeId]) -> NodeId {
        self.add(Act::Compute(Computation::Copy { from, to }), after)
    }

    /// Copies bytes to where they belong, once the nodes `after` are done. `None` means that they are there already.
    pub fn copy_unless_there(&mut self, from: Option<Span>, to: Span, after: &[NodeId]) -> NodeId {
        match from {
            Some(from) => self.copy(from, to, after),
            None => self.copy(Span::EMPTY, Span::EMPTY, after),
        }
    }

    fn add(&mut self, act: Act, after: &[NodeId]) -> NodeId {
        debug_assert!(!matches!(act, Act::Send { step, .. } | Act::Receive { step, .. } if step >= STEPS_MAX));
        let node = self.acts.len() as NodeId;
        self.acts.push(act);
        self.edges.extend(after.iter().map(|&before| (before, node)));
        node
    }

    /// Memory of `bytes` bytes that lives as long as the graph.
    pub fn temporary(&mut self, bytes: usize) -> Span {
        let has_memory = if self.only_counted { 0 } else { bytes };
        let mut memory: Temporary = vec![0; has_memory.div_ceil(size_of::<u128>())].into();
        // SAFETY: the draft keeps the memory, then the graph, for as long as its nodes; what is only counted is never used.
        #[expect(unsafe_code, reason = "memory that nodes use by its address")]
        let span = unsafe { Span::new(memory.as_mut_ptr().cast(), bytes) };
        self.temporaries.push(memory);
        span
    }
}
