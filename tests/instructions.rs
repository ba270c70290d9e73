//! Costs in instructions, counted by valgrind. They are the same on every machine, however busy it is.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

use std::process::Command;

/// Most instructions of an idle tick, everything included. The engine has loopback, shared memory and one connected
/// peer. A build without optimization across crates makes calls that a release build inlines.
const IDLE_TICK_MAX: f64 = if cfg!(debug_assertions) { 300.0 } else { 144.0 };

/// Most instructions of a message of 8 B to oneself, from the post of its receive until both requests are taken.
const OWN_MAX: f64 = if cfg!(debug_assertions) { 2150.0 } else { 444.0 };

/// The same for a message that goes through a ring and a tick.
const BY_TICK_MAX: f64 = if cfg!(debug_assertions) { 3300.0 } else { 900.0 };

/// Most instructions of a message of 8 B between two engines over shared memory. Both sides are counted, from the post
/// of the receive until both requests are taken.
const BETWEEN_MAX: f64 = if cfg!(debug_assertions) { 5000.0 } else { 1000.0 };

/// Most instructions of a tick that polls sockets and writes the page of statistics, which happens once a
/// millisecond. In a build for tests, which is not optimised across the parts of a crate, it calls many small functions.
const LOOK_MAX: f64 = if cfg!(debug_assertions) { 6000.0 } else { 3000.0 };

/// Whether valgrind is installed. If it must be, its absence fails the test. Elsewhere the test says so.
fn valgrind() -> bool {
    let found = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "valgrind is missing: install it");
        println!("SKIPPED: valgrind is missing, nothing was counted");
    }
    found
}

/// The instructions of one run.
fn run(what: &str, rounds: u64) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    let output = command.arg(env!("CARGO_BIN_EXE_tests-lookups")).arg(what).arg(rounds.to_string()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let line = text.lines().find(|line| line.contains("I refs:") || line.contains("I   refs:")).unwrap();
    line.rsplit(':').next().unwrap().trim().replace(',', "").parse().unwrap()
}

/// The instructions of one round: the difference of a long run and a short one. So start and end are not counted.
fn each(what: &str) -> f64 {
    each_of(what, 20_000, 120_000)
}

/// As [`each`], with these numbers of rounds.
fn each_of(what: &str, few: u64, many: u64) -> f64 {
    (run(what, many) as f64 - run(what, few) as f64) / (many - few) as f64
}

#[test]
fn a_slot_costs_what_an_array_costs() {
    if !valgrind() {
        return;
    }
    let (array, slot) = (each("array"), each("slot"));
    println!("instructions of a look-up: array {array:.2}, slot {slot:.2}");
    assert!((slot - array).abs() <= 1.0, "array {array:.2}, slot {slot:.2}");
}

#[test]
fn an_idle_tick_is_short() {
    if !valgrind() {
        return;
    }
    let tick = each("tick");
    println!("instructions of an idle tick: {tick:.1}");
    assert!(tick <= IDLE_TICK_MAX, "{tick:.1} instructions, at most {IDLE_TICK_MAX}");
}

#[test]
fn statistics_are_written_in_few_instructions() {
    if !valgrind() {
        return;
    }
    let (still, look) = (each("still"), each("look"));
    println!("instructions of an idle tick: {still:.1}; of one that looks at sockets and writes statistics: {look:.1}");
    assert!(look - still <= LOOK_MAX, "{look:.1}, and {still:.1} without");
}

#[test]
fn a_message_is_short() {
    if !valgrind() {
        return;
    }
    let (own, by_tick) = (each("self"), each("by-tick"));
    println!("instructions of a message to oneself: {own:.1}; through a ring and a tick: {by_tick:.1}");
    assert!(own <= OWN_MAX && by_tick <= BY_TICK_MAX, "{own:.1} and {by_tick:.1}, at most {OWN_MAX} and {BY_TICK_MAX}");
}

#[test]
fn a_message_between_two_engines_is_short() {
    if !valgrind() {
        return;
    }
    // Before they are connected, two engines wait for each other. That differs by some ten million instructions
    // between runs, so more rounds are needed.
    let between = each_of("between", 100_000, 1_100_000);
    println!("instructions of a message over shared memory, both sides: {between:.1}");
    assert!(between <= BETWEEN_MAX, "{between:.1}, at most {BETWEEN_MAX}");
}
