//! The bounds of a type (MPI 4.1 §5.1.6, §5.1.7).

use super::error::DatatypeError;

/// The largest distance of any bound of a type from its origin, bytes. Sums of a few such distances do not overflow.
pub(super) const REACH_MAX: i128 = 1 << 60;

/// Where a type starts and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    /// Offsets of the first byte and of the end (one past the last byte); `None` if the type has no bytes.
    span: Option<(isize, isize)>,
    /// Lower and upper bound as set by resizing; `None` if the type was not resized.
    marks: Option<(isize, isize)>,
    /// Largest alignment of its basic types.
    alignment: usize,
}

impl Bounds {
    /// The bounds of a type without bytes.
    pub(super) const NONE: Bounds = Bounds { span: None, marks: None, alignment: 1 };

    pub(super) fn basic(size: usize, alignment: usize) -> Self {
        Bounds { span: Some((0, size as isize)), marks: None, alignment }
    }

    /// The bounds of `count` copies, `stride` bytes apart, the first of them at `offset`.
    pub(super) fn repeated(&self, count: usize, stride: i128, offset: i128) -> Result<Bounds, DatatypeError> {
        let Some(last) = count.checked_sub(1) else { return Ok(Bounds::NONE) };
        let way = (last as i128).checked_mul(stride).ok_or(DatatypeError::Overflow)?;
        let end = offset.checked_add(way).ok_or(DatatypeError::Overflow)?;
        let placed = |pair: Option<(isize, isize)>| match pair {
            Some((lower, upper)) => {
                let lower = reach(offset.min(end).checked_add(lower as i128))?;
                let upper = reach(offset.max(end).checked_add(upper as i128))?;
                Ok(Some((lower, upper)))
            }
            None => Ok(None),
        };
        Ok(Bounds { span: placed(self.span)?, marks: placed(self.marks)?, alignment: self.alignment })
    }

    /// The bounds of both types together.
    pub(super) fn joined(&self, other: &Bounds) -> Bounds {
        let join = |a: Option<(isize, isize)>, b: Option<(isize, isize)>| match (a, b) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        let (span, marks) = (join(self.span, other.span), join(self.marks, other.marks));
        Bounds { span, marks, alignment: self.alignment.max(other.alignment) }
    }

    /// The same bounds with another lower bound and extent (`MPI_Type_create_resized`).
    pub(super) fn marked(&self, lower: i128, extent: i128) -> Result<Bounds, DatatypeError> {
        let marks = Some((reach(Some(lower))?, reach(lower.checked_add(extent))?));
        Ok(Bounds { marks, ..*self })
    }

    /// Offsets of the first byte and of the end, without regard to resizing; both 0 if there are no bytes.
    pub(super) fn truth(&self) -> (isize, isize) {
        self.span.unwrap_or_default()
    }

    /// Lower and upper bound: those set by resizing, else those of the bytes, with the extent rounded up to the alignment.
    pub(super) fn bounds(&self) -> (isize, isize) {
        self.marks.unwrap_or_else(|| {
            let (lower, upper) = self.truth();
            (lower, lower + (upper - lower).unsigned_abs().next_multiple_of(self.alignment) as isize)
        })
    }

    pub(super) fn extent(&self) -> isize {
        let (lower, upper) = self.bounds();
        upper - lower
    }

    pub(super) fn alignment(&self) -> usize {
        self.alignment
    }
}

/// Checks that a distance is at most [`REACH_MAX`].
fn reach(distance: Option<i128>) -> Result<isize, DatatypeError> {
    match distance {
        Some(distance) if distance.abs() <= REACH_MAX => Ok(distance as isize),
        _ => Err(DatatypeError::Overflow),
    }
}
