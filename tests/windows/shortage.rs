//! Calls on windows that find no free row: they have done nothing, and can be made again.

use std::fmt::Display;
use tickwire::internals::transports::Hub;
use tickwire::testing::Board;
use tickwire::{Comm, Engine, Group, Limits, Rank, Request, Tag, Window};

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

/// Makes a call without a free row, which must say so, and once more with rows.
fn again<E: Display>(engine: &mut Engine, mut call: impl FnMut(&mut Engine) -> Result<(), E>) {
    let taken = fill(engine);
    let refused = call(engine).map_err(|error| error.to_string()).unwrap_err();
    assert!(refused.contains("cars_max"), "{refused}");
    give_back(engine, taken);
    call(engine).unwrap_or_else(|error| panic!("{error}"));
}

fn pairs(part: impl Fn(&mut Engine, u32, Comm) + Sync) {
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
