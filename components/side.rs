//! The sides of a reduction.

/// Whether a run of elements is the left or the right operand of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The left operand, which comes from lower ranks.
    Left,
    /// The right operand, which comes from higher ranks.
    Right,
}

impl Side {
    /// The other side.
    pub const fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}
