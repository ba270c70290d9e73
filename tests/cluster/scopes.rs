//! Buffers that are lent to a scope come back, however the scope ends.

use crate::kit::{ME, solo};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwire::{Bootstrap, Cells, Engine, List, PostError, Tag};
use tickwire_tests::cases::content;

#[test]
fn a_scope_lends_slices_and_cells() {
    let mut engine = solo();
    let world = engine.comm_world();
    let out = content(1, 30_000);
    let (mut into, mut cells) = (vec![0u8; 30_000], vec![0u8; 8]);
    let shared = Cell::from_mut(&mut cells[..]).as_slice_of_cells();
    engine.scope(|scope| {
        let receive = scope.irecv(&mut into[..], ME, Tag(1), world).unwrap();
        let halves = [&shared[..4], &shared[4..]].map(|half| scope.irecv(Cells(half), ME, Tag(2), world));
        let sends = [&out[..], &out[..4], &out[4..8]]
            .map(|bytes| scope.isend(bytes, ME, if bytes.len() == 4 { Tag(2) } else { Tag(1) }, world).unwrap());
        scope.wait_all(&sends).unwrap();
        for half in halves {
            let half = half.unwrap();
            scope.wait(&half).unwrap();
            scope.take(half).unwrap();
        }
        scope.wait(&receive).unwrap();
        let (bytes, status) = scope.take(receive).unwrap();
        assert!(bytes == out && status.length == out.len());
    });
    assert!(into == out && cells == out[..8]);
}

#[test]
fn leaving_a_scope_early_cancels_receives_and_drives_sends() {
    let mut engine = solo();
    let world = engine.comm_world();
    let out = content(1, 100_000);
    let incoming = engine.irecv(vec![0u8; 100_000], ME, Tag(1), world).unwrap();
    let mut into = vec![7u8; 8];
    engine.scope(|scope| {
        let _ = scope.irecv(&mut into[..], ME, Tag(2), world).unwrap();
        let _ = scope.isend(&out[..], ME, Tag(1), world).unwrap();
    });
    into.fill(8);
    engine.wait(&incoming).unwrap();
    assert!(engine.take(incoming).unwrap().0 == out, "the send has been driven to its end");
    engine.send(&[1u8; 8], ME, Tag(2), world).unwrap();
    engine.tick();
    assert_eq!(into, [8; 8], "the cancelled receive takes nothing");
}

#[test]
fn a_panic_inside_a_scope_ends_its_loans() {
    let mut engine = solo();
    let world = engine.comm_world();
    let (out, mut into) = (content(1, 50_000), vec![7u8; 8]);
    let incoming = engine.irecv(vec![0u8; 50_000], ME, Tag(1), world).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        engine.scope(|scope| {
            let _receive = scope.irecv(&mut into[..], ME, Tag(2), world).unwrap();
            let _send = scope.isend(&out[..], ME, Tag(1), world).unwrap();
            panic!("inside");
        })
    }));
    assert!(panic.is_err());
    engine.wait(&incoming).unwrap();
    assert!(engine.take(incoming).unwrap().0 == out, "the send has been driven to its end");
    engine.send(&[1u8; 8], ME, Tag(2), world).unwrap();
    engine.tick();
    assert_eq!(into, [7; 8]);
    let mut again = [0; 8];
    assert_eq!(engine.recv(&mut again, ME, Tag(2), world).unwrap().length, 8);
}

#[test]
fn a_list_of_shared_cells_is_not_received_into_where_a_byte_is_there_twice() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let (me, world) = (engine.rank(), engine.comm_world());
    let mut memory = [0u32; 8];
    let cells = Cell::from_mut(&mut memory[..]).as_slice_of_cells();
    let list = |parts: [(usize, usize); 2]| List(parts.map(|(from, to)| Cells(&cells[from..to])).to_vec());
    engine.scope(|scope| {
        for twice in [[(0, 4), (0, 4)], [(3, 5), (0, 4)], [(0, 8), (7, 8)]] {
            let refused = scope.irecv(list(twice), me, Tag(1), world).map(drop).unwrap_err();
            assert_eq!(refused.error, PostError::Overlap, "{twice:?}");
        }
        let receive = scope.irecv(list([(4, 8), (0, 4)]), me, Tag(1), world).unwrap();
        let all: Vec<u32> = (0..8).collect();
        scope.send(&all[..], me, Tag(1), world).unwrap();
        scope.wait(&receive).unwrap();
    });
    assert_eq!(memory, [4, 5, 6, 7, 0, 1, 2, 3]);
}
