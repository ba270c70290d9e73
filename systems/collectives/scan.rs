//! Prefixes: scan and exscan.

use super::draft::{Draft, NodeId};
use tickwire_components::{Side, Span};

/// Step in which a rank of an exscan sends its prefix to the next rank.
const PASS: u32 = 255;

/// Reduces the values of all ranks up to this one into `output`. With `exclusive`, only those of the ranks before it, and rank 0 gets
/// nothing. `input` is only read, unless it is `output` itself; the two must not overlap otherwise.
///
/// In round k a rank receives the reduced value of the 2^k ranks that end 2^k ranks before it.
pub fn scan(draft: &mut Draft, input: Span, output: Span, exclusive: bool) {
    let rank = draft.rank;
    let in_place = std::ptr::eq(input.start(), output.start()) && !input.is_empty();
    let (mut value, mut made): (Span, Option<NodeId>) = (input, None);
    // If the output is the input, it is written only after these nodes have read it.
    let mut readers: Vec<NodeId> = Vec::new();
    let (mut distance, mut step) = (1, 0);
    while distance < draft.size {
        if let Some(to) = rank.checked_add(distance).filter(|&to| to < draft.size) {
            let sent = draft.send(to, step, value, made.as_slice());
            readers.extend((in_place && made.is_none()).then_some(sent));
        }
        if let Some(from) = rank.checked_sub(distance) {
            let room = draft.temporary(input.len());
            let came = draft.receive(from, step, room, &[]);
            let first = made.is_none();
            let combined = draft.reduce(room, value, Side::Left, &[came, made.unwrap_or(came)]);
            readers.extend((in_place && first).then_some(combined));
            (value, made) = (room, Some(combined));
        }
        (distance, step) = (distance.saturating_mul(2), step + 1);
    }
    if !exclusive {
        if made.is_some() || !in_place {
            readers.extend(made);
            draft.copy(value, output, &readers);
        }
        return;
    }
    if rank + 1 < draft.size {
        let sent = draft.send(rank + 1, PASS, value, made.as_slice());
        readers.extend((in_place && made.is_none()).then_some(sent));
    }
    if rank > 0 {
        draft.receive(rank - 1, PASS, output, &readers);
    }
}
