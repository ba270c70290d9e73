//! The cost of each part of the message path, in instructions for each message. Callgrind counts them over messages of
//! 8 B to the own rank, so the result is repeatable on a noisy machine. The engine has a system of the application, so
//! that its own systems run as separate functions. Without such a system they are called directly, which saves about
//! 250 instructions a message. The second part measures two engines without such a system: a message over shared
//! memory, on both sides and for each step, and a sum over both ranks.
//!
//! `cargo bench -p tickwire-tests --bench budget`. With `--test` it only checks that it could run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Two message counts. The difference of their costs excludes start and end of the program.
const FEW: u64 = 2_000;
/// See [`FEW`].
const MANY: u64 = 12_000;

/// The functions that are reported for messages that go through the systems: a name, and a part of the function's symbol.
const SYSTEMS: [(&str, &str); 8] = [
    ("all", "PROGRAM TOTALS"),
    ("post a receive", "Engine>::receive_run"),
    ("post a send", "Engine>::send_run"),
    ("a pass, all systems", "Engine>::run_passes"),
    ("drain_cq", "drain_cq::drain_cq"),
    ("match_cars", "match_cars::match_cars"),
    ("transfer", "transfer::transfer"),
    ("complete", "complete::complete"),
];

/// The same for messages between two engines. Deliver takes them through the steps.
const STEPS: [(&str, &str); 6] = [
    ("between two processes", "PROGRAM TOTALS"),
    ("post a receive", "Engine>::receive_run"),
    ("post a send", "Engine>::send_run"),
    ("deliver", "Engine>::run"),
    ("frames of a ring", "Links>::deliver"),
    ("receive a message", "eager::receive_apart"),
];

fn main() {
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("budget: valgrind is not installed (apt install valgrind)");
        std::process::exit(1);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    build(&root);
    println!("{:<24}{:>14}", "part", "instructions");
    for (name, parts) in [("tests-messages", &SYSTEMS[..]), ("tests-pair", &STEPS[..])] {
        let [few, many] = [FEW, MANY].map(|messages| count(&program(&root, name), messages, &[]));
        parts.iter().for_each(|(name, symbol)| print(name, of(&few, symbol), of(&many, symbol)));
        println!();
    }
    let all = |times| of(&count(&program(&root, "tests-pair"), times, &["allreduce"]), "PROGRAM TOTALS");
    print("an allreduce of two", all(FEW), all(MANY));
}

/// The instructions of a function and all that it calls.
fn of(counts: &HashMap<String, u64>, symbol: &str) -> u64 {
    // After the symbol, a name may go on with type arguments, or with the file of the object.
    let is = |name: &str| {
        name.split_once(symbol).is_some_and(|(_, rest)| !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()))
    };
    let found = counts.iter().filter(|(name, _)| is(name)).map(|(_, number)| *number).max();
    found.unwrap_or_else(|| {
        eprintln!("budget: no function is named {symbol}: it was renamed, or is part of another one now");
        std::process::exit(1);
    })
}

/// Prints the cost of a part for each message.
fn print(name: &str, few: u64, many: u64) {
    println!("{name:<24}{:>14.1}", (many - few) as f64 / (MANY - FEW) as f64);
}

/// The path of a program that was built.
fn program(root: &Path, name: &str) -> PathBuf {
    root.join("target/budget/release").join(name)
}

/// Builds the programs with symbols that tell generic functions apart.
fn build(root: &Path) {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "-p", "tickwire-tests", "--bin", "tests-messages", "--bin", "tests-pair"])
        .current_dir(root)
        .env("CARGO_TARGET_DIR", root.join("target/budget"))
        .env("RUSTFLAGS", "-C symbol-mangling-version=v0")
        .status();
    assert!(built.is_ok_and(|s| s.success()), "the programs do not build");
}

/// Runs a program with `messages` messages under callgrind. `words` are more arguments. Returns the instructions of
/// each function and all that it calls.
fn count(program: &Path, messages: u64, words: &[&str]) -> HashMap<String, u64> {
    let out = program.with_extension(format!("callgrind.{messages}"));
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", &format!("--callgrind-out-file={}", out.display())])
        .arg(program)
        .arg(messages.to_string())
        .args(words)
        .stdout(Stdio::null())
        .status();
    assert!(ran.is_ok_and(|s| s.success()), "valgrind fails on {}", program.display());
    let annotated = Command::new("callgrind_annotate")
        .args(["--inclusive=yes", "--threshold=100", "--auto=no"])
        .arg(&out)
        .output()
        .expect("callgrind_annotate comes with valgrind");
    let text = String::from_utf8_lossy(&annotated.stdout);
    let mut counts: HashMap<String, u64> = HashMap::new();
    for line in text.lines() {
        let mut words = line.trim_start().splitn(2, ' ');
        let Ok(number) = words.next().unwrap_or("").replace(',', "").parse::<u64>() else { continue };
        let entry = counts.entry(words.next().unwrap_or("").to_owned()).or_default();
        *entry = number.max(*entry);
    }
    counts
}
