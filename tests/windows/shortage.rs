//! Calls on windows that find no free row: they have done nothing, and can be made again.

use crate::kit::PATIENCE;
use std::fmt::Display;
use tickwire::internals::components::{NIL, Progress};
use tickwire::internals::transports::Hub;
use tickwire::testing::Board;
use tickwire::{Comm, Engine, Group, Limits, Rank, Request, Tag, Window, WindowError};
use tickwire_tests::crowds::{Inside, with_crowd};
use tickwire_tests::ends::Ends;

/// Rows of each member.
const ROWS: usize = 64;

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
    members(2, part);
}

/// Runs `part` as each of `size` members, which share no memory and have few rows.
fn members(size: u32, part: impl Fn(&mut Engine, u32, Comm) + Sync) {
    let _ends = Ends::unless_done(PATIENCE, "a member waits for the other one");
    let (board, hub) = (Board::new(size), Hub::new(size, 1 << 16).apart());
    std::thread::scope(|threads| {
        for rank in 0..size {
            let (board, part, hub) = (&board, &part, hub.clone());
            threads.spawn(move || {
                let limits = Limits { cars_max: ROWS, deliver: false, boards: false, ..Limits::default() };
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

/// Another thread takes all rows that become free between what the members tell each other. A member that stopped in the midst would leave
/// the other one waiting.
#[test]
fn the_call_that_makes_a_window_keeps_its_rows_from_other_threads() {
    let is_told = |engine: &mut Inside<'_>| {
        let mut progress = engine.world().try_query::<&Progress>().unwrap();
        let mut graphs = progress.iter(engine.world()).flat_map(|progress| progress.graphs.list.iter().flatten());
        graphs.any(|graph| graph.name.starts_with("win_allocate") && graph.request != NIL)
    };
    pairs(|engine, rank, world| {
        let mut make = |shared| {
            let make = |engine: &mut Engine| match shared {
                true => engine.win_allocate_shared::<u64>(4, world),
                false => engine.win_allocate(4, world),
            };
            if rank == 0 { with_crowd(engine, is_told, make) } else { make(engine) }
        };
        let window = make(false).unwrap();
        let error = make(true).unwrap_err().to_string();
        assert!(error.contains("not all members share memory"), "{error}");
        engine.win_free(window).unwrap();
    });
}

/// Receives that another thread has submitted take all free rows at the first tick, so at the first wait.
#[test]
fn an_epoch_is_posted_to_all_before_anything_is_waited_for() {
    members(3, |engine, rank, world| {
        let window: Window<u64> = engine.win_allocate(4, world).unwrap();
        let others: Vec<u32> = (0..3).filter(|other| (rank == 0) == (*other != 0)).collect();
        let group: Group = engine.comm_group(world).unwrap().include(&others).unwrap();
        if rank == 0 {
            let submitter = engine.submitter();
            let receives: Vec<_> =
                (0..ROWS).map(|_| submitter.irecv(vec![0u8], Rank(0), Tag(99), world).unwrap()).collect();
            engine.win_post(&group, window).unwrap();
            engine.win_wait(window).unwrap();
            assert_eq!([1, 2].map(|at| engine.win_cells(Rank(0), window).unwrap().get(at)), [1, 2]);
            // They get no message.
            drop(receives);
        } else {
            engine.win_start(&group, window).unwrap();
            engine.put(&[u64::from(rank)], Rank(0), rank as usize, window).unwrap();
            engine.win_complete(window).unwrap();
        }
    });
}

/// No other call makes progress here.
#[test]
fn an_epoch_that_is_asked_for_until_it_has_ended_ends() {
    pairs(|engine, rank, world| {
        let window: Window<u64> = engine.win_allocate(4, world).unwrap();
        let group: Group = engine.comm_group(world).unwrap().include(&[1 - rank]).unwrap();
        if rank == 0 {
            engine.win_post(&group, window).unwrap();
            while !engine.win_test(window).unwrap() {}
            assert_eq!(engine.win_cells(Rank(0), window).unwrap().get(2), 7);
        } else {
            engine.win_start(&group, window).unwrap();
            engine.put(&[7u64], Rank(0), 2, window).unwrap();
            engine.win_complete(window).unwrap();
        }
        engine.barrier(world).unwrap();
        engine.win_free(window).unwrap();
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
