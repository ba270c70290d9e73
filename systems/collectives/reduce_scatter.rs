//! Reductions whose result is scattered, in the order of the canonical tree.

use super::around::Around;
use super::draft::{Draft, NodeId};
use super::fold::Fold;
use super::halving::{Stretch, deliver, down};
use tickwire_components::{Side, Span};

/// With up to this many ranks, each one sends its parts to all others.
const FEW: u32 = 8;

/// Reduces the values of all ranks, and gives each rank its part of the result, in `output`. The parts are contiguous in `input`: `start`
/// says where the part of a rank begins, bytes, and where the last one ends if it is given the number of ranks. `output` may be the
/// beginning of `input`, or does not overlap with it. `element` is the number of bytes that must stay together.
///
/// With few ranks, each one sends the parts directly to the ranks that reduce them. With many ranks, they reduce by halving, so that each
/// one has an equal share of the result, and then deliver the shares to the ranks whose parts they are.
pub fn reduce_scatter(draft: &mut Draft, input: Span, start: &dyn Fn(u32) -> usize, output: Span, element: usize) {
    let in_place = std::ptr::eq(input.start(), output.start()) && !input.is_empty();
    if draft.size <= FEW {
        return reduce_each(draft, &|rank| input.part(start(rank), start(rank + 1) - start(rank)), output, in_place);
    }
    let fold = Fold::of(draft.size);
    let all = Stretch::all(input.part(0, start(draft.size)), element);
    let down = down(draft, fold, input, all);
    deliver(draft, fold, &down, all, start, output, in_place);
}

/// Each rank receives its part from all others, and reduces them.
fn reduce_each(draft: &mut Draft, part: &dyn Fn(u32) -> Span, output: Span, in_place: bool) {
    let (rank, size) = (draft.rank, draft.size);
    if size == 1 {
        if !in_place {
            draft.copy(part(0), output, &[]);
        }
        return;
    }
    let mut readers: Vec<NodeId> = Vec::new();
    for distance in 1..size {
        let to = Around::all(draft).ahead(distance);
        let sent = draft.send(to, 0, part(to), &[]);
        readers.extend(in_place.then_some(sent));
    }
    let mut values: Vec<(Span, Vec<NodeId>)> = Vec::with_capacity(size as usize);
    for from in 0..size {
        let room = draft.temporary(output.len());
        let made = match from == rank {
            true => draft.copy(part(rank), room, &[]),
            false => draft.receive(from, 0, room, &[]),
        };
        values.push((room, vec![made]));
    }
    let fold = Fold::of(size);
    let mut leaves = Vec::with_capacity(fold.leaves as usize);
    let mut rest = values.into_iter();
    for leaf in 0..fold.leaves {
        let Some(first) = rest.next() else { break };
        let second = if leaf < fold.pairs { rest.next() } else { None };
        leaves.push(combine(draft, first, second));
    }
    while leaves.len() > 1 {
        let mut pairs = leaves.into_iter();
        let mut next = Vec::new();
        while let Some(first) = pairs.next() {
            let second = pairs.next();
            next.push(combine(draft, first, second));
        }
        leaves = next;
    }
    for (value, made) in leaves {
        readers.extend(made);
        draft.copy(value, output, &readers);
    }
}

/// Combines two values on this rank into the first.
fn combine(draft: &mut Draft, first: (Span, Vec<NodeId>), second: Option<(Span, Vec<NodeId>)>) -> (Span, Vec<NodeId>) {
    let Some((other, made)) = second else { return first };
    let before: Vec<NodeId> = first.1.into_iter().chain(made).collect();
    (first.0, vec![draft.reduce(first.0, other, Side::Left, &before)])
}
