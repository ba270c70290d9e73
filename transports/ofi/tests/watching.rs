//! Watchers: who knows the card is heard, and nobody else.

use super::kit::*;
use crate::ofi::{ask, hear_all};
use crate::{Transport, Watcher, WatcherDoor, Watchers};
use std::io::Write;
use std::time::{Duration, Instant};

const PROVIDER: &str = "tcp;ofi_rxm";

/// Asks on a thread of its own while the endpoint is ticked, and answers with `answer`: what each has heard.
fn asked(world: &mut World, doors: &[WatcherDoor], answer: impl Fn(Watcher)) -> Vec<Result<Vec<u8>, String>> {
    std::thread::scope(|scope| {
        let end = Instant::now() + BOUND;
        let call = move |door: WatcherDoor| {
            let mut stream = ask(&door, [9; 16], end).map_err(|error| error.to_string())?;
            hear_all(&mut stream, 1000, end).map_err(|error| error.to_string())
        };
        let threads: Vec<_> = doors.iter().map(|&door| scope.spawn(move || call(door))).collect();
        world.until("all have heard", |world| {
            while let Some(watcher) = world.all[0].next_watcher() {
                answer(watcher);
            }
            threads.iter().all(|thread| thread.is_finished())
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn who_shows_the_secret_is_heard_and_nobody_else() {
    let Some(one) = endpoint(0, PROVIDER) else { return };
    let mut world = World::new(vec![one]);
    let card = world.all[0].card();
    let door = world.all[0].door(&card).unwrap();
    assert!(world.all[0].door(&card[1..]).is_none());
    let answer = |watcher: Watcher| {
        assert_eq!(watcher.question, [9; 16]);
        watcher.answer(Duration::from_secs(1)).unwrap().write_all(b"all is well").unwrap();
    };
    assert_eq!(asked(&mut world, &[door], answer), [Ok(b"all is well".to_vec())]);
    let stranger = WatcherDoor { secret: door.secret ^ 1, ..door };
    let refused = asked(&mut world, &[stranger], |_| panic!("the engine hears nothing of it")).remove(0).unwrap_err();
    assert!(refused.contains("does not know this proc's card"), "{refused}");
    let refused = asked(&mut world, &[door], |watcher| watcher.refuse("not now")).remove(0).unwrap_err();
    assert_eq!(refused, "not now");
    let cut = asked(&mut world, &[door], |watcher| {
        watcher.answer(Duration::from_secs(1)).unwrap().write_all(&[1; 1001]).unwrap();
    });
    assert!(cut[0].as_ref().unwrap_err().contains("over 1000 bytes"), "{cut:?}");
}

#[test]
fn a_bounded_number_of_watchers_waits() {
    let Some(one) = endpoint(0, PROVIDER) else { return };
    let mut world = World::new(vec![one]);
    let card = world.all[0].card();
    let door = world.all[0].door(&card).unwrap();
    let end = Instant::now() + BOUND;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(move || ask(&door, [0; 16], end).map(drop))).collect();
        // Nobody takes them: four wait, and the others are told at once.
        world.until("two are told", |_| threads.iter().filter(|thread| thread.is_finished()).count() == 2);
        let mut waiting = 0;
        while let Some(watcher) = world.all[0].next_watcher() {
            waiting += 1;
            drop(watcher);
        }
        assert_eq!(waiting, 4);
        let words: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap().unwrap_err().to_string()).collect();
        assert_eq!(words.iter().filter(|words| words.contains("ask again")).count(), 2, "{words:?}");
    });
}

#[test]
fn a_proc_that_does_not_tick_or_is_gone_is_an_error_in_time() {
    let Some(one) = endpoint(0, PROVIDER) else { return };
    let card = one.card();
    let door = one.door(&card).unwrap();
    let start = Instant::now();
    let silent = ask(&door, [0; 16], start + Duration::from_millis(50)).unwrap_err();
    assert_eq!(silent.kind(), std::io::ErrorKind::TimedOut);
    assert!(start.elapsed() < BOUND);
    drop(one);
    let gone = ask(&door, [0; 16], Instant::now() + BOUND).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::ConnectionRefused);
}
