//! Lists of buffers.

use super::{LeasedBytes, OneRun, Pieces};
use crate::Span;
use std::ops::{Deref, Range};

/// Several buffers that together are one message, one after another (in MPI: `MPI_Type_create_hindexed`). Each buffer is a run of the
/// message.
///
/// A list of lists is not a buffer, nor is a list of buffers with datatypes ([`Typed`](crate::Typed)):
///
/// ```
/// # use tickwire_components::{List, Pieces};
/// fn post<B: Pieces>(_: B) {}
/// post(List(vec![vec![1u8, 2], vec![], vec![3]]));
/// post(List(vec!["one".to_owned(), "two".to_owned()]));
/// ```
///
/// ```compile_fail,E0277
/// # use tickwire_components::{List, Pieces};
/// fn post<B: Pieces>(_: B) {}
/// post(List(vec![List(vec![vec![1u8, 2], vec![3]])]));
/// ```
///
/// ```compile_fail,E0277
/// # use tickwire_components::{List, Pieces, Typed};
/// fn post<B: Pieces>(_: B) {}
/// fn columns(columns: Vec<Typed<Vec<f64>>>) {
///     post(List(columns));
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct List<B>(pub Vec<B>);

impl<B> Deref for List<B> {
    type Target = Vec<B>;

    fn deref(&self) -> &Vec<B> {
        &self.0
    }
}

impl<B: OneRun> List<B> {
    /// Whether a byte of this list is in the other list, too. Either list may contain a byte twice.
    pub fn meets<R: OneRun>(&self, other: &List<R>) -> bool {
        let own = self.shared().map(|run| (run, 0));
        let mut runs: Vec<(Range<usize>, usize)> = own.chain(other.shared().map(|run| (run, 1))).collect();
        runs.sort_unstable_by_key(|(run, _)| run.start);
        // Where the runs of each list end that begin before the one that is looked at.
        let mut ends = [0; 2];
        runs.into_iter().any(|(run, side)| {
            ends[side] = run.end.max(ends[side]);
            run.start < ends[1 - side]
        })
    }

    /// The addresses of the runs of which another buffer may have bytes. Empty runs have none.
    fn shared(&self) -> impl Iterator<Item = Range<usize>> {
        let runs = self.0.iter().filter(|buffer| buffer.may_alias()).map(|buffer| buffer.piece(0));
        runs.filter(|run| !run.is_empty()).map(|run| run.start().addr()..run.start().addr() + run.len())
    }
}

impl<B> From<Vec<B>> for List<B> {
    fn from(buffers: Vec<B>) -> Self {
        List(buffers)
    }
}

// SAFETY: the elements are on the heap, and each reports one run, which does not move with it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B: OneRun> Pieces for List<B> {
    #[inline]
    fn pieces(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn piece(&self, index: usize) -> Span {
        self.0[index].piece(0)
    }

    fn has_overlap(&self) -> bool {
        let mut runs: Vec<Range<usize>> = self.shared().collect();
        runs.sort_unstable_by_key(|run| run.start);
        runs.windows(2).any(|pair| pair[0].end > pair[1].start)
    }

    fn type_name(&self) -> Option<&'static str> {
        self.0.first()?.type_name()
    }
}

// SAFETY: the list owns its elements, and they may be written.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B: OneRun + LeasedBytes> LeasedBytes for List<B> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cells;
    use std::cell::Cell;

    #[test]
    fn a_list_of_buffers_is_a_list_of_runs() {
        let list = List(vec![vec![0u8; 3], vec![], vec![0u8; 5]]);
        assert_eq!((list.pieces(), list.total(), list.piece(2).len()), (3, 8, 5));
    }

    /// Where a run of cells begins and ends.
    type Part = (usize, usize);

    #[test]
    fn lists_meet_where_both_have_a_byte() {
        let mut memory = [0u16; 8];
        let cells = Cell::from_mut(&mut memory[..]).as_slice_of_cells();
        let list = |parts: &[Part]| List(parts.iter().map(|&(from, to)| Cells(&cells[from..to])).collect());
        let cases: [(&[Part], &[Part], bool); 8] = [
            (&[(0, 4)], &[(4, 8)], false),
            (&[(0, 5)], &[(4, 8)], true),
            (&[(2, 3)], &[(0, 8)], true),
            (&[(0, 2), (4, 6)], &[(2, 4), (6, 8)], false),
            (&[(0, 8), (1, 2)], &[(3, 4)], true),
            (&[(0, 4), (1, 3)], &[(4, 8)], false),
            (&[(3, 3)], &[(0, 8)], false),
            (&[], &[(0, 8)], false),
        ];
        for (one, other, meets) in cases {
            assert_eq!(list(one).meets(&list(other)), meets, "{one:?} and {other:?}");
            assert_eq!(list(other).meets(&list(one)), meets, "{other:?} and {one:?}");
        }
        assert!(!List(vec![&memory]).meets(&List(vec![&memory])), "bytes that are borrowed are written by nobody");
    }
}
