//! Wrong arguments of all operations are errors of the call, in all of its forms. The buffers come back, no operation is
//! counted, and the other members wait for nobody.

use crate::kit::on_threads;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tickwire::{
    Cartesian, Comm, Engine, Limits, List, OperationError, PostError, Rank, Rejected, Topology, consecutive, in_place,
    op, reduce_local,
};

/// Longer than all wrong calls take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What two buffers hold.
type Pair = (Vec<u8>, Vec<u8>);

/// Calls an operation of two ranks in all of its forms with wrong arguments. Each form must give this error, and the latter
/// two forms must give the buffers back. The names are those of the forms, then come the numbers of elements to send and to
/// receive, and the other arguments.
macro_rules! refused {
    ($engine:ident, $world:ident, $error:expr, [$waits:ident $begins:ident $init:ident] ($sent:expr, $room:expr) $(, $arg:expr)*) => {{
        let (send, mut receive, error): (_, _, PostError) = (vec![1u8; $sent], vec![2u8; $room], $error);
        let (name, given) = (stringify!($waits), (send.clone(), receive.clone()));
        let ended = $engine.$waits(&send, &mut receive $(, $arg)*, $world);
        assert!(matches!(&ended, Err(OperationError::Post(found)) if *found == error), "{name}: {ended:?}");
        assert_eq!((&send, &receive), (&given.0, &given.1), "{name}");
        same(name, $engine.$begins(send.clone(), receive.clone() $(, $arg)*, $world).map(drop), &error, &given);
        same(name, $engine.$init(send, receive $(, $arg)*, $world).map(drop), &error, &given);
    }};
}

#[track_caller]
fn same(name: &str, ended: Result<(), Rejected<Pair>>, error: &PostError, given: &Pair) {
    let rejected = ended.unwrap_err();
    assert_eq!((&rejected.error, &rejected.buffer), (error, given), "{name}");
}

fn elements(what: &'static str, given: usize, needed: usize) -> PostError {
    PostError::Elements { what, given, needed }
}

/// One of two ranks makes wrong calls: on boards, before the boards are open, or by messages. Then the next operation of both must be
/// the same one.
fn misused(wrong: impl Fn(&mut Engine, Comm) + Sync) {
    for (boards, opened) in [(true, true), (true, false), (false, false)] {
        let are_over = AtomicBool::new(false);
        on_threads(2, |rank, bootstrap| {
            let limits = Limits { boards, ..Limits::default() };
            let mut engine = Engine::builder().limits(limits).build(bootstrap).unwrap();
            let world = engine.comm_world();
            // The first call that waits opens the boards, which takes both ranks. A wrong first call waits for nobody.
            if opened {
                engine.barrier(world).unwrap();
            }
            if rank == 0 {
                wrong(&mut engine, world);
                are_over.store(true, Ordering::Release);
            }
            let start = Instant::now();
            while !are_over.load(Ordering::Acquire) {
                assert!(start.elapsed() < PATIENCE, "a wrong call waits for this rank");
                engine.tick();
            }
            let mut sum = [0];
            engine.allreduce(&[rank + 1], &mut sum, op::Sum, world).unwrap();
            assert_eq!(sum, [3], "no wrong call is counted");
            engine.finalize(Duration::from_secs(20)).unwrap();
        });
    }
}

#[test]
fn a_root_that_is_no_rank() {
    misused(|engine, world| {
        let (places, error) = (consecutive(&[1, 1]), PostError::Rank { rank: 2, last: 1 });
        let root = Rank(2);
        refused!(engine, world, error.clone(), [gather igather gather_init](1, 2), root);
        refused!(engine, world, error.clone(), [gatherv igatherv gatherv_init](1, 2), &places, root);
        refused!(engine, world, error.clone(), [scatter iscatter scatter_init](2, 1), root);
        refused!(engine, world, error.clone(), [scatterv iscatterv scatterv_init](2, 1), &places, root);
        refused!(engine, world, error.clone(), [reduce ireduce reduce_init](1, 1), op::Sum, root);
        let ended = engine.bcast(&mut [1u8], root, world);
        assert!(matches!(&ended, Err(OperationError::Post(found)) if *found == error), "{ended:?}");
        assert_eq!(engine.ibcast(vec![1u8], root, world).unwrap_err().error, error);
        assert_eq!(engine.bcast_init(vec![1u8], root, world).map(drop).unwrap_err().error, error);
    });
}

#[test]
fn buffers_of_a_root_that_do_not_fit() {
    misused(|engine, world| {
        let (places, root) = (consecutive(&[1, 2]), Rank(0));
        for (given, needed) in [(5, 6), (7, 6), (0, 6)] {
            let error = elements("receive buffer", given, needed);
            refused!(engine, world, error, [gather igather gather_init](3, given), root);
            let error = elements("send buffer", given, needed);
            refused!(engine, world, error, [scatter iscatter scatter_init](given, 3), root);
        }
        let error = elements("receive buffer", 2, 3);
        refused!(engine, world, error, [gatherv igatherv gatherv_init](1, 2), &places, root);
        let error = elements("send buffer", 2, 1);
        refused!(engine, world, error, [gatherv igatherv gatherv_init](2, 3), &places, root);
        let error = elements("send buffer", 2, 3);
        refused!(engine, world, error, [scatterv iscatterv scatterv_init](2, 1), &places, root);
        let error = elements("receive buffer", 2, 1);
        refused!(engine, world, error, [scatterv iscatterv scatterv_init](3, 2), &places, root);
        for given in [0, 2, 4] {
            let error = elements("receive buffer", given, 3);
            refused!(engine, world, error, [reduce ireduce reduce_init](3, given), op::Sum, root);
        }
    });
}

#[test]
fn buffers_of_members_that_do_not_fit() {
    misused(|engine, world| {
        for (given, needed) in [(2, 3), (4, 3), (0, 3)] {
            let error = || elements("receive buffer", given, needed);
            refused!(engine, world, error(), [scan iscan scan_init](needed, given), op::Sum);
            refused!(engine, world, error(), [exscan iexscan exscan_init](needed, given), op::Sum);
            refused!(engine, world, error(), [allreduce iallreduce allreduce_init](needed, given), op::Sum);
        }
        let error = elements("receive buffer", 5, 6);
        refused!(engine, world, error, [allgather iallgather allgather_init](3, 5));
        let error = elements("send buffer", 5, 6);
        refused!(
            engine,
            world,
            error,
            [reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init](5, 3),
            op::Sum
        );
        // The counts are for another number of ranks, or sum up to more than is sent, or give this rank another part.
        let error = elements("list of counts", 3, 2);
        refused!(engine, world, error, [reduce_scatter ireduce_scatter reduce_scatter_init](3, 1), &[1, 1, 1], op::Sum);
        let error = elements("send buffer", 3, 4);
        refused!(engine, world, error, [reduce_scatter ireduce_scatter reduce_scatter_init](3, 2), &[2, 2], op::Sum);
        let error = elements("receive buffer", 2, 1);
        refused!(engine, world, error, [reduce_scatter ireduce_scatter reduce_scatter_init](3, 2), &[1, 2], op::Sum);
    });
}

/// Calls an operation in all of its forms with buffers that must not be in place.
macro_rules! misplaced {
    ($engine:ident, $world:ident, $who:expr, [$waits:ident $begins:ident $init:ident] ($send:expr, $receive:expr) $(, $arg:expr)*) => {{
        let (name, error) = (stringify!($waits), PostError::InPlace { who: $who });
        let ended = $engine.$waits($send, $receive $(, $arg)*, $world);
        assert!(matches!(&ended, Err(OperationError::Post(found)) if *found == error), "{name}: {ended:?}");
        assert_eq!($engine.$begins($send, $receive $(, $arg)*, $world).map(drop).unwrap_err().error, error, "{name}");
        assert_eq!($engine.$init($send, $receive $(, $arg)*, $world).map(drop).unwrap_err().error, error, "{name}");
    }};
}

#[test]
fn both_buffers_in_place() {
    misused(|engine, world| {
        let (places, root, here) = (consecutive(&[0, 0]), Rank(0), in_place::<u8>);
        let sends = "the buffer to send";
        misplaced!(engine, world, sends, [gather igather gather_init](here(), here()), root);
        misplaced!(engine, world, sends, [gatherv igatherv gatherv_init](here(), here()), &places, root);
        let receives = "the buffer to receive into";
        misplaced!(engine, world, receives, [scatter iscatter scatter_init](here(), here()), root);
        misplaced!(engine, world, receives, [scatterv iscatterv scatterv_init](here(), here()), &places, root);
        misplaced!(engine, world, sends, [allgather iallgather allgather_init](here(), here()));
        misplaced!(engine, world, sends, [allgatherv iallgatherv allgatherv_init](here(), here()), &places);
        misplaced!(engine, world, sends, [alltoall ialltoall alltoall_init](here(), here()));
        for from in [&places[..], &[]] {
            let ended = engine.ialltoallv(here(), from, here(), &places, world).map(drop).unwrap_err();
            assert_eq!(ended.error, PostError::InPlace { who: sends });
            let ended = engine.alltoallv_init(here(), from, here(), &places, world).map(drop).unwrap_err();
            assert_eq!(ended.error, PostError::InPlace { who: sends });
        }
        let lists = || List(vec![here(); 2]);
        misplaced!(engine, world, "the list to send", [alltoallw ialltoallw alltoallw_init](lists(), lists()));
        misplaced!(engine, world, sends, [reduce ireduce reduce_init](here(), here()), op::Sum, root);
        misplaced!(engine, world, sends, [allreduce iallreduce allreduce_init](here(), here()), op::Sum);
        misplaced!(
            engine,
            world,
            sends,
            [reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init](here(), here()),
            op::Sum
        );
        misplaced!(
            engine,
            world,
            sends,
            [reduce_scatter ireduce_scatter reduce_scatter_init](here(), here()),
            &[0, 0],
            op::Sum
        );
        misplaced!(engine, world, sends, [scan iscan scan_init](here(), here()), op::Sum);
        misplaced!(engine, world, sends, [exscan iexscan exscan_init](here(), here()), op::Sum);
        let error = reduce_local(here(), here(), op::Sum).unwrap_err();
        assert_eq!(error, PostError::InPlace { who: "no buffer of two" });
    });
}

/// Nor may the other buffer be in place, if it has no elements.
#[test]
fn the_wrong_buffer_in_place() {
    misused(|engine, world| {
        let (root, empty) = (Rank(0), Vec::<u8>::new);
        let sends = "the buffer to send";
        misplaced!(engine, world, sends, [gather igather gather_init](empty(), in_place()), root);
        misplaced!(engine, world, sends, [allgather iallgather allgather_init](empty(), in_place()));
        misplaced!(engine, world, sends, [alltoall ialltoall alltoall_init](empty(), in_place()));
        misplaced!(engine, world, sends, [allreduce iallreduce allreduce_init](empty(), in_place()), op::Sum);
        let receives = "the buffer to receive into";
        misplaced!(engine, world, receives, [scatter iscatter scatter_init](in_place::<u8>(), empty()), root);
        engine.comm_set_topology(world, Topology::Cartesian(Cartesian::new(&[(2, true)]))).unwrap();
        let (here, buffers) = (|| List(vec![in_place::<u8>(); 2]), || List(vec![empty(); 2]));
        let who = "no member";
        misplaced!(engine, world, who, [neighbor_alltoallw ineighbor_alltoallw neighbor_alltoallw_init](here(), buffers()));
        misplaced!(engine, world, who, [neighbor_alltoallw ineighbor_alltoallw neighbor_alltoallw_init](buffers(), here()));
    });
}
