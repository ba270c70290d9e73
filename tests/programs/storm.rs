//! A rank under `tickwire run`. It takes part in a storm of collective operations, `tests-storm SEED BATCHES`, or of
//! blocks, `tests-storm blocks SEED BATCHES`, or in a long operation whose last rank is killed,
//! `tests-storm killed STAGE cells|kernel`.

use rustix::process::{Signal, getpid, kill_process};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tickwire::{Bootstrap, Engine, OperationError, Rank, RequestError, Tag};
use tickwire_tests::block_storm::block_storm;
use tickwire_tests::storm::storm;

/// Elements of a long operand of 1 MiB.
const COUNT: usize = 1 << 17;
/// Longer than it takes to notice a death on a loaded machine.
const BOUND: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["killed", stage, way] => killed(stage, way == "kernel"),
        ["blocks", seed, batches] | [seed, batches] => {
            let mut engine = Engine::builder().build(Bootstrap::from_env()?)?;
            let weather: fn(&mut Engine, u64, u32) = if words[0] == "blocks" { block_storm } else { storm };
            weather(&mut engine, seed.parse()?, batches.parse()?);
            engine.finalize(Duration::from_secs(20))?;
            Ok(())
        }
        _ => Err("tests-storm SEED BATCHES, blocks SEED BATCHES, or killed STAGE cells|kernel".into()),
    }
}

fn die() {
    let _ = kill_process(getpid(), Signal::KILL);
}

/// The last of three ranks is killed before, in or after a sum of 1 MiB: at the start, when the sum is posted, at an
/// element that it combines, or when its own part is done.
fn killed(stage: &str, by_kernel: bool) -> Result<(), Box<dyn Error>> {
    let mut engine = Engine::builder().cross_memory_attach(by_kernel).build(Bootstrap::from_env()?)?;
    let (world, rank) = (engine.comm_world(), engine.rank());
    let (doomed, element) = (rank == Rank(2), stage.parse().unwrap_or(u64::MAX));
    engine.barrier(world)?;
    let combined = AtomicU64::new(0);
    let sum = move |left: u64, right: u64| {
        if doomed && combined.fetch_add(1, Ordering::Relaxed) == element {
            die();
        }
        left + right
    };
    let (own, mut sums) = (vec![u64::from(rank.0) + 1; COUNT], vec![0; COUNT]);
    if doomed {
        match stage {
            "start" => die(),
            "posted" => {
                let _request = engine.iallreduce(own, sums, sum, world)?;
                die();
            }
            _ => {
                engine.allreduce(&own, &mut sums, sum, world)?;
                die();
            }
        }
        return Err("it lives".into());
    }
    let start = Instant::now();
    let first = engine.allreduce(&own, &mut sums, sum, world);
    match &first {
        // Posting does whatever can be done at once. If the others came first, that may be the whole operation.
        Ok(()) if matches!(stage, "posted" | "end") => assert_eq!(sums, [6; COUNT]),
        ended => check_failed(ended),
    }
    check_failed(&engine.barrier(world));
    check_failed(&engine.allreduce(&own, &mut sums, |left: u64, right: u64| left + right, world));
    assert!(start.elapsed() < BOUND, "it took {:?}", start.elapsed());
    // The two survivors can still exchange messages.
    let other = Rank(1 - rank.0);
    let receive = engine.irecv(vec![0; COUNT], other, Tag(1), world)?;
    engine.send(&own, other, Tag(1), world)?;
    assert_eq!(engine.wait_take(receive)?.0, [u64::from(other.0) + 1; COUNT]);
    let _ = engine.finalize(Duration::from_secs(5));
    Ok(())
}

fn check_failed(ended: &Result<(), OperationError>) {
    use RequestError::{Abandoned, PeerFailed};
    let told = match ended {
        Err(OperationError::Request(error)) => matches!(error, PeerFailed { .. } | Abandoned(_)),
        Err(OperationError::Post(_)) => true,
        _ => false,
    };
    assert!(told, "{ended:?}");
}
