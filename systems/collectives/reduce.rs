//! Reductions: reduce, allreduce and reduce_scatter, all in the order of the canonical tree.

use super::draft::{Draft, NodeId};
use super::fold::Fold;
use tickwire_components::{Side, Span};

/// From so many bytes on, each rank of an allreduce reduces a part, and all gather the parts.
const SPLIT: usize = 16 << 10;

/// A value that is being reduced: where it is, and the node that makes it.
#[derive(Clone, Copy)]
struct Value {
    bytes: Span,
    made: Option<NodeId>,
}

impl Value {
    fn part(self, first: usize, length: usize) -> Value {
        Value { bytes: self.bytes.part(first, length), ..self }
    }
}

/// The side of a value that comes from a leaf, beside the own one.
fn side(own: u32, other: u32) -> Side {
    if other < own { Side::Left } else { Side::Right }
}

/// Receives a value into `room`, and combines the own one with it there.
fn meet(draft: &mut Draft, own: Value, from: u32, step: u32, room: Span, side: Side, after: &[NodeId]) -> Value {
    let came = draft.receive(from, step, room, after);
    let before = [came, own.made.unwrap_or(came)];
    let made = draft.reduce(room, own.bytes, side, &before);
    Value { bytes: room, made: Some(made) }
}

/// As [`meet`], but the result is where the own value is.
fn meet_here(draft: &mut Draft, own: Value, from: u32, step: u32, side: Side) -> Value {
    let room = draft.temporary(own.bytes.len());
    let came = draft.receive(from, step, room, &[]);
    let made = draft.reduce(own.bytes, room, side.other(), &[came, own.made.unwrap_or(came)]);
    Value { made: Some(made), ..own }
}

/// The values of all ranks, reduced, come to `root`, where they go to `output`. `input` is only read; it is `output` itself, or
/// does not overlap with it. Returns the node that makes the result, at the root.
pub fn reduce(draft: &mut Draft, input: Span, output: Option<Span>, root: u32) -> Option<NodeId> {
    let in_place = output.is_some_and(|output| std::ptr::eq(input.start(), output.start()) && !input.is_empty());
    let (fold, rank) = (Fold::of(draft.size), draft.rank);
    let (leaf, top) = (fold.leaf(rank), fold.leaf(root));
    let at = |leaf: u32| if leaf == top { root } else { fold.first(leaf) };
    let mut own = Value { bytes: input, made: None };
    // What is still to be met here: of the last one the root makes its output.
    let mut left = u32::from(fold.partner(rank).is_some()) + fold.levels();
    let mut step = 0;
    if let Some(partner) = fold.partner(rank) {
        if at(leaf) != rank {
            draft.send(partner, step, input, &[]);
            return None;
        }
        left -= 1;
        own = meet_at(draft, own, partner, step, side(rank, partner), output.filter(|_| left == 0), in_place);
    }
    for level in 0..fold.levels() {
        step += 1;
        // Of the two blocks of leaves that meet, the one with the top goes on, or the left one.
        let (block, sibling) = (leaf >> level, (leaf >> level) ^ 1);
        let holder = |block: u32| if top >> level == block { top } else { block << level };
        let goes_on = top >> level == block || (top >> level != sibling && block.is_multiple_of(2));
        if !goes_on {
            draft.send(at(holder(sibling)), step, own.bytes, own.made.as_slice());
            return None;
        }
        left -= 1;
        let (from, side) = (at(holder(sibling)), side(block, sibling));
        own = meet_at(draft, own, from, step, side, output.filter(|_| left == 0), in_place);
    }
    if let Some(output) = output
        && draft.size == 1
        && !in_place
    {
        return Some(draft.copy(input, output, &[]));
    }
    own.made
}

/// As [`meet`], in the output if this is the last time, or where the own value is.
fn meet_at(
    draft: &mut Draft,
    own: Value,
    from: u32,
    step: u32,
    side: Side,
    output: Option<Span>,
    in_place: bool,
) -> Value {
    if in_place {
        return meet_here(draft, own, from, step, side);
    }
    let room = room(draft, own.bytes.len(), output);
    meet(draft, own, from, step, room, side, &[])
}

/// Where a value is received: in the output, or in memory of the graph's own.
fn room(draft: &mut Draft, bytes: usize, output: Option<Span>) -> Span {
    output.unwrap_or_else(|| draft.temporary(bytes))
}

/// The values of all ranks, reduced, come to all, in `output`. `input` is only read; it is `output` itself, or does not overlap
/// with it. `element` is how many bytes must stay together.
pub fn allreduce(draft: &mut Draft, input: Span, output: Span, element: usize) {
    let (fold, rank, bytes) = (Fold::of(draft.size), draft.rank, input.len());
    let in_place = std::ptr::eq(input.start(), output.start()) && bytes > 0;
    if draft.size == 1 {
        if !in_place {
            draft.copy(input, output, &[]);
        }
        return;
    }
    let mut own = Value { bytes: input, made: None };
    let mut readers = Vec::new();
    if let Some(partner) = fold.partner(rank) {
        if partner < rank {
            // The result comes when the partner has read what is sent.
            let sent = draft.send(partner, 0, input, &[]);
            let before = [sent];
            draft.receive(partner, LAST, output, if in_place { &before } else { &[] });
            return;
        }
        let room = draft.temporary(bytes);
        own = meet(draft, own, partner, 0, room, Side::Right, &[]);
        readers.extend(own.made);
    }
    let parts = (bytes / element.max(1)) as u32 / fold.leaves.max(1);
    let done = if bytes >= SPLIT && parts > 0 {
        halve(draft, fold, own, output, element, in_place)
    } else {
        double(draft, fold, own, output, in_place, &mut readers)
    };
    if let Some(partner) = fold.partner(rank) {
        draft.send(partner, LAST, output, &done);
    }
}

/// The step in which the second rank of a pair gets its result.
const LAST: u32 = 255;

/// Recursive doubling: in each round two ranks exchange their values, and both combine them.
fn double(
    draft: &mut Draft,
    fold: Fold,
    mut own: Value,
    output: Span,
    in_place: bool,
    readers: &mut Vec<NodeId>,
) -> Vec<NodeId> {
    let leaf = fold.leaf(draft.rank);
    for level in 0..fold.levels() {
        let other = leaf ^ (1 << level);
        let to = fold.first(other);
        let sent = draft.send(to, level + 1, own.bytes, own.made.as_slice());
        // The input is read until all of these are done.
        readers.push(sent);
        let last = level + 1 == fold.levels() && !in_place;
        let room = room(draft, output.len(), last.then_some(output));
        own = meet(draft, own, to, level + 1, room, side(leaf, other), &[]);
        readers.extend(own.made);
    }
    if in_place || fold.levels() == 0 {
        let before: Vec<NodeId> = readers.iter().copied().chain(own.made).collect();
        return vec![draft.copy(own.bytes, output, &before)];
    }
    Vec::from_iter(own.made)
}

/// Recursive halving, then doubling: in each round two ranks exchange a half each of the part that both have, and combine the half
/// that they keep; then all gather the parts.
fn halve(draft: &mut Draft, fold: Fold, own: Value, output: Span, element: usize, in_place: bool) -> Vec<NodeId> {
    let leaf = fold.leaf(draft.rank);
    let count = output.len() / element;
    let mut value = own;
    // The part that is left, elements; and the parts that were split, with what was kept.
    let (mut first, mut length) = (0, count);
    let mut splits = Vec::new();
    let mut readers: Vec<NodeId> = Vec::from_iter(own.made);
    for level in 0..fold.levels() {
        let other = leaf ^ (1 << level);
        let (to, upper) = (fold.first(other), leaf & (1 << level) != 0);
        let lower = length / 2;
        let (kept, given) = match upper {
            true => ((lower, length - lower), (0, lower)),
            false => ((0, lower), (lower, length - lower)),
        };
        let bytes = |(first, length): (usize, usize)| (first * element, length * element);
        let (at, size) = bytes(given);
        let sent = draft.send(to, level + 1, value.bytes.part(at, size), value.made.as_slice());
        readers.push(sent);
        let (at, size) = bytes(kept);
        value = value.part(at, size);
        splits.push((first, length, upper, lower));
        (first, length) = (first + kept.0, kept.1);
        // Not in the output: that may be the input, which others are still to read.
        let room = draft.temporary(size);
        value = meet(draft, value, to, level + 1, room, side(leaf, other), &[]);
        readers.extend(value.made);
    }
    let all = if in_place { readers } else { Vec::from_iter(value.made) };
    let mut here = vec![draft.copy(value.bytes, output.part(first * element, length * element), &all)];
    for (level, (first, length, upper, lower)) in splits.into_iter().enumerate().rev() {
        let to = fold.first(leaf ^ (1 << level));
        let step = LAST - 1 - level as u32;
        let halves = [(first, lower), (first + lower, length - lower)];
        let part = |(first, length): (usize, usize)| output.part(first * element, length * element);
        draft.send(to, step, part(halves[usize::from(upper)]), &here);
        // Where the output is the input, all have read it by now.
        let before: &[NodeId] = if in_place { &here } else { &[] };
        let came = draft.receive(to, step, part(halves[usize::from(!upper)]), before);
        here.push(came);
    }
    here
}
