//! Lists of cells that several buffers may share. A byte that is received must not be in another buffer of the call.

use crate::kit::in_threads;
use std::cell::Cell;
use tickwire::{Cartesian, Cells, List, OperationError, PostError};

/// Two parts of eight cells: where each begins and ends.
type Parts = [(usize, usize); 2];

/// Parts to send and parts to receive that have cells in common.
const REFUSED: [(Parts, Parts); 7] = [
    // Within those to receive.
    ([(0, 2), (2, 4)], [(4, 6), (5, 7)]),
    ([(0, 2), (2, 4)], [(4, 6), (4, 6)]),
    // Between those to send and those to receive.
    ([(0, 2), (3, 5)], [(4, 6), (6, 8)]),
    ([(4, 6), (6, 8)], [(0, 2), (3, 5)]),
    ([(0, 2), (2, 4)], [(0, 2), (2, 4)]),
    ([(0, 8), (1, 3)], [(4, 6), (6, 8)]),
    ([(5, 6), (0, 1)], [(1, 3), (4, 8)]),
];

fn list<'a>(cells: &'a [Cell<u32>], parts: Parts) -> List<Cells<'a, u32>> {
    List(parts.map(|(from, to)| Cells(&cells[from..to])).to_vec())
}

/// On a ring of two ranks, a rank has two neighbours, as it has two members to exchange with.
#[test]
fn buffers_that_share_cells_are_refused_before_anything_is_posted() {
    in_threads(2, |engine, _, world| {
        let ring = engine.cart_create(world, &Cartesian::new(&[(2, true)])).unwrap().unwrap();
        let mut memory: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
        let before = memory;
        let cells = Cell::from_mut(&mut memory[..]).as_slice_of_cells();
        engine.scope(|scope| {
            for parts @ (send, receive) in REFUSED {
                let lists = || (list(cells, send), list(cells, receive));
                macro_rules! refused {
                    ($($name:ident)*) => {$(
                        let (send, receive) = lists();
                        let error = scope.$name(send, receive, ring).map(drop).unwrap_err().error;
                        assert_eq!(error, PostError::Overlap, "{}: {parts:?}", stringify!($name));
                    )*};
                }
                refused! { ialltoallw alltoallw_init ineighbor_alltoallw neighbor_alltoallw_init }
                let (from, to) = lists();
                let ended = scope.alltoallw(from, to, ring);
                assert!(matches!(ended, Err(OperationError::Post(PostError::Overlap))), "{send:?}, {receive:?}");
                let (from, to) = lists();
                let ended = scope.neighbor_alltoallw(from, to, ring);
                assert!(matches!(ended, Err(OperationError::Post(PostError::Overlap))), "{send:?}, {receive:?}");
            }
        });
        assert_eq!(memory, before);
        engine.barrier(ring).unwrap();
    });
}

#[test]
fn buffers_that_lie_side_by_side_or_are_empty_share_nothing() {
    in_threads(2, |engine, rank, world| {
        let ring = engine.cart_create(world, &Cartesian::new(&[(2, true)])).unwrap().unwrap();
        let mut memory = [0u32; 8];
        let cells = Cell::from_mut(&mut memory[..]).as_slice_of_cells();
        let fill = || (0..).zip(cells).for_each(|(at, cell)| cell.set(10 * rank + at));
        let contents = || cells.iter().map(Cell::get).collect::<Vec<_>>();
        let other = 10 * (1 - rank);
        let (low, high) = ([(0, 2), (2, 4)], [(4, 6), (6, 8)]);
        let own = 10 * rank;
        fill();
        engine.alltoallw(list(cells, low), list(cells, high), ring).unwrap();
        let part = 2 * rank;
        assert_eq!(contents()[4..], [part, part + 1, 10 + part, 11 + part]);
        fill();
        engine.neighbor_alltoallw(list(cells, high), list(cells, low), ring).unwrap();
        assert_eq!(contents()[..4], [other + 6, other + 7, other + 4, other + 5], "it is on the other side");
        // Cells may be sent twice.
        fill();
        engine.neighbor_alltoallw(list(cells, [(0, 2), (1, 3)]), list(cells, high), ring).unwrap();
        assert_eq!(contents()[4..], [other + 1, other + 2, other, other + 1]);
        // Buffers without cells, in the middle of others.
        fill();
        engine.neighbor_alltoallw(list(cells, [(0, 2), (5, 5)]), list(cells, [(1, 1), (4, 6)]), ring).unwrap();
        assert_eq!(contents(), [own, own + 1, own + 2, own + 3, other, other + 1, own + 6, own + 7]);
        fill();
        let (mut send, mut receive) = ([(5, 5), (5, 5)], [(1, 1), (1, 1)]);
        (send[rank as usize], receive[rank as usize]) = ((0, 2), (4, 6));
        engine.alltoallw(list(cells, send), list(cells, receive), ring).unwrap();
        assert_eq!(contents(), [own, own + 1, own + 2, own + 3, own, own + 1, own + 6, own + 7]);
    });
}
