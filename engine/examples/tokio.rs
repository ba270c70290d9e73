//! The engine in a tokio runtime of one thread. Tasks await receives while others compute, and when nothing happens the runtime
//! sleeps on the engine's descriptor.
//!
//! Each rank sends two results to its right neighbour and awaits those of its left one. Alone, it is its own neighbour:
//! `cargo run --example tokio`, or `tickwire run -n 4 -- target/debug/examples/tokio`.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use tickwire::{Bootstrap, Engine, Error, Rank, Submitter, Tag};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::yield_now;
use tokio::time::timeout;

/// Tags, which say what a message is about.
const PRIMES: Tag = Tag(1);
const STEPS: Tag = Tag(2);

/// How far each rank counts.
const LIMIT: u64 = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().build(Bootstrap::from_env()?)?;
    let me = engine.rank();
    let heard = run(engine)?;
    println!("rank {me}: its neighbour has found {} primes, and {} steps to 1", heard.primes, heard.steps);
    Ok(())
}

/// What the left neighbour has found.
#[derive(PartialEq, Eq, Debug)]
struct Heard {
    primes: u64,
    steps: u64,
}

/// Runs a rank in a runtime of its own.
fn run(mut engine: Engine) -> Result<Heard, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let heard = runtime.block_on(async {
        let exchange = exchange(&mut engine);
        // The engine is driven until the tasks are done.
        tokio::select! {
            heard = exchange => Ok::<_, Box<dyn std::error::Error>>(heard?),
            failed = drive(&mut engine) => match failed? {},
        }
    })?;
    engine.finalize(Duration::from_secs(10))?;
    Ok(heard)
}

/// Ticks while there is something to do. Otherwise lets the runtime sleep on the engine's descriptor. Only an error ends this
/// function.
async fn drive(engine: &mut Engine) -> io::Result<Infallible> {
    let descriptor = engine.as_fd().try_clone_to_owned()?;
    // SAFETY: the descriptor is our own, and open until it is dropped.
    #[expect(unsafe_code, reason = "a descriptor that tokio must be able to rely on")]
    let descriptor = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
    loop {
        while !engine.tick().is_idle() {
            yield_now().await;
        }
        if engine.prepare_wait() {
            // An operation that another task submits ends this sleep, as a message does.
            if let Ok(ready) = timeout(engine.wait_timeout(), descriptor.readable()).await {
                ready?.clear_ready();
            }
            engine.end_wait();
        }
        yield_now().await;
    }
}

/// Two tasks that await messages, beside two that compute and send. They use the engine through a [`Submitter`], since [`drive`]
/// has the engine for itself.
fn exchange(engine: &mut Engine) -> impl Future<Output = Result<Heard, Error>> + use<> {
    let (me, size, world) = (engine.rank().0, engine.size(), engine.comm_world());
    let (right, left) = (Rank((me + 1) % size), Rank((me + size - 1) % size));
    let submitter = engine.submitter();
    let hear = move |submitter: Submitter, tag: Tag| async move {
        let ([found], _) = submitter.irecv([0u64], left, tag, world)?.await.map(|(found, status)| (*found, status))?;
        Ok::<u64, Error>(found)
    };
    let tell = move |submitter: Submitter, tag: Tag, found: u64| async move {
        submitter.isend([found], right, tag, world)?.await?;
        Ok::<(), Error>(())
    };
    async move {
        let (primes, steps) = (hear(submitter.clone(), PRIMES), hear(submitter.clone(), STEPS));
        let counts = async { tell(submitter.clone(), PRIMES, primes_below(LIMIT).await).await };
        let follows = async { tell(submitter.clone(), STEPS, longest_way_below(LIMIT).await).await };
        let (primes, steps, (), ()) = tokio::try_join!(primes, steps, counts, follows)?;
        Ok(Heard { primes, steps })
    }
}

/// How many primes there are below a limit. Other tasks run in between.
async fn primes_below(limit: u64) -> u64 {
    let mut count = 0;
    for number in 2..limit {
        count +=
            u64::from((2..).take_while(|divisor| divisor * divisor <= number).all(|divisor| number % divisor != 0));
        if number.is_multiple_of(1000) {
            yield_now().await;
        }
    }
    count
}

/// The most steps that a number below a limit takes to reach 1. A step halves an even number, and makes `3 n + 1` of an odd one.
async fn longest_way_below(limit: u64) -> u64 {
    let mut longest = 0;
    for start in 1..limit {
        let next = |number: &u64| Some(if number.is_multiple_of(2) { number / 2 } else { 3 * number + 1 });
        let steps = std::iter::successors(Some(start), next).take_while(|number| *number != 1).count();
        longest = longest.max(steps as u64);
        if start.is_multiple_of(1000) {
            yield_now().await;
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "testing")]
    #[test]
    fn two_ranks_hear_from_each_other() {
        let board = tickwire::testing::Board::new(2);
        let ranks = [0, 1].map(|rank| {
            let bootstrap = board.bootstrap(rank);
            std::thread::spawn(move || {
                let engine = Engine::builder().build(bootstrap).expect("the other rank is there");
                run(engine).map_err(|error| error.to_string())
            })
        });
        for rank in ranks {
            // 2262 primes; 17 647 takes the most steps.
            assert_eq!(rank.join().expect("it does not panic"), Ok(Heard { primes: 2262, steps: 278 }));
        }
    }

    #[test]
    fn a_rank_alone_hears_from_itself() {
        let engine = Engine::builder().build(Bootstrap::solo()).expect("an engine alone needs nothing");
        assert_eq!(run(engine).expect("nothing fails").primes, 2262);
    }
}
