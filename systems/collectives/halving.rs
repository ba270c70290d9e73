//! Recursive halving: each rank reduces a part, in the order of the canonical tree. Then the parts are gathered or delivered.
//!
//! On the way down, two leaves that have the same part send each other one half of it, and each combines the half that it keeps. A leaf of
//! two ranks works in two places at once: each of its ranks reduces one [`Half`] of the elements, for both. So no rank sends or receives
//! more than another one.

use super::draft::{Draft, NodeId};
use super::fold::Fold;
use super::value::{Value, meet, side};
use tickwire_components::Span;

/// The last step of an operation. The way up uses the steps below it.
pub(super) const LAST: u32 = 127;
/// First step in which the holders of the two halves deliver parts.
const DELIVER: u32 = 128;

/// A run of elements of a buffer.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    first: usize,
    length: usize,
    /// Bytes of an element.
    element: usize,
}

impl Stretch {
    /// All elements of a buffer.
    pub(super) fn all(buffer: Span, element: usize) -> Self {
        Stretch { first: 0, length: buffer.len() / element.max(1), element }
    }

    /// Its bytes in a buffer.
    pub(super) fn of(self, buffer: Span) -> Span {
        buffer.part(self.first * self.element, self.length * self.element)
    }

    /// Its two halves. If the number of elements is odd, the upper half is longer.
    fn halves(self) -> [Stretch; 2] {
        let lower = self.length / 2;
        [Stretch { length: lower, ..self }, Stretch { first: self.first + lower, length: self.length - lower, ..self }]
    }

    fn start(self) -> usize {
        self.first * self.element
    }

    fn end(self) -> usize {
        (self.first + self.length) * self.element
    }
}

/// Which elements are reduced together: all, or one half of them. In a leaf of two ranks, each rank is responsible for one half.
#[derive(Clone, Copy)]
pub(super) struct Half {
    second: bool,
    /// Added to the steps of the way down, and taken from those of the way up.
    steps: u32,
}

impl Half {
    const LOWER: Half = Half { second: false, steps: 0 };
    const UPPER: Half = Half { second: true, steps: 64 };

    /// The rank of a leaf that is responsible for this half.
    fn rank(self, fold: Fold, leaf: u32) -> u32 {
        fold.first(leaf) + u32::from(self.second && leaf < fold.pairs)
    }
}

/// All elements if every leaf is one rank, else their two halves.
fn halves(fold: Fold, all: Stretch) -> Vec<(Half, Stretch)> {
    match fold.pairs {
        0 => vec![(Half::LOWER, all)],
        _ => [Half::LOWER, Half::UPPER].into_iter().zip(all.halves()).collect(),
    }
}

/// Number of parts that the elements are split into. With at least as many elements, no rank is idle.
pub(super) fn parts(fold: Fold) -> usize {
    fold.leaves as usize * if fold.pairs > 0 { 2 } else { 1 }
}

/// A rank's result for one half after the way down.
pub(super) struct Reduced {
    half: Half,
    value: Value,
    /// The elements that the value consists of.
    left: Stretch,
    /// For each level: the halves of the stretch that was split, and which of them was kept.
    splits: Vec<([Stretch; 2], usize)>,
}

/// A rank's results after the way down.
pub(super) struct Down {
    pub(super) reduced: Vec<Reduced>,
    /// Nodes that have read the input when they are done.
    pub(super) readers: Vec<NodeId>,
    /// The other rank of this rank's leaf, and the half that it reduces.
    pub(super) other: Option<(u32, Stretch)>,
}

/// Reduces the elements of all ranks, so that each rank has the result of one part.
pub(super) fn down(draft: &mut Draft, fold: Fold, input: Span, all: Stretch) -> Down {
    let (rank, mut halves) = (draft.rank, halves(fold, all));
    let (mut readers, mut reduced, mut other) = (Vec::new(), Vec::new(), None);
    let mut made = None;
    if let Some(partner) = fold.partner(rank) {
        let (_, given) = halves.swap_remove(usize::from(rank < partner));
        readers.push(draft.send(partner, 0, given.of(input), &[]));
        other = Some((partner, given));
        let (_, kept) = halves[0];
        let room = draft.temporary(kept.of(input).len());
        let own = Value { bytes: kept.of(input), made: None };
        let met = meet(draft, own, partner, 0, room, side(rank, partner));
        readers.extend(met.made);
        made = Some(met);
    }
    for (half, stretch) in halves {
        let own = made.unwrap_or(Value { bytes: stretch.of(input), made: None });
        reduced.push(halve(draft, fold, half, own, stretch, &mut readers));
    }
    Down { reduced, readers, other }
}

fn halve(
    draft: &mut Draft,
    fold: Fold,
    half: Half,
    own: Value,
    stretch: Stretch,
    readers: &mut Vec<NodeId>,
) -> Reduced {
    let leaf = fold.leaf(draft.rank);
    let (mut value, mut left, mut splits) = (own, stretch, Vec::new());
    for level in 0..fold.levels() {
        let other = leaf ^ (1 << level);
        let (to, upper) = (half.rank(fold, other), usize::from(leaf & (1 << level) != 0));
        let step = half.steps + level + 1;
        let halves = left.halves();
        let part = |which: usize| {
            let Stretch { first, length, element } = halves[which];
            value.part((first - left.first) * element, length * element)
        };
        let (kept, given) = (part(upper), part(1 - upper));
        readers.push(draft.send(to, step, given.bytes, given.made.as_slice()));
        splits.push((halves, upper));
        left = halves[upper];
        // Values are not received in the output: it may be the input, which other nodes still have to read.
        let room = draft.temporary(kept.bytes.len());
        value = meet(draft, kept, to, step, room, side(leaf, other));
        readers.extend(value.made);
    }
    Reduced { half, value, left, splits }
}

impl Reduced {
    /// All elements of its half.
    pub(super) fn all(&self) -> Stretch {
        self.splits.first().map_or(self.left, |(halves, _)| whole(*halves))
    }

    /// The rank to exchange with on the way up at a level, and the step.
    fn up(&self, fold: Fold, leaf: u32, level: usize) -> (u32, u32) {
        (self.half.rank(fold, leaf ^ (1 << level)), LAST - 1 - self.half.steps - level as u32)
    }

    /// All ranks get all results. If the output is the input, it is written only after `readers` are done. Returns the nodes after which
    /// all results are there.
    pub(super) fn gather_all(
        &self,
        draft: &mut Draft,
        fold: Fold,
        output: Span,
        readers: Option<&[NodeId]>,
    ) -> Vec<NodeId> {
        let leaf = fold.leaf(draft.rank);
        let before: Vec<NodeId> = readers.unwrap_or(&[]).iter().copied().chain(self.value.made).collect();
        let mut here = vec![draft.copy(self.value.bytes, self.left.of(output), &before)];
        for (level, &(halves, upper)) in self.splits.iter().enumerate().rev() {
            let (to, step) = self.up(fold, leaf, level);
            draft.send(to, step, halves[upper].of(output), &here);
            // If the output is the input, all nodes have read it by now.
            let before: &[NodeId] = if readers.is_some() { &here } else { &[] };
            here.push(draft.receive(to, step, halves[1 - upper].of(output), before));
        }
        here
    }

    /// The leaf `top` gets the results, in the output of the rank of it that is responsible for this half. Returns there where the results
    /// are, and the nodes after which they are complete. Returns `None` on other ranks.
    pub(super) fn gather_to(
        &self,
        draft: &mut Draft,
        fold: Fold,
        top: u32,
        output: Option<Span>,
        readers: Option<&[NodeId]>,
    ) -> Option<(Span, Vec<NodeId>)> {
        let leaf = fold.leaf(draft.rank);
        let goes = (0..self.splits.len()).rev().find(|&level| (leaf ^ top) >> level & 1 != 0);
        let (first, holds) = match goes {
            Some(level) => {
                let (halves, upper) = self.splits[level];
                (level + 1, halves[upper])
            }
            None => (0, self.all()),
        };
        if first == self.splits.len() && (goes.is_some() || output.is_none()) {
            // This rank has no results but its own.
            let made = Vec::from_iter(self.value.made);
            let Some(level) = goes else { return Some((self.value.bytes, made)) };
            let (to, step) = self.up(fold, leaf, level);
            draft.send(to, step, self.value.bytes, &made);
            return None;
        }
        let room = match output {
            Some(output) => holds.of(output),
            None => draft.temporary(holds.end() - holds.start()),
        };
        let place = |of: Stretch| room.part(of.start() - holds.start(), of.end() - of.start());
        let before: Vec<NodeId> = readers.unwrap_or(&[]).iter().copied().chain(self.value.made).collect();
        let mut here = vec![draft.copy(self.value.bytes, place(self.left), &before)];
        for (level, &(halves, upper)) in self.splits.iter().enumerate().skip(first).rev() {
            let (from, step) = self.up(fold, leaf, level);
            let before: Vec<NodeId> = Vec::from_iter(readers.map(|_| here[0]));
            here.push(draft.receive(from, step, place(halves[1 - upper]), &before));
        }
        let Some(level) = goes else { return Some((room, here)) };
        let (to, step) = self.up(fold, leaf, level);
        draft.send(to, step, room, &here);
        None
    }
}

/// The stretch that consists of two halves.
fn whole([lower, upper]: [Stretch; 2]) -> Stretch {
    Stretch { length: lower.length + upper.length, ..lower }
}

/// Each rank gets the result of its part. `start` says where the part of a rank begins, bytes; it ends where the next one begins. If the
/// output is in the input, it is written only after the readers in `down` are done.
pub(super) fn deliver(
    draft: &mut Draft,
    fold: Fold,
    down: &Down,
    all: Stretch,
    start: &dyn Fn(u32) -> usize,
    output: Span,
    in_place: bool,
) {
    let (rank, readers) = (draft.rank, if in_place { &down.readers[..] } else { &[] });
    let own = (start(rank), start(rank + 1));
    for Reduced { half, value, left, .. } in &down.reduced {
        let held = (left.start(), left.end());
        let mut to = owner(draft.size, held.0, start);
        while to < draft.size && start(to) < held.1 {
            let (first, end) = (start(to).max(held.0), start(to + 1).min(held.1));
            if first < end {
                let bytes = value.bytes.part(first - held.0, end - first);
                if to == rank {
                    let before: Vec<NodeId> = readers.iter().copied().chain(value.made).collect();
                    draft.copy(bytes, output.part(first - own.0, end - first), &before);
                } else {
                    draft.send(to, DELIVER + half.steps, bytes, value.made.as_slice());
                }
            }
            to += 1;
        }
    }
    for (half, stretch) in halves(fold, all) {
        for (leaf, held) in holders(fold, stretch, own) {
            let from = half.rank(fold, leaf);
            let (first, end) = (held.start().max(own.0), held.end().min(own.1));
            if from != rank {
                draft.receive(from, DELIVER + half.steps, output.part(first - own.0, end - first), readers);
            }
        }
    }
}

/// The first rank whose part ends after a byte.
fn owner(size: u32, byte: usize, start: &dyn Fn(u32) -> usize) -> u32 {
    let (mut low, mut high) = (0, size);
    while low < high {
        let middle = low + (high - low) / 2;
        match start(middle + 1) > byte {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

/// The leaves that have results for a range of bytes after the way down, with the elements that each has.
fn holders(fold: Fold, all: Stretch, bytes: (usize, usize)) -> Vec<(u32, Stretch)> {
    let mut found = vec![(0, all)];
    for level in 0..fold.levels() {
        let halves = found.into_iter().flat_map(|(leaf, of)| {
            let [lower, upper] = of.halves();
            [(leaf, lower), (leaf | 1 << level, upper)]
        });
        found = halves.filter(|(_, of)| of.start().max(bytes.0) < of.end().min(bytes.1)).collect();
    }
    found.retain(|(_, of)| of.start().max(bytes.0) < of.end().min(bytes.1));
    found
}
