//! Ranks of two hosts with one window, and with exposed memory. What is on the own host is reached as memory
//! or by the kernel, and what is on the other host by the network.

use crate::check_reach;
use crate::kit::{NOTICE_MAX, PATIENCE, in_time, said, say, until};
use std::path::Path;
use std::time::Instant;
use tickwire::{AtomicsDomain, Comm, Engine, LockKind, ProcId, Rank, RegionAccess, WindowReach, op};
use tickwire_tests::mutexes::{elements, hammer};
use tickwire_tests::one_sided::{KINDS, Parts};

/// Elements of a part or of a region, a multiple of the number of ranks. As many take several requests.
const COUNT: usize = 5_000;
const ROUNDS: usize = 4;

/// Plays a rank. The first ranks are on the first host. If the directory has no word "on", the job ends well. If it
/// has, the ranks wait until the second host is gone. Then each operation that needs that host must fail.
pub(crate) fn hosts(engine: &mut Engine, place: &Path) {
    let (world, me) = (engine.comm_world(), engine.rank().0);
    for kind in KINDS {
        let parts = Parts::make(engine, kind, COUNT + elements(ROUNDS), world).unwrap();
        if kind != KINDS[2] {
            assert_eq!(engine.win_domain(parts.window).unwrap(), AtomicsDomain::Engine, "{kind}");
        }
        for other in (0..engine.size()).filter(|&other| other != me) {
            let near = engine.host_of(ProcId(other)) == engine.host_of(ProcId(me));
            check_reach(engine, &parts, kind, other, near);
        }
        fences(engine, &parts);
        locks(engine, &parts, world);
        engine.barrier(world).unwrap();
        engine.win_free(parts.window).unwrap();
        // This is a new window, so its words must be zero.
        let parts = Parts::make(engine, kind, elements(ROUNDS), world).unwrap();
        hammer(engine, &parts, world, ROUNDS).unwrap();
        engine.win_free(parts.window).unwrap();
    }
    regions(engine, world);
    if said(place, "on") {
        lose(engine, place);
    }
}

fn value(from: u32, to: u32, at: usize) -> u64 {
    u64::from(from) << 40 | u64::from(to) << 32 | at as u64
}

/// All ranks put to all, get from all and add to all, between fences.
fn fences(engine: &mut Engine, parts: &Parts) {
    let (me, size, window) = (engine.rank().0, engine.size(), parts.window);
    let share = COUNT / size as usize;
    let first = share * me as usize;
    engine.win_fence(window).unwrap();
    for to in 0..size {
        let sent: Vec<u64> = (0..share).map(|at| value(me, to, at)).collect();
        engine.put(&sent, Rank(to), parts.at(Rank(to), first), window).unwrap();
    }
    engine.win_fence(window).unwrap();
    for from in 0..size {
        let mut got = vec![0; share];
        engine.get(&mut got, Rank(from), parts.at(Rank(from), first), window).unwrap();
        assert!(got.into_iter().eq((0..share).map(|at| value(me, from, at))), "what went to rank {from}");
    }
    engine.win_fence(window).unwrap();
    for to in 0..size {
        engine.accumulate(&[1; COUNT], op::Sum, Rank(to), parts.at(Rank(to), 0), window).unwrap();
    }
    engine.win_fence(window).unwrap();
    let mut own = vec![0; share * size as usize];
    engine.get(&mut own, Rank(me), parts.at(Rank(me), 0), window).unwrap();
    let whose = |place: usize| ((place / share) as u32, place % share);
    for (place, found) in own.into_iter().enumerate() {
        let (from, at) = whose(place);
        assert_eq!(found, value(from, me, at) + u64::from(size), "rank {me}, of rank {from}");
    }
    engine.win_fence_last(window).unwrap();
}

/// Ranks of both hosts wait for the same locks, and update the same words.
fn locks(engine: &mut Engine, parts: &Parts, world: Comm) {
    let (size, window) = (engine.size(), parts.window);
    for target in (0..size).map(Rank) {
        let [first, second, third] = [0, COUNT - 1, COUNT].map(|element| parts.at(target, element));
        engine.win_lock(LockKind::Exclusive, target, window).unwrap();
        // A get and a put are not atomic together. Only the lock makes this increment atomic.
        let mut words = [[0], [0]];
        engine.get(&mut words[0], target, first, window).unwrap();
        engine.get(&mut words[1], target, third, window).unwrap();
        engine.put(&[words[0][0] + 1], target, first, window).unwrap();
        engine.put(&[words[1][0] + 1], target, third, window).unwrap();
        engine.win_unlock(target, window).unwrap();
        engine.win_lock(LockKind::Shared, target, window).unwrap();
        engine.fetch_and_op(1, op::Sum, target, second, window).unwrap();
        engine.win_unlock(target, window).unwrap();
    }
    engine.barrier(world).unwrap();
    engine.win_lock_all(window).unwrap();
    for target in (0..size).map(Rank) {
        let mut count = [0];
        engine.get(&mut count, target, parts.at(target, COUNT), window).unwrap();
        assert_eq!(count, [u64::from(size)], "increments under the lock of {target:?}");
    }
    engine.win_unlock_all(window).unwrap();
}

/// All ranks use exposed memory of all, on both hosts. A key is of no use once its region is withdrawn.
fn regions(engine: &mut Engine, world: Comm) {
    let (me, size) = (engine.rank().0, engine.size());
    let share = COUNT / size as usize;
    let [first, counter] = [share * me as usize, COUNT].map(|element| element * size_of::<u64>());
    let region = engine.expose(vec![0u64; COUNT + 1], RegionAccess::ALL).unwrap();
    let mut keys = vec![region.key(); size as usize];
    engine.allgather(&[region.key()], &mut keys, world).unwrap();
    for (to, key) in (0..).zip(&keys) {
        let near = engine.host_of(ProcId(to)) == engine.host_of(ProcId(me));
        let reach = engine.region_reach(key).unwrap();
        let expected: &[WindowReach] = match near {
            true if to == me => &[WindowReach::Memory],
            true => &[WindowReach::Kernel],
            false => &[WindowReach::Fabric, WindowReach::Engine],
        };
        assert!(expected.contains(&reach), "rank {to}, near: {near}: {reach:?}");
        let sent: Vec<u64> = (0..share).map(|at| value(me, to, at)).collect();
        engine.region_put(&sent, key, first).unwrap();
        for _ in 0..ROUNDS {
            engine.region_fetch_and_op(1u64, op::Sum, key, counter).unwrap();
        }
    }
    engine.region_flush_all().unwrap();
    engine.barrier(world).unwrap();
    for (from, key) in (0..).zip(&keys) {
        let mut got = vec![0u64; share];
        engine.region_get(&mut got, key, first).unwrap();
        assert!(got.into_iter().eq((0..share).map(|at| value(me, from, at))), "what went to rank {from}");
        let count = engine.region_fetch_and_op(0u64, op::Keep, key, counter);
        assert_eq!(count, Ok(u64::from(size) * ROUNDS as u64), "updates of rank {from}'s region");
    }
    engine.barrier(world).unwrap();
    let buffer = engine.withdraw(region).unwrap();
    let sent = (0..size).flat_map(|from| (0..share).map(move |at| value(from, me, at)));
    let expected: Vec<u64> = sent.chain([u64::from(size) * ROUNDS as u64]).collect();
    assert!(buffer == expected, "what all have put to rank {me}");
    engine.barrier(world).unwrap();
    for key in &keys {
        let put = engine.region_put(&[9u64], key, 0).and_then(|()| engine.region_flush(ProcId(key.proc)));
        let got = engine.region_get(&mut [0u64], key, 0);
        let updated = engine.region_fetch_and_op(1u64, op::Sum, key, counter);
        assert!(put.is_err() && got.is_err() && updated.is_err(), "{key:?}: {put:?}, {got:?}, {updated:?}");
    }
    engine.barrier(world).unwrap();
    assert!(buffer == expected, "a stale key has written to rank {me}");
}

/// The second host goes away while the first one uses it.
fn lose(engine: &mut Engine, place: &Path) {
    let (world, me, size) = (engine.comm_world(), engine.rank().0, engine.size());
    let parts = Parts::make(engine, KINDS[0], COUNT, world).unwrap();
    let window = parts.window;
    let is_far = |engine: &mut Engine, rank: u32| engine.host_of(ProcId(rank)) != engine.host_of(ProcId(0));
    engine.win_lock_all(window).unwrap();
    engine.barrier(world).unwrap();
    let pid = place.join("pid");
    std::fs::write(pid.with_extension(me.to_string()), std::process::id().to_string()).unwrap();
    // The file is renamed, so that it is seen only when it is complete.
    std::fs::rename(pid.with_extension(me.to_string()), place.join(format!("pid-{me}"))).unwrap();
    if is_far(engine, me) {
        until(engine, place, &["never"]);
    }
    let (far, near) = (Rank(size - 1), Rank(1 - me));
    let mut gone_at = None;
    let start = Instant::now();
    let error = loop {
        let done = match me {
            0 => engine.put(&[1; COUNT], far, 0, window).and_then(|()| engine.win_flush(far, window)),
            _ => engine.fetch_and_op(1, op::Sum, far, 0, window).map(drop),
        };
        if gone_at.is_none() && said(place, "gone") {
            gone_at = Some(Instant::now());
        }
        if let Err(error) = done {
            break error.to_string();
        }
        assert!(start.elapsed() < PATIENCE, "the other host is still there");
    };
    // The failure may be noticed before the word is left.
    until(engine, place, &["gone"]);
    let took = gone_at.map(|at| at.elapsed()).unwrap_or_default();
    println!("rank {me} noticed after {took:?}: {error}");
    let names_it = error.contains("has failed") || error.contains("the fabric cannot do it");
    assert!(names_it && took < NOTICE_MAX, "after {took:?}: {error}");
    assert!(in_time("once more", || engine.put(&[1], far, 0, window).and(engine.win_flush(far, window))).is_err());
    // Operations on the own host still work.
    engine.put(&[7], near, 3, window).unwrap();
    engine.win_flush(near, window).unwrap();
    let mut got = [0];
    engine.get(&mut got, near, 3, window).unwrap();
    assert_eq!(got, [7]);
    let _ = in_time("win_unlock_all", || engine.win_unlock_all(window));
    assert!(in_time("win_free", || engine.win_free(window)).is_err(), "members are gone");
    say(place, &format!("noticed-{me}"));
    // Each rank waits for the other one, which would see its end as a failure.
    until(engine, place, &["noticed-0", "noticed-1"]);
}
