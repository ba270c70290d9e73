//! The values of several ranks as bytes, as one host passes them to the others. Cards of ranks on one host have most bytes in common, so
//! each value is written as its difference from the value before.
//!
//! | what | bytes |
//! |---|---|
//! | version | 1 |
//! | the ranks that it speaks for | their number, then the distance of each from the one before |
//! | keys | their number, then for each: |
//! | a key | its length and bytes, the number of its values, then for each: |
//! | a value | the position of its rank among those above, its length, then runs until that is reached |
//! | a run | how many bytes are as before, how many are new, and these |
//!
//! Numbers are LEB128. All are checked, since the bytes come from other processes.

use super::error::BootstrapError;
use super::wire::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

const VERSION: u8 = 1;
/// Fewest equal bytes that are worth a new run, with its two numbers.
const RUN_MIN: usize = 3;
const MALFORMED: BootstrapError = BootstrapError::Protocol("values of ranks that cannot be read");

/// The values of one rank, each under its key.
pub(super) type Puts = Vec<(String, Vec<u8>)>;

/// Writes the values of `ranks`, which must be in rank order.
pub(super) fn encode(ranks: &[(u32, Puts)]) -> Vec<u8> {
    let mut to = vec![VERSION];
    write_number(&mut to, ranks.len() as u64);
    let mut before = 0;
    for (rank, _) in ranks {
        write_number(&mut to, u64::from(rank - before));
        before = *rank;
    }
    let mut keys: Vec<&str> = ranks.iter().flat_map(|(_, puts)| puts.iter().map(|(key, _)| key.as_str())).collect();
    keys.sort_unstable();
    keys.dedup();
    write_number(&mut to, keys.len() as u64);
    for key in keys {
        write_number(&mut to, key.len() as u64);
        to.extend_from_slice(key.as_bytes());
        let value = |puts: &'_ Puts| puts.iter().position(|(of, _)| of == key);
        let found: Vec<(usize, &[u8])> = (0..)
            .zip(ranks)
            .filter_map(|(at, (_, puts))| value(puts).map(|place| (at, puts[place].1.as_slice())))
            .collect();
        write_number(&mut to, found.len() as u64);
        let mut before: &[u8] = &[];
        for (at, value) in found {
            write_number(&mut to, at as u64);
            write_number(&mut to, value.len() as u64);
            write_difference(&mut to, before, value);
            before = value;
        }
    }
    to
}

/// The ranks that a table speaks for.
///
/// # Errors
/// The bytes are not a table, or a rank in it is not below `size`.
pub(super) fn ranks(table: &[u8], size: u32) -> Result<Vec<u32>, BootstrapError> {
    read_ranks(&mut Reader(table), size)
}

/// Calls `take` with each rank and value under `key`.
///
/// # Errors
/// As [`ranks`].
pub(super) fn values(
    table: &[u8],
    size: u32,
    key: &str,
    mut take: impl FnMut(u32, &[u8]),
) -> Result<(), BootstrapError> {
    each(table, size, |of, rank, value| {
        if of == key {
            take(rank, value);
        }
    })
}

/// Calls `take` with each key, rank and value.
///
/// # Errors
/// As [`ranks`].
pub(super) fn each(table: &[u8], size: u32, mut take: impl FnMut(&str, u32, &[u8])) -> Result<(), BootstrapError> {
    let reader = &mut Reader(table);
    let ranks = read_ranks(reader, size)?;
    for _ in 0..reader.number(u64::MAX)? {
        let bytes = reader.number(KEY_BYTES_MAX as u64)? as usize;
        let key = std::str::from_utf8(reader.bytes(bytes)?).map_err(|_| MALFORMED)?;
        let mut value = Vec::new();
        for _ in 0..reader.number(ranks.len() as u64)? {
            let at = reader.number(ranks.len() as u64)? as usize;
            let rank = *ranks.get(at).ok_or(MALFORMED)?;
            read_difference(reader, &mut value)?;
            take(key, rank, &value);
        }
    }
    if reader.0.is_empty() { Ok(()) } else { Err(MALFORMED) }
}

fn read_ranks(reader: &mut Reader<'_>, size: u32) -> Result<Vec<u32>, BootstrapError> {
    if reader.bytes(1)? != [VERSION] {
        return Err(BootstrapError::Protocol("values in another version's form"));
    }
    let number = reader.number(u64::from(size))?;
    let mut ranks: Vec<u32> = Vec::new();
    for _ in 0..number {
        let distance = reader.number(u64::from(size))?;
        let rank = ranks.last().map_or(distance, |last| u64::from(*last) + distance);
        if rank >= u64::from(size) || (distance == 0 && !ranks.is_empty()) {
            return Err(MALFORMED);
        }
        ranks.push(rank as u32);
    }
    Ok(ranks)
}

fn write_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn write_difference(to: &mut Vec<u8>, before: &[u8], value: &[u8]) {
    let same_from =
        |at: usize| value[at..].iter().zip(before.get(at..).unwrap_or_default()).take_while(|(a, b)| a == b).count();
    let mut at = 0;
    while at < value.len() {
        let same = same_from(at);
        let start = at + same;
        let mut end = start;
        while end < value.len() && same_from(end) < RUN_MIN.min(value.len() - end) {
            end += 1;
        }
        write_number(to, same as u64);
        write_number(to, (end - start) as u64);
        to.extend_from_slice(&value[start..end]);
        at = end;
    }
}

/// Makes the next value from the value before.
fn read_difference(reader: &mut Reader<'_>, value: &mut Vec<u8>) -> Result<(), BootstrapError> {
    let length = reader.number(VALUE_BYTES_MAX as u64)? as usize;
    let mut at = 0;
    while at < length {
        let (same, new) = (reader.number(length as u64)? as usize, reader.number(length as u64)? as usize);
        let start = at + same;
        if same + new == 0 || start > value.len() || start + new > length {
            return Err(MALFORMED);
        }
        let bytes = reader.bytes(new)?;
        value.resize(value.len().max(start + new), 0);
        value[start..start + new].copy_from_slice(bytes);
        at = start + new;
    }
    if value.len() < length {
        return Err(MALFORMED);
    }
    value.truncate(length);
    Ok(())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], BootstrapError> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Reads a number, which must not be above `most`.
    fn number(&mut self, most: u64) -> Result<u64, BootstrapError> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.bytes(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return if number <= most { Ok(number) } else { Err(MALFORMED) };
            }
        }
        Err(MALFORMED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn puts(pairs: &[(&str, &[u8])]) -> Puts {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_vec())).collect()
    }

    fn all(table: &[u8], size: u32) -> Result<Vec<(String, u32, Vec<u8>)>, BootstrapError> {
        let mut found = Vec::new();
        each(table, size, |key, rank, value| found.push((key.to_owned(), rank, value.to_vec())))?;
        Ok(found)
    }

    #[test]
    fn what_ranks_put_comes_back_by_key_and_rank() {
        let table = encode(&[
            (2, puts(&[("card", b"one card"), ("b", b"")])),
            (5, puts(&[])),
            (9, puts(&[("card", b"two cards")])),
        ]);
        assert_eq!(ranks(&table, 10).unwrap(), [2, 5, 9]);
        let mut cards = Vec::new();
        values(&table, 10, "card", |rank, value| cards.push((rank, value.to_vec()))).unwrap();
        assert_eq!(cards, [(2, b"one card".to_vec()), (9, b"two cards".to_vec())]);
        assert_eq!(all(&table, 10).unwrap().len(), 3);
        assert!(ranks(&table, 9).is_err(), "there is no rank 9 of 9");
        assert!(ranks(&encode(&[]), 1).unwrap().is_empty());
    }

    #[test]
    fn values_that_are_alike_cost_what_differs() {
        let card = |rank: u32| {
            let mut card = vec![7; 200];
            card[100..104].copy_from_slice(&rank.to_le_bytes());
            (rank, puts(&[("card", &card)]))
        };
        let bytes = |ranks: u32| encode(&(0..ranks).map(card).collect::<Vec<_>>()).len();
        assert!(bytes(1) > 200);
        assert!(bytes(64) < bytes(1) + 63 * 12, "{} and {}", bytes(1), bytes(64));
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let table = encode(&[(0, puts(&[("a", b"12345"), ("b", b"x")])), (1, puts(&[("a", b"12945678")]))]);
        for cut in 0..table.len() {
            assert!(all(&table[..cut], 2).is_err(), "{cut}");
            for new in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut changed = table.clone();
                changed[cut] = new;
                let _ = all(&changed, 2);
            }
        }
        assert!(all(&[&table[..], &[0]].concat(), 2).is_err());
    }

    proptest! {
        #[test]
        fn any_values_come_back(values in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..40), 1..12)) {
            let of: Vec<(u32, Puts)> = (0..).step_by(3).zip(&values).map(|(rank, value)| (rank, puts(&[("k", value)]))).collect();
            let found = all(&encode(&of), 100).unwrap();
            let expected: Vec<_> = of.iter().map(|(rank, puts)| ("k".to_owned(), *rank, puts[0].1.clone())).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = all(&[&[VERSION][..], &bytes].concat(), 50);
        }
    }
}
