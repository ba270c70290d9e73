//! The cost of a datatype: every second double of 2 MiB. Packing and unpacking are compared with a loop written by hand
//! and with plain copies. Sending is compared with packing and sending contiguous bytes. Further figures are the cost
//! of making a datatype of a million places in disorder, and the cost of checking that no place comes twice.
//!
//! `cargo bench -p tickwire-tests --bench datatypes`. With `--test` the work is small and nothing is timed. Each figure
//! is the best of many rounds. All measurements take turns.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::time::Instant;
use tickwire::internals::components::{Elements, LeasedBytes, Pieces};
use tickwire::testing::SplitMix;
use tickwire::{Bootstrap, Cells, Datatype, Engine, Tag, Typed};

/// Doubles in the message: 1 MiB.
const DOUBLES: usize = 128 << 10;
const ROUNDS: usize = 300;
/// Number of places of the datatype in disorder.
const PLACES: usize = 1_000_000;

fn main() {
    let test = std::env::args().any(|word| word == "--test");
    let (doubles, rounds) = if test { (100, 1) } else { (DOUBLES, ROUNDS) };
    let bytes = doubles * 8;
    let every_second = Datatype::vector(doubles, 1, 2, &Datatype::of::<f64>()).expect("a plain vector");
    let records = Datatype::structure(&[(1, 0, &Datatype::of::<u32>()), (1, 8, &Datatype::of::<f64>())]);
    let records = records.expect("a plain structure");
    let numbers: Vec<f64> = (0..2 * doubles).map(|n| n as f64).collect();
    let strided = Typed::new(&numbers[..], &every_second, 1).expect("it fits");
    let fields = Typed::new(&numbers[..], &records, doubles).expect("it fits");

    let mut out = vec![0f64; doubles];
    let mut packed = vec![0u8; bytes];
    let (mut copied, mut many) = (vec![0u8; bytes], vec![0u8; fields.size()]);
    let mut times = best(
        rounds,
        &mut [
            &mut || by_hand(black_box(&numbers), black_box(&mut out)),
            &mut || assert_eq!(black_box(&strided).pack(0, black_box(&mut packed)), bytes),
            &mut || black_box(&mut copied).copy_from_slice(as_bytes(black_box(&numbers[..doubles]))),
            &mut || assert_eq!(black_box(&fields).pack(0, black_box(&mut many)), doubles * 12),
        ],
    );
    assert!(out.iter().zip(packed.chunks(8)).all(|(number, bytes)| number.to_ne_bytes() == bytes));
    let (mut there, mut typed) = (numbers.clone(), Typed::new(numbers.clone(), &every_second, 1).expect("it fits"));
    times.extend(best(
        rounds,
        &mut [&mut || by_hand_back(black_box(&out), black_box(&mut there)), &mut || {
            assert_eq!(black_box(&mut typed).unpack(0, black_box(&packed)), bytes)
        }],
    ));
    assert_eq!(typed.into_buffer(), there);
    times.extend(sending(rounds, &numbers, &every_second));
    times.extend(disorder(if test { 100 } else { PLACES }, rounds.div_ceil(30)));
    if !test {
        report(bytes, &times);
    }
}

/// The times to make a datatype of this many doubles in disorder, and to post a receive with it, which checks that no
/// double comes twice.
fn disorder(places: usize, rounds: usize) -> Vec<f64> {
    let mut order: Vec<isize> = (0..places as isize).collect();
    let mut random = SplitMix::new(1);
    for last in (1..places).rev() {
        order.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    let make = || Datatype::indexed_block(1, black_box(&order), &Datatype::of::<f64>()).expect("places of doubles");
    let mut numbers = vec![0f64; places];
    let mut engine = Engine::builder().build(Bootstrap::solo()).expect("an engine");
    let (me, world) = (engine.rank(), engine.comm_world());
    best(
        rounds,
        &mut [&mut || drop(black_box(make())), &mut || {
            let typed = Typed::new(&mut numbers[..], &make(), 1).expect("it fits");
            engine.scope(|scope| {
                let receive = scope.irecv(typed, me, Tag(2), world).expect("a receive");
                assert_eq!(scope.cancel(&receive), Ok(true));
            });
        }],
    )
}

fn report(bytes: usize, times: &[f64]) {
    let line = |what: &str, time: f64, bytes: usize| {
        println!("{what:<44}{:>10.1} us{:>9.2} GB/s", time * 1e6, bytes as f64 / time / 1e9);
    };
    let &[hand, pack, copy, fields, hand_back, unpack, contiguous, sent, received, make, post] = times else {
        unreachable!("eleven figures")
    };
    line("memcpy", copy, bytes);
    line("pack every second double: by hand", hand, bytes);
    line("pack every second double: datatype", pack, bytes);
    line("unpack every second double: by hand", hand_back, bytes);
    line("unpack every second double: datatype", unpack, bytes);
    line("pack records of 4 B and 8 B", fields, bytes / 2 * 3);
    line("contiguous message to oneself", contiguous, bytes);
    line("sent as every second double", sent, bytes);
    line("sent and received as every second double", received, bytes);
    println!(
        "{PLACES} doubles in disorder: made in {:.1} ms; made and a receive posted in {:.1} ms",
        make * 1e3,
        post * 1e3
    );
    println!("pack:   {:.2} x by hand", hand / pack);
    println!("unpack: {:.2} x by hand", hand_back / unpack);
    println!("send:   {:.2} x (pack + contiguous send)", sent / (pack + contiguous));
    println!("both:   {:.2} x (pack + contiguous send + unpack)", received / (pack + contiguous + unpack));
}

/// The best time of each measurement, s. The measurements take turns.
fn best(rounds: usize, what: &mut [&mut dyn FnMut()]) -> Vec<f64> {
    let mut best = vec![f64::MAX; what.len()];
    for _ in 0..rounds {
        for (run, best) in what.iter_mut().zip(&mut best) {
            let start = Instant::now();
            run();
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best
}

#[inline(never)]
fn by_hand(from: &[f64], to: &mut [f64]) {
    for (index, to) in to.iter_mut().enumerate() {
        *to = from[2 * index];
    }
}

#[inline(never)]
fn by_hand_back(from: &[f64], to: &mut [f64]) {
    for (index, from) in from.iter().enumerate() {
        to[2 * index] = *from;
    }
}

/// The times of messages to oneself: contiguous, from every second double, and from every second double to every
/// second double.
fn sending(rounds: usize, numbers: &[f64], of: &Datatype) -> Vec<f64> {
    let engine = Engine::builder().build(Bootstrap::solo()).expect("an engine alone needs nothing");
    let bytes = of.size();
    let mut plain = vec![0u8; bytes];
    let mut scattered = vec![0f64; numbers.len()];
    let plain = Cells(Cell::from_mut(&mut plain[..]).as_slice_of_cells());
    let scattered = Cell::from_mut(&mut scattered[..]).as_slice_of_cells();
    let typed = || Typed::new(numbers, of, 1).expect("it fits");
    let contiguous = &as_bytes(numbers)[..bytes];
    let engine = RefCell::new(engine);
    best(
        rounds,
        &mut [&mut || message(&engine, contiguous, plain), &mut || message(&engine, typed(), plain), &mut || {
            message(&engine, typed(), Typed::new(scattered, of, 1).expect("it fits"))
        }],
    )
}

fn message<S: Pieces, R: LeasedBytes>(engine: &RefCell<Engine>, from: S, to: R) {
    let mut engine = engine.borrow_mut();
    let (me, world, length) = (engine.rank(), engine.comm_world(), from.total());
    engine.scope(|scope| {
        let incoming = scope.irecv(to, me, Tag(1), world).expect("posted");
        let outgoing = scope.isend(from, me, Tag(1), world).expect("posted");
        scope.wait_all(&[outgoing.id(), incoming.id()]).expect("done");
        let (_, status) = scope.take(incoming).expect("received");
        assert_eq!(status.length, length);
        scope.take(outgoing).expect("sent");
    });
}

fn as_bytes(numbers: &[f64]) -> &[u8] {
    let span = numbers.span();
    // SAFETY: these are the bytes of borrowed numbers.
    #[expect(unsafe_code, reason = "numbers as bytes")]
    unsafe {
        std::slice::from_raw_parts(span.start(), span.len())
    }
}
