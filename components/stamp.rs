//! When operations were posted and when messages arrived: a dump shows their age.

use crate::Row;
use crate::limits::STAMPS_MAX;

/// A point in time of an engine: the tick, and the time of its clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// Ticks so far, including the polls of a wait.
    pub tick: u64,
    /// The engine's clock, ns. The clock is read at least every 64 ticks, so a stamp may be early by that much.
    pub now_ns: u64,
}

/// One stamp for each of the first rows of a table.
///
/// This is not a column: with a million rows, nobody reads the age of each, and 16 B for each row would be as much as the requests
/// take. Rows are recycled last in, first out, so the rows in use are mostly the first ones.
#[derive(Clone, Debug, Default)]
pub struct Stamps(Vec<Stamp>);

impl Stamps {
    /// Makes room for the stamps of `rows` rows, up to [`STAMPS_MAX`].
    pub fn grow(&mut self, rows: usize) {
        let rows = rows.min(STAMPS_MAX);
        if rows > self.0.len() {
            self.0.resize(rows, Stamp::default());
        }
    }

    /// Stamps a row. A row beyond the room gets no stamp.
    #[inline(always)]
    pub fn set(&mut self, row: Row, stamp: Stamp) {
        if let Some(place) = self.0.get_mut(row as usize) {
            *place = stamp;
        }
    }

    /// The stamp of a row; `None` if there is no room for one.
    pub fn get(&self, row: Row) -> Option<Stamp> {
        self.0.get(row as usize).copied()
    }

    /// Bytes of storage.
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Stamp>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rows_have_stamps_and_the_others_none() {
        let mut stamps = Stamps::default();
        stamps.grow(3);
        let stamp = Stamp { tick: 7, now_ns: 9 };
        stamps.set(2, stamp);
        stamps.set(3, stamp);
        assert_eq!((stamps.get(2), stamps.get(3)), (Some(stamp), None));
        stamps.grow(usize::MAX);
        assert_eq!((stamps.get(2), stamps.bytes()), (Some(stamp), STAMPS_MAX * 16));
    }
}
