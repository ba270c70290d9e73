//! The normal form of a type: runs of bytes, and loops over them.
//!
//! The normal form does not keep the basic types. It keeps which bytes the message consists of, and their order, as compactly as the
//! constructors show: adjacent bytes are one run, and equal nodes at equal distances are one loop. A loop over runs of one length, the
//! frequent case, has a form of its own. The size of the normal form is that of the description that made it, whatever its counts are.

use std::sync::Arc;

/// A list with at most this many entries is spliced into the list that contains it.
const SPLICED_MAX: usize = 16;

/// Some bytes, in the order of the message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    /// Offset of the first byte of the message. All offsets inside the node are relative to it, so the first of them is 0.
    pub(super) offset: isize,
    /// Number of bytes.
    pub(super) size: usize,
    /// Number of runs.
    pub(super) runs: usize,
    /// How deep loops and lists are nested.
    pub(super) depth: u32,
    pub(super) shape: Shape,
}

/// How the bytes of a [`Node`] lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// One contiguous run.
    Run,
    /// `count` runs of `block` bytes, `stride` bytes apart.
    Strided { count: usize, block: usize, stride: isize },
    /// The child, `count` times, `stride` bytes apart.
    Loop { count: usize, stride: isize, child: Arc<Node> },
    /// Runs at arbitrary places.
    Runs(Arc<[Place]>),
    /// Several nodes, one after another.
    List(Arc<[Part]>),
}

/// A run of [`Shape::Runs`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) offset: isize,
    /// How many bytes of the message come before it.
    pub(super) start: usize,
    pub(super) length: usize,
}

/// A part of [`Shape::List`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// How many bytes of the message come before it.
    pub(super) start: usize,
    pub(super) node: Node,
}

impl Node {
    /// No bytes.
    pub(super) const EMPTY: Node = Node { offset: 0, size: 0, runs: 0, depth: 0, shape: Shape::Run };

    pub(super) fn run(offset: isize, size: usize) -> Node {
        Node { offset, size, runs: usize::from(size > 0), ..Node::EMPTY }
    }

    /// The same node, moved by `distance` bytes.
    pub(super) fn moved(mut self, distance: isize) -> Node {
        self.offset += if self.size > 0 { distance } else { 0 };
        self
    }

    /// `count` copies of the node, `stride` bytes apart. The caller has checked that sizes and offsets do not overflow.
    pub(super) fn repeated(self, count: usize, stride: isize) -> Node {
        if count == 0 || self.size == 0 {
            return Node::EMPTY;
        }
        if count == 1 {
            return self;
        }
        let (size, runs, mut depth) = (self.size * count, self.runs.saturating_mul(count), self.depth);
        let shape = match self.shape {
            Shape::Run if stride == self.size as isize => return Node::run(self.offset, size),
            Shape::Run => Shape::Strided { count, block: self.size, stride },
            Shape::Strided { count: inner, block, stride: step } if stride == step * inner as isize => {
                Shape::Strided { count: inner * count, block, stride: step }
            }
            Shape::Loop { count: inner, stride: step, child } if stride == step * inner as isize => {
                Shape::Loop { count: inner * count, stride: step, child }
            }
            shape => {
                depth += 1;
                Shape::Loop { count, stride, child: Arc::new(Node { offset: 0, shape, ..self }) }
            }
        };
        Node { offset: self.offset, size, runs, depth, shape }
    }

    /// The node of a sequence of runs, each given by its offset and its length.
    pub(super) fn runs(runs: impl Iterator<Item = (isize, usize)>) -> Node {
        let mut places: Vec<Place> = Vec::with_capacity(runs.size_hint().0);
        let mut size = 0;
        for (offset, length) in runs.filter(|&(_, length)| length > 0) {
            match places.last_mut() {
                Some(last) if last.offset + last.length as isize == offset => last.length += length,
                _ => places.push(Place { offset, start: size, length }),
            }
            size += length;
        }
        let (first, count) = match &places[..] {
            [] => return Node::EMPTY,
            [only] => return Node::run(only.offset, only.length),
            [first, ..] => (*first, places.len()),
        };
        let stride = places[1].offset - first.offset;
        let alike = |pair: &[Place]| pair[1].offset - pair[0].offset == stride && pair[1].length == first.length;
        if places.windows(2).all(alike) {
            return Node::run(first.offset, first.length).repeated(count, stride);
        }
        places.iter_mut().for_each(|place| place.offset -= first.offset);
        Node { offset: first.offset, size, runs: count, depth: 1, shape: Shape::Runs(places.into()) }
    }

    /// The node of a sequence of nodes.
    pub(super) fn list(nodes: impl IntoIterator<Item = Node>) -> Node {
        let mut all: Vec<Node> = Vec::new();
        for node in nodes {
            match &node.shape {
                Shape::Runs(places) if places.len() <= SPLICED_MAX => {
                    let run = |place: &Place| Node::run(node.offset + place.offset, place.length);
                    places.iter().for_each(|place| append(&mut all, run(place)));
                }
                Shape::List(parts) if parts.len() <= SPLICED_MAX => {
                    parts.iter().for_each(|part| append(&mut all, part.node.clone().moved(node.offset)));
                }
                _ => append(&mut all, node),
            }
        }
        match all.len() {
            0 => return Node::EMPTY,
            1 => return all.swap_remove(0),
            _ => {}
        }
        let stride = all[1].offset - all[0].offset;
        let alike = |pair: &[Node]| {
            pair[1].offset - pair[0].offset == stride && pair[0].size == pair[1].size && pair[0].shape == pair[1].shape
        };
        if all.windows(2).all(alike) {
            let count = all.len();
            return all.swap_remove(0).repeated(count, stride);
        }
        let (offset, mut size, mut runs, mut depth) = (all[0].offset, 0, 0usize, 0);
        for node in &all {
            (size, runs, depth) = (size + node.size, runs.saturating_add(node.runs), depth.max(node.depth));
        }
        let mut start = 0;
        let mut before = |size: usize| {
            start += size;
            start - size
        };
        let shape = if all.iter().all(|node| node.shape == Shape::Run) {
            let place = |node: &Node| {
                let (offset, start, length) = (node.offset - offset, before(node.size), node.size);
                Place { offset, start, length }
            };
            Shape::Runs(all.iter().map(place).collect())
        } else {
            let part = |node: Node| Part { start: before(node.size), node: node.moved(-offset) };
            Shape::List(all.into_iter().map(part).collect())
        };
        Node { offset, size, runs, depth: depth + 1, shape }
    }
}

/// Appends a node. If the last node and this one are adjacent runs, they become one run.
fn append(all: &mut Vec<Node>, node: Node) {
    match all.last_mut() {
        _ if node.size == 0 => {}
        Some(Node { offset, size, shape: Shape::Run, .. })
            if node.shape == Shape::Run && *offset + *size as isize == node.offset =>
        {
            *size += node.size;
        }
        _ => all.push(node),
    }
}
