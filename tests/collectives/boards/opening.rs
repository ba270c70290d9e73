//! The first operation of a communicator opens the boards, whatever else happens meanwhile.

use super::each_rank;
use crate::kit::on_threads;
use std::sync::Barrier;
use std::time::Duration;
use tickwire::{Engine, Limits, Rank, Tag, op};
use tickwire_tests::crowds::with_crowd;

/// Rows of the engine that has few.
const ROWS: usize = 64;

/// Another thread takes all rows that are free, also those that become free while the members tell each other about their boards. A
/// member that stopped in the midst of that would leave the others waiting.
#[test]
fn the_operation_that_opens_boards_keeps_its_rows_from_other_threads() {
    on_threads(3, |rank, bootstrap| {
        let cars_max = if rank == 0 { ROWS } else { Limits::default().cars_max };
        let limits = Limits { cars_max, ..Limits::default() };
        let mut engine = Engine::builder().limits(limits).build(bootstrap).unwrap();
        let world = engine.comm_world();
        let barrier = |engine: &mut Engine| engine.barrier(world).unwrap();
        if rank == 0 {
            with_crowd(&mut engine, |_| true, barrier)
        } else {
            barrier(&mut engine)
        }
        let mut sum = [0];
        engine.allreduce(&[rank + 1], &mut sum, op::Sum, world).unwrap();
        assert_eq!(sum, [6]);
        engine.finalize(Duration::from_secs(20)).unwrap();
    });
}

/// Number of ranks. The last one leaves.
const SIZE: u32 = 5;
const LEAVES: u32 = SIZE - 1;
/// What a member that can take part tells the others while boards are opened.
const CAN: u8 = 1;

/// The member that leaves says that it can take part, and ticks so many times. It may have left before any of its messages,
/// between them, or behind them, so that some of the others have opened their boards and some have heard of its end.
#[test]
fn nobody_waits_for_a_member_that_leaves_while_boards_are_opened() {
    for ticks in 0..24 {
        let at_end = Barrier::new(LEAVES as usize);
        each_rank(SIZE, true, |engine, rank, world| {
            if rank == LEAVES {
                let _says = [(); 2].map(|()| engine.iallgather(vec![CAN], vec![0u8; SIZE as usize], world).unwrap());
                for _ in 0..ticks {
                    engine.tick();
                }
                return leave(engine);
            }
            let ended: Vec<_> = (0..3).map(|_| engine.barrier(world)).collect();
            assert!(ended[1..].iter().all(Result::is_err), "rank {rank}, {ticks} ticks: {ended:?}");
            // Messages between the others go on.
            let (next, before) = (Rank((rank + 1) % LEAVES), Rank((rank + LEAVES - 1) % LEAVES));
            let receive = engine.irecv(vec![0u8; 1], before, Tag(3), world).unwrap();
            engine.send(&[rank as u8], next, Tag(3), world).unwrap();
            engine.wait(&receive).unwrap();
            assert_eq!(engine.take(receive).unwrap().0, [before.0 as u8]);
            at_end.wait();
        });
    }
}

/// Ends in order, although operations are in progress.
fn leave(engine: &mut Engine) {
    let _ = engine.finalize(std::time::Duration::ZERO);
}
