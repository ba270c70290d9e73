//! Reductions: reduce and allreduce, in the order of the canonical tree.

use super::draft::{Draft, NodeId, STEPS_MAX};
use super::fold::Fold;
use super::halving::{LAST, Stretch, down, parts};
use super::leaders;
use super::value::{Value, meet, side};
use tickwire_components::{Side, Span};

/// From this length on, each rank reduces a part, and the parts are then gathered. Bytes.
const SPLIT: usize = 16 << 10;
/// First step of such a reduction. Reductions of the other kind have lower steps only, so that messages of the two kinds never match.
const PARTS: u32 = 128;
const _: () = assert!(LAST < PARTS && PARTS + LAST < STEPS_MAX);

/// As [`meet`], but the result replaces this rank's own value.
fn meet_here(draft: &mut Draft, own: Value, from: u32, step: u32, side: Side) -> Value {
    let room = draft.temporary(own.bytes.len());
    let came = draft.receive(from, step, room, &[]);
    let made = draft.reduce(own.bytes, room, side.other(), &[came, own.made.unwrap_or(came)]);
    Value { made: Some(made), ..own }
}

/// Reduces the values of all ranks to `root`, which gets the result in `output`. `input` is only read, unless it is `output` itself; the
/// two must not overlap otherwise. `element` is the number of bytes that must stay together.
pub fn reduce(draft: &mut Draft, input: Span, output: Option<Span>, root: u32, element: usize) {
    let in_place = output.is_some_and(|output| std::ptr::eq(input.start(), output.start()) && !input.is_empty());
    let (fold, rank) = (Fold::of(draft.size), draft.rank);
    if fold.levels() > 1 && is_long(fold, input, element) {
        reduce_parts(draft, fold, (input, output, in_place), root, element);
        return;
    }
    let (leaf, top) = (fold.leaf(rank), fold.leaf(root));
    let at = |leaf: u32| if leaf == top { root } else { fold.first(leaf) };
    let mut own = Value { bytes: input, made: None };
    // Values still to be combined on this rank. The root makes its output with the last one.
    let mut left = u32::from(fold.partner(rank).is_some()) + fold.levels();
    let place = |left: u32| match output {
        _ if in_place => MeetingPlace::Own,
        Some(output) if left == 0 => MeetingPlace::Output(output),
        _ => MeetingPlace::Temporary,
    };
    let mut step = 0;
    if let Some(partner) = fold.partner(rank) {
        if at(leaf) != rank {
            draft.send(partner, step, input, &[]);
            return;
        }
        left -= 1;
        own = meet_at(draft, own, partner, step, side(rank, partner), place(left));
    }
    for level in 0..fold.levels() {
        step += 1;
        // Of two blocks of leaves that are combined, the one with the root's leaf goes on, or else the left one.
        let (block, sibling) = (leaf >> level, (leaf >> level) ^ 1);
        let holder = |block: u32| if top >> level == block { top } else { block << level };
        let goes_on = top >> level == block || (top >> level != sibling && block.is_multiple_of(2));
        if !goes_on {
            draft.send(at(holder(sibling)), step, own.bytes, own.made.as_slice());
            return;
        }
        left -= 1;
        let (from, side) = (at(holder(sibling)), side(block, sibling));
        own = meet_at(draft, own, from, step, side, place(left));
    }
    if let Some(output) = output
        && draft.size == 1
        && !in_place
    {
        draft.copy(input, output, &[]);
    }
}

/// Whether the input is long enough that each rank reduces a part.
fn is_long(fold: Fold, input: Span, element: usize) -> bool {
    input.len() >= SPLIT && input.len() / element.max(1) >= parts(fold)
}

/// A long [`reduce`]: each rank reduces a part, and the root gathers them along a tree.
fn reduce_parts(draft: &mut Draft, fold: Fold, buffers: (Span, Option<Span>, bool), root: u32, element: usize) {
    let (input, output, in_place) = buffers;
    draft.first_step += PARTS;
    let down = down(draft, fold, input, Stretch::all(input, element));
    let readers = in_place.then_some(&down.readers[..]);
    for half in &down.reduced {
        let held = half.gather_to(draft, fold, fold.leaf(root), output, readers);
        if let (Some((bytes, made)), true, Some((partner, _))) = (held, draft.rank != root, down.other) {
            draft.send(partner, LAST, bytes, &made);
        }
    }
    if let (Some(output), Some((partner, other))) = (output, down.other) {
        draft.receive(partner, LAST, other.of(output), readers.unwrap_or(&[]));
    }
}

/// Where two values are combined.
enum MeetingPlace {
    /// Where this rank's own value is.
    Own,
    /// In the output, the last time.
    Output(Span),
    /// In temporary memory of the graph.
    Temporary,
}

/// As [`meet`] and [`meet_here`].
fn meet_at(draft: &mut Draft, own: Value, from: u32, step: u32, side: Side, place: MeetingPlace) -> Value {
    let room = match place {
        MeetingPlace::Own => return meet_here(draft, own, from, step, side),
        MeetingPlace::Output(output) => output,
        MeetingPlace::Temporary => draft.temporary(own.bytes.len()),
    };
    meet(draft, own, from, step, room, side)
}

/// Reduces the values of all ranks, and all ranks get the result in `output`. `input` is only read, unless it is `output` itself; the two
/// must not overlap otherwise. `element` is the number of bytes that must stay together.
pub fn allreduce(draft: &mut Draft, input: Span, output: Span, element: usize) {
    let fold = Fold::of(draft.size);
    let in_place = std::ptr::eq(input.start(), output.start()) && !input.is_empty();
    if draft.size == 1 {
        if !in_place {
            draft.copy(input, output, &[]);
        }
        return;
    }
    if !is_long(fold, input, element) {
        return match draft.hosts.clone() {
            Some(hosts) => leaders::allreduce(draft, &hosts, fold, input, output, in_place),
            None => reduce_whole(draft, fold, input, output, in_place),
        };
    }
    draft.first_step += PARTS;
    let down = down(draft, fold, input, Stretch::all(input, element));
    let readers = in_place.then_some(&down.readers[..]);
    let mut here = Vec::new();
    for half in &down.reduced {
        here = half.gather_all(draft, fold, output, readers);
    }
    if let (Some((partner, other)), [half]) = (down.other, &down.reduced[..]) {
        draft.send(partner, LAST, half.all().of(output), &here);
        draft.receive(partner, LAST, other.of(output), readers.unwrap_or(&[]));
    }
}

/// An allreduce in which ranks exchange all of their elements.
fn reduce_whole(draft: &mut Draft, fold: Fold, input: Span, output: Span, in_place: bool) {
    let mut own = Value { bytes: input, made: None };
    let mut readers = Vec::new();
    let partner = fold.partner(draft.rank);
    match partner {
        Some(partner) if partner < draft.rank => {
            // The partner sends the result after it has read what is sent here.
            let sent = draft.send(partner, 0, input, &[]);
            let before = [sent];
            draft.receive(partner, LAST, output, if in_place { &before } else { &[] });
            return;
        }
        Some(partner) => {
            let room = draft.temporary(input.len());
            own = meet(draft, own, partner, 0, room, Side::Right);
            readers.extend(own.made);
        }
        None => {}
    }
    let done = double(draft, fold, own, output, in_place, &mut readers);
    if let Some(partner) = partner {
        draft.send(partner, LAST, output, &done);
    }
}

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
        // The input is in use until all of these nodes are done.
        readers.push(sent);
        let last = level + 1 == fold.levels() && !in_place;
        let room = if last { output } else { draft.temporary(output.len()) };
        own = meet(draft, own, to, level + 1, room, side(leaf, other));
        readers.extend(own.made);
    }
    if in_place || fold.levels() == 0 {
        let before: Vec<NodeId> = readers.iter().copied().chain(own.made).collect();
        return vec![draft.copy(own.bytes, output, &before)];
    }
    Vec::from_iter(own.made)
}
