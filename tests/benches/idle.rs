//! The processor time of an idle engine, in percent of one processor, for each way to drive it.
//!
//! `cargo bench -p tickwire-tests --bench idle`. With `--test` it is short and nothing is printed.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::future::Future;
use std::time::{Duration, Instant};
use tickwire::{Bootstrap, Engine, Error, Source, Tag};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{sleep, timeout};

/// Drives an idle engine for this time.
type Way = fn(Duration);

fn main() {
    let test = std::env::args().any(|word| word == "--test");
    let time = Duration::from_millis(if test { 50 } else { 3000 });
    let ways: [(&str, Way); 5] = [
        ("wait_for", in_wait),
        ("poll on the descriptor", in_poll),
        ("tokio's AsyncFd", in_tokio),
        ("drive, in tokio", driven_in_tokio),
        ("drive, a thread of its own", driven_alone),
    ];
    for (name, run) in ways {
        let (begin, start) = (processor_time(), Instant::now());
        run(time);
        let share = (processor_time() - begin).as_secs_f64() / start.elapsed().as_secs_f64();
        if !test {
            println!("{name:28} {:.2} %", share * 100.0);
        }
    }
}

/// The processor time that all threads of this process have used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn engine() -> Engine {
    Engine::builder().build(Bootstrap::solo()).expect("an engine alone")
}

fn in_wait(time: Duration) {
    let mut engine = engine();
    let world = engine.comm_world();
    let request = engine.irecv(vec![0u8; 8], Source::Any, Tag(1), world).expect("there is room");
    assert!(engine.wait_for(&request, time).is_err(), "nobody sends");
}

fn in_poll(time: Duration) {
    let mut engine = engine();
    let end = Instant::now() + time;
    while Instant::now() < end {
        engine.tick();
        if engine.prepare_wait() {
            let most = Timespec::try_from(engine.wait_timeout()).expect("it is short");
            poll(&mut [PollFd::new(&engine, PollFlags::IN)], Some(&most)).expect("a descriptor of its own");
            engine.end_wait();
        }
    }
}

/// Runs a future in tokio for this time.
fn for_a_time<F: Future>(time: Duration, future: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    assert!(runtime.block_on(async { timeout(time, future).await }).is_err(), "it does not end by itself");
}

fn in_tokio(time: Duration) {
    let mut engine = engine();
    for_a_time(time, async move {
        let descriptor = std::os::fd::AsFd::as_fd(&engine).try_clone_to_owned().expect("a descriptor");
        // SAFETY: the descriptor is our own, and open until it is dropped.
        #[expect(unsafe_code, reason = "a descriptor that tokio must be able to rely on")]
        let descriptor = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        let descriptor = descriptor.expect("tokio takes it");
        loop {
            engine.tick();
            if engine.prepare_wait() {
                tokio::select! {
                    ready = descriptor.readable() => ready.expect("it is open").clear_ready(),
                    () = sleep(engine.wait_timeout()) => {}
                }
                engine.end_wait();
            }
        }
    });
}

fn driven_in_tokio(time: Duration) {
    let mut engine = engine();
    for_a_time(time, engine.drive());
}

fn driven_alone(time: Duration) {
    let mut engine = engine();
    let (submitter, world) = (engine.submitter(), engine.comm_world());
    let me = engine.rank();
    let other = std::thread::spawn(move || {
        std::thread::sleep(time);
        submitter.isend(vec![0u8; 8], me, Tag(1), world).map(drop)
    });
    let submitter = engine.submitter();
    let end = async move {
        submitter.irecv(vec![0u8; 8], me, Tag(1), world)?.await?;
        Ok::<(), Error>(())
    };
    engine.drive_until(end).expect("the other thread has sent it");
    assert!(matches!(other.join(), Ok(Ok(()))));
}
