//! Credit: what one side of a VC may send to the other before its receives are posted (reference: communication agent
//! notes, "window scheme").
//!
//! A message that is sent without asking may have to be kept until its receive comes, so it costs credit in *lines* of
//! 64 B; an offer (RTS) costs one *envelope*. What is kept no more is granted again. So what peers can make a proc keep is
//! bounded, and nothing is ever dropped: without lines a message is offered, and its data stays with the sender; without
//! envelopes it stays in the sender's queue.

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;

/// Bytes that keeping a message costs besides its payload: its rows, and the rest of the smallest temporary.
pub(crate) const KEPT_BYTES: u64 = 384;

/// Something to send with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    /// For messages with their payload. See [`cost`].
    pub lines: u32,
    /// For offers.
    pub envelopes: u32,
}

impl Credit {
    /// None.
    pub const NONE: Credit = Credit { lines: 0, envelopes: 0 };

    /// Whether it is none.
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.lines == 0 && self.envelopes == 0
    }
}

/// Lines that a message of so many bytes costs when it is sent without asking.
#[inline(always)]
#[expect(clippy::manual_div_ceil, reason = "lengths are bounded, so the sum cannot overflow: three instructions less")]
pub const fn cost(length: u64) -> u32 {
    ((length + KEPT_BYTES + LINE_BYTES as u64 - 1) / LINE_BYTES as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_paid_for() {
        assert_eq!([cost(0), cost(1), cost(64), cost(65), cost(1024), cost(8192)], [6, 7, 7, 8, 22, 134]);
        for length in [0u64, 1, 63, 64, 65, 1000, 1 << 20] {
            assert!(u64::from(cost(length)) * LINE_BYTES as u64 >= length + KEPT_BYTES);
        }
    }
}
