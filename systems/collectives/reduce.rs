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
    let (fold, bytes) = (Fold::of(draft.size), input.len());
    let in_place = std::ptr::eq(input.start(), output.start()) && bytes > 0;
    if draft.size == 1 {
        if !in_place {
            draft.copy(input, output, &[]);
        }
        return;
    }
    let count = bytes / element.max(1);
    // Where there are pairs, each leaf reduces two halves apart.
    let parts = fold.leaves as usize * if fold.pairs > 0 { 2 } else { 1 };
    if bytes < SPLIT || count < parts {
        return reduce_whole(draft, fold, input, output, in_place);
    }
    let whole = Stretch { first: 0, length: count, element };
    if fold.pairs == 0 {
        halve(draft, fold, Half::WHOLE, Value { bytes: input, made: None }, output, whole, in_place);
        return;
    }
    let lower = count / 2;
    let halves = [Stretch { length: lower, ..whole }, Stretch { first: lower, length: count - lower, ..whole }];
    let Some(partner) = fold.partner(draft.rank) else {
        for (half, stretch) in [Half::LOWER, Half::UPPER].into_iter().zip(halves) {
            let own = Value { bytes: stretch.of(input), made: None };
            halve(draft, fold, half, own, output, stretch, in_place);
        }
        return;
    };
    reduce_half(draft, fold, partner, halves, (input, output, in_place));
}

/// The part of a rank that has a partner: of two halves each of them reduces one, for both. So each sends and receives as much as
/// a rank without a partner: half of the bytes to the partner, before and after, and of the half its own share.
fn reduce_half(draft: &mut Draft, fold: Fold, partner: u32, halves: [Stretch; 2], buffers: (Span, Span, bool)) {
    let (input, output, in_place) = buffers;
    let (half, [own, other]) = match draft.rank < partner {
        true => (Half::LOWER, halves),
        false => (Half::UPPER, [halves[1], halves[0]]),
    };
    let sent = draft.send(partner, 0, other.of(input), &[]);
    let room = draft.temporary(own.of(input).len());
    let value = Value { bytes: own.of(input), made: None };
    let value = meet(draft, value, partner, 0, room, side(draft.rank, partner), &[]);
    let done = halve(draft, fold, half, value, output, own, in_place);
    draft.send(partner, LAST, own.of(output), &done);
    // The result comes where the partner has read what it was sent.
    draft.receive(partner, LAST, other.of(output), if in_place { std::slice::from_ref(&sent) } else { &[] });
}

/// An allreduce in which ranks exchange all of their elements.
fn reduce_whole(draft: &mut Draft, fold: Fold, input: Span, output: Span, in_place: bool) {
    let mut own = Value { bytes: input, made: None };
    let mut readers = Vec::new();
    let partner = fold.partner(draft.rank);
    match partner {
        Some(partner) if partner < draft.rank => {
            // The result comes when the partner has read what is sent.
            let sent = draft.send(partner, 0, input, &[]);
            let before = [sent];
            draft.receive(partner, LAST, output, if in_place { &before } else { &[] });
            return;
        }
        Some(partner) => {
            let room = draft.temporary(input.len());
            own = meet(draft, own, partner, 0, room, Side::Right, &[]);
            readers.extend(own.made);
        }
        None => {}
    }
    let done = double(draft, fold, own, output, in_place, &mut readers);
    if let Some(partner) = partner {
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

/// A run of elements of a buffer.
#[derive(Clone, Copy)]
struct Stretch {
    first: usize,
    length: usize,
    /// Bytes of an element.
    element: usize,
}

impl Stretch {
    fn of(self, buffer: Span) -> Span {
        buffer.part(self.first * self.element, self.length * self.element)
    }

    /// Its halves; of an odd number the upper one is longer.
    fn halves(self) -> [Stretch; 2] {
        let lower = self.length / 2;
        [Stretch { length: lower, ..self }, Stretch { first: self.first + lower, length: self.length - lower, ..self }]
    }
}

/// Which elements are reduced: all, or a half, in which pairs have the rank that cares for it.
#[derive(Clone, Copy)]
struct Half {
    /// Which rank of a pair.
    second: bool,
    /// Added to the steps of the way down, and taken from those of the way up.
    steps: u32,
}

impl Half {
    const WHOLE: Half = Half { second: false, steps: 0 };
    const LOWER: Half = Half::WHOLE;
    const UPPER: Half = Half { second: true, steps: 64 };

    /// The rank of a leaf that cares for it.
    fn rank(self, fold: Fold, leaf: u32) -> u32 {
        fold.first(leaf) + u32::from(self.second && leaf < fold.pairs)
    }
}

/// Recursive halving, then doubling: in each round two leaves exchange a half each of the part that both have, and combine the half
/// that they keep; then all gather the parts. `own` has the elements of a stretch, whose results go to that of `output`. Returns the
/// nodes after which they are there.
fn halve(
    draft: &mut Draft,
    fold: Fold,
    half: Half,
    own: Value,
    output: Span,
    stretch: Stretch,
    in_place: bool,
) -> Vec<NodeId> {
    let leaf = fold.leaf(draft.rank);
    let mut value = own;
    // The part that is left, and those that were split, with what was kept.
    let mut left = stretch;
    let mut splits = Vec::new();
    let mut readers: Vec<NodeId> = Vec::from_iter(own.made);
    for level in 0..fold.levels() {
        let other = leaf ^ (1 << level);
        let (to, upper) = (half.rank(fold, other), usize::from(leaf & (1 << level) != 0));
        let step = half.steps + level + 1;
        let halves = left.halves();
        let bytes = |which: usize| {
            let Stretch { first, length, element } = halves[which];
            ((first - left.first) * element, length * element)
        };
        let (at, size) = bytes(1 - upper);
        let sent = draft.send(to, step, value.bytes.part(at, size), value.made.as_slice());
        readers.push(sent);
        let (at, size) = bytes(upper);
        value = value.part(at, size);
        splits.push((halves, upper));
        left = halves[upper];
        // Not in the output: that may be the input, which others are still to read.
        let room = draft.temporary(size);
        value = meet(draft, value, to, step, room, side(leaf, other), &[]);
        readers.extend(value.made);
    }
    let all = if in_place { readers } else { Vec::from_iter(value.made) };
    let mut here = vec![draft.copy(value.bytes, left.of(output), &all)];
    for (level, (halves, upper)) in splits.into_iter().enumerate().rev() {
        let to = half.rank(fold, leaf ^ (1 << level));
        let step = LAST - 1 - half.steps - level as u32;
        draft.send(to, step, halves[upper].of(output), &here);
        // Where the output is the input, all have read it by now.
        let before: &[NodeId] = if in_place { &here } else { &[] };
        let came = draft.receive(to, step, halves[1 - upper].of(output), before);
        here.push(came);
    }
    here
}
