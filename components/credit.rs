//! Credit: how much one side of a VC may send before the other side has posted receives for it (reference: communication agent notes,
//! "window scheme").
//!
//! The receiver may have to keep an eager message until its receive is posted, so such a message costs credit in *lines* of 64 B. An
//! offer (RTS) costs one *envelope*. When the receiver no longer keeps a message, it grants its credit again. So the memory that peers
//! can make a proc use is bounded, and no message is ever dropped. Without lines, a message is offered, and its data stays with the
//! sender. Without envelopes, it stays in the sender's queue.

/// Bytes of a line. This is the unit in which credit is counted, also on the wire. It is as long as a cache line
/// ([`CACHE_LINE`](crate::limits::CACHE_LINE)), but nothing depends on that.
pub const LINE_BYTES: usize = 64;

/// Bytes that a kept message costs besides its payload: its rows, and the unused rest of the smallest temporary buffer.
pub(crate) const KEPT_BYTES: u64 = 384;

/// An amount of credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    /// For messages that leave with their payload, in lines of [`LINE_BYTES`]. See [`cost`].
    pub lines: u32,
    /// For offers (RTS), one each.
    pub envelopes: u32,
}

impl Credit {
    /// No credit.
    pub const NONE: Credit = Credit { lines: 0, envelopes: 0 };

    /// Whether both amounts are 0.
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.lines == 0 && self.envelopes == 0
    }
}

/// How many lines a message of `length` bytes costs if it is sent eagerly.
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
