//! The cost of a deep matching queue, at 10², 10⁴ and 10⁶ entries: time and instructions to insert an entry and to
//! match it, and bytes of storage for each entry. Entries are matched in their order and in a scattered order. The
//! instructions are those of the scattered order.
//!
//! `cargo bench -p tickwire-tests --bench matching [-- lists|index]`. With `--test` the queues are short and nothing is
//! timed. Cachegrind counts the instructions, which takes a minute for each queue of 10⁶ entries.

use std::collections::HashMap;
use std::process::{Command, Stdio};

const DEPTHS: [u32; 3] = [100, 10_000, 1_000_000];
/// Number of runs. The best one is reported.
const RUNS: usize = 3;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--bench")).collect();
    if words.iter().any(|word| word == "--test") {
        for kind in ["posted", "unexpected"] {
            assert!(run(kind, "scattered", 200, "auto").contains_key("match"));
        }
        return;
    }
    let matching = words.first().map_or("auto", String::as_str);
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_ok();
    println!(
        "{:<11}{:>8}{:>11}{:>11}{:>13}{:>13}{:>12}  storage an entry",
        "queue", "entries", "insert ns", "match ns", "of chance ns", "insert instr", "match instr"
    );
    for kind in ["posted", "unexpected"] {
        for depth in DEPTHS {
            if matching == "lists" && depth > 10_000 {
                println!("{kind:<12}{depth:>10}  lists are walked: left out");
                continue;
            }
            line(kind, depth, matching, valgrind);
        }
    }
}

fn line(kind: &str, depth: u32, matching: &str, valgrind: bool) {
    let runs = |until| -> Vec<HashMap<String, f64>> { (0..RUNS).map(|_| run(kind, until, depth, matching)).collect() };
    let (ordered, scattered) = (runs("match"), runs("scattered"));
    let best = |runs: &[HashMap<String, f64>], name: &str| runs.iter().map(|run| run[name]).fold(f64::MAX, f64::min);
    let mut storage: Vec<String> = scattered[0]
        .iter()
        .filter_map(|(name, bytes)| Some(format!("{} {bytes} B", name.strip_prefix("bytes ")?)))
        .collect();
    storage.sort();
    let counted = valgrind.then(|| {
        let [start, inserted, matched] =
            ["start", "insert", "scattered"].map(|until| count(kind, until, depth, matching));
        [inserted - start, matched - inserted].map(|all| format!("{:.0}", all / f64::from(depth)))
    });
    let [inserted, matched] = counted.unwrap_or_else(|| ["-".into(), "-".into()]);
    println!(
        "{kind:<11}{depth:>8}{:>11.1}{:>11.1}{:>13.1}{inserted:>13}{matched:>12}  {}",
        best(&ordered, "insert"),
        best(&ordered, "match"),
        best(&scattered, "match"),
        storage.join(", ")
    );
}

/// Runs `tests-depths`. Returns the figures that it prints, by name.
fn run(kind: &str, until: &str, depth: u32, matching: &str) -> HashMap<String, f64> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tests-depths"));
    let output = command.args([kind, until, &depth.to_string(), matching]).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let pairs = text.lines().filter_map(|line| line.rsplit_once(' '));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// The instructions of one run.
fn count(kind: &str, until: &str, depth: u32, matching: &str) -> f64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(env!("CARGO_BIN_EXE_tests-depths")).args([kind, until, &depth.to_string(), matching]);
    let output = command.output().expect("valgrind starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let refs = text.lines().find(|line| line.contains("I refs:") || line.contains("I   refs:"));
    let number = refs.and_then(|line| line.rsplit(':').next()).map(|number| number.trim().replace(',', ""));
    number.and_then(|number| number.parse().ok()).expect("cachegrind prints its count")
}
