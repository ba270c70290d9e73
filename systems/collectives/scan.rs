//! Prefixes: scan and exscan.

use super::draft::{Draft, NodeId};
use tickwire_components::{Side, Span};

/// The step in which a rank passes its prefix on, for the one behind it.
const PASS: u32 = 255;

/// The values of the ranks up to the own one, reduced, go to `output`; with `exclusive` those before it, and rank 0 gets none.
/// `input` is only read, and does not overlap with `output`.
///
/// In round k a rank gets the value of the 2^k ranks that end 2^k before it.
pub fn scan(draft: &mut Draft, input: Span, output: Span, exclusive: bool) {
    let rank = draft.rank;
    let (mut value, mut made): (Span, Option<NodeId>) = (input, None);
    let (mut distance, mut step) = (1, 0);
    while distance < draft.size {
        if let Some(to) = rank.checked_add(distance).filter(|&to| to < draft.size) {
            draft.send(to, step, value, made.as_slice());
        }
        if let Some(from) = rank.checked_sub(distance) {
            let room = draft.temporary(input.len());
            let came = draft.receive(from, step, room, &[]);
            made = Some(draft.reduce(room, value, Side::Left, &[came, made.unwrap_or(came)]));
            value = room;
        }
        (distance, step) = (distance.saturating_mul(2), step + 1);
    }
    if !exclusive {
        draft.copy(value, output, made.as_slice());
        return;
    }
    if rank + 1 < draft.size {
        draft.send(rank + 1, PASS, value, made.as_slice());
    }
    if rank > 0 {
        draft.receive(rank - 1, PASS, output, &[]);
    }
}
