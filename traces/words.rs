//! Human-readable numbers, and text that is safe to show.

use std::fmt;

/// A number of bytes, shown in a suitable unit.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 10_000 {
            return f.pad(&format!("{} B", self.0));
        }
        let (mut value, mut unit) = (self.0 as f64 / 1024.0, 0);
        while value >= 1000.0 {
            (value, unit) = (value / 1024.0, unit + 1);
        }
        f.pad(&format!("{value:.1} {}", units[unit]))
    }
}

/// A time, shown in a suitable unit.
#[derive(Clone, Copy, Debug)]
pub struct Nanoseconds(pub u64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        f.pad(&match self.0 {
            0..10_000 => format!("{} ns", self.0),
            10_000..10_000_000 => format!("{:.1} µs", ns / 1e3),
            10_000_000..1_000_000_000 => format!("{:.1} ms", ns / 1e6),
            1_000_000_000..100_000_000_000 => format!("{:.1} s", ns / 1e9),
            _ => format!("{:.1} min", ns / 60e9),
        })
    }
}

/// A count with its noun.
pub fn count(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

/// Replaces control characters, so that the text is safe on a terminal.
pub(crate) fn clean(words: &mut String) {
    if words.contains(char::is_control) {
        *words = words.replace(char::is_control, " ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_get_the_unit_that_fits() {
        let bytes = [0, 9999, 10_000, 5 << 20, u64::MAX].map(|n| Bytes(n).to_string());
        assert_eq!(bytes, ["0 B", "9999 B", "9.8 KiB", "5.0 MiB", "16.0 EiB"]);
        let times = [0, 12_345, 12_345_678, 12_345_678_901, 600_000_000_000].map(|n| Nanoseconds(n).to_string());
        assert_eq!(times, ["0 ns", "12.3 µs", "12.3 ms", "12.3 s", "10.0 min"]);
        assert_eq!(format!("{:>8}|{:<8}|", Bytes(7), Nanoseconds(7)), "     7 B|7 ns    |");
        assert_eq!([count(1, "row", "rows"), count(0, "row", "rows")], ["1 row", "0 rows"]);
    }
}
