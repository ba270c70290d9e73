//! The bytes of an operation: the span of its envelope CAR, or the spans of the data CARs that are chained under it.

use tickwire_components::{Car, CarKind, NIL, Pieces, Row, Span, Stretch};

/// The layout of a datatype that an envelope CAR's bytes have. `None` if the bytes are plain runs.
#[inline]
pub fn layout(cars: &[Car], row: Row) -> Option<Stretch> {
    cars.get(cars[row as usize].chain as usize)?.stretch()
}

/// Bytes that an envelope CAR sends, or has room for: those of its own span and of all CARs that are chained under it.
#[inline]
pub fn capacity(cars: &[Car], row: Row) -> u64 {
    let car = &cars[row as usize];
    let mut bytes = car.span.len() as u64;
    let mut chained = car.chain;
    while let Some(data) = cars.get(chained as usize) {
        bytes += data.span.len() as u64;
        chained = data.chain;
    }
    bytes
}

/// The bytes of an envelope CAR as [`Pieces`]: its own span, or those of its data CARs.
pub(crate) struct Chain<'a> {
    pub(crate) cars: &'a [Car],
    pub(crate) row: Row,
}

// SAFETY: the spans of CARs were promised when they were posted; they do not depend on where the rows are.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Chain<'_> {
    fn pieces(&self) -> usize {
        let mut row = self.cars[self.row as usize].chain;
        let mut count = 0;
        if self.layout().is_some() {
            return 0;
        }
        while row != NIL {
            count += 1;
            row = self.cars[row as usize].chain;
        }
        count.max(1)
    }

    fn piece(&self, index: usize) -> Span {
        let car = &self.cars[self.row as usize];
        if car.chain == NIL {
            return car.span;
        }
        let mut row = car.chain;
        for _ in 0..index {
            row = self.cars[row as usize].chain;
        }
        self.cars[row as usize].span
    }

    fn total(&self) -> usize {
        capacity(self.cars, self.row) as usize
    }

    #[inline]
    fn layout(&self) -> Option<Stretch> {
        layout(self.cars, self.row)
    }
}
/// Whether a CAR is the envelope of a message that goes on as it comes.
#[inline]
pub(crate) fn is_passage(cars: &[Car], row: Row) -> bool {
    cars.get(cars[row as usize].chain as usize).is_some_and(|data| data.kind == CarKind::Passage)
}
