//! Does one thing a given number of times. The difference of two runs gives its instructions:
//! `tests-lookups array|slot|tick|still|look|self|by-tick|between ROUNDS`.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

use bevy_ecs::prelude::*;
use std::cell::Cell;
use std::hint::black_box;
use tickwire::internals::components::slots::EndpointSlot;
use tickwire::internals::systems::views::Column;
use tickwire::testing::Board;
use tickwire::{Bootstrap, Cells, Engine, Limits, ProgressSystems, Rank, Tag};

/// Data of a user for each proc.
#[derive(Component, Default)]
struct Credits(u64);

impl EndpointSlot for Credits {
    const NAME: &'static str = "credits";
}

/// How many look-ups the system makes.
#[derive(Resource)]
struct Rounds(u64);

/// Looks up values in a plain array, by a row that the compiler does not know.
#[inline(never)]
fn array(values: &mut [Credits], rounds: u64) {
    for _ in 0..rounds {
        let row = black_box(0usize);
        values[row].0 += 1;
    }
}

/// Looks up values in a slot's column, inside a system. It does so once, however often the system runs.
fn slot(mut credits: Column<Credits>, mut rounds: ResMut<Rounds>) {
    for _ in 0..std::mem::take(&mut rounds.0) {
        let row = black_box(0usize);
        credits[row].0 += 1;
    }
}

fn engine_with_slot(rounds: u64) -> Engine {
    let builder = Engine::builder().slot::<Credits>().world(move |world| world.insert_resource(Rounds(rounds)));
    let add = |schedule: &mut Schedule| {
        schedule.add_systems(slot.after(ProgressSystems::Complete));
    };
    builder.systems(add).build(Bootstrap::solo()).unwrap()
}

/// Two engines that are connected over shared memory.
fn pair(limits: &Limits) -> [Engine; 2] {
    let board = Board::new(2);
    let (first, second) = (board.bootstrap(0), board.bootstrap(1));
    let builder = || Engine::builder().initial_rows(64).limits(limits.clone());
    let other = builder();
    let thread = std::thread::spawn(move || other.build(second).unwrap());
    let mut a = builder().build(first).unwrap();
    let mut b = thread.join().unwrap();
    let world = a.comm_world();
    let receive = b.irecv(vec![0u8; 8], Rank(0), Tag(0), world).unwrap();
    let send = a.isend(vec![1u8; 8], Rank(1), Tag(0), world).unwrap();
    while !(a.test(&send).unwrap().is_done() && b.test(&receive).unwrap().is_done()) {
        a.tick();
        b.tick();
    }
    [a, b]
}

/// Sends messages of 8 B to oneself, either past the ring or through the ring and a tick.
fn own(at_once: bool, rounds: u64) {
    // No look at the clock comes due in this time.
    let limits = Limits { own_at_once: at_once, control_us: 1_000_000, ..Limits::default() };
    let mut engine = Engine::builder().limits(limits).build(Bootstrap::solo()).unwrap();
    let (me, world) = (engine.rank(), engine.comm_world());
    let (bytes, mut buffer) = ([7u8; 8], [0u8; 8]);
    let cells = Cells(Cell::from_mut(&mut buffer[..]).as_slice_of_cells());
    engine.scope(|scope| {
        for _ in 0..rounds {
            let incoming = scope.irecv(cells, me, Tag(1), world).unwrap();
            let outgoing = scope.isend(&bytes[..], me, Tag(1), world).unwrap();
            scope.wait_all(&[outgoing.id(), incoming.id()]).unwrap();
            assert_eq!(scope.take(incoming).unwrap().1.length, 8);
            scope.take(outgoing).unwrap();
        }
    });
}

/// Sends messages of 8 B over shared memory. Both sides are counted: posting, sending, receiving and taking.
fn between(rounds: u64) {
    // No look at the clock comes due here, either.
    let [mut a, mut b] = pair(&Limits { control_us: 1_000_000, ..Limits::default() });
    let world = a.comm_world();
    let (bytes, mut buffer) = ([7u8; 8], [0u8; 8]);
    let cells = Cells(Cell::from_mut(&mut buffer[..]).as_slice_of_cells());
    a.scope(|a| {
        b.scope(|b| {
            for _ in 0..rounds {
                let incoming = b.irecv(cells, Rank(0), Tag(1), world).unwrap();
                let outgoing = a.isend(&bytes[..], Rank(1), Tag(1), world).unwrap();
                a.wait(&outgoing).unwrap();
                b.wait(&incoming).unwrap();
                assert_eq!(b.take(incoming).unwrap().1.length, 8);
                a.take(outgoing).unwrap();
            }
        });
    });
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rounds: u64 = args[1].parse().unwrap();
    match args[0].as_str() {
        "array" => {
            let mut values: Vec<Credits> = (0..8).map(|_| Credits(0)).collect();
            array(black_box(&mut values), rounds);
        }
        "slot" => {
            let mut engine = engine_with_slot(rounds);
            let world = engine.comm_world();
            engine.send(&[1u8; 8], Rank(0), Tag(0), world).unwrap();
            engine.recv(&mut [0u8; 8], Rank(0), Tag(0), world).unwrap();
            assert!(engine.slot::<Credits>(tickwire::ProcId(0)).unwrap().0 == rounds);
        }
        "tick" => {
            let [mut a, _b] = pair(&Limits::default());
            for _ in 0..rounds {
                black_box(a.tick());
            }
        }
        // Either time stands still, or it moves so fast that every tick polls sockets and writes the page of
        // statistics.
        "still" | "look" => {
            let [mut a, _b] = pair(&Limits::default());
            let step = if args[0] == "look" { 1_000_000 } else { 0 };
            for round in 0..rounds {
                black_box(a.tick_at((1 << 40) + round * step));
            }
        }
        "self" => own(true, rounds),
        "by-tick" => own(false, rounds),
        "between" => between(rounds),
        other => panic!("no such measure: {other}"),
    }
}
