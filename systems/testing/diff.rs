//! What rows are and what a test expects, line by line.

use similar::{ChangeTag, TextDiff};
use std::fmt::{Debug, Write};

/// Rows that a report shows at most: one wrong system often spoils all.
const SHOWN: usize = 8;

/// Compares rows of a table with what a test expects, by what `{:#?}` says of them. Any slice will do: rows of a table, or
/// what was picked from them.
///
/// # Panics
/// If they differ: with the rows that do, the lines that are expected and not there after `-`, those that are there and
/// not expected after `+`.
#[track_caller]
pub fn assert_rows<T: Debug>(what: &str, found: &[T], expected: &[T]) {
    if let Some(words) = differences(found, expected) {
        panic!("{what}: rows are not as expected (- expected, + found)\n{words}");
    }
}

/// The rows that differ, in words; `None` if none does.
fn differences<T: Debug>(found: &[T], expected: &[T]) -> Option<String> {
    let (mut words, mut count) = (String::new(), 0);
    for row in 0..found.len().max(expected.len()) {
        let text = |rows: &[T]| rows.get(row).map_or(String::new(), |value| format!("{value:#?}\n"));
        let (is, should) = (text(found), text(expected));
        if is == should {
            continue;
        }
        count += 1;
        if count > SHOWN {
            continue;
        }
        let _ = writeln!(words, "row {row}:");
        for change in TextDiff::from_lines(&should, &is).iter_all_changes() {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            let _ = write!(words, "{sign} {change}");
        }
    }
    if count > SHOWN {
        let _ = writeln!(words, "and {} more rows", count - SHOWN);
    }
    (count > 0).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug)]
    #[expect(dead_code, reason = "read by Debug")]
    struct Pair {
        left: u32,
        right: u32,
    }

    #[test]
    fn only_what_differs_is_marked_and_lengths_count() {
        let pair = |left, right| Pair { left, right };
        let expected = [pair(1, 2), pair(3, 4)];
        assert_rows("pairs", &expected, &expected);
        let words = differences(&[pair(1, 2), pair(3, 5), pair(6, 7)], &expected).expect("they differ");
        assert!(
            words.starts_with("row 1:\n  Pair {\n      left: 3,\n-     right: 4,\n+     right: 5,\n  }\n"),
            "{words}"
        );
        assert!(words.contains("row 2:\n+ Pair {\n"), "{words}");
        assert!(!words.contains("row 0"), "{words}");
        let many = differences(&vec![pair(0, 0); 20], &vec![pair(0, 1); 20]).expect("they differ");
        assert!(many.ends_with("and 12 more rows\n"), "{many}");
    }
}
