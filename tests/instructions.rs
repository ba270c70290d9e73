//! Costs in instructions, counted by valgrind: they are the same on every machine, however busy.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

use std::process::Command;

/// Instructions of an idle tick of an engine with loopback and shared memory, one peer connected, everything included.
/// A build without optimization across crates makes calls of what a release has in line.
const IDLE_TICK_MAX: f64 = if cfg!(debug_assertions) { 300.0 } else { 144.0 };

/// Instructions of a message of 8 B to oneself, from the posting of its receive to the taking of both requests.
const OWN_MAX: f64 = if cfg!(debug_assertions) { 2150.0 } else { 444.0 };

/// The same through a ring and a tick.
const BY_TICK_MAX: f64 = if cfg!(debug_assertions) { 3300.0 } else { 900.0 };

/// Instructions of a message of 8 B between two engines over shared memory: both sides, from the posting of its receive to the taking of both
/// requests.
const BETWEEN_MAX: f64 = if cfg!(debug_assertions) { 5000.0 } else { 1000.0 };

/// Instructions of a look at sockets with the writing of the page of statistics, likewise; once a millisecond.
const LOOK_MAX: f64 = if cfg!(debug_assertions) { 5000.0 } else { 3000.0 };

/// Whether valgrind is here. Where it must be, its absence is a failure; elsewhere it is said.
fn valgrind() -> bool {
    let found = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "valgrind is missing: install it");
        println!("SKIPPED: valgrind is missing, nothing was counted");
    }
    found
}

/// Instructions of one run.
fn run(what: &str, rounds: u64) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    let output = command.arg(env!("CARGO_BIN_EXE_tests-lookups")).arg(what).arg(rounds.to_string()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let line = text.lines().find(|line| line.contains("I refs:") || line.contains("I   refs:")).unwrap();
    line.rsplit(':').next().unwrap().trim().replace(',', "").parse().unwrap()
}

/// Instructions of one round: the difference of a long run and a short one, so that what surrounds them is not counted.
fn each(what: &str) -> f64 {
    each_of(what, 20_000, 120_000)
}

/// The same of so many rounds.
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
    // How long two engines wait for each other before they have met differs by some ten million.
    let between = each_of("between", 100_000, 1_100_000);
    println!("instructions of a message over shared memory, both sides: {between:.1}");
    assert!(between <= BETWEEN_MAX, "{between:.1}, at most {BETWEEN_MAX}");
}
