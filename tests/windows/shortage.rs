//! Calls on windows that find no free row: they have done nothing, and can be made again.

use crate::kit::PATIENCE;
use std::fmt::Display;
use tickwire::internals::transports::Hub;
use tickwire::testing::Board;
use tickwire::{Comm, Engine, Group, Limits, Rank, Request, Tag, Window, WindowError};
use tickwire_tests::ends::Ends;

/// Takes all rows. Only the first messages after this need one: they do not leave within their calls.
fn fill(engine: &mut Engine) -> Vec<Request<Vec<u8>>> {
    let (me, world) = (engine.rank(), engine.comm_world());
    let mut taken = Vec::new();
    while let Ok(receive) = engine.irecv(vec![0u8], me, Tag(99), world) {
        taken.push(receive);
    }
    taken
}

fn give_back(engine: &mut Engine, taken: Vec<Request<Vec<u8>>>) {
    for receive in taken {
        engine.cancel(&receive).unwrap();
        let _ = engine.wait(&receive);
    }
}

/// Makes a call without a free row, which must say so.
fn refuse<E: Display>(engine: &mut Engine, call: impl FnOnce(&mut Engine) -> Result<(), E>) {
    let taken = fill(engine);
    let refused = call(engine).map_err(|error| error.to_string()).unwrap_err();
    assert!(refused.contains("cars_max"), "{refused}");
    give_back(engine, taken);
}

/// Makes a call without a free row, which must say so, and once more with rows.
fn again<E: Display>(engine: &mut Engine, mut call: impl FnMut(&mut Engine) -> Result<(), E>) {
    refuse(engine, &mut call);
    call(engine).unwrap_or_else(|error| panic!("{error}"));
}

fn pairs(part: impl Fn(&mut Engine, u32, Comm) + Sync) {
    let _ends = Ends::unless_done(PATIENCE, "a member waits for the other one");
    let (board, hub) = (Board::new(2), Hub::new(2, 1 << 16).apart());
    std::thread::scope(|threads| {
        for rank in 0..2 {
            let (board, part, hub) = (&board, &part, hub.clone());
            threads.spawn(move || {
                let limits = Limits { cars_max: 64, deliver: false, boards: false, ..Limits::default() };
                let builder = Engine::builder().limits(limits).include(["loopback"]).hub(hub);
                let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                let world = engine.comm_world();
                part(&mut engine, rank, world);
                engine.finalize(std::time::Duration::from_secs(20)).unwrap();
            });
        }
    });
}

#[test]
fn a_window_that_cannot_be_freed_for_want_of_rows_stays() {
    pairs(|engine, rank, world| {
        let window: Window<u64> = engine.win_allocate(4, world).unwrap();
        match rank {
            0 => again(engine, |engine| engine.win_free(window)),
            _ => engine.win_free(window).unwrap(),
        }
    });
}

#[test]
fn a_window_is_made_by_all_or_the_member_without_rows_says_so_before_any_other_waits() {
    pairs(|engine, rank, world| {
        for free in 1..30 {
            let mut taken = if rank == 0 { fill(engine) } else { Vec::new() };
            let spare = taken.split_off(taken.len().saturating_sub(free));
            give_back(engine, spare);
            let window = match engine.win_allocate::<u64>(4, world) {
                Ok(window) => window,
                Err(error) => {
                    assert!(rank == 0 && error.to_string().contains("cars_max"), "{free}: {error}");
                    give_back(engine, std::mem::take(&mut taken));
                    engine.win_allocate(4, world).unwrap()
                }
            };
            give_back(engine, taken);
            engine.win_free(window).unwrap();
        }
    });
}

#[test]
fn an_epoch_that_cannot_be_posted_started_or_completed_for_want_of_rows_is_so_at_the_next_call() {
    pairs(|engine, rank, world| {
        let window: Window<u64> = engine.win_allocate(4, world).unwrap();
        let group: Group = engine.comm_group(world).unwrap().include(&[1 - rank]).unwrap();
        match rank {
            0 => {
                again(engine, |engine| engine.win_start(&group, window));
                engine.put(&[7u64], Rank(1), 2, window).unwrap();
                again(engine, |engine| engine.win_complete(window));
            }
            _ => {
                again(engine, |engine| engine.win_post(&group, window));
                engine.win_wait(window).unwrap();
                assert_eq!(engine.win_cells(Rank(1), window).unwrap().get(2), 7);
            }
        }
        engine.barrier(world).unwrap();
        engine.win_free(window).unwrap();
    });
}

#[test]
fn a_fence_without_a_free_row_opens_no_epoch() {
    pairs(|engine, rank, world| {
        let window: Window<u64> = engine.win_allocate(4, world).unwrap();
        if rank == 0 {
            refuse(engine, |engine| engine.win_fence(window));
            let put = engine.put(&[7u64], Rank(1), 2, window).unwrap_err().to_string();
            assert!(put.contains("no epoch"), "{put}");
            // Nobody else can be in an epoch either.
            engine.win_exclusive(window).unwrap().fill(5);
        }
        engine.win_fence(window).unwrap();
        engine.put(&[7u64], Rank(1 - rank), 2, window).unwrap();
        engine.win_fence_last(window).unwrap();
        assert_eq!(engine.win_cells(engine.rank(), window).unwrap().get(2), 7);
        engine.win_free(window).unwrap();
    });
}

/// A call that waits for all members.
type Meet = fn(&mut Engine, Window<u8>) -> Result<(), WindowError>;

#[test]
fn a_failure_is_told_by_the_call_that_has_rows() {
    let calls: [Meet; 2] = [|engine, window| engine.win_fence_last(window), |engine, window| engine.win_free(window)];
    for call in calls {
        pairs(|engine, rank, world| {
            let window = engine.win_create_dynamic(world).unwrap();
            engine.win_fence(window).unwrap();
            if rank == 0 {
                // Nothing is attached there.
                engine.put(&[7u8], Rank(1), 4096, window).unwrap();
                refuse(engine, |engine| call(engine, window));
                let told = call(engine, window).unwrap_err().to_string();
                assert!(told.contains("no such bytes"), "{told}");
            } else {
                call(engine, window).unwrap();
            }
        });
    }
}
