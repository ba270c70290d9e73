//! The book's tables of the cost of operations must have the counted costs.

use super::count::{Cost, cost};
use super::operations::{OPERATIONS, Operation};
use std::fmt::Write;
use std::path::Path;
use std::sync::OnceLock;

/// Numbers of ranks, the columns of the tables.
const RANKS: [u32; 6] = [2, 16, 100, 1024, 131_072, 1_000_000];
/// Up to this number of ranks, graphs are built of operations that have a message for each rank.
const EACH_MAX: u32 = 256;
/// If this variable is set, the tables are written instead of compared.
const ENV_WRITE: &str = "TICKWIRE_WRITE_TABLES";

/// The cost of an operation. If not all graphs are built, the rounds are the allowed ones. For many ranks, an operation
/// with a message for each rank has the allowed cost throughout.
fn found(of: &Operation, ranks: u32) -> Cost {
    let most = (of.most)(ranks.into());
    if of.each && ranks > EACH_MAX {
        return most;
    }
    let (cost, is_all) = cost(of.name, ranks, of.draw);
    Cost { rounds: if is_all { cost.rounds } else { most.rounds }, ..cost }
}

fn all() -> &'static [[Cost; RANKS.len()]] {
    static ALL: OnceLock<Vec<[Cost; RANKS.len()]>> = OnceLock::new();
    ALL.get_or_init(|| OPERATIONS.iter().map(|of| RANKS.map(|ranks| found(of, ranks))).collect())
}

#[test]
fn no_operation_costs_more_than_its_bound() {
    for (of, costs) in OPERATIONS.iter().zip(all()) {
        for (&ranks, cost) in RANKS.iter().zip(costs) {
            let (most, words) = ((of.most)(ranks.into()), format!("{} of {}, {ranks} ranks", of.name, of.operand));
            let Cost { rounds, messages, bytes } = *cost;
            assert!(rounds <= most.rounds, "{words}: {rounds} rounds, {} at most", most.rounds);
            assert!(messages <= most.messages, "{words}: {messages} messages, {} at most", most.messages);
            assert!(bytes <= most.bytes, "{words}: {bytes} bytes, {} at most", most.bytes);
            assert!(!of.each || *cost == most, "{words}: {cost:?}");
        }
    }
}

/// Checks many numbers of ranks, so that no special number is overlooked.
#[test]
fn bounds_hold_for_any_number_of_ranks() {
    for of in &OPERATIONS {
        for ranks in (2..20).chain([31, 33, 63, 64, 65, 66, 127, 255]) {
            let ((cost, _), most) = (cost(of.name, ranks, of.draw), (of.most)(ranks.into()));
            let words = format!("{} of {}, {ranks} ranks: {cost:?}, {most:?} at most", of.name, of.operand);
            assert!(cost.rounds <= most.rounds, "{words}");
            assert!(cost.messages <= most.messages && cost.bytes <= most.bytes, "{words}");
        }
    }
}

/// The digits of a number in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(number: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB"];
    let unit = (0..units.len() - 1).find(|unit| number >> (10 * unit) < 10_000).unwrap_or(units.len() - 1);
    let size = 1u64 << (10 * unit);
    format!("{} {}", grouped((number + size / 2) / size), units[unit])
}

/// A table: a row for each operation, a column for each number of ranks.
fn table(title: &str, which: usize, value: impl Fn(&Cost) -> String) -> String {
    let mut text = format!("| {title} |");
    RANKS.iter().for_each(|&ranks| write!(text, " {} |", grouped(ranks.into())).unwrap());
    writeln!(text, " least possible |\n|---|{}", "---|".repeat(RANKS.len() + 1)).unwrap();
    for (of, costs) in OPERATIONS.iter().zip(all()) {
        let operand = if of.operand.is_empty() { String::new() } else { format!(", {}", of.operand) };
        write!(text, "| `{}`{operand} |", of.name).unwrap();
        costs.iter().for_each(|cost| write!(text, " {} |", value(cost)).unwrap());
        writeln!(text, " {} |", of.least[which]).unwrap();
    }
    text
}

#[test]
fn the_book_has_what_is_counted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/collectives.md");
    let mut page = std::fs::read_to_string(&path).unwrap();
    let tables = [
        ("rounds", table("rounds", 0, |cost| grouped(cost.rounds))),
        ("messages", table("messages of a rank", 1, |cost| grouped(cost.messages))),
        ("bytes", table("bytes of a rank", 2, |cost| bytes(cost.bytes))),
    ];
    for (name, table) in tables {
        let (open, close) = (format!("<!-- {name}: counted -->\n"), format!("<!-- {name}: end -->\n"));
        let start = page.find(&open).unwrap_or_else(|| panic!("{}: no {open}", path.display())) + open.len();
        let end = page.find(&close).unwrap_or_else(|| panic!("{}: no {close}", path.display()));
        if std::env::var_os(ENV_WRITE).is_some() {
            page.replace_range(start..end, &table);
            continue;
        }
        assert!(page[start..end] == table, "the table of {name} is old: run this test with {ENV_WRITE}=1\n{table}");
    }
    if std::env::var_os(ENV_WRITE).is_some() {
        std::fs::write(path, page).unwrap();
    }
}
