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

/// The same JSON text, with spaces for the control characters in its strings. It may have them as they are, or as escapes.
pub(crate) fn clean_json(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        if character != '\\' {
            cleaned.push(if character.is_control() { ' ' } else { character });
            continue;
        }
        // What follows a backslash is no control character, or the text is not JSON.
        let escaped = characters.next().map(|(_, letter)| letter);
        let digits = text.get(at + 2..at + 6).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match (escaped, number.and_then(char::from_u32)) {
            (Some('b' | 'f' | 'n' | 'r' | 't'), _) => cleaned.push(' '),
            (Some('u'), Some(coded)) if coded.is_control() => {
                cleaned.push(' ');
                characters.by_ref().take(4).for_each(drop);
            }
            (letter, _) => {
                cleaned.push('\\');
                cleaned.extend(letter);
            }
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_in_json_lose_their_control_characters_and_nothing_else() {
        let all: String = (0..0x250).chain([0x1F600, 0x2028]).filter_map(char::from_u32).collect();
        let texts = [all.as_str(), "\\u001b", "\\\u{1b}\\n", "\u{9b}2J\"quoted\"", "C:\\temp\\new", ""];
        for text in texts {
            let expected = text.replace(char::is_control, " ");
            let plain = serde_json::to_string(&[text]).unwrap();
            let escapes = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
            for json in
                [plain, format!("[\"{escapes}\"]"), format!("[\"{}\"]", escapes.to_uppercase().replace("\\U", "\\u"))]
            {
                let cleaned: [String; 1] = serde_json::from_str(&clean_json(&json)).unwrap();
                assert_eq!(cleaned[0], expected, "{json}");
            }
        }
        for broken in ["\\", "\"\\u", "\"\\u00", "\"\\uzzzz\"", "\"\\u+01b\"", "\\é\\\u{7f}"] {
            assert!(serde_json::from_str::<String>(&clean_json(broken)).is_err(), "{broken}");
        }
        assert_eq!(clean_json("[1,\n2]"), "[1, 2]", "also between values");
    }

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
