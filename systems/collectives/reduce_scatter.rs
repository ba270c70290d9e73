//! Reductions whose result comes in parts, in the order of the canonical tree.

use super::draft::{Draft, NodeId};
use super::fold::Fold;
use super::reduce::reduce;
use super::spread::scatter;
use tickwire_components::{Side, Span};

/// Up to so many ranks each one sends its parts to all others, however short they are.
const FEW: u32 = 8;
/// Parts that are longer go straight to their ranks.
const PART_DIRECT: usize = 1 << 10;
/// The first step of the scatter behind a reduction.
const SCATTER: u32 = 128;

/// As [`reduce_scatter`], of parts of one length, one behind the other in `input`, which does not overlap with `output`. Among many
/// ranks short ones are reduced by one of them, which deals out the result.
pub fn reduce_scatter_block(draft: &mut Draft, input: Span, output: Span) {
    let block = output.len();
    if draft.size <= FEW || block > PART_DIRECT {
        return reduce_scatter(draft, |rank| input.part(rank as usize * block, block), output, false);
    }
    let result = (draft.rank == 0).then(|| draft.temporary(input.len()));
    let made = reduce(draft, input, result, 0);
    draft.first_step = SCATTER;
    scatter(draft, result.unwrap_or(Span::EMPTY), Some(output), block, 0, made.as_slice());
}

/// The values of all ranks, reduced, in parts: `part` says where the one of a rank is, and `output` takes the own one. With
/// `in_place` that overlaps with the parts.
pub fn reduce_scatter(draft: &mut Draft, part: impl Fn(u32) -> Span, output: Span, in_place: bool) {
    let (rank, size) = (draft.rank, draft.size);
    if size == 1 {
        if !in_place {
            draft.copy(part(0), output, &[]);
        }
        return;
    }
    let mut readers: Vec<NodeId> = Vec::new();
    for distance in 1..size {
        let to = draft.ahead(distance);
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

/// Combines two values that are here into the first.
fn combine(draft: &mut Draft, first: (Span, Vec<NodeId>), second: Option<(Span, Vec<NodeId>)>) -> (Span, Vec<NodeId>) {
    let Some((other, made)) = second else { return first };
    let before: Vec<NodeId> = first.1.into_iter().chain(made).collect();
    (first.0, vec![draft.reduce(first.0, other, Side::Left, &before)])
}
