//! Store-forwarding stalls on the message path. Such a stall is a load that overlaps a recent store but is not
//! contained in it. The processor cannot forward the value of the store. So the load waits until this store and all
//! earlier ones have left the store buffer. The stalls are found in a trace of all loads and stores (valgrind's
//! lackey), so the result is repeatable on a noisy machine.
//!
//! `cargo bench -p tickwire-tests --bench forwarding`. With `--test` it only checks that it could run.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Two message counts. The difference of their counts excludes start and end of the program.
const FEW: u64 = 1_000;
/// See [`FEW`].
const MANY: u64 = 3_000;

/// The number of recent stores that may still be in the store buffer.
const RECENT: usize = 56;

/// The address at which valgrind loads a position-independent program (amd64).
const BASE: u64 = 0x10_8000;

/// The traced paths by name, with their arguments of `tickwire perf self`.
const PATHS: [(&str, &[&str]); 2] =
    [("to a receive that is posted", &[]), ("through a ring and a tick", &["--by-tick"])];

/// Addresses of a load and of the store that it waits for.
type Place = (u64, u64);

/// A store: its address, its length in bytes, and the address of its instruction.
type Store = (u64, u64, u64);

fn main() {
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("forwarding: valgrind is not installed (apt install valgrind)");
        std::process::exit(1);
    }
    let program = build(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    for (name, arguments) in PATHS {
        let (few, many) = (trace(&program, arguments, FEW), trace(&program, arguments, MANY));
        let each = |place: &Place| {
            let count = |of: &HashMap<Place, u64>| of.get(place).copied().unwrap_or(0) as f64;
            (count(&many) - count(&few)) / (MANY - FEW) as f64
        };
        let mut found: Vec<(f64, Place)> = many.keys().map(|place| (each(place), *place)).collect();
        found.retain(|(each, _)| *each >= 0.05);
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        println!("{name}: {:.1} loads a message wait for a store", found.iter().map(|(each, _)| each).sum::<f64>());
        for (each, (load, store)) in found {
            println!("{each:>6.2}  load {}\n        store {}", line(&program, load), line(&program, store));
        }
    }
}

/// Builds the program.
fn build(root: &Path) -> PathBuf {
    let target = root.join("target");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--bin", "tickwire"])
        .current_dir(root)
        .env("CARGO_TARGET_DIR", &target)
        .status();
    assert!(built.is_ok_and(|s| s.success()), "the program does not build");
    target.join("release/tickwire")
}

/// Runs a program with `messages` messages. Returns how often each load waits for which store.
fn trace(program: &Path, arguments: &[&str], messages: u64) -> HashMap<Place, u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2"]).arg(program);
    valgrind.args(["perf", "self", &messages.to_string(), "--plain", "--control-us", "1000000"]).args(arguments);
    let Ok(mut child) = valgrind.stdout(Stdio::null()).stderr(Stdio::piped()).spawn() else {
        panic!("valgrind does not start")
    };
    let mut found = HashMap::new();
    let mut stores: VecDeque<Store> = VecDeque::with_capacity(RECENT);
    let mut at = 0;
    for line in child.stderr.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines()).map_while(Result::ok) {
        let Some((kind, address, bytes)) = access(&line) else { continue };
        if kind == 'I' {
            at = address;
            continue;
        }
        if kind != 'S' {
            let met =
                stores.iter().rev().find(|(start, length, _)| *start < address + bytes && address < start + length);
            if let Some((start, length, by)) = met
                && !(*start <= address && address + bytes <= start + length)
            {
                *found.entry((at, *by)).or_default() += 1;
            }
        }
        if kind != 'L' {
            if stores.len() == RECENT {
                stores.pop_front();
            }
            stores.push_back((address, bytes, at));
        }
    }
    assert!(child.wait().is_ok_and(|s| s.success()), "the run failed");
    found
}

/// A line of the trace: an instruction (`I`), a load, a store or both (`M`), with its address and length in bytes.
fn access(line: &str) -> Option<(char, u64, u64)> {
    let (kind, place) = line.trim_start().split_once(' ')?;
    let kind = match kind {
        "I" => 'I',
        "L" => 'L',
        "S" => 'S',
        "M" => 'M',
        _ => return None,
    };
    let (address, bytes) = place.trim().split_once(',')?;
    Some((kind, u64::from_str_radix(address, 16).ok()?, bytes.parse().ok()?))
}

/// The source line of an instruction, as far as `addr2line` knows it.
fn line(program: &Path, address: u64) -> String {
    let own = format!("{:#x}", address.wrapping_sub(BASE));
    let told = Command::new("addr2line").args(["-Cfpie"]).arg(program).arg(&own).output();
    let told = told.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    match told.lines().next() {
        Some(line) if !line.starts_with("??") => line.to_owned(),
        _ => own,
    }
}
