//! The last of three ranks is killed before, in or after a long operation. The two survivors get errors in time, and can
//! still communicate.

use rustix::process::{Signal, getpid, kill_process};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tickwire::{Bootstrap, Comm, Engine, Limits, OperationError, Rank, RequestError, Tag};

/// Elements of a long operand of 1 MiB.
const COUNT: usize = 1 << 17;
/// Longer than it takes to notice a death on a loaded machine.
const BOUND: Duration = Duration::from_secs(10);
/// The rank that is killed.
const DOOMED: Rank = Rank(2);
/// The tag of blocks.
const TAG: Tag = Tag(2);

/// The last of three ranks is killed before, in or after a sum of 1 MiB: at the start, when the sum is posted, at an
/// element that it combines, or when its own part is done. The ways of the sum are boards, by copies of the kernel or
/// through cells, messages, and blocks.
pub(crate) fn killed(stage: &str, way: &str) -> Result<(), Box<dyn Error>> {
    let limits = Limits { boards: matches!(way, "cells" | "kernel"), ..Limits::default() };
    let builder = Engine::builder().limits(limits).cross_memory_attach(way == "kernel");
    let mut engine = builder.build(Bootstrap::from_env()?)?;
    let (world, rank) = (engine.comm_world(), engine.rank());
    engine.barrier(world)?;
    if rank == DOOMED {
        meets_its_end(&mut engine, world, stage, way)?;
        return Err("it lives".into());
    }
    let start = Instant::now();
    // Posting does whatever can be done at once. If the others came first, that may be the whole operation.
    let may_succeed = matches!(stage, "posted" | "end");
    match way {
        "blocks" => lives_on_in_a_chain(&mut engine, world, may_succeed),
        _ => lives_on_in_a_sum(&mut engine, world, may_succeed),
    }
    check_failed(&engine.barrier(world));
    let (own, mut sums) = (vec![u64::from(rank.0) + 1; COUNT], vec![0; COUNT]);
    check_failed(&engine.allreduce(&own, &mut sums, |left: u64, right: u64| left + right, world));
    assert!(start.elapsed() < BOUND, "it took {:?}", start.elapsed());
    talks_on(&mut engine, world, &own)?;
    let _ = engine.finalize(Duration::from_secs(5));
    Ok(())
}

fn die() {
    let _ = kill_process(getpid(), Signal::KILL);
}

/// What the doomed rank does. At one element that it combines, it is killed.
fn meets_its_end(engine: &mut Engine, world: Comm, stage: &str, way: &str) -> Result<(), Box<dyn Error>> {
    let element = stage.parse().unwrap_or(u64::MAX);
    let combined = AtomicU64::new(0);
    let sum = move |left: u64, right: u64| {
        if combined.fetch_add(1, Ordering::Relaxed) == element {
            die();
        }
        left + right
    };
    if stage == "start" {
        die();
    }
    let own = vec![3; COUNT];
    match way {
        "blocks" => {
            let block = engine.scatter_block(Rank(0), TAG, world).recv_op_forward(own, sum, Rank(1)).start();
            let block = block.map_err(|rejected| rejected.error)?;
            if stage != "posted" {
                engine.wait(&block)?;
            }
        }
        _ if stage == "posted" => {
            let _request = engine.iallreduce(own, vec![0; COUNT], sum, world)?;
        }
        _ => engine.allreduce(&own, &mut vec![0; COUNT], sum, world)?,
    }
    die();
    Ok(())
}

fn lives_on_in_a_sum(engine: &mut Engine, world: Comm, may_succeed: bool) {
    let (own, mut sums) = (vec![u64::from(engine.rank().0) + 1; COUNT], vec![0; COUNT]);
    let first = engine.allreduce(&own, &mut sums, |left: u64, right: u64| left + right, world);
    match &first {
        Ok(()) if may_succeed => assert_eq!(sums, [6; COUNT]),
        ended => check_failed(ended),
    }
}

/// The first rank sends elements along a chain to the second one. The doomed rank between them adds its own.
fn lives_on_in_a_chain(engine: &mut Engine, world: Comm, may_succeed: bool) {
    if engine.rank() == Rank(0) {
        let block = engine.gather_block(DOOMED, TAG, world).send(vec![1u64; COUNT]).start();
        // All elements may have left before the death, or even before it is known.
        if let Ok(block) = block {
            check_told(engine.wait_take(block).map_err(|failed| failed.error).err().as_ref());
        }
        return;
    }
    let Ok(block) = engine.scatter_block(DOOMED, TAG, world).recv(vec![0u64; COUNT]).start() else { return };
    match engine.wait_take(block) {
        Ok((((), sums), _)) => assert!(may_succeed && sums == [4; COUNT], "all has come from a rank that was killed"),
        Err(failed) => check_told(Some(&failed.error)),
    }
}

/// The two survivors can still exchange messages, and blocks.
fn talks_on(engine: &mut Engine, world: Comm, own: &[u64]) -> Result<(), Box<dyn Error>> {
    let other = Rank(1 - engine.rank().0);
    let expected = [u64::from(other.0) + 1; COUNT];
    let receive = engine.irecv(vec![0; COUNT], other, Tag(1), world)?;
    engine.send(own, other, Tag(1), world)?;
    assert_eq!(engine.wait_take(receive)?.0, expected);
    let receive = engine.scatter_block(other, TAG, world).recv(vec![0; COUNT]).start()?;
    let send = engine.gather_block(other, TAG, world).send(own.to_vec()).start()?;
    assert_eq!(engine.wait_take(receive)?.0.1, expected);
    engine.wait(&send)?;
    Ok(())
}

/// Checks that an error, if there is one, says that a member has failed or has given up.
fn check_told(error: Option<&RequestError>) {
    use RequestError::{Abandoned, PeerFailed};
    assert!(matches!(error, None | Some(PeerFailed { .. } | Abandoned(_))), "{error:?}");
}

fn check_failed(ended: &Result<(), OperationError>) {
    match ended {
        Err(OperationError::Request(error)) => check_told(Some(error)),
        Err(OperationError::Post(_)) => {}
        ended => panic!("{ended:?}"),
    }
}
