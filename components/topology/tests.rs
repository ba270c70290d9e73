use super::*;

#[test]
fn ranks_and_places_of_a_grid_are_one_to_one() {
    let grid = Cartesian::new(&[(3, true), (4, false), (2, true)]);
    for rank in 0..grid.points() as u32 {
        let place = grid.coordinates(Rank(rank)).expect("it is in the grid");
        let place: Vec<i64> = place.into_iter().map(i64::from).collect();
        assert_eq!(grid.rank(&place), Rank(rank));
        assert_eq!(grid.rank(&[place[0] - 3, place[1], place[2] + 4]), Rank(rank), "around the ends");
        assert_eq!(grid.rank(&[place[0], place[1] + 4, place[2]]), Rank::NULL);
    }
    assert_eq!(grid.coordinates(Rank(1)), Ok(vec![0, 0, 1]), "the last dimension varies fastest");
    assert_eq!(grid.rank(&[0, 0]), Rank::NULL);
    assert_eq!(grid.shift(Rank(0), 0, 1), Ok((Rank(16), Rank(8))));
    assert_eq!(grid.shift(Rank(0), 1, 1), Ok((Rank::NULL, Rank(2))));
    assert!(grid.shift(Rank(0), 3, 1).is_err());
}

#[test]
fn grids_without_points_or_with_too_many_have_no_ranks_there() {
    let empty = Cartesian::new(&[(0, true), (3, false)]);
    assert_eq!(empty.rank(&[0, 1]), Rank::NULL);
    assert_eq!(empty.coordinates(Rank(2)), Err(TopologyError::Outside { rank: 2, ranks: 0 }));
    let large = Cartesian::new(&[(1 << 16, false), (1 << 16, false), (2, false)]);
    assert_eq!(large.rank(&[0, 0, 1]), Rank(1));
    assert_eq!(large.rank(&[65_535, 65_535, 1]), Rank::NULL);
}

#[test]
fn ranks_outside_of_a_grid_or_a_communicator_are_refused() {
    let grid = Cartesian::new(&[(5, true)]);
    assert_eq!(grid.coordinates(Rank(4)), Ok(vec![4]));
    assert_eq!(grid.shift(Rank(4), 0, 1), Ok((Rank(3), Rank(0))));
    let topology = Topology::Cartesian(grid.clone());
    for rank in [5, 7, Rank::NULL.0] {
        let outside = TopologyError::Outside { rank, ranks: 5 };
        assert_eq!(grid.coordinates(Rank(rank)), Err(outside.clone()));
        assert_eq!(grid.shift(Rank(rank), 0, 2), Err(outside.clone()));
        assert_eq!(topology.neighbors(Rank(rank)), Err(outside.clone()));
        assert_eq!(topology.check(Rank(rank), 5), Err(outside));
    }
    let nobody = Topology::Graph { sources: Vec::new(), destinations: Vec::new() };
    assert_eq!(nobody.check(Rank(0), 0), Err(TopologyError::Outside { rank: 0, ranks: 0 }));
}

#[test]
fn ranks_are_divided_evenly() {
    let cases: [(u32, &[u32], &[u32]); 8] = [
        (1, &[0, 0, 0], &[1, 1, 1]),
        (7, &[0, 0], &[7, 1]),
        (16, &[0, 0], &[4, 4]),
        (24, &[0, 0, 0], &[3, 4, 2]),
        (36, &[0, 0], &[6, 6]),
        (12, &[2, 0], &[2, 6]),
        (100, &[0, 5, 0], &[5, 5, 4]),
        (6, &[], &[]),
    ];
    for (ranks, given, expected) in cases {
        let mut found = match Cartesian::balanced(ranks, given) {
            Ok(found) => found,
            Err(error) => {
                assert!(given.is_empty(), "{error}");
                continue;
            }
        };
        let mut expected = expected.to_vec();
        if given.iter().all(|&points| points == 0) {
            found.sort_unstable();
            expected.sort_unstable();
        }
        assert_eq!(found, expected, "{ranks} ranks");
    }
    // The greatest first, and as even as can be.
    for (ranks, expected) in
        [(24, [4, 3, 2]), (60, [5, 4, 3]), (20, [5, 2, 2]), (7, [7, 1, 1]), (1, [1; 3]), (64, [4; 3])]
    {
        assert_eq!(Cartesian::balanced(ranks, &[0, 0, 0]), Ok(expected.to_vec()));
    }
    assert!(Cartesian::balanced(0, &[0, 0]).is_err());
    assert_eq!(Cartesian::balanced(u32::MAX, &[0, 0]), Ok(vec![65_537, 65_535]));
    assert_eq!(Cartesian::balanced(6, &[4, 0]), Err(TopologyError::Points { points: 4, ranks: 6 }));
    assert!(Cartesian::balanced(6, &[2, 2]).is_err());
}

/// What a rank sends to another one, that one expects, under the same number.
#[test]
fn both_ends_of_an_edge_give_it_one_number() {
    let grids = [&[(2, true), (2, true)][..], &[(1, true), (3, false)], &[(4, true)], &[(1, true)]];
    for grid in grids {
        let topology = Topology::Cartesian(Cartesian::new(grid));
        let points = Cartesian::new(grid).points() as u32;
        topology.check(Rank(0), points).expect("it fits");
        let neighbors = |rank| topology.neighbors(rank).expect("it is in the grid");
        for rank in 0..points {
            for sent in neighbors(Rank(rank)).destinations {
                if sent.rank != Rank::NULL {
                    let there = neighbors(sent.rank).sources;
                    let expected = Neighbor { rank: Rank(rank), number: sent.number };
                    assert_eq!(there.iter().filter(|&&of| of == expected).count(), 1, "{grid:?}: {sent:?}");
                }
            }
        }
    }
    let ranks = [Rank(1), Rank(0), Rank(1)];
    let graph = Topology::Graph { sources: ranks.to_vec(), destinations: vec![] };
    let numbers: Vec<_> = graph.neighbors(Rank(0)).unwrap_or_default().sources.iter().map(|of| of.number).collect();
    assert_eq!(numbers, [0, 0, 1]);
    assert_eq!(graph.check(Rank(0), 1), Err(TopologyError::Rank { rank: 1, last: 0 }));
    let many = Topology::Graph { sources: vec![Rank(0); 257], destinations: vec![] };
    assert_eq!(many.check(Rank(1), 2), Err(TopologyError::Parallel(257)));
    assert_eq!(many.check(Rank(0), 2), Err(TopologyError::Own { sources: 257, destinations: 0 }));
}
