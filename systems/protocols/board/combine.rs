//! Reductions of the operands of all members, in the order of all reductions (`systems/collectives`).
//!
//! Intermediate values stand in scratch, one block for each level of the reduction tree, so that they stay in the L1 cache.

use crate::collectives::fold::Fold;
use std::ops::Range;
use tickwire_components::limits::{BOARD_DIRECT_CHUNK, BOARD_ELEMENT_MAX, BOARD_MEMBERS, CACHE_LINE};
use tickwire_components::{Reduction, Span};
use tickwire_transports::copy::{copy_long, copy_own};

/// Bytes of a block.
const BLOCK: usize = BOARD_ELEMENT_MAX;
/// Blocks in scratch: one for each level of the tree among up to sixteen members, and one for a result that must not overwrite an operand
/// yet.
const BLOCKS: usize = 5;
/// Bytes of room for values on the way.
pub(super) const SCRATCH_BYTES: usize = BLOCK * BLOCKS;
/// Bytes of scratch behind those, for the operands of one chunk that the kernel has read.
pub(super) const OPERANDS_BYTES: usize = BOARD_DIRECT_CHUNK + BOARD_MEMBERS as usize * CACHE_LINE;
const _: () = assert!(BOARD_MEMBERS <= 1 << (BLOCKS - 1));

/// What operands are combined with and by.
pub(super) struct Combiner<'a> {
    /// How.
    pub(super) reduction: &'a Reduction,
    /// Bytes of an element.
    pub(super) element: usize,
    /// [`SCRATCH_BYTES`] at least.
    pub(super) scratch: Span,
    /// A second place for the result. Each block is copied there while it is still in the L1 cache. Empty if there is no second place.
    pub(super) also: Span,
}

/// The operand of a member, by its rank: all of it, or the block at hand.
type Operands<'a> = &'a dyn Fn(u32) -> Span;

#[expect(unsafe_code, reason = "bytes that are addresses")]
impl Combiner<'_> {
    /// Combines the operands of so many members. `out` is one of them, or overlaps with none.
    ///
    /// # Safety
    /// All are runs of elements of the reduction's type and of `out`'s length. Only `out` is used by nobody else.
    pub(super) unsafe fn all(&self, size: u32, out: Span, operand: Operands<'_>) {
        if size == 2 {
            // SAFETY: by this function's contract.
            return unsafe { self.two(out, [operand(0), operand(1)]) };
        }
        let fold = Fold::of(size);
        // SAFETY: by this function's contract.
        unsafe { self.blocks(out, operand, &|operand, into| self.fold(fold, 0..fold.leaves, into, 0, operand)) }
    }

    /// Combines the operands of the members up to a rank, in the order of a scan. `out` is one of them, or overlaps with none.
    ///
    /// # Safety
    /// As of [`Combiner::all`].
    pub(super) unsafe fn prefix(&self, last: u32, size: u32, out: Span, operand: Operands<'_>) {
        match last {
            // SAFETY: by this function's contract.
            0 => return unsafe { copy(out, operand(0)) },
            // SAFETY: by this function's contract.
            1 => return unsafe { self.two(out, [operand(0), operand(1)]) },
            _ => {}
        }
        let rounds = size.next_power_of_two().ilog2();
        // SAFETY: by this function's contract.
        unsafe { self.blocks(out, operand, &|operand, into| self.run(last, rounds, into, 0, operand)) }
    }

    /// Combines two operands.
    ///
    /// # Safety
    /// As of [`Combiner::all`].
    #[inline(always)]
    pub(super) unsafe fn two(&self, out: Span, operands: [Span; 2]) {
        if out.len() <= BLOCK && self.also.is_empty() {
            let [left, right] = operands;
            // SAFETY: by this function's contract.
            return unsafe { self.reduction.combine(out, left, right) };
        }
        // SAFETY: by this function's contract.
        unsafe { self.two_by_blocks(out, operands) }
    }

    /// See [`Combiner::two`].
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn two_by_blocks(&self, out: Span, operands: [Span; 2]) {
        let block = self.block();
        let mut first = 0;
        while first < out.len() {
            let [left, right] = operands.map(|operand| operand.part(first, block));
            // SAFETY: by this function's contract.
            unsafe {
                self.reduction.combine(out.part(first, block), left, right);
                self.copy_also(out, first);
            }
            first += block;
        }
    }

    /// Bytes of a block: whole elements, at least one.
    fn block(&self) -> usize {
        (BLOCK / self.element * self.element).max(self.element)
    }

    /// Makes the result block by block.
    ///
    /// # Safety
    /// As of [`Combiner::all`].
    unsafe fn blocks(&self, out: Span, operand: Operands<'_>, make: &dyn Fn(Operands<'_>, Span) -> Span) {
        let block = self.block();
        let mut first = 0;
        while first < out.len() {
            let to = out.part(first, block);
            let part = |rank: u32| operand(rank).part(first, block);
            // The result may be where an operand is that is still needed, so it is made elsewhere.
            let made = make(&part, self.level(BLOCKS - 1).part(0, to.len()));
            // SAFETY: by this function's contract.
            unsafe {
                copy(to, made);
                self.copy_also(out, first);
            }
            first += block;
        }
    }

    /// Copies the block of the result that begins at byte `first` to the second place, if there is one.
    ///
    /// # Safety
    /// As of [`Combiner::all`].
    unsafe fn copy_also(&self, out: Span, first: usize) {
        let block = self.block();
        if !self.also.is_empty() {
            // SAFETY: the other place is as long as the result, and overlaps with nothing.
            unsafe { copy(self.also.part(first, block), out.part(first, block)) };
        }
    }

    /// Room for the value of a level.
    fn level(&self, level: usize) -> Span {
        self.scratch.part(level * BLOCK, BLOCK)
    }

    /// Combines the operands below these leaves of the tree; their number is a power of two. Returns where the value is: `into`, or the
    /// operand itself if there is only one member.
    fn fold(&self, fold: Fold, leaves: Range<u32>, into: Span, level: usize, operand: Operands<'_>) -> Span {
        let half = (leaves.end - leaves.start) / 2;
        if half == 0 {
            let rank = fold.first(leaves.start);
            let own = operand(rank);
            return match fold.partner(rank) {
                Some(partner) => self.meet(into, own, operand(partner)),
                None => own,
            };
        }
        let middle = leaves.start + half;
        let left = self.fold(fold, leaves.start..middle, into, level, operand);
        let room = self.level(level).part(0, into.len());
        let right = self.fold(fold, middle..leaves.end, room, level + 1, operand);
        self.meet(into, left, right)
    }

    /// Combines the operand of rank `last` with those of the ranks just before it: 2 to the power of `rounds` operands, or as many as
    /// there are. Returns where the value is.
    fn run(&self, last: u32, rounds: u32, into: Span, level: usize, operand: Operands<'_>) -> Span {
        let Some(rounds) = rounds.checked_sub(1) else { return operand(last) };
        let Some(before) = last.checked_sub(1 << rounds) else { return self.run(last, rounds, into, level, operand) };
        let left = self.run(before, rounds, into, level, operand);
        let room = self.level(level).part(0, into.len());
        let right = self.run(last, rounds, room, level + 1, operand);
        self.meet(into, left, right)
    }

    fn meet(&self, into: Span, left: Span, right: Span) -> Span {
        // SAFETY: by the contract of `all`; `into` is a block of scratch, which is `left` or neither.
        unsafe { self.reduction.combine(into, left, right) };
        into
    }
}

/// Copies bytes, unless they are there.
///
/// # Safety
/// Both runs are valid and of one length. They are one run, or do not overlap.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[inline(always)]
pub(super) unsafe fn copy(to: Span, from: Span) {
    if !std::ptr::eq(to.start(), from.start()) {
        // SAFETY: by this function's contract.
        unsafe { copy_long(to, from) };
    }
}

/// As [`copy`], of bytes that this member has written itself: its operand, which goes to others or to itself.
///
/// # Safety
/// As [`copy`].
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[inline(always)]
pub(super) unsafe fn copy_operand(to: Span, from: Span) {
    if !std::ptr::eq(to.start(), from.start()) {
        // SAFETY: by this function's contract.
        unsafe { copy_own(to, from) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire_components::{op, reduce};

    /// An operation that shows who met whom: it is neither commutative nor associative.
    fn pair(left: [u8; 16], right: [u8; 16]) -> [u8; 16] {
        let mut hash = [0; 16];
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = left[at].wrapping_mul(31).wrapping_add(right[15 - at]).rotate_left(3) ^ left[(at + 5) % 16];
        }
        hash
    }

    fn span<T>(elements: &mut [T]) -> Span {
        // SAFETY: the elements outlive the call.
        #[expect(unsafe_code, reason = "addresses of elements")]
        unsafe {
            Span::new(elements.as_mut_ptr().cast(), size_of_val(elements))
        }
    }

    fn operands(size: u32, count: usize) -> Vec<Vec<[u8; 16]>> {
        (0..size).map(|rank| (0..count).map(|at| [(rank as usize * 7 + at) as u8; 16]).collect()).collect()
    }

    fn balanced(values: &[[u8; 16]]) -> [u8; 16] {
        match values {
            [one] => *one,
            _ => pair(balanced(&values[..values.len() / 2]), balanced(&values[values.len() / 2..])),
        }
    }

    fn expected(values: &[[u8; 16]]) -> [u8; 16] {
        let leaves = 1 << values.len().ilog2();
        let pairs = values.len() - leaves;
        let mut folded: Vec<_> = values[..2 * pairs].chunks(2).map(|two| pair(two[0], two[1])).collect();
        folded.extend(&values[2 * pairs..]);
        balanced(&folded)
    }

    fn doubled(values: &[[u8; 16]], size: usize) -> [u8; 16] {
        let mut values = values.to_vec();
        let mut distance = 1;
        while distance < size {
            let before = values.clone();
            for at in distance..values.len() {
                values[at] = pair(before[at - distance], before[at]);
            }
            distance *= 2;
        }
        values[values.len() - 1]
    }

    #[test]
    fn operands_meet_in_the_order_of_all_reductions_in_place_or_not() {
        let reduction = reduce::<[u8; 16]>(pair);
        let mut room = vec![0u128; SCRATCH_BYTES / 16];
        let combiner = Combiner { reduction: &reduction, element: 16, scratch: span(&mut room), also: Span::EMPTY };
        for size in 2..=16u32 {
            for count in [1, 255, 256, 700] {
                for in_place in [None, Some(0), Some(size - 1), Some(size / 2)] {
                    let mut all = operands(size, count);
                    let column = |at: usize| all.iter().map(|values| values[at]).collect::<Vec<_>>();
                    let wanted: Vec<_> = (0..count).map(|at| expected(&column(at))).collect();
                    let prefix: Vec<_> = (0..count).map(|at| doubled(&column(at), size as usize)).collect();
                    let mut other = vec![[0; 16]; count];
                    for (wanted, is_prefix) in [(wanted, false), (prefix, true)] {
                        let mut all = all.clone();
                        let spans: Vec<Span> = all.iter_mut().map(|values| span(values)).collect();
                        let out = in_place.map_or(span(&mut other), |rank| spans[rank as usize]);
                        let operand = |rank: u32| spans[rank as usize];
                        // SAFETY: runs of one length, of which the result is one or none.
                        #[expect(unsafe_code, reason = "addresses of elements")]
                        unsafe {
                            match is_prefix {
                                true => combiner.prefix(size - 1, size, out, &operand),
                                false => combiner.all(size, out, &operand),
                            }
                        }
                        let found = in_place.map_or(&other, |rank| &all[rank as usize]);
                        assert_eq!(*found, wanted, "{size} members, {count}, in place {in_place:?}, {is_prefix}");
                    }
                    all.clear();
                }
            }
        }
    }

    #[test]
    fn a_prefix_of_one_is_its_operand() {
        let reduction = reduce::<u64>(op::Sum);
        let mut room = vec![0u128; SCRATCH_BYTES / 16];
        let combiner = Combiner { reduction: &reduction, element: 8, scratch: span(&mut room), also: Span::EMPTY };
        let (mut operand, mut out) = ([3u64, 4], [0u64; 2]);
        let operand = span(&mut operand);
        // SAFETY: runs of one length that do not overlap.
        #[expect(unsafe_code, reason = "addresses of elements")]
        unsafe {
            combiner.prefix(0, 5, span(&mut out), &|_| operand);
        }
        assert_eq!(out, [3, 4]);
    }
}
