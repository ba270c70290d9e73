//! Whether a type has a byte twice.
//!
//! Each constructor asks this of what it adds to types that were found good before, so one level is looked at. Three
//! looks, the cheap ones first: do the bounds lie apart; do loops, ordered by stride, nest; and at last all runs, sorted.

use super::DatatypeError;
use super::node::{Node, Shape};
use super::walk::{Visit, whole};
use crate::limits::DATATYPE_RUNS_SORTED;

/// Parts of a type: `count` times `node`, `stride` bytes apart, and the bytes between which all of it lies.
pub(super) struct Copies<'a> {
    pub(super) node: &'a Node,
    pub(super) count: usize,
    pub(super) stride: isize,
    /// First byte and the one behind the last of one copy.
    pub(super) one: (isize, isize),
}

/// Whether copies of one type lie apart.
pub(super) fn check_copies(copies: &Copies<'_>) -> Result<(), DatatypeError> {
    let &Copies { node, count, stride, one } = copies;
    let length = (one.1 - one.0).unsigned_abs();
    if count < 2 || node.size == 0 || stride.unsigned_abs() >= length {
        return Ok(());
    }
    // More bytes than there is room for two neighbours, or for all.
    let room = |count: usize| length as u128 + stride.unsigned_abs() as u128 * (count as u128 - 1);
    if [2, count].iter().any(|&count| node.size as u128 * count as u128 > room(count)) {
        return Err(DatatypeError::Overlap);
    }
    let mut loops = vec![(stride.unsigned_abs(), count)];
    let mut inner = node;
    loop {
        match &inner.shape {
            Shape::Loop { count, stride, child } => {
                loops.push((stride.unsigned_abs(), *count));
                inner = child;
            }
            &Shape::Strided { count, block, stride } => {
                loops.push((stride.unsigned_abs(), count));
                return nested(loops, block).or_else(|| sorted([copies])).unwrap_or(Err(DatatypeError::Intricate));
            }
            Shape::Run => return Err(DatatypeError::Overlap),
            _ => break,
        }
    }
    let mut extent = Extent { lower: isize::MAX, upper: isize::MIN };
    let told = inner.runs <= DATATYPE_RUNS_SORTED && whole(inner, 0, &mut extent);
    let outcome = told.then(|| nested(loops, (extent.upper - extent.lower).unsigned_abs())).flatten();
    outcome.or_else(|| sorted([copies])).unwrap_or(Err(DatatypeError::Intricate))
}

/// Whether parts, each good in itself, lie apart; `bounds` are those of each as a whole.
pub(super) fn check_parts(nodes: &[Node], bounds: &[(isize, isize)]) -> Result<(), DatatypeError> {
    let mut order: Vec<usize> = (0..nodes.len()).filter(|&index| nodes[index].size > 0).collect();
    order.sort_unstable_by_key(|&index| bounds[index]);
    let apart = |pair: &[usize]| bounds[pair[0]].1 <= bounds[pair[1]].0;
    if order.windows(2).all(apart) {
        return Ok(());
    }
    let copies: Vec<Copies<'_>> =
        nodes.iter().zip(bounds).map(|(node, &one)| Copies { node, count: 1, stride: 0, one }).collect();
    interleaved(nodes, bounds).or_else(|| sorted(&copies)).unwrap_or(Err(DatatypeError::Intricate))
}

/// Loops in any order over `extent` bytes: if each goes at least as far as all shorter ones reach together, no two
/// rounds meet. `None` if it cannot be told so.
fn nested(mut loops: Vec<(usize, usize)>, extent: usize) -> Option<Result<(), DatatypeError>> {
    loops.sort_unstable();
    let mut reach = extent as u128;
    for (stride, count) in loops {
        if (stride as u128) < reach {
            return None;
        }
        reach += stride as u128 * (count as u128 - 1);
    }
    Some(Ok(()))
}

/// Loops with the same strides and counts side by side are one loop over what is in them.
fn interleaved(nodes: &[Node], bounds: &[(isize, isize)]) -> Option<Result<(), DatatypeError>> {
    let mut inner = Vec::new();
    let mut way = None;
    for (node, bounds) in nodes.iter().zip(bounds).filter(|(node, _)| node.size > 0) {
        let (count, stride) = match &node.shape {
            &Shape::Strided { count, stride, .. } | &Shape::Loop { count, stride, .. } => (count, stride),
            _ => return None,
        };
        if *way.get_or_insert((count, stride)) != (count, stride) {
            return None;
        }
        let length = (bounds.1 - bounds.0) - stride.abs() * (count as isize - 1);
        let lower = if stride < 0 { bounds.1 - length } else { bounds.0 };
        inner.push((lower, lower + length));
    }
    let (_, stride) = way?;
    inner.sort_unstable();
    let apart = inner.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    let length = inner.last()?.1 - inner.first()?.0;
    (apart && stride.unsigned_abs() >= length.unsigned_abs()).then_some(Ok(()))
}

/// All runs in order of place; `None` if they are too many.
fn sorted<'a, 'b: 'a>(copies: impl IntoIterator<Item = &'a Copies<'b>> + Clone) -> Option<Result<(), DatatypeError>> {
    let all = copies.clone().into_iter().map(|copies| copies.node.runs.saturating_mul(copies.count));
    if all.fold(0, usize::saturating_add) > DATATYPE_RUNS_SORTED {
        return None;
    }
    let mut runs = Collected(Vec::new());
    for copies in copies {
        for index in 0..copies.count as isize {
            whole(copies.node, index * copies.stride, &mut runs);
        }
    }
    runs.0.sort_unstable();
    let apart = runs.0.windows(2).all(|pair| pair[0].0 + pair[0].1 as isize <= pair[1].0);
    Some(if apart { Ok(()) } else { Err(DatatypeError::Overlap) })
}

struct Collected(Vec<(isize, usize)>);

impl Visit for Collected {
    fn run(&mut self, offset: isize, length: usize) -> bool {
        // A run of nothing, of an empty block, lies in nobody's way.
        if length > 0 {
            self.0.push((offset, length));
        }
        true
    }
}

struct Extent {
    lower: isize,
    upper: isize,
}

impl Visit for Extent {
    fn run(&mut self, offset: isize, length: usize) -> bool {
        if length > 0 {
            self.lower = self.lower.min(offset);
            self.upper = self.upper.max(offset + length as isize);
        }
        true
    }
}
