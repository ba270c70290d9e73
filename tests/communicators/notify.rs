//! Agreements that report their end: by a callback, and to tasks that await it.

use crate::kit::{WORLD, id, pass};
use std::sync::{Arc, Mutex};
use tickwire::testing::{Board, Cluster};
use tickwire::{Comm, CommError, Engine, RequestError};
use tickwire_tests::cases::BOUND;

type Made = Result<Option<Comm>, CommError>;
type Told = Arc<Mutex<Vec<Made>>>;

/// Notes how an agreement ends.
fn note(engine: &mut Engine, agreement: tickwire::Agreement) -> Told {
    let told = Told::default();
    let noted = told.clone();
    engine.on_agreed(agreement, move |made| noted.lock().unwrap().push(made)).unwrap();
    told
}

#[test]
fn each_member_is_called_once_with_its_communicator() {
    let mut cluster = Cluster::loopback(3);
    let told: Vec<Told> = (0..3)
        .map(|rank| {
            // The last rank is in no part.
            let engine = &mut cluster.engines[rank];
            let agreement = engine.start_split(WORLD, (rank < 2).then_some(7), -(rank as i32)).unwrap();
            note(engine, agreement)
        })
        .collect();
    assert!(told.iter().all(|told| told.lock().unwrap().is_empty()), "by a tick, and not before");
    cluster.tick_until(BOUND, "all are called", |_| told.iter().all(|told| !told.lock().unwrap().is_empty()));
    for tick in 0..600 {
        cluster.tick(tick % 3);
    }
    let made: Vec<Made> = told
        .iter()
        .map(|told| {
            let told = told.lock().unwrap();
            assert_eq!(told.len(), 1, "once");
            told[0].clone()
        })
        .collect();
    assert_eq!(made[2], Ok(None));
    let [Ok(Some(first)), Ok(Some(second))] = made[..2] else { panic!("{made:?}") };
    assert_eq!(id(&mut cluster, 0, first), id(&mut cluster, 1, second));
    pass(&mut cluster, (0, first), (1, second), b"within it");
}

#[test]
fn members_that_disagree_are_told_so() {
    let mut cluster = Cluster::loopback(2);
    let dup = cluster.engines[0].start_dup(WORLD).unwrap();
    let split = cluster.engines[1].start_split(WORLD, Some(1), 0).unwrap();
    let told = [note(&mut cluster.engines[0], dup), note(&mut cluster.engines[1], split)];
    cluster.tick_until(BOUND, "both are told", |_| told.iter().all(|told| !told.lock().unwrap().is_empty()));
    assert!(told.iter().all(|told| told.lock().unwrap()[0].is_err()));
}

#[test]
fn who_leaves_before_is_told_so() {
    let mut cluster = Cluster::loopback(2);
    let agreement = cluster.engines[0].start_dup(WORLD).unwrap();
    let told = note(&mut cluster.engines[0], agreement);
    drop(cluster);
    assert_eq!(*told.lock().unwrap(), [Err(CommError::Wait(RequestError::Finalized))]);
}

#[test]
fn communicators_are_awaited() {
    let board = Board::new(2);
    std::thread::scope(|threads| {
        for rank in 0..2 {
            let bootstrap = board.bootstrap(rank);
            threads.spawn(move || {
                let mut engine = Engine::builder().build(bootstrap).unwrap();
                let (first, second) = (engine.start_dup(WORLD).unwrap(), engine.start_dup(WORLD).unwrap());
                let (first, second) = (engine.agreed(first).unwrap(), engine.agreed(second).unwrap());
                // The agreements are awaited in the other order.
                let made = engine.drive_until(async { Ok::<_, CommError>((second.await?, first.await?)) }).unwrap();
                let (Some(second), Some(first)) = made else { panic!("{made:?}") };
                assert!(engine.comm_context_id(first).unwrap() < engine.comm_context_id(second).unwrap());
                engine.finalize(std::time::Duration::from_secs(30)).unwrap();
            });
        }
    });
}
