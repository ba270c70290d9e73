//! Programs that hang, each for a different reason: test cases of `tickwire whowaits`. The first argument selects the
//! program. A rank gives up after a minute.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use std::time::{Duration, Instant};
use tickwire::{Bootstrap, Comm, Engine, Limits, LockKind, Rank, RegionAccess, Source, Tag, op};

/// The longest time that a rank hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let way = std::env::args().nth(1).unwrap_or_default();
    let bootstrap = Bootstrap::from_env().unwrap();
    let (me, last) = (bootstrap.rank(), bootstrap.size() - 1);
    if way == "absent" && me == last {
        // This rank is absent: it computes for longer than any other rank waits.
        std::thread::sleep(PATIENCE);
        return;
    }
    let mut builder = Engine::builder();
    if way == "credit" {
        // The smallest credit allows 64 offers.
        builder = builder.limits(Limits { unexpected_bytes_max: 0, ..Limits::default() });
    }
    let mut engine = builder.build(bootstrap).unwrap();
    let world = engine.comm_world();
    let right = Rank((me + 1) % (last + 1));
    match way.as_str() {
        // Each rank receives from the right before it would send to the left.
        "cycle" => hang(&mut engine, right, Tag(1), world),
        "tag" => tag(&mut engine, me, world),
        "large" => large(&mut engine, me, world),
        "credit" => credit(&mut engine, right, world),
        "communicator" => communicator(&mut engine, me, world),
        // Only one rank makes a call that all must make.
        "collective" => match me {
            0 => drop(engine.comm_dup(world)),
            _ => hang(&mut engine, Rank(0), Tag(1), world),
        },
        "lock" => lock(&mut engine, me, world),
        "start" | "complete" | "fence" => epochs(&mut engine, &way, me, world),
        // All ranks but the last call the first collective operation.
        "first" => match me == last {
            true => hang(&mut engine, Rank(0), Tag(1), world),
            false => drop(engine.barrier(world)),
        },
        "accumulating" => accumulating(&mut engine, me, world),
        "sum" => sum(&mut engine, me, last, world),
        "restart" | "restart-boards" => restart(&mut engine, way == "restart-boards", me, last, world),
        "unmade" => unmade(&mut engine, me, last, world),
        "ahead" => ahead(&mut engine, me, last, world),
        "silent" => silent(&mut engine, me, last, world),
        "updates" => updates(&mut engine, me, world),
        "busy" => {
            // No hang: messages go around until the launcher is told to end.
            let left = Rank((me + last) % (last + 1));
            let start = Instant::now();
            while start.elapsed() < PATIENCE {
                engine.sendrecv(&[1u8; 64], right, Tag(1), &mut [0u8; 64], left, Tag(1), world).unwrap();
            }
        }
        "any" => {
            let nobody = engine.irecv(vec![0u8; 8], Source::Any, Tag(3), world).unwrap();
            engine.wait_for(&nobody, PATIENCE).unwrap_err();
        }
        _ => unreachable!("no such way to hang: {way}"),
    }
}

/// Rank 0 sends with one tag, and rank 2 receives another.
fn tag(engine: &mut Engine, me: u32, world: Comm) {
    match me {
        0 => {
            engine.send(b"letter", Rank(2), Tag(8), world).unwrap();
            hang(engine, Rank(2), Tag(9), world);
        }
        2 => hang(engine, Rank(0), Tag(7), world),
        _ => hang(engine, Rank(2), Tag(1), world),
    }
}

/// As [`tag`], with a rendezvous message.
fn large(engine: &mut Engine, me: u32, world: Comm) {
    match me {
        0 => {
            let offer = engine.isend(vec![7u8; 1 << 20], Rank(1), Tag(8), world).unwrap();
            engine.wait_for(&offer, PATIENCE).unwrap_err();
        }
        _ => hang(engine, Rank(0), Tag(7), world),
    }
}

/// Rank 0 sends more large messages than its credit has envelopes. The receiver waits for none of them.
fn credit(engine: &mut Engine, right: Rank, world: Comm) {
    if engine.rank() == Rank(0) {
        let mut offers: Vec<_> =
            (0..65).map(|tag| engine.isend(vec![7u8; 100 << 10], Rank(1), Tag(tag), world).unwrap()).collect();
        engine.wait_for(&offers.pop().unwrap(), PATIENCE).unwrap_err();
    } else {
        hang(engine, right, Tag(1), world);
    }
}

/// Rank 0 sends over another communicator than rank 1 receives over.
fn communicator(engine: &mut Engine, me: u32, world: Comm) {
    let other = engine.comm_dup(world).unwrap();
    if me == 0 {
        engine.send(b"letter", Rank(1), Tag(7), other).unwrap();
    }
    hang(engine, Rank(1 - me), Tag(7), world);
}

/// Rank 0 keeps its part of a window locked, and rank 1 wants to lock it.
fn lock(engine: &mut Engine, me: u32, world: Comm) {
    let window = engine.win_allocate::<u64>(1, world).unwrap();
    if me == 0 {
        engine.win_lock(LockKind::Exclusive, Rank(0), window).unwrap();
        engine.send(b"locked", Rank(1), Tag(2), world).unwrap();
        hang(engine, Rank(1), Tag(1), world);
    } else {
        engine.recv(&mut [0u8; 6], Rank(0), Tag(2), world).unwrap();
        drop(engine.win_lock(LockKind::Shared, Rank(0), window));
    }
}

/// Rank 1 waits for an epoch that rank 0 has not begun, for one that rank 0 has not completed, or at a fence.
fn epochs(engine: &mut Engine, way: &str, me: u32, world: Comm) {
    let window = engine.win_allocate::<u64>(1, world).unwrap();
    let other = engine.comm_group(world).unwrap().include(&[1 - me]).unwrap();
    match (way, me) {
        ("start", 1) => drop(engine.win_start(&other, window)),
        ("complete", 1) => {
            engine.win_post(&other, window).unwrap();
            drop(engine.win_wait(window));
        }
        ("complete", _) => {
            engine.win_start(&other, window).unwrap();
            hang(engine, Rank(1), Tag(1), world);
        }
        ("fence", 1) => drop(engine.win_fence(window)),
        _ => hang(engine, Rank(1), Tag(1), world),
    }
}

/// Rank 1 updates the whole of rank 0's part all the time.
fn accumulating(engine: &mut Engine, me: u32, world: Comm) {
    let length = if me == 0 { 1 << 22 } else { 0 };
    let window = engine.win_allocate::<u64>(length, world).unwrap();
    engine.win_lock_all(window).unwrap();
    if me == 0 {
        return hang(engine, Rank(1), Tag(1), world);
    }
    let (ones, start) = (vec![1u64; 1 << 22], Instant::now());
    while start.elapsed() < PATIENCE {
        engine.accumulate(&ones, op::Sum, Rank(0), 0, window).unwrap();
    }
}

/// All ranks call two operations. All but the last wait for a third one.
fn sum(engine: &mut Engine, me: u32, last: u32, world: Comm) {
    let mut sums = [0u64; 1];
    engine.allreduce(&[1], &mut sums, op::Sum, world).unwrap();
    engine.barrier(world).unwrap();
    if me == last {
        hang(engine, Rank(0), Tag(1), world);
    }
    let lost = engine.ireduce(vec![1u64], vec![0], op::Sum, Rank(0), world).unwrap();
    engine.wait_for(&lost, PATIENCE).unwrap_err();
}

/// All ranks make two persistent sums and start the second one. All but the last start it again. It runs by messages or on boards.
fn restart(engine: &mut Engine, on_boards: bool, me: u32, last: u32, world: Comm) {
    if on_boards {
        engine.barrier(world).unwrap();
    }
    let make = |engine: &mut Engine| engine.allreduce_init(vec![1u64], vec![0], op::Sum, world).unwrap();
    let (_first, second) = (make(engine), make(engine));
    engine.start(&second).unwrap();
    engine.wait(&second).unwrap();
    if me == last {
        hang(engine, Rank(0), Tag(1), world);
    }
    engine.start(&second).unwrap();
    engine.wait_for(&second, PATIENCE).unwrap_err();
}

/// All ranks make a persistent broadcast. The first rank makes another one and starts it; the others start none.
fn unmade(engine: &mut Engine, me: u32, last: u32, world: Comm) {
    let make = |engine: &mut Engine| engine.bcast_init(vec![1u64], Rank(last), world).unwrap();
    let first = make(engine);
    if me != 0 {
        hang(engine, Rank(0), Tag(1), world);
    }
    let second = make(engine);
    engine.start(&first).unwrap();
    engine.start(&second).unwrap();
    engine.wait_for(&second, PATIENCE).unwrap_err();
}

/// All ranks but the last have posted receives from each other for later, and wait in a collective operation by messages.
fn ahead(engine: &mut Engine, me: u32, last: u32, world: Comm) {
    if me == last {
        return hang(engine, Rank(0), Tag(2), world);
    }
    let _later = engine.irecv(vec![0u8; 8], Rank(1 - me), Tag(1), world).unwrap();
    let places: Vec<_> = (0..=last as usize).map(|rank| rank..rank + 1).collect();
    let gathered = engine.iallgatherv(vec![me], vec![0; places.len()], &places, world).unwrap();
    engine.wait_for(&gathered, PATIENCE).unwrap_err();
}

/// Rank 0 greets the others and then does not tick any more.
fn silent(engine: &mut Engine, me: u32, last: u32, world: Comm) {
    if me > 0 {
        engine.recv(&mut [0u8; 0], Rank(0), Tag(1), world).unwrap();
        return hang(engine, Rank(0), Tag(2), world);
    }
    (1..=last).for_each(|rank| engine.send(b"", Rank(rank), Tag(1), world).unwrap());
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(20) {
        engine.tick();
    }
    std::thread::sleep(PATIENCE);
}

/// Rank 1 exposes a counter. Once rank 0 has counted to one, it does not tick any more.
fn updates(engine: &mut Engine, me: u32, world: Comm) {
    let region = engine.expose(vec![0u64], RegionAccess::ALL).unwrap();
    let mut keys = [region.key(); 2];
    engine.allgather(&[region.key()], &mut keys, world).unwrap();
    if me == 0 {
        while engine.region_fetch_and_op(1u64, op::Sum, &keys[1], 0).is_ok() {}
        return;
    }
    while engine.region_fetch_and_op(0u64, op::Keep, &keys[1], 0).unwrap() == 0 {
        engine.tick();
    }
    std::thread::sleep(PATIENCE);
}

/// Waits for a message that never comes.
fn hang(engine: &mut Engine, source: Rank, tag: Tag, comm: Comm) {
    let receive = engine.irecv(vec![0u8; 64], source, tag, comm).unwrap();
    let _ = engine.wait_for(&receive, PATIENCE);
}
