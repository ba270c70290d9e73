//! Walking over a range of a type's bytes, in the order of the message.

use super::node::{Node, Part, Place, Shape};

/// What to do with each run. A call returns whether to go on.
pub(super) trait Visit {
    /// A run of bytes.
    fn run(&mut self, offset: isize, length: usize) -> bool;

    /// Runs of `block` bytes, `stride` bytes apart.
    fn blocks(&mut self, offset: isize, block: usize, count: usize, stride: isize) -> bool {
        (0..count as isize).all(|index| self.run(offset + index * stride, block))
    }
}

/// Visits `length` bytes of the message from byte `first` on. The origin of the node is at `at`, and the range is within the node.
pub(super) fn walk<V: Visit>(node: &Node, at: isize, first: usize, length: usize, visit: &mut V) -> bool {
    if length == 0 {
        return true;
    }
    if length == node.size {
        return whole(node, at, visit);
    }
    let at = at + node.offset;
    match &node.shape {
        Shape::Run => visit.run(at + first as isize, length),
        &Shape::Strided { block, stride, .. } => {
            let (index, skip) = (first / block, first % block);
            strided(at + index as isize * stride, skip, length, block, stride, visit)
        }
        Shape::Loop { stride, child, .. } => {
            let (mut at, mut skip, mut left) =
                (at + (first / child.size) as isize * stride, first % child.size, length);
            while left > 0 {
                let part = (child.size - skip).min(left);
                if !walk(child, at, skip, part, visit) {
                    return false;
                }
                left -= part;
                skip = 0;
                at = at.wrapping_add(*stride);
            }
            true
        }
        Shape::Runs(places) => {
            let of = |place: &Place| (place.start, place.length);
            each(places, of, first, length, |place, skip, part| visit.run(at + place.offset + skip as isize, part))
        }
        Shape::List(parts) => {
            let of = |part: &Part| (part.start, part.node.size);
            each(parts, of, first, length, |of, skip, part| walk(&of.node, at, skip, part, visit))
        }
    }
}

/// Visits the parts of a range, which is within the entries of a list. `of` tells the first byte of an entry in the message, and its length.
/// `visit` gets the entry, the first byte in it, and the number of bytes.
#[inline(always)]
fn each<T>(
    entries: &[T],
    of: impl Fn(&T) -> (usize, usize),
    first: usize,
    length: usize,
    mut visit: impl FnMut(&T, usize, usize) -> bool,
) -> bool {
    let from = entries.partition_point(|entry| of(entry).0 <= first) - 1;
    let (mut next, end) = (first, first + length);
    for entry in &entries[from..] {
        let (start, length) = of(entry);
        let stop = (start + length).min(end);
        if !visit(entry, next - start, stop - next) {
            return false;
        }
        next = stop;
        if next == end {
            break;
        }
    }
    true
}

/// Visits a range of equally long runs. The range starts `skip` bytes into the run at `at`.
fn strided<V: Visit>(at: isize, skip: usize, length: usize, block: usize, stride: isize, visit: &mut V) -> bool {
    let (mut at, mut left) = (at, length);
    if skip > 0 {
        let part = (block - skip).min(left);
        if !visit.run(at + skip as isize, part) {
            return false;
        }
        left -= part;
        if left == 0 {
            return true;
        }
        at += stride;
    }
    let (count, rest) = (left / block, left % block);
    if count > 0 && !visit.blocks(at, block, count, stride) {
        return false;
    }
    rest == 0 || visit.run(at + count as isize * stride, rest)
}

/// Visits all bytes of a node.
pub(super) fn whole<V: Visit>(node: &Node, at: isize, visit: &mut V) -> bool {
    let at = at + node.offset;
    match &node.shape {
        Shape::Run => visit.run(at, node.size),
        &Shape::Strided { count, block, stride } => visit.blocks(at, block, count, stride),
        Shape::Loop { count, stride, child } => {
            (0..*count as isize).all(|index| whole(child, at + index * stride, visit))
        }
        Shape::Runs(places) => places.iter().all(|place| visit.run(at + place.offset, place.length)),
        Shape::List(parts) => parts.iter().all(|part| whole(&part.node, at, visit)),
    }
}
