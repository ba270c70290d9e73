//! Counts the cost of an operation from the graphs of its ranks.

use std::collections::HashMap;
use tickwire::internals::components::Span;
use tickwire::internals::systems::collectives::draft::{Act, Draft, NodeId};

/// Builds a rank's graph of an operation.
pub(crate) type Draw = fn(&mut Draft);

/// The cost of an operation for the busiest rank.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Cost {
    /// The number of messages on the longest chain in which each message waits for the one before.
    pub(crate) rounds: u64,
    /// Messages that the rank sends or that it receives, whichever number is larger.
    pub(crate) messages: u64,
    /// Bytes that the rank sends or that it receives, whichever number is larger.
    pub(crate) bytes: u64,
}

/// Addresses of `bytes` bytes for a graph. Nothing is ever read or written there.
pub(crate) fn room(bytes: usize) -> Span {
    let mut nothing = 0u128;
    // SAFETY: nobody reads or writes these bytes.
    #[expect(unsafe_code, reason = "addresses that are only counted with")]
    unsafe {
        Span::new((&raw mut nothing).cast(), bytes)
    }
}

/// A rank's part of a graph.
pub(crate) struct Part {
    acts: Vec<Act>,
    /// For each node, the nodes that it waits for.
    before: Vec<Vec<NodeId>>,
    /// The node that sends to a rank in a step.
    sends: HashMap<(u32, u32), NodeId>,
    /// For each node, the result of [`Parts::round`], once it is computed.
    known: Vec<Option<u64>>,
    edges: usize,
    /// Number of runs of temporary memory.
    own: usize,
}

impl Part {
    pub(crate) fn of(rank: u32, size: u32, draw: Draw) -> Self {
        let mut draft = Draft { only_counted: true, ..Draft::new(rank, size) };
        draw(&mut draft);
        let Draft { acts, edges, temporaries, .. } = draft;
        let mut before = vec![Vec::new(); acts.len()];
        edges.iter().for_each(|&(first, then)| before[then as usize].push(first));
        let mut sends = HashMap::new();
        for (node, act) in (0..).zip(&acts) {
            if let Act::Send { to, step, .. } = *act {
                assert!(sends.insert((to, step), node).is_none(), "two messages to rank {to} in step {step}");
            }
        }
        let known = vec![None; acts.len()];
        let own = temporaries.len();
        Part { acts, before, sends, known, edges: edges.len(), own }
    }

    /// The lengths of the messages that the rank sends, and of those that it receives, bytes.
    pub(crate) fn messages(&self) -> [Vec<u64>; 2] {
        let [mut sent, mut received] = [const { Vec::new() }; 2];
        for act in &self.acts {
            match act {
                Act::Send { bytes, .. } => sent.push(bytes.len() as u64),
                Act::Receive { bytes, .. } => received.push(bytes.len() as u64),
                Act::Compute(_) => {}
            }
        }
        [sent, received]
    }

    /// Checks the cost of building the graph: a few nodes for each message, a few edges for each node, and at most one
    /// run of temporary memory for each message.
    fn check(&self, name: &str, size: u32) {
        let messages = self.messages();
        let (count, log) = (messages[0].len() + messages[1].len(), size.next_power_of_two().ilog2() as usize);
        assert!(self.acts.len() <= 3 * count + 2, "{name} of {size}: {} nodes", self.acts.len());
        assert!(self.edges <= self.acts.len() * 2 * (log + 1), "{name} of {size}: {} edges", self.edges);
        assert!(self.own <= count, "{name} of {size}: {} runs of memory", self.own);
    }
}

/// The graphs of the ranks. A graph is built when it is first needed.
pub(crate) struct Parts {
    size: u32,
    draw: Draw,
    parts: HashMap<u32, Part>,
}

impl Parts {
    pub(crate) fn new(size: u32, draw: Draw) -> Self {
        Parts { size, draw, parts: HashMap::new() }
    }

    fn part(&mut self, rank: u32) -> &mut Part {
        self.parts.entry(rank).or_insert_with(|| Part::of(rank, self.size, self.draw))
    }

    /// Finds the message for a receive: the sender, and the node that sends it.
    fn sender(&mut self, rank: u32, node: NodeId) -> (u32, NodeId) {
        let Act::Receive { from, step, bytes } = self.part(rank).acts[node as usize] else { panic!("a receive") };
        let part = self.part(from);
        let send = *part.sends.get(&(rank, step)).unwrap_or_else(|| panic!("rank {from} sends nothing in {step}"));
        let Act::Send { bytes: sent, .. } = part.acts[send as usize] else { panic!("a send") };
        assert_eq!(sent.len(), bytes.len(), "a message and its receive have one length");
        (from, send)
    }

    /// The longest chain of messages up to a node.
    fn round(&mut self, rank: u32, node: NodeId) -> u64 {
        if let Some(round) = self.part(rank).known[node as usize] {
            return round;
        }
        let before = self.part(rank).before[node as usize].clone();
        let mut round = before.into_iter().map(|before| self.round(rank, before)).max().unwrap_or(0);
        if matches!(self.part(rank).acts[node as usize], Act::Receive { .. }) {
            let (from, send) = self.sender(rank, node);
            round = round.max(1 + self.round(from, send));
        }
        self.part(rank).known[node as usize] = Some(round);
        round
    }

    /// The longest chain of messages of all ranks.
    pub(crate) fn rounds(&mut self) -> u64 {
        let nodes = |all: &mut Self, rank| all.part(rank).acts.len() as u32;
        (0..self.size)
            .map(|rank| (0..nodes(self, rank)).map(|node| self.round(rank, node)).max().unwrap_or(0))
            .max()
            .unwrap_or(0)
    }
}

/// A few ranks, one of which has the most to do: the first ones, those around the greatest power of two, those in the
/// middle, and the last.
fn some(size: u32) -> Vec<u32> {
    let power = 1 << size.ilog2();
    let mut some = vec![0, 1, 2, 3, size / 3, size / 2, power / 2, power - 1, power, size - 2, size - 1];
    some.retain(|&rank| rank < size);
    some.sort_unstable();
    some.dedup();
    some
}

/// Up to this number of ranks, the graphs of all ranks are built.
pub(crate) const ALL: u32 = 1024;

/// The cost of an operation among `size` ranks, for all ranks or, if there are many, for some. Returns also whether it
/// is for all: only then are rounds counted.
pub(crate) fn cost(name: &str, size: u32, draw: Draw) -> (Cost, bool) {
    let (mut cost, is_all) = (Cost::default(), size <= ALL);
    for rank in if is_all { (0..size).collect() } else { some(size) } {
        let part = Part::of(rank, size, draw);
        part.check(name, size);
        for messages in part.messages() {
            cost.messages = cost.messages.max(messages.len() as u64);
            cost.bytes = cost.bytes.max(messages.iter().sum());
        }
    }
    if is_all {
        cost.rounds = Parts::new(size, draw).rounds();
    }
    (cost, is_all)
}
