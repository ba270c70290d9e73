//! Sorts the bytes of messages in parts, as they come, into the parts that they belong to. See `blocks.rs`.

#![expect(unsafe_code, reason = "bytes that are addresses")]

use super::passing::wake;
use crate::rows::Rows;
use crate::steps::supply::hand_out::{filled, space};
use smallvec::SmallVec;
use tickwire_components::{Combine, Graph, Inlet, InletMemory, PartKind, Row, Span, Supply};
use tickwire_transports::copy;

/// Takes the next bytes of a message: each goes to its part, and the messages that pass it on go on. Returns how many bytes found a
/// place.
pub(super) fn take_in(rows: &mut Rows<'_>, row: Row, payload: Span) -> u64 {
    let node = rows.nodes[row as usize];
    let (number, index) = (node.graph, node.incoming());
    let mut moved = 0;
    let mut fed: SmallVec<[u32; 8]> = SmallVec::new();
    {
        let Rows { progress, cars, supplies, .. } = rows;
        let Some(graph) = progress.graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut) else {
            return 0;
        };
        let Graph { blocks: Some(blocks), .. } = graph else { return 0 };
        let done = cars[row as usize].done;
        while moved < payload.len() {
            let incoming = &mut blocks.incoming[index as usize];
            let at = done + moved as u64;
            let Some(part) = incoming.passage.part_at(at) else { break };
            let PartKind::Inlet(index) = part.what else { break };
            let inlet = &mut blocks.inlets[index as usize];
            let rest = payload.part(moved, (part.start + part.bytes - at) as usize);
            let offset = (at - part.start) as usize;
            let before = inlet.come;
            let taken = match inlet.operation {
                None => pass(inlet, supplies, offset, rest),
                Some(_) => {
                    let (scratch, carried) = (incoming.scratch, &mut incoming.carried);
                    combine(inlet, supplies, scratch, carried, offset, rest)
                }
            };
            moved += taken;
            for &outgoing in &inlet.outgoing {
                blocks.outgoing[outgoing as usize].missing -= inlet.come - before;
                if !fed.contains(&outgoing) {
                    fed.push(outgoing);
                }
            }
            if taken == 0 {
                break;
            }
        }
    }
    fed.into_iter().for_each(|outgoing| wake(rows, number, outgoing));
    moved as u64
}

/// Puts bytes of a part where they are wanted, and also where they are passed on from. Returns how many bytes found a place.
fn pass(inlet: &mut Inlet, supplies: &mut [Supply], offset: usize, from: Span) -> usize {
    let moved = leave_behind(inlet, supplies, offset, from);
    // SAFETY: whoever has built the graph keeps its buffers until its request is done; a payload is there until it is released.
    unsafe { copy::copy_long(inlet.segment.part(offset, usize::MAX), from.part(0, moved)) };
    inlet.come += moved as u64;
    moved
}

/// Puts bytes, from `offset` of their part on, where they are passed on from, if they are. Returns how many bytes found a place.
fn leave_behind(inlet: &Inlet, supplies: &mut [Supply], offset: usize, from: Span) -> usize {
    match inlet.memory {
        InletMemory::None => from.len(),
        // SAFETY: as in `pass`; the graph keeps memory of its own as long.
        InletMemory::Place(place) => unsafe { copy::copy_long(place.part(offset, usize::MAX), from) },
        InletMemory::Window(row) => {
            let Some(supply) = supplies.get_mut(row as usize) else { return 0 };
            let mut moved = 0;
            while moved < from.len() {
                // SAFETY: as in `pass`; what was handed out is there until it has left.
                let more = unsafe { copy::copy_long(space(supply), from.part(moved, usize::MAX)) };
                if more == 0 {
                    break;
                }
                filled(supply, more as u64);
                moved += more;
            }
            moved
        }
    }
}

/// Takes as many bytes of a part that is combined as fit into `scratch`, and combines whole elements with the application's. Returns how
/// many bytes were taken.
fn combine(
    inlet: &mut Inlet,
    supplies: &mut [Supply],
    scratch: Span,
    carried: &mut usize,
    offset: usize,
    from: Span,
) -> usize {
    let Some(operand) = &inlet.operation else { return 0 };
    let before = *carried;
    // SAFETY: memory of the graph's own; a payload is there until it is released.
    let taken = unsafe { copy::copy(scratch.part(before, usize::MAX), from) };
    let size = operand.size;
    let whole = (before + taken) / size * size;
    let (come, elements) = (offset - before, scratch.part(0, whole));
    let own = inlet.segment.part(come, whole);
    // SAFETY: whole elements in memory of the graph's own, and in a segment that does not overlap with it.
    unsafe {
        match inlet.combine {
            Combine::Send => operand.reduce.combine_into(elements, own, operand.side),
            _ => operand.reduce.combine_into(own, elements, operand.side.other()),
        }
    }
    let result = if inlet.combine == Combine::Send { elements } else { own };
    let in_place =
        matches!(inlet.memory, InletMemory::Place(place) if std::ptr::eq(place.start(), inlet.segment.start()));
    let left = if in_place { whole } else { leave_behind(inlet, supplies, come, result) };
    debug_assert_eq!(left, whole, "there is room for what was asked for");
    inlet.come += whole as u64;
    let rest = scratch.part(whole, before + taken - whole);
    // SAFETY: both are in memory of the graph's own, and may overlap.
    unsafe { scratch.start().copy_from(rest.start(), rest.len()) };
    *carried = rest.len();
    taken
}
